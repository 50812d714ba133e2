//! The fleet: how many there are of each, and what they look like.

use std::path::Path;
use std::sync::Arc;

use bailiwick::identity::tokens::{ID_LENGTH, PREFIX, Parts, SECRET_LENGTH};
use bailiwick::index::ObservedCluster;
use bailiwick::records::{Claim, ClaimOrigin, TokenRecord, TokenScopes};
use bailiwick::resources::token::Audience;
use bailiwick::store::sealed::{Binding, Sealer};
use bailiwick::store::sqlite::{SqliteSettings, SqliteStore};
use bailiwick::store::{Key, Kind, Store};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

/// Writes that are under way at a time while a store is filled.
const AT_ONCE: usize = 500;
/// Roles beside the built-in ones; few, whatever the size.
const ROLES: usize = 20;
const TIME: &str = "2026-01-01T00:00:00Z";

/// How many there are of each.
pub struct Fleet {
    pub clusters: usize,
    pub users: usize,
    pub teams: usize,
    pub projects: usize,
    pub namespaces: usize,
    pub tokens: usize,
}

impl Fleet {
    pub fn of(factor: f64) -> Self {
        let many = |count: usize| ((count as f64 * factor) as usize).max(2);
        Self {
            clusters: many(300),
            users: many(2_000),
            teams: many(200),
            projects: many(3_000),
            namespaces: many(10_000),
            tokens: many(20_000),
        }
    }

    pub fn cluster_of(&self, project: usize) -> usize {
        project % self.clusters
    }

    pub fn project_of(&self, namespace: usize) -> usize {
        namespace % self.projects
    }

    pub fn team_of(&self, project: usize) -> usize {
        project % self.teams
    }

    pub fn user_of(&self, token: usize) -> usize {
        token % self.users
    }

    /// The teams are made of neighbours.
    pub fn members(&self, team: usize) -> Vec<usize> {
        let each = self.users / self.teams;
        (team * each..(team + 1) * each).collect()
    }

