// Package network judges the NetworkPolicies that projects get, by the semantics of cyclonus' simulator.
//
// generated/ holds what the controllers write, rendered by their own code (src/controllers/desired/tests.rs).
package network

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/mattfenwick/cyclonus/pkg/matcher"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The isolation levels of a Project, by the names of the files.
var levels = []string{"none", "project", "namespace"}

// One end of a flow: a Pod in a namespace, or an address outside of the cluster's Pods.
type end struct {
	namespace string
	ip        string
}

func pod(namespace string) end { return end{namespace: namespace} }
func address(ip string) end    { return end{ip: ip} }

func (e end) String() string {
	if e.namespace != "" {
		return "a Pod of " + e.namespace
	}
	return e.ip
}

// Verdicts by level: whether the sender may send, and whether the receiver may receive. Traffic passes where both hold.
type verdict struct{ out, in bool }

var (
	passes  = verdict{true, true}
	notOut  = verdict{false, true}
	notIn   = verdict{true, false}
	neither = verdict{false, false}
)

type flow struct {
	from, to end
	port     int
	protocol corev1.Protocol
	// In the order of levels.
	want [3]verdict
}

// All of shop is isolated as the level says; bank, and what is nobody's, never is, so that each verdict is shop's own.
var flows = []flow{
	// Within a namespace, and within a project.
	tcp(pod("shop-dev"), pod("shop-dev"), 8080, passes, passes, passes),
	udp(pod("shop-dev"), pod("shop-dev"), 8080, passes, passes, passes),
	tcp(pod("shop-dev"), pod("shop-test"), 8080, passes, passes, neither),
	tcp(pod("shop-test"), pod("shop-dev"), 8080, passes, passes, neither),
	// Another project; one that had the same name before and another UID; a namespace of nobody's.
	tcp(pod("shop-dev"), pod("bank-dev"), 8080, passes, notOut, notOut),
	tcp(pod("bank-dev"), pod("shop-dev"), 8080, passes, notIn, notIn),
	tcp(pod("shop-dev"), pod("shop-old"), 8080, passes, notOut, notOut),
	tcp(pod("shop-old"), pod("shop-dev"), 8080, passes, notIn, notIn),
	tcp(pod("shop-dev"), pod("free"), 8080, passes, notOut, notOut),
	tcp(pod("free"), pod("shop-dev"), 8080, passes, notIn, notIn),
	// The cluster's own namespaces: DNS goes out, by both protocols, and nothing else goes out or comes in.
	udp(pod("shop-dev"), pod("kube-system"), 53, passes, passes, passes),
	tcp(pod("shop-dev"), pod("kube-system"), 53, passes, passes, passes),
	sctp(pod("shop-dev"), pod("kube-system"), 53, passes, notOut, notOut),
	tcp(pod("shop-dev"), pod("kube-system"), 443, passes, notOut, notOut),
	tcp(pod("shop-dev"), pod("kube-system"), 9153, passes, notOut, notOut),
	udp(pod("kube-system"), pod("shop-dev"), 53, passes, notIn, notIn),
	tcp(pod("kube-system"), pod("shop-dev"), 8080, passes, notIn, notIn),
	tcp(pod("shop-dev"), pod("bailiwick-system"), 443, passes, notOut, notOut),
	// DNS to elsewhere is a way out.
	udp(pod("shop-dev"), pod("bank-dev"), 53, passes, notOut, notOut),
	udp(pod("shop-dev"), pod("free"), 53, passes, notOut, notOut),
	udp(pod("shop-dev"), address("198.51.100.7"), 53, passes, notOut, notOut),
	tcp(pod("shop-dev"), address("198.51.100.7"), 53, passes, notOut, notOut),
	// The node-local DNS cache, and its neighbours.
	udp(pod("shop-dev"), address("169.254.20.10"), 53, passes, passes, passes),
	tcp(pod("shop-dev"), address("169.254.20.10"), 53, passes, passes, passes),
	tcp(pod("shop-dev"), address("169.254.20.10"), 80, passes, notOut, notOut),
	udp(pod("shop-dev"), address("169.254.20.11"), 53, passes, notOut, notOut),
	// An ingress controller has a namespace of its own; no setting lets it in.
	tcp(pod("ingress-nginx"), pod("shop-dev"), 8080, passes, notIn, notIn),
	// The internet, over IPv4 and IPv6; cloud metadata; a node.
	tcp(pod("shop-dev"), address("198.51.100.7"), 443, passes, notOut, notOut),
	tcp(pod("shop-dev"), address("2001:db8::7"), 443, passes, notOut, notOut),
	tcp(address("198.51.100.7"), pod("shop-dev"), 443, passes, notIn, notIn),
	tcp(pod("shop-dev"), address("169.254.169.254"), 80, passes, notOut, notOut),
	udp(pod("shop-dev"), address("169.254.169.254"), 53, passes, notOut, notOut),
	tcp(pod("shop-dev"), address("192.0.2.10"), 10250, passes, notOut, notOut),
	tcp(address("192.0.2.10"), pod("shop-dev"), 10250, passes, notIn, notIn),
}

