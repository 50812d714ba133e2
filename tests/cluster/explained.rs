//! What the service says of rights, and what the API server says of the same person: a random platform is projected into
//! a real cluster by the controllers, and both are asked.

use std::collections::BTreeMap;
use std::time::Duration;

use bailiwick::clusters::manifest::Impersonation;
use bailiwick::domain::names::{TENANT_GROUP, kubernetes_user};
use bailiwick::domain::request::{RequestInfo, ResourceRequest};
use bailiwick::index::Snapshot;
use bailiwick::proxy::decide::{Asker, Context};
use bailiwick::proxy::explain::{self, Permitted};
use bailiwick::proxy::resolve::{self, Place};
use bailiwick::records::{Scoped, TokenScopes};
use bailiwick::resources::User;
use bailiwick::store::Kind;
use futures::StreamExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::harness::*;
use super::platform::{Platform, uid};

const QUESTIONS: usize = 10_000;
/// Asked through the proxy, too, by who they are about.
const THROUGH: usize = 1_500;
const API: &str = "bailiwick.dev/v1alpha1";
const USERS: usize = 12;
const PLATFORM: [(&str, &[&str]); 3] = [
    ("alpha", &["alpha-one", "alpha-two"]),
    ("beta", &["beta-one", "beta-two"]),
    ("gamma", &["gamma-one", "gamma-two"]),
];
const CUSTOM: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];
const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
/// Resources asked about, with their groups.
const RESOURCES: [(&str, &str); 26] = [
    ("", "pods"),
    ("", "pods/log"),
    ("", "pods/exec"),
    ("", "pods/portforward"),
    ("", "pods/eviction"),
    ("", "pods/ephemeralcontainers"),
    ("", "pods/proxy"),
    ("", "services"),
    ("", "services/proxy"),
    ("", "configmaps"),
    ("", "secrets"),
    ("", "serviceaccounts"),
    ("", "serviceaccounts/token"),
    ("", "endpoints"),
    ("", "resourcequotas"),
    ("", "events"),
    ("apps", "deployments"),
    ("apps", "deployments/scale"),
    ("batch", "jobs"),
    ("networking.k8s.io", "networkpolicies"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("metrics.k8s.io", "pods"),
    (TENANT_API_GROUP, "widgets"),
    (TENANT_API_GROUP, "widgets/status"),
    ("unlisted.example.com", "gadgets"),
    ("apps", "pods"),
];
/// Kinds of the whole cluster.
const CLUSTER_WIDE: [(&str, &str); 6] = [
    ("", "nodes"),
    ("", "persistentvolumes"),
    ("storage.k8s.io", "storageclasses"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("", "pods"),
];

/// xorshift64*: the same platform in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % below
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.roll(100) < percent
    }

    fn of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())]
    }
}

fn object(kind: Kind, name: &str, spec: Value, status: Value) -> Value {
    json!({"apiVersion": API, "kind": kind.as_str(), "metadata": {"name": name, "uid": uid(name)}, "spec": spec, "status": status})
}

