//! Random platforms: `why`, the proxy's decision on the same request as it comes over the wire, the self review of
//! kubectl, `who-can`, and a model that reads the documents one by one, agree on every question.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::*;
use crate::index::testing::{resource, snapshot};
use crate::index::{AccountState, ObservedCluster};
use crate::proxy::reviews::{self, Answer, Encoding};
use crate::proxy::target;
use crate::records::{Account, Scoped, Suspension};
use crate::store::{Kind, Revision};

const QUESTIONS: usize = 10_000;
const EACH: usize = 40;
const CLUSTERS: [&str; 2] = ["demo", "prod"];
const NAMESPACES: [&str; 5] = ["ns-a", "ns-b", "ns-c", "ns-d", "kube-system"];
const ROLES: [&str; 7] = ["viewer", "member", "owner", "r0", "r1", "r2", "r3"];
/// Verb, group, version, resource with subresource.
const ASKED: [(&str, &str, &str, &str); 14] = [
    ("list", "", "v1", "pods"),
    ("get", "", "v1", "pods"),
    ("create", "", "v1", "pods"),
    ("list", "", "v1", "secrets"),
    ("get", "", "v1", "secrets"),
    ("delete", "apps", "v1", "deployments"),
    ("patch", "apps", "v1", "deployments"),
    ("create", "", "v1", "pods/exec"),
    ("get", "", "v1", "pods/exec"),
    ("get", "", "v1", "pods/log"),
    ("get", "", "v1", "pods/proxy"),
    ("get", "example.com", "v1", "widgets"),
    ("create", "rbac.authorization.k8s.io", "v1", "rolebindings"),
    ("update", "", "v1", "resourcequotas"),
];

/// xorshift64*: the same platforms in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let wide = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(wide).unwrap() % below
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.roll(100) < percent
    }

    fn some<'a, T>(&mut self, of: &'a [T], percent: usize) -> Vec<&'a T> {
        of.iter().filter(|_| self.chance(percent)).collect()
    }
}

/// A platform: the documents, and the snapshot of them.
struct World {
    documents: BTreeMap<(Kind, String), Value>,
    suspended: BTreeSet<String>,
    snapshot: Snapshot,
    now: Timestamp,
}

fn uid(name: &str) -> String {
    format!("uid-{name}")
}

