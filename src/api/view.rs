//! Objects as they are read: from a snapshot, with the parts of `status` that are computed and not stored.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::domain::names;
use crate::index::{AccountState, GrantEntry, Snapshot, TokenEntry};
use crate::records::TokenRecord;
use crate::resources::grant::TargetKind;
use crate::resources::{API_VERSION, AccessRole, AccessRoleStatus, Grant, Team, TeamStatus, User, UserStatus};
use crate::store::{Kind, Revision};

/// One version of everything at one moment.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    /// The version.
    pub(super) snapshot: &'a Snapshot,
    /// The moment.
    pub(super) now: Timestamp,
}

impl View<'_> {
    /// Names of all objects of a kind, sorted.
    pub(super) fn names(&self, kind: Kind) -> BTreeSet<Arc<str>> {
        let snapshot = self.snapshot;
        match kind {
            Kind::Cluster => snapshot.clusters.keys().cloned().collect(),
            Kind::User => snapshot.users.keys().cloned().collect(),
            Kind::Team => snapshot.teams.keys().cloned().collect(),
            Kind::AccessRole => snapshot.access_roles.keys().cloned().collect(),
            Kind::Grant => snapshot.grants.keys().cloned().collect(),
            Kind::Project => snapshot.projects.keys().cloned().collect(),
            Kind::Token => snapshot.tokens.keys().cloned().collect(),
            _ => BTreeSet::new(),
        }
    }

    /// An object as it is read; `None` where there is none of that name.
    pub(super) fn object(&self, kind: Kind, name: &str) -> Option<Value> {
        let snapshot = self.snapshot;
        match kind {
            Kind::Cluster => snapshot.clusters.get(name).map(|s| plain(&s.object, s.revision)),
            Kind::Project => snapshot.projects.get(name).map(|s| plain(&s.object, s.revision)),
            Kind::User => snapshot.users.get(name).map(|s| self.user(s.object.clone(), s.revision)),
            Kind::Team => snapshot.teams.get(name).map(|s| self.team(s.object.clone(), s.revision)),
            Kind::AccessRole => snapshot.access_roles.get(name).map(|s| self.role(s.object.clone(), s.revision)),
            Kind::Grant => snapshot.grants.get(name).map(|entry| self.grant(entry.object.clone(), entry.revision)),
            Kind::Token => snapshot.tokens.get(name).map(|token| self.token(token)),
            _ => None,
        }
    }

    /// Revision of an object.
    pub(super) fn revision(&self, kind: Kind, name: &str) -> Option<Revision> {
        let snapshot = self.snapshot;
        match kind {
            Kind::Cluster => snapshot.clusters.get(name).map(|s| s.revision),
            Kind::Project => snapshot.projects.get(name).map(|s| s.revision),
            Kind::User => snapshot.users.get(name).map(|s| s.revision),
            Kind::Team => snapshot.teams.get(name).map(|s| s.revision),
            Kind::AccessRole => snapshot.access_roles.get(name).map(|s| s.revision),
            Kind::Grant => snapshot.grants.get(name).map(|s| s.revision),
            Kind::Token => snapshot.tokens.get(name).map(|s| s.revision),
            _ => None,
        }
    }

    /// A stored object as it is read, whether or not the snapshot has exactly this version.
    pub(super) fn stored(&self, kind: Kind, stored: Value, revision: Revision) -> Value {
        let read = match kind {
            Kind::User => serde_json::from_value(stored.clone()).ok().map(|o| self.user(o, revision)),
            Kind::Team => serde_json::from_value(stored.clone()).ok().map(|o| self.team(o, revision)),
            Kind::AccessRole => serde_json::from_value(stored.clone()).ok().map(|o| self.role(o, revision)),
            Kind::Grant => serde_json::from_value(stored.clone()).ok().map(|o| self.grant(o, revision)),
            _ => None,
        };
        read.unwrap_or_else(|| plain(&stored, revision))
    }

    fn user(&self, mut user: User, revision: Revision) -> Value {
        let name = user.metadata.name.clone().unwrap_or_default();
        let tokens = self.snapshot.tokens_of(&name);
        let uid = user.metadata.uid.as_deref();
        let live = |token: &&Arc<TokenEntry>| {
            Some(token.record.user_uid.as_str()) == uid && self.snapshot.live_owner(token, self.now).is_some()
        };
        let mut status = UserStatus {
            state: "Active".to_owned(),
            tokens: u32::try_from(tokens.filter(live).count()).unwrap_or(u32::MAX),
            ..UserStatus::default()
        };
        match self.snapshot.accounts.get(name.as_str()) {
            Some(AccountState::Known(account)) if Some(account.object.user_uid.as_str()) == uid => {
                status.password_set = account.object.password.is_some();
                status.last_login.clone_from(&account.object.last_login);
                if let Some(suspension) = &account.object.suspended {
                    status.state = "Suspended".to_owned();
                    status.suspended_at = Some(suspension.at.clone());
                }
            }
            // Nobody can say whether it is suspended, so it is refused like a suspended one.
            Some(AccountState::Unreadable(_)) => status.state = "Suspended".to_owned(),
            _ => {}
        }
        if user.spec.disabled {
            status.state = "Disabled".to_owned();
        }
        user.status = Some(status);
        plain(&user, revision)
    }

    fn team(&self, mut team: Team, revision: Revision) -> Value {
        let member_uids = team.status.take().map(|status| status.member_uids).unwrap_or_default();
        let is_member = |user: &&String| {
            let known = member_uids.get(user.as_str());
            let current = self.snapshot.users.get(user.as_str()).and_then(|u| u.object.metadata.uid.as_ref());
            known.is_some() && known == current
        };
        let (members, unknown): (Vec<_>, Vec<_>) = team.spec.users.iter().partition(is_member);
        team.status = Some(TeamStatus {
            member_count: u32::try_from(members.len()).unwrap_or(u32::MAX),
            members: members.into_iter().cloned().collect(),
            unknown: unknown.into_iter().cloned().collect(),
            member_uids,
        });
        plain(&team, revision)
    }

    fn role(&self, mut role: AccessRole, revision: Revision) -> Value {
        let name = role.metadata.name.clone().unwrap_or_default();
        role.status = self.snapshot.roles.get(name.as_str()).map(|compiled| AccessRoleStatus {
            effective_rules: compiled.rules.rules().to_vec(),
            rule_count: u32::try_from(compiled.rules.rules().len()).unwrap_or(u32::MAX),
            error: compiled.error.clone(),
        });
        plain(&role, revision)
    }

    fn grant(&self, mut grant: Grant, revision: Revision) -> Value {
        let mut status = grant.status.take().unwrap_or_default();
        let expires_at = grant.spec.expires_at.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
        let resolved = status.subject_uid.is_some()
            && (grant.spec.target.kind == TargetKind::Platform || status.target_uid.is_some());
        grant.status = Some(status.clone());
        let entry = GrantEntry::new(revision, "".into(), grant, expires_at);
        status.state = if expires_at.is_some_and(|end| end <= self.now) {
            "Expired"
        } else if !resolved {
            "Waiting"
        } else if self.snapshot.in_force(&entry, self.now) {
            "Active"
        } else {
            "Stale"
        }
        .to_owned();
        let mut grant = entry.object;
        grant.status = Some(status);
        plain(&grant, revision)
    }

    fn token(&self, token: &TokenEntry) -> Value {
        let last_used = self.snapshot.token_uses.get(token.record.id.as_str()).map(|used| &used.object.last_used);
        token_object(&token.record, token.revision, last_used)
    }
}

/// The public side of a token. Its id is public; its hash is not, though nothing could be done with it.
pub(super) fn token_object(record: &TokenRecord, revision: Revision, last_used: Option<&String>) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "Token",
        "metadata": {
            "name": record.id,
            "uid": record.id,
            "creationTimestamp": record.created_at,
            "generation": 1,
            "resourceVersion": revision.to_string(),
        },
        "spec": {
            "owner": record.user,
            "audience": record.audience,
            "scopes": record.scopes.names(),
            "expiresAt": record.expires_at,
            "description": record.description,
        },
        "status": last_used.map_or_else(|| json!({}), |used| json!({"lastUsed": used})),
    })
}

/// An object with its version.
fn plain<T: Serialize>(object: &T, revision: Revision) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
    }
    value
}

/// The beginning of a UID, where messages tell two objects of one name apart.
pub(super) fn short_uid(object: &Value) -> &str {
    names::uid8(object["metadata"]["uid"].as_str().unwrap_or_default())
}