func TestIsolationLetsThroughWhatItSaysAndNothingElse(t *testing.T) {
	for at, level := range levels {
		cluster := load(t, level)
		policy := cluster.simulate()
		for _, f := range flows {
			t.Run(fmt.Sprintf("%s/%s to %s %d %s", level, f.from, f.to, f.port, f.protocol), func(t *testing.T) {
				if got := cluster.judge(policy, f); got != f.want[at] {
					t.Errorf("out and in are %v, want %v", got, f.want[at])
				}
			})
		}
	}
}

// NetworkPolicies only ever add up. One that somebody else wrote before the project was isolated would void the
// isolation: why members may not write any while it is in force, and why the controllers name those that are there.
func TestAPolicyOfSomebodyElseOpensWhatIsClosed(t *testing.T) {
	inside, outside := tcp(pod("bank-dev"), pod("shop-dev"), 8080), tcp(pod("shop-dev"), address("198.51.100.7"), 443)
	for _, level := range levels[1:] {
		cluster := load(t, level)
		open := &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "open", Namespace: "shop-dev"},
			Spec: networkingv1.NetworkPolicySpec{
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
				Ingress:     []networkingv1.NetworkPolicyIngressRule{{}},
				Egress:      []networkingv1.NetworkPolicyEgressRule{{}},
			},
		}
		closed := open.DeepCopy()
		closed.Spec.Ingress, closed.Spec.Egress = nil, nil
		for _, one := range []struct {
			added *networkingv1.NetworkPolicy
			in    verdict
			out   verdict
		}{{open, passes, passes}, {closed, notIn, notOut}} {
			policies := append(cluster.policies[:len(cluster.policies):len(cluster.policies)], one.added)
			policy := matcher.BuildNetworkPolicies(true, policies)
			if got := cluster.judge(policy, inside); got != one.in {
				t.Errorf("%s: %s to %s: %v, want %v", level, inside.from, inside.to, got, one.in)
			}
			if got := cluster.judge(policy, outside); got != one.out {
				t.Errorf("%s: %s to %s: %v, want %v", level, outside.from, outside.to, got, one.out)
			}
		}
	}
}

func tcp(from, to end, port int, want ...verdict) flow {
	return a(corev1.ProtocolTCP, from, to, port, want)
}

func udp(from, to end, port int, want ...verdict) flow {
	return a(corev1.ProtocolUDP, from, to, port, want)
}

func sctp(from, to end, port int, want ...verdict) flow {
	return a(corev1.ProtocolSCTP, from, to, port, want)
}

func a(protocol corev1.Protocol, from, to end, port int, want []verdict) flow {
	f := flow{from: from, to: to, port: port, protocol: protocol}
	copy(f.want[:], want)
	return f
}

// What stands in a cluster at one level.
type cluster struct {
	labels   map[string]map[string]string
	policies []*networkingv1.NetworkPolicy
}

func load(t *testing.T, level string) cluster {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("generated", level+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	loaded := cluster{labels: map[string]map[string]string{}}
	for _, name := range []string{"kube-system", "bailiwick-system", "ingress-nginx", "free"} {
		loaded.labels[name] = map[string]string{}
	}
	for _, item := range list.Items {
		var kind metav1.TypeMeta
		if err := json.Unmarshal(item, &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.Kind {
		case "Namespace":
			var namespace corev1.Namespace
			if err := json.Unmarshal(item, &namespace); err != nil {
				t.Fatal(err)
			}
			loaded.labels[namespace.Name] = namespace.Labels
		case "NetworkPolicy":
			var policy networkingv1.NetworkPolicy
			if err := json.Unmarshal(item, &policy); err != nil {
				t.Fatal(err)
			}
			loaded.policies = append(loaded.policies, &policy)
		default:
			t.Fatalf("%s holds a %s", level, kind.Kind)
		}
	}
	for name, labels := range loaded.labels {
		// The API server sets it on every namespace.
		labels[corev1.LabelMetadataName] = name
	}
	return loaded
}

func (c cluster) simulate() *matcher.Policy {
	return matcher.BuildNetworkPolicies(true, c.policies)
}

func (c cluster) judge(policy *matcher.Policy, f flow) verdict {
	result := policy.IsTrafficAllowed(&matcher.Traffic{
		Source:       c.peer(f.from, "10.244.0.10"),
		Destination:  c.peer(f.to, "10.244.0.11"),
		ResolvedPort: f.port,
		Protocol:     f.protocol,
	})
	return verdict{out: result.Egress.IsAllowed(), in: result.Ingress.IsAllowed()}
}

func (c cluster) peer(e end, ip string) *matcher.TrafficPeer {
	if e.namespace == "" {
		return &matcher.TrafficPeer{IP: e.ip}
	}
	labels, known := c.labels[e.namespace]
	if !known {
		panic("no namespace " + e.namespace)
	}
	inside := &matcher.InternalPeer{
		PodLabels:       map[string]string{"app": "any"},
		NamespaceLabels: labels,
		Namespace:       e.namespace,
	}
	return &matcher.TrafficPeer{Internal: inside, IP: ip}
}