/// Roles, projects, users, teams and grants by chance.
async fn populate(platform: &Platform, dice: &mut Dice) {
    let world = &platform.world;
    for (at, role) in CUSTOM.iter().enumerate() {
        let mut rules = vec![];
        for _ in 0..2 + dice.roll(5) {
            let (group, resource) = loop {
                let found = dice.of(&RESOURCES);
                // What a role must not say, validation refuses.
                if !found.1.ends_with("/proxy") && found.1 != "resourcequotas" {
                    break found;
                }
            };
            let verbs: Vec<&str> = VERBS.into_iter().filter(|_| dice.chance(40)).collect();
            let verbs = if verbs.is_empty() { vec!["get"] } else { verbs };
            let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
            if dice.chance(25) {
                rule["resourceNames"] = json!(["web"]);
            }
            rules.push(rule);
        }
        // Only roles before it, so that there is no circle.
        let inherits: Vec<&str> = CUSTOM[..at].iter().copied().filter(|_| dice.chance(30)).collect();
        let mut spec = json!({"rules": rules, "inherits": inherits});
        if dice.chance(20) {
            spec["base"] = json!("view");
        }
        world.put(Kind::AccessRole, role, object(Kind::AccessRole, role, spec, json!({}))).await;
    }
    for (project, namespaces) in PLATFORM {
        let roles: Vec<&str> = CUSTOM.into_iter().filter(|_| dice.chance(60)).collect();
        let place =
            json!({"cluster": CLUSTER, "namespaces": namespaces, "prefix": format!("{project}-"), "maxNamespaces": 4});
        let spec = json!({"roles": roles, "clusters": [place]});
        world.put(Kind::Project, project, object(Kind::Project, project, spec, json!({}))).await;
    }
    for (project, namespaces) in PLATFORM {
        for namespace in namespaces {
            platform.ready(project, namespace).await;
        }
    }
    for user in 0..USERS {
        let name = format!("u{user}");
        let spec = json!({"disabled": user == USERS - 1});
        world.put(Kind::User, &name, object(Kind::User, &name, spec, json!({}))).await;
    }
    for team in ["t0", "t1", "t2"] {
        let members: Vec<String> = (0..USERS).filter(|_| dice.chance(30)).map(|user| format!("u{user}")).collect();
        let uids: BTreeMap<&String, String> = members.iter().map(|name| (name, uid(name))).collect();
        world
            .put(Kind::Team, team, object(Kind::Team, team, json!({"users": members}), json!({"memberUIDs": uids})))
            .await;
    }
    for grant in 0..36 {
        let name = format!("g{grant}");
        let (kind, subject) = if dice.chance(30) {
            ("Team", format!("t{}", dice.roll(3)))
        } else {
            ("User", format!("u{}", dice.roll(USERS)))
        };
        let (project, namespaces) = dice.of(&PLATFORM);
        let on_cluster = dice.chance(8);
        let (on, target) = if on_cluster { ("Cluster", CLUSTER) } else { ("Project", project) };
        let role = if dice.chance(65) { dice.of(&CUSTOM) } else { dice.of(&["viewer", "member", "owner"]) };
        let some = if !on_cluster && dice.chance(30) { vec![dice.of(namespaces)] } else { vec![] };
        let mut spec = json!({"subject": {"kind": kind, "name": subject}, "role": role,
            "target": {"kind": on, "name": target}, "namespaces": some});
        match dice.roll(6) {
            0 => spec["expiresAt"] = json!("2020-01-01T00:00:00Z"),
            1 => spec["expiresAt"] = json!("2100-01-01T00:00:00Z"),
            _ => {}
        }
        let status = json!({"subjectUID": uid(&subject), "targetUID": uid(target)});
        world.put(Kind::Grant, &name, object(Kind::Grant, &name, spec, status)).await;
    }
}

#[derive(Debug, Clone)]
struct Question {
    user: String,
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    namespace: String,
    name: &'static str,
    scopes: TokenScopes,
    narrowed: Option<&'static str>,
}

impl Question {
    fn random(dice: &mut Dice) -> Self {
        let everywhere = dice.chance(8);
        let (group, resource) = if everywhere { dice.of(&CLUSTER_WIDE) } else { dice.of(&RESOURCES) };
        let verb = dice.of(&VERBS);
        let named = !matches!(verb, "list" | "watch" | "create" | "deletecollection") || resource.contains('/');
        let namespace = match dice.roll(20) {
            _ if everywhere => String::new(),
            0 => dice.of(&["default", "kube-system", "nobodys", OPERATORS]).to_owned(),
            _ => {
                let (_, namespaces) = dice.of(&PLATFORM);
                dice.of(namespaces).to_owned()
            }
        };
        let scoped = |name: &str| Scoped { name: name.to_owned(), uid: uid(name) };
        let mut scopes = TokenScopes { read_only: dice.chance(8), ..TokenScopes::default() };
        if dice.chance(8) {
            scopes.projects = vec![scoped(dice.of(&PLATFORM).0)];
        }
        let narrowed = if dice.chance(10) { Some(dice.of(&PLATFORM).0) } else { None };
        let user = format!("u{}", dice.roll(USERS));
        Self {
            user,
            verb,
            group,
            resource,
            namespace,
            name: if named { dice.of(&["web", "other"]) } else { "" },
            scopes,
            narrowed,
        }
    }