impl World {
    fn random(dice: &mut Dice) -> Self {
        let now: Timestamp = "2030-03-01T12:00:00Z".parse().unwrap();
        let mut documents = BTreeMap::new();
        let mut put = |kind: Kind, name: &str, spec: Value, status: Value| {
            let (_, _, object) = resource(kind, name, spec, status);
            documents.insert((kind, name.to_owned()), object);
        };
        let users: Vec<String> = (0..7).map(|user| format!("u{user}")).collect();
        for user in &users {
            put(Kind::User, user, json!({"disabled": dice.chance(10)}), json!({}));
        }
        for team in 0..3 {
            let members = dice.some(&users, 40);
            // Some are of an account that had the name before.
            let uids: BTreeMap<&String, String> = members
                .iter()
                .map(|name| (*name, if dice.chance(10) { "stranger".to_owned() } else { uid(name) }))
                .collect();
            put(Kind::Team, &format!("t{team}"), json!({"users": members}), json!({"memberUIDs": uids}));
        }
        for cluster in CLUSTERS {
            let groups = if dice.chance(50) { vec!["example.com"] } else { vec![] };
            put(Kind::Cluster, cluster, json!({"connection": {}, "tenantAPIGroups": groups}), json!({}));
        }
        for role in &ROLES[3..] {
            let rules: Vec<Value> = dice
                .some(&ASKED, 25)
                .into_iter()
                .map(|(verb, group, _, resource)| json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]}))
                .collect();
            let mut rules = rules;
            for rule in &mut rules {
                if dice.chance(20) {
                    rule["resourceNames"] = json!(["web"]);
                }
            }
            // Circles and links into nothing among them.
            let inherits = dice.some(&["viewer", "r0", "r1", "r2", "r3", "gone"], 12);
            let mut spec = json!({"rules": rules, "inherits": inherits});
            if dice.chance(20) {
                spec["base"] = json!("edit");
            }
            put(Kind::AccessRole, role, spec, json!({}));
        }
        for project in ["p0", "p1", "p2"] {
            let places: Vec<Value> =
                dice.some(&CLUSTERS, 70).into_iter().map(|name| json!({"cluster": name})).collect();
            put(Kind::Project, project, json!({"roles": dice.some(&ROLES[3..], 60), "clusters": places}), json!({}));
        }
        for grant in 0..14 {
            let (kind, subject) = if dice.chance(40) {
                ("Team", format!("t{}", dice.roll(3)))
            } else {
                ("User", format!("u{}", dice.roll(7)))
            };
            let (on, target) = match dice.roll(10) {
                0..=1 => ("Cluster", CLUSTERS[dice.roll(2)].to_owned()),
                2 => ("Platform", String::new()),
                _ => ("Project", format!("p{}", dice.roll(3))),
            };
            let role = if on == "Platform" { "admin" } else { ROLES[dice.roll(ROLES.len())] };
            let namespaces = if on == "Project" && dice.chance(40) { dice.some(&NAMESPACES, 40) } else { vec![] };
            let mut spec = json!({"subject": {"kind": kind, "name": subject}, "role": role,
                "target": {"kind": on, "name": target}, "namespaces": namespaces});
            match dice.roll(5) {
                0 => spec["expiresAt"] = json!("2030-03-01T11:59:59Z"),
                1 => spec["expiresAt"] = json!("2030-03-01T12:00:01Z"),
                _ => {}
            }
            let mut status = json!({"subjectUID": uid(&subject)});
            if on != "Platform" {
                status["targetUID"] = json!(uid(&target));
            }
            match dice.roll(12) {
                0 => status["subjectUID"] = json!("stranger"),
                1 => status["targetUID"] = json!("stranger"),
                2 => status = json!({}),
                _ => {}
            }
            put(Kind::Grant, &format!("g{grant}"), spec, status);
        }
        let mut observed: BTreeMap<&str, ObservedCluster> = BTreeMap::new();
        for cluster in CLUSTERS {
            let cluster_uid = if dice.chance(5) { "stranger".to_owned() } else { uid(cluster) };
            let mut seen = ObservedCluster { cluster_uid, usable: dice.chance(90), ..ObservedCluster::default() };
            for namespace in NAMESPACES {
                if dice.chance(85) {
                    let name = format!("{cluster}-{namespace}");
                    seen.namespaces.insert(namespace.into(), uid(&name).into());
                }
                if dice.chance(85) {
                    let project = format!("p{}", dice.roll(3));
                    let project_uid = if dice.chance(5) { "stranger".to_owned() } else { uid(&project) };
                    let claim = json!({"cluster": cluster, "cluster_uid": uid(cluster), "namespace": namespace,
                        "namespace_uid": uid(&format!("{cluster}-{namespace}")), "project": project,
                        "project_uid": project_uid, "origin": "created", "releasing": dice.chance(5),
                        "created_by": "root", "created_at": "2030-01-01T00:00:00Z"});
                    documents.insert((Kind::Claim, format!("{cluster}/{namespace}")), claim);
                }
            }
            if dice.chance(97) {
                observed.insert(cluster, seen);
            }
        }
        let objects: Vec<_> =
            documents.iter().map(|((kind, name), value)| (*kind, name.as_str(), value.clone())).collect();
        let mut snapshot = snapshot(&objects);
        for (cluster, seen) in observed {
            snapshot.observe(cluster, Some(Arc::new(seen)));
        }
        let mut suspended = BTreeSet::new();
        for user in &users {
            if dice.chance(10) {
                let mut account = Account::default();
                account.user_uid = uid(user);
                account.suspended = Some(Suspension { at: now.to_string(), by: "root".into(), reason: String::new() });
                let stored = Stored { revision: Revision(1), object: Arc::new(account) };
                snapshot.accounts.insert(user.as_str().into(), AccountState::Known(stored));
                suspended.insert(user.clone());
            }
        }
        Self { documents, suspended, snapshot, now }
    }

    fn document(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.documents.get(&(kind, name.to_owned()))
    }

    /// Whether an account ought to be permitted, read off the documents without any index.
    fn ought(&self, user: &str, scopes: &TokenScopes, asked: &Asked) -> bool {
        let check = || -> Option<bool> {
            let (verb, group, _, resource) = ASKED[asked.at];
            let account = self.document(Kind::User, user)?;
            if account["spec"]["disabled"] == true || self.suspended.contains(user) || asked.namespace == "kube-system"
            {
                return None;
            }
            let seen = self.snapshot.observed(asked.cluster).filter(|seen| seen.usable)?;
            let claim = self.document(Kind::Claim, &format!("{}/{}", asked.cluster, asked.namespace))?;
            let project = self.document(Kind::Project, claim["project"].as_str()?)?;
            let name = project["metadata"]["name"].as_str()?;
            let owned = claim["project_uid"] == project["metadata"]["uid"]
                && seen.cluster_uid == uid(asked.cluster)
                && claim["releasing"] == false
                && seen.namespaces.get(asked.namespace).is_some_and(|uid| claim["namespace_uid"] == json!(&**uid));
            let limits = |list: &[Scoped], uid: &Value| list.is_empty() || list.iter().any(|one| *uid == one.uid);
            let within = limits(&scopes.projects, &project["metadata"]["uid"])
                && limits(&scopes.clusters, &json!(uid(asked.cluster)))
                && asked.narrowed.is_none_or(|narrowed| narrowed == name);
            let exec = resource == "pods/exec";
            let reads = matches!(verb, "get" | "list") && !exec;
            let open = &self.document(Kind::Cluster, asked.cluster)?["spec"]["tenantAPIGroups"];
            let reach = group != "example.com" || open[0] == "example.com";
            if !owned || !within || !reach || (scopes.read_only && !reads) || resource == "pods/proxy" {
                return None;
            }
            let grants = self.documents.iter().filter(|((kind, _), _)| *kind == Kind::Grant);
            Some(grants.into_iter().any(|(_, grant)| {
                let (spec, status) = (&grant["spec"], &grant["status"]);
                let subject = spec["subject"]["name"].as_str().unwrap();
                let holds = status["subjectUID"] == json!(uid(subject))
                    && match spec["subject"]["kind"] == "User" {
                        true => subject == user,
                        false => {
                            self.document(Kind::Team, subject).unwrap()["status"]["memberUIDs"][user]
                                == json!(uid(user))
                        }
                    };
                let target = spec["target"]["name"].as_str().unwrap();
                let role = spec["role"].as_str().unwrap();
                let built_in = ROLES[..3].contains(&role);
                let among = |list: &Value, one: &str| list.as_array().unwrap().contains(&json!(one));
                let reaches = status["targetUID"] == json!(uid(target))
                    && match spec["target"]["kind"].as_str().unwrap() {
                        "Cluster" => target == asked.cluster && built_in,
                        "Project" => {
                            target == name
                                && (built_in || among(&project["spec"]["roles"], role))
                                && (spec["namespaces"] == json!([]) || among(&spec["namespaces"], asked.namespace))
                        }
                        _ => false,
                    };
                let gives =
                    |verb: &str| self.gives(role, [verb, group, resource, asked.name], &mut vec![]) == Some(true);
                let ended = spec["expiresAt"].as_str().is_some_and(|end| self.now >= end.parse().unwrap());
                holds && reaches && !ended && gives(verb) && (!exec || gives("create"))
            }))
        };
        check().unwrap_or(false)
    }

    /// Getting a session needs the right to create it; where only some may be created, no list of rules can say so.
    fn is_about_a_named_session(&self, asked: &Asked) -> bool {
        let roles = self.documents.iter().filter(|((kind, _), _)| *kind == Kind::AccessRole);
        let mut rules = roles.flat_map(|(_, role)| role["spec"]["rules"].as_array().unwrap());
        ASKED[asked.at].3 == "pods/exec"
            && ASKED[asked.at].0 == "get"
            && rules.any(|rule| rule["resources"][0] == "pods/exec" && !rule["resourceNames"].is_null())
    }

    /// Whether a role gives this in the end; nothing where any link is broken or leads back.
    fn gives(&self, role: &str, asked: [&str; 4], path: &mut Vec<String>) -> Option<bool> {
        let [verb, group, resource, name] = asked;
        let base = |base: &str| {
            let reads = matches!(verb, "get" | "list");
            let viewed = ["pods", "deployments", "pods/log", "rolebindings", "resourcequotas"].contains(&resource);
            let written = ["pods", "secrets", "deployments"].contains(&resource) || resource == "pods/exec";
            (reads && viewed)
                || (base != "view" && written && !matches!((resource, verb), ("pods/exec", "delete" | "patch")))
                || (base == "admin" && resource == "rolebindings")
        };
        match role {
            "viewer" => return Some(base("view")),
            "member" => return Some(base("edit")),
            "owner" => return Some(base("admin")),
            _ => {}
        }
        if path.iter().any(|on| on == role) {
            return None;
        }
        let spec = &self.document(Kind::AccessRole, role)?["spec"];
        path.push(role.to_owned());
        let mut given = spec["base"] == "edit" && base("edit");
        for rule in spec["rules"].as_array().unwrap() {
            given |= rule["verbs"][0] == verb
                && rule["apiGroups"][0] == group
                && rule["resources"][0] == resource
                && (rule["resourceNames"].is_null() || rule["resourceNames"][0] == name);
        }
        for inherited in spec["inherits"].as_array().unwrap() {
            given |= self.gives(inherited.as_str().unwrap(), asked, path)?;
        }
        path.pop();
        Some(given)
    }
}