    pub async fn fill(&self, folder: &Path) -> anyhow::Result<()> {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder, SqliteSettings::default())?);
        let mut documents: Vec<(Kind, String, Bytes)> = vec![];
        let mut put = |kind: Kind, name: String, value: Value| documents.push((kind, name, value.to_string().into()));
        for n in 0..self.clusters {
            put(
                Kind::Cluster,
                format!("c{n}"),
                resource("Cluster", &format!("c{n}"), json!({"connection": {}}), json!({})),
            );
        }
        for n in 0..self.users {
            put(Kind::User, format!("u{n}"), user(n, "A. Person"));
        }
        for n in 0..self.teams {
            let users: Vec<String> = self.members(n).iter().map(|user| format!("u{user}")).collect();
            let uids: Value = users
                .iter()
                .map(|user| (user.clone(), json!(format!("uid-{user}"))))
                .collect::<serde_json::Map<_, _>>()
                .into();
            put(
                Kind::Team,
                format!("t{n}"),
                resource("Team", &format!("t{n}"), json!({"users": users}), json!({"memberUIDs": uids})),
            );
        }
        for n in 0..ROLES {
            let rule = json!({"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]});
            let inherits = if n == 0 { json!(["viewer"]) } else { json!([format!("r{}", n - 1)]) };
            put(
                Kind::AccessRole,
                format!("r{n}"),
                resource("AccessRole", &format!("r{n}"), json!({"rules": [rule], "inherits": inherits}), json!({})),
            );
        }
        for n in 0..self.projects {
            let spec = json!({"roles": ["r0"], "clusters": [{"cluster": format!("c{}", self.cluster_of(n)), "prefix": format!("p{n}-"), "maxNamespaces": 10}]});
            put(Kind::Project, format!("p{n}"), resource("Project", &format!("p{n}"), spec, json!({})));
            put(
                Kind::Grant,
                format!("team-p{n}"),
                grant(
                    &format!("team-p{n}"),
                    "Team",
                    &format!("t{}", self.team_of(n)),
                    "member",
                    "Project",
                    &format!("p{n}"),
                    "",
                ),
            );
        }
        for n in 0..self.users {
            let project = format!("p{}", n % self.projects);
            put(
                Kind::Grant,
                format!("own-u{n}"),
                grant(&format!("own-u{n}"), "User", &format!("u{n}"), "r0", "Project", &project, ""),
            );
            if n % 100 == 0 {
                let cluster = format!("c{}", n % self.clusters);
                put(
                    Kind::Grant,
                    format!("all-u{n}"),
                    grant(&format!("all-u{n}"), "User", &format!("u{n}"), "viewer", "Cluster", &cluster, ""),
                );
            }
        }
        for n in 0..self.namespaces {
            put(Kind::Claim, self.claim_name(n), self.claim(n, "root"));
        }
        let sealer = sealer();
        for n in 0..self.tokens {
            let (id, token) = token(n);
            let key = Key::new(Kind::Token, id.as_str());
            let sealed = sealer.seal(&key, Binding { uid: &id, version: 1 }, &self.record(n, &id, &token))?;
            documents.push((Kind::Token, id, sealed));
        }
        for chunk in documents.chunks(AT_ONCE) {
            let writes =
                chunk.iter().map(|(kind, name, value)| store.create(Key::new(*kind, name.as_str()), value.clone()));
            futures::future::try_join_all(writes).await?;
        }
        Ok(())
    }

    fn record(&self, n: usize, id: &str, token: &str) -> TokenRecord {
        let hash = Parts::parse(token).map(|parts| parts.hash()).unwrap_or_default();
        TokenRecord {
            id: id.to_owned(),
            hash: STANDARD.encode(hash),
            user: format!("u{}", self.user_of(n)),
            user_uid: format!("uid-u{}", self.user_of(n)),
            epoch: 0,
            global_epoch: 0,
            audience: Audience::Kube,
            scopes: TokenScopes::default(),
            family: id.to_owned(),
            description: "a laptop".into(),
            created_at: TIME.into(),
            expires_at: "2100-01-01T00:00:00Z".into(),
        }
    }

    pub fn namespace(&self, n: usize) -> String {
        format!("p{}-{n}", self.project_of(n))
    }

    pub fn claim_name(&self, n: usize) -> String {
        Claim::key_name(&format!("c{}", self.cluster_of(self.project_of(n))), &self.namespace(n))
    }

    pub fn claim(&self, n: usize, by: &str) -> Value {
        let (project, namespace) = (self.project_of(n), self.namespace(n));
        let claim = Claim {
            cluster: format!("c{}", self.cluster_of(project)),
            cluster_uid: format!("uid-c{}", self.cluster_of(project)),
            since: Some(2),
            namespace_uid: Some(format!("uid-{namespace}")),
            namespace,
            project: format!("p{project}"),
            project_uid: format!("uid-p{project}"),
            origin: ClaimOrigin::Created,
            releasing: false,
            adopt: false,
            created_by: by.to_owned(),
            created_at: TIME.into(),
        };
        serde_json::to_value(claim).unwrap_or_default()
    }

    /// What is seen of every cluster, by number.
    pub fn observed(&self) -> Vec<ObservedCluster> {
        let mut all: Vec<ObservedCluster> = (0..self.clusters)
            .map(|n| ObservedCluster { cluster_uid: format!("uid-c{n}"), usable: true, ..ObservedCluster::default() })
            .collect();
        for n in 0..self.namespaces {
            let namespace = self.namespace(n);
            let uid = format!("uid-{namespace}").into();
            all[self.cluster_of(self.project_of(n))].namespaces.insert(namespace.into(), uid);
        }
        all
    }
}

pub fn sealer() -> Arc<Sealer> {
    Arc::new(Sealer::new("k", &[7; 32]))
}

/// Id and whole token of a number.
pub fn token(n: usize) -> (String, String) {
    let digits: String = format!("{n:0>16}").bytes().map(|digit| char::from(b'a' + (digit - b'0'))).collect();
    let id = digits[digits.len() - ID_LENGTH..].to_owned();
    let whole = format!("{PREFIX}{id}_{digits:x<SECRET_LENGTH$}");
    (id, whole)
}

pub fn user(n: usize, display_name: &str) -> Value {
    resource(
        "User",
        &format!("u{n}"),
        json!({"displayName": display_name, "email": format!("u{n}@example.com")}),
        json!({}),
    )
}

pub fn grant(name: &str, kind: &str, subject: &str, role: &str, on: &str, target: &str, reason: &str) -> Value {
    let spec = json!({"subject": {"kind": kind, "name": subject}, "role": role, "target": {"kind": on, "name": target}, "reason": reason});
    let status =
        json!({"state": "Active", "subjectUID": format!("uid-{subject}"), "targetUID": format!("uid-{target}")});
    resource("Grant", name, spec, status)
}

fn resource(kind: &str, name: &str, spec: Value, status: Value) -> Value {
    json!({"apiVersion": "bailiwick.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "uid": format!("uid-{name}"), "creationTimestamp": TIME}, "spec": spec, "status": status})
}