    fn place(&self) -> Place<'_> {
        Place { cluster: CLUSTER, project: self.narrowed, namespace: &self.namespace }
    }

    fn request(&self) -> RequestInfo {
        let (main, sub) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        let asked = ResourceRequest::asked(self.verb, self.group, "", main, sub, &self.namespace, self.name);
        RequestInfo::Resource(asked.unwrap())
    }

    fn attributes(&self, namespace: &str) -> Value {
        let (main, sub) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        json!({"verb": self.verb, "group": self.group, "resource": main, "subresource": sub, "namespace": namespace,
            "name": self.name})
    }

    fn ours(&self, snapshot: &Snapshot, user: &User, now: Timestamp) -> Result<Permitted, &'static str> {
        let request = self.request();
        let asker = Asker { user, scopes: &self.scopes };
        let ctx = Context { snapshot, asker, place: self.place(), request: &request, now };
        explain::why(&ctx).map_err(|refusal| refusal.reason)
    }

    /// The groups that a request to this place would carry if it were permitted; none where there is no way to it.
    fn groups(&self, snapshot: &Snapshot, user: &User, now: Timestamp) -> Vec<String> {
        if self.namespace.is_empty() {
            let known = resolve::knows_cluster(snapshot, user, &self.scopes, self.place(), now);
            return if known { vec![TENANT_GROUP.to_owned()] } else { vec![] };
        }
        let resolved = resolve::namespace(snapshot, user, &self.scopes, self.place(), now);
        resolved.into_iter().flat_map(|resolved| resolved.held).map(|held| held.group.to_string()).collect()
    }
}

async fn review(client: &kube::Client, kind: &str, spec: Value) -> bool {
    let body = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
    let path = format!("/apis/authorization.k8s.io/v1/{}s", kind.to_lowercase());
    let request = http::Request::post(path).header("content-type", "application/json");
    let answer: Value = client.request(request.body(body.to_string().into_bytes()).unwrap()).await.unwrap();
    answer["status"]["allowed"].as_bool().unwrap()
}

/// What the API server says to the identity that the proxy would write.
async fn theirs(client: &kube::Client, question: &Question, groups: &[String], namespace: &str) -> bool {
    let mut groups = groups.to_vec();
    groups.push("system:authenticated".to_owned());
    let spec = json!({"user": kubernetes_user(&question.user), "uid": uid(&question.user), "groups": groups,
        "extra": {"bailiwick.dev/token": ["tok-1"]}, "resourceAttributes": question.attributes(namespace)});
    review(client, "SubjectAccessReview", spec).await
}

/// Differences that are meant: we refuse, for a reason that the cluster's RBAC does not know.
const MEANT: [&str; 5] =
    ["token-read-only", "group-out-of-reach", "proxy-subresource", "account-inactive", "get-of-a-session"];