/// One question.
#[derive(Debug)]
struct Asked {
    at: usize,
    cluster: &'static str,
    namespace: &'static str,
    narrowed: Option<&'static str>,
    name: &'static str,
}

impl Asked {
    fn random(dice: &mut Dice) -> Self {
        let at = dice.roll(ASKED.len());
        let named = !matches!(ASKED[at], ("list" | "create", _, _, resource) if !resource.contains('/'));
        Self {
            at,
            cluster: CLUSTERS[usize::from(dice.chance(30))],
            namespace: NAMESPACES[dice.roll(NAMESPACES.len())],
            narrowed: if dice.chance(20) { Some(["p0", "p1", "p2"][dice.roll(3)]) } else { None },
            name: if !named {
                ""
            } else if dice.chance(50) {
                "web"
            } else {
                "other"
            },
        }
    }

    fn place(&self) -> Place<'_> {
        Place { cluster: self.cluster, project: self.narrowed, namespace: self.namespace }
    }

    /// As `why` reads it.
    fn question(&self) -> RequestInfo {
        let (verb, group, _, resource) = ASKED[self.at];
        let (main, sub) = resource.split_once('/').unwrap_or((resource, ""));
        let request = ResourceRequest::asked(verb, group, "", main, sub, self.namespace, self.name);
        RequestInfo::Resource(request.unwrap())
    }

    /// As it comes over the wire.
    fn target(&self) -> target::Target {
        let (verb, group, version, resource) = ASKED[self.at];
        let method = match verb {
            "create" => "POST",
            "delete" => "DELETE",
            "patch" => "PATCH",
            "update" => "PUT",
            _ => "GET",
        };
        let narrowed = self.narrowed.map(|project| format!("/projects/{project}")).unwrap_or_default();
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let (main, sub) = resource.split_once('/').unwrap_or((resource, ""));
        let mut path = format!("/k8s/clusters/{}{narrowed}{root}/namespaces/{}/{main}", self.cluster, self.namespace);
        for more in [self.name, sub].into_iter().filter(|more| !more.is_empty()) {
            path.push('/');
            path.push_str(more);
        }
        target::parse(method, &path, None).unwrap()
    }

    /// Whether a list of rules permits it, by RBAC's rules.
    fn is_listed(&self, list: &Value) -> bool {
        let (verb, group, _, resource) = ASKED[self.at];
        let has = |list: &Value, one: &str| list.as_array().is_some_and(|list| list.contains(&json!(one)));
        list["status"]["resourceRules"].as_array().unwrap().iter().any(|rule| {
            let names = rule["resourceNames"].as_array().is_none_or(Vec::is_empty);
            has(&rule["verbs"], verb)
                && has(&rule["apiGroups"], group)
                && has(&rule["resources"], resource)
                && (names || has(&rule["resourceNames"], self.name))
        })
    }

    /// As `kubectl auth can-i` asks it.
    fn review(&self) -> Vec<u8> {
        let (verb, group, _, resource) = ASKED[self.at];
        let (main, sub) = resource.split_once('/').unwrap_or((resource, ""));
        json!({"spec": {"resourceAttributes": {"verb": verb, "group": group, "resource": main, "subresource": sub,
            "namespace": self.namespace, "name": self.name}}})
        .to_string()
        .into_bytes()
    }
}