#[derive(Debug)]
enum Compared {
    BothYes,
    BothNo(&'static str),
    /// We refuse for a reason that is ours alone; whether the cluster would have permitted it.
    Meant(&'static str, bool),
    /// Answered from one's own namespaces, in each of which the cluster agrees; of the whole of it the cluster says no.
    Across,
    Differ(String),
}

async fn compare(client: &kube::Client, snapshot: &Snapshot, question: &Question, now: Timestamp) -> Compared {
    let user = &snapshot.users[question.user.as_str()].object;
    let groups = question.groups(snapshot, user, now);
    let ours = question.ours(snapshot, user, now);
    let yes = theirs(client, question, &groups, &question.namespace).await;
    match ours {
        Ok(Permitted::Once(decision)) => {
            if yes && decision.groups == groups {
                Compared::BothYes
            } else {
                Compared::Differ(format!("{question:?}: we permit it to {groups:?}"))
            }
        }
        Ok(Permitted::Across(members)) => {
            for member in &members.permitted {
                if !theirs(client, question, &member.decision.groups, &member.namespace).await {
                    return Compared::Differ(format!("{question:?}: we permit it in {}", member.namespace));
                }
            }
            if yes { Compared::Differ(format!("{question:?}: all of the cluster")) } else { Compared::Across }
        }
        Err("no-rule")
            if yes && question.verb != "create" && ["pods/exec", "pods/portforward"].contains(&question.resource) =>
        {
            Compared::Meant("get-of-a-session", yes)
        }
        Err(reason) if MEANT.contains(&reason) => Compared::Meant(reason, yes),
        Err(reason) if !yes => Compared::BothNo(reason),
        Err(reason) => Compared::Differ(format!("{question:?}: we refuse it to {groups:?} for {reason}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_and_the_api_server_agree() {
    let site = Site::alone(Impersonation::Constrained).await;
    let platform = Platform::start().await;
    let world = &platform.world;
    world.import(CLUSTER, &site, None).await;
    world.change(CLUSTER, |spec| spec.tenant_api_groups = vec![TENANT_API_GROUP.to_owned()]).await;
    let mut dice = Dice(0x00b1_a5ed);
    populate(&platform, &mut dice).await;
    world
        .observed("usable, with all namespaces", CLUSTER, |seen| {
            seen.usable && PLATFORM.iter().all(|(_, all)| all.iter().all(|one| seen.namespaces.contains_key(*one)))
        })
        .await;

    let admin = site.admin().await.client;
    let (snapshot, now) = (world.index.snapshot(), world.index.now());
    let questions: Vec<Question> = (0..QUESTIONS).map(|_| Question::random(&mut dice)).collect();
    let began = std::time::Instant::now();
    let compared: Vec<(usize, Compared)> = futures::stream::iter(questions.iter().enumerate())
        .map(|(at, question)| {
            let (admin, snapshot) = (&admin, &snapshot);
            async move {
                let found = compare(admin, snapshot, question, now).await;
                if !matches!(found, Compared::Differ(_)) {
                    return (at, found);
                }
                // Roles and bindings reach the API server's cache some moments after they were written.
                let again = until_within(Duration::from_secs(10), "both say the same", || async {
                    let again = compare(admin, snapshot, question, now).await;
                    (!matches!(again, Compared::Differ(_)) || began.elapsed() > Duration::from_secs(120))
                        .then_some(again)
                });
                (at, tokio::time::timeout(Duration::from_secs(9), again).await.unwrap_or(found))
            }
        })
        .buffer_unordered(16)
        .collect()
        .await;

    let (mut both_yes, mut across) = (0, 0);
    let mut both_no: BTreeMap<&str, usize> = BTreeMap::new();
    let mut meant: BTreeMap<(&str, bool), usize> = BTreeMap::new();
    let mut differ = vec![];
    for (_, found) in &compared {
        match found {
            Compared::BothYes => both_yes += 1,
            Compared::Across => across += 1,
            Compared::BothNo(reason) => *both_no.entry(reason).or_default() += 1,
            Compared::Meant(reason, yes) => *meant.entry((reason, *yes)).or_default() += 1,
            Compared::Differ(what) => differ.push(what),
        }
    }
    let refused = both_no.values().sum::<usize>() + meant.values().sum::<usize>();
    println!(
        "{QUESTIONS} questions in {:?}: both permit {both_yes}; spread over namespaces {across}; both refuse {both_no:?}; \
         refused by us alone (reason, whether RBAC would permit) {meant:?}",
        began.elapsed()
    );
    assert!(differ.is_empty(), "{} differ: {:#?}", differ.len(), &differ[..differ.len().min(10)]);
    assert_eq!(both_yes + across + refused, QUESTIONS);
    assert!(refused * 2 >= QUESTIONS && both_yes > QUESTIONS / 20, "{refused} refused, {both_yes} permitted");
    for reason in ["no-rule", "no-namespace", "across-namespaces"] {
        assert!(both_no.contains_key(reason), "no question was refused for {reason}");
    }

    // The whole way: as who it is about, with a token, through the proxy.
    let mut clients = BTreeMap::new();
    for user in (0..USERS - 1).map(|user| format!("u{user}")) {
        let file = kube::config::Kubeconfig::read_from(platform.kubeconfig(&user).await).unwrap();
        let options = kube::config::KubeConfigOptions { context: Some(CLUSTER.to_owned()), ..Default::default() };
        let config = kube::Config::from_custom_kubeconfig(file, &options).await.unwrap();
        clients.insert(user, kube::Client::try_from(config).unwrap());
    }
    let snapshot = world.index.snapshot();
    let known = |question: &&Question| {
        let user = snapshot.users.get(question.user.as_str()).unwrap();
        clients.contains_key(&question.user)
            && resolve::knows_cluster(&snapshot, &user.object, &TokenScopes::default(), question.place(), now)
    };
    let plain = questions
        .iter()
        .filter(|question| question.scopes == TokenScopes::default() && question.narrowed.is_none() && known(question));
    let answers: Vec<(bool, bool, &Question)> = futures::stream::iter(plain.take(THROUGH))
        .map(|question| {
            let (client, snapshot) = (&clients[&question.user], &snapshot);
            async move {
                let user = &snapshot.users[question.user.as_str()].object;
                let ours = question.ours(snapshot, user, world.index.now()).is_ok();
                let spec = json!({"resourceAttributes": question.attributes(&question.namespace)});
                (ours, review(client, "SelfSubjectAccessReview", spec).await, question)
            }
        })
        .buffer_unordered(8)
        .collect()
        .await;
    assert_eq!(answers.len(), THROUGH);
    let permitted = answers.iter().filter(|(ours, ..)| *ours).count();
    println!("{THROUGH} self reviews through the proxy, {permitted} permitted");
    for (ours, can_i, question) in answers {
        assert_eq!(ours, can_i, "{question:?}");
    }
    assert!(permitted > THROUGH / 20 && permitted * 2 < THROUGH, "{permitted}");
}