fn scopes(dice: &mut Dice) -> TokenScopes {
    let scoped = |name: &str| Scoped { name: name.to_owned(), uid: uid(name) };
    let mut scopes = TokenScopes::default();
    if dice.chance(15) {
        scopes.projects = vec![scoped(&format!("p{}", dice.roll(3)))];
    }
    if dice.chance(10) {
        scopes.clusters = vec![scoped(CLUSTERS[dice.roll(2)])];
    }
    scopes.read_only = dice.chance(10);
    scopes
}

fn name_of(user: &User) -> String {
    user.metadata.name.clone().unwrap()
}

#[test]
fn why_and_who_can_say_what_the_proxy_does() {
    let mut dice = Dice(0x5eed);
    let (mut asked_in_all, mut permitted, mut who_could, mut listed) = (0, 0, 0, 0);
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    while asked_in_all < QUESTIONS {
        let world = World::random(&mut dice);
        let World { snapshot, now, .. } = &world;
        let users: Vec<_> = snapshot.users.values().cloned().collect();
        for _ in 0..EACH {
            asked_in_all += 1;
            // More often than not about a place where the account holds something: refusals for what is missing there
            // are the harder ones.
            let somewhere = dice.chance(70);
            let (asked, name) = (0..20)
                .map(|_| (Asked::random(&mut dice), format!("u{}", dice.roll(7))))
                .find(|(asked, name)| {
                    let user = &snapshot.users[name.as_str()].object;
                    !somewhere
                        || resolve::namespace(snapshot, user, &TokenScopes::default(), asked.place(), *now).is_some()
                })
                .unwrap_or_else(|| (Asked::random(&mut dice), "u0".to_owned()));
            let (question, target, scopes) = (asked.question(), asked.target(), scopes(&mut dice));
            let user = &snapshot.users[name.as_str()].object;
            let asker = Asker { user, scopes: &scopes };
            let (place, now) = (asked.place(), *now);
            let told = format!("{} {scopes:?} {asked:?} {:?}", name_of(user), ASKED[asked.at]);

            let why = why(&Context { snapshot, asker, place, request: &question, now });
            let ought = world.ought(&name_of(user), &scopes, &asked);
            assert_eq!(why.is_ok(), ought, "{told}: {why:?}");

            // The proxy, on the request as it comes: authentication, then the decision.
            let live = snapshot.account_may_act(user);
            let ctx = Context { snapshot, asker, place, request: &target.request, now };
            let proxy = decide::authorize(&Rules, &ctx);
            assert_eq!(why.is_ok(), proxy.is_ok() && live, "{told}: {why:?} {proxy:?}");
            if let (Ok(Permitted::Once(why)), Ok(proxy)) = (&why, &proxy) {
                let both = [why, proxy].map(|decision| match decision.permit.right() {
                    Right::Rule { grant, role, rule } => (grant.name.clone(), role.name.clone(), *rule),
                    other => panic!("{told}: {other:?}"),
                });
                assert_eq!(both[0], both[1], "{told}");
                assert_eq!(why.groups, proxy.groups, "{told}");
            }
            // kubectl auth can-i.
            let review = RequestInfo::Resource(
                ResourceRequest::asked("create", "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "", "", "")
                    .unwrap(),
            );
            let outer = Context { request: &review, place: Place { namespace: "", ..place }, ..ctx };
            let can_i = reviews::access(&Rules, &outer, &asked.review(), Encoding::Json).unwrap();
            assert_eq!(proxy.is_ok(), !matches!(can_i, Answer::No(_)), "{told}");
            // kubectl auth can-i --list, where the proxy answers it.
            if decide::authorize(&Rules, &outer).is_ok() && !world.is_about_a_named_session(&asked) {
                let body = json!({"spec": {"namespace": asked.namespace}}).to_string();
                let list = reviews::rules(&outer, body.as_bytes(), Encoding::Json).unwrap();
                assert_eq!(proxy.is_ok(), asked.is_listed(&list), "{told}: {list}");
                listed += 1;
            }

            match &why {
                Ok(_) => permitted += 1,
                Err(refusal) => *reasons.entry(refusal.reason).or_default() += 1,
            }

            // who-can: exactly those for whom why says yes, by grants that each give it to their subjects.
            let found = who_can(snapshot, place, &question, now);
            let names: BTreeSet<String> = found.holders.iter().map(|holder| name_of(&holder.user.object)).collect();
            let all = TokenScopes::default();
            let expected: BTreeSet<String> = users
                .iter()
                .filter(|user| {
                    let asker = Asker { user: &user.object, scopes: &all };
                    super::why(&Context { snapshot, asker, place, request: &question, now }).is_ok()
                })
                .map(|user| name_of(&user.object))
                .collect();
            assert_eq!(names, expected, "{told}");
            let by_grants: BTreeSet<String> = users
                .iter()
                .map(|user| &user.object)
                .filter(|user| snapshot.account_may_act(user))
                .filter(|user| {
                    let mut own = snapshot.grants_to(user);
                    own.any(|own| found.givings.iter().any(|giving| Arc::ptr_eq(&giving.grant, own)))
                })
                .map(name_of)
                .collect();
            assert_eq!(names, by_grants, "{told}");
            who_could += names.len();

            // The roles that are said to do would do, and no other: as if each were granted.
            let RequestInfo::Resource(request) = &question else { unreachable!() };
            if let Some((project, _)) = resolve::owned(snapshot, place) {
                let would = roles_that_would(snapshot, &project.object, request);
                for giving in &found.givings {
                    let here = giving.grant.object.spec.target.kind == TargetKind::Project;
                    let role = &giving.grant.object.spec.role;
                    assert!(!here || would.contains(role), "{told}");
                }
            }
        }
    }
    assert!(permitted > QUESTIONS / 10, "{permitted} permitted: the property would hold of nothing");
    assert!(permitted < QUESTIONS / 2, "{permitted} permitted");
    assert!(who_could > QUESTIONS / 2, "{who_could}");
    assert!(listed > QUESTIONS / 4, "{listed}");
    for reason in [
        "no-namespace",
        "no-cluster",
        "no-rule",
        "cluster-unusable",
        "group-out-of-reach",
        "proxy-subresource",
        "token-read-only",
        "account-inactive",
    ] {
        assert!(reasons.contains_key(reason), "no question was refused for {reason}: {reasons:?}");
    }
    println!("{asked_in_all} questions, {permitted} permitted, refused {reasons:?}");
}
