//! Applies one change of the store to a snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::grants::{self, GrantEntry, Membership};
use super::snapshot::{AccountState, CompiledRole, Many, Map, Snapshot, Stored, TokenEntry};
use crate::domain::rbac::RuleSet;
use crate::domain::roles::{self, RoleSpec};
use crate::records::{Account, Claim, ClusterCredential, TokenRecord};
use crate::resources::Grant;
use crate::resources::grant::SubjectKind;
use crate::store::sealed::Sealer;
use crate::store::{EPOCH, Event, Key, Kind, Revision};

/// A stored object that this version cannot read. It counts as absent, or as refused where absence would grant.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{key} at revision {revision} cannot be read and is left out: {why}")]
pub struct Unreadable {
    /// Which.
    pub key: Key,
    /// Revision.
    pub revision: Revision,
    /// Why.
    pub why: String,
}

impl Snapshot {
    /// An empty snapshot with the built-in roles.
    pub(super) fn empty() -> Self {
        let mut snapshot = Self::default();
        snapshot.compile_roles();
        snapshot
    }

    /// Applies one change. What cannot be read is reported and left out.
    pub(super) fn apply(&mut self, event: &Event, sealer: &Sealer) -> Result<(), Unreadable> {
        self.revision = self.revision.max(event.revision());
        let result = match event {
            Event::Put { entry, .. } => self.put(&entry.key, entry.revision, &entry.value, sealer),
            Event::Delete { key, .. } => {
                self.remove(key);
                Ok(())
            }
        };
        result.map_err(|why| Unreadable { key: event.key().clone(), revision: event.revision(), why })
    }

    fn put(&mut self, key: &Key, revision: Revision, value: &Bytes, sealer: &Sealer) -> Result<(), String> {
        let name = key.name.clone();
        match key.kind {
            Kind::Cluster => {
                let result = insert(&mut self.clusters, name.clone(), revision, value);
                grants::place(&mut self.granted_clusters, &name, self.clusters.get(&name).cloned());
                result
            }
            Kind::User => insert(&mut self.users, name, revision, value),
            Kind::Project => self.put_project(name, revision, value),
            Kind::Ledger => insert(&mut self.ledgers, name, revision, value),
            Kind::Reservation => insert(&mut self.reservations, name, revision, value),
            Kind::TokenUse => insert(&mut self.token_uses, name, revision, value),
            Kind::Team => self.put_team(name, revision, value),
            Kind::AccessRole => {
                let result = insert(&mut self.access_roles, name, revision, value);
                self.compile_roles();
                result
            }
            Kind::Grant => self.put_grant(name, revision, value),
            Kind::Claim => self.put_claim(name, revision, value),
            Kind::Account => {
                let opened = sealer.open::<Account>(key, value);
                let state = match &opened {
                    Ok(record) => AccountState::Known(Stored { revision, object: Arc::new(record.content.clone()) }),
                    Err(_) => AccountState::Unreadable(revision),
                };
                self.accounts.insert(name, state);
                opened.map(|_| ()).map_err(|e| e.to_string())
            }
            Kind::Token => {
                self.remove_token(&name);
                let record = sealer.open::<TokenRecord>(key, value).map_err(|e| e.to_string())?.content;
                self.put_token(name, revision, record)
            }
            Kind::ClusterCredential => {
                self.credentials.remove(&name);
                let opened = sealer.open::<ClusterCredential>(key, value).map_err(|e| e.to_string())?;
                self.credentials.insert(name, Arc::new(Stored { revision, object: opened.content }));
                Ok(())
            }
            Kind::Platform => {
                if &*name == EPOCH {
                    // Of one that does not open nothing is known: no credential is of epoch 0.
                    self.global_epoch = 0;
                    self.global_epoch = sealer.open::<u64>(key, value).map_err(|e| e.to_string())?.content;
                }
                Ok(())
            }
        }
    }

    fn remove(&mut self, key: &Key) {
        let name = &key.name;
        match key.kind {
            Kind::Cluster => {
                self.clusters.remove(name);
                grants::place(&mut self.granted_clusters, name, None);
            }
            Kind::User => drop(self.users.remove(name)),
            Kind::Project => self.remove_project(name),
            Kind::Ledger => drop(self.ledgers.remove(name)),
            Kind::Reservation => drop(self.reservations.remove(name)),
            Kind::TokenUse => drop(self.token_uses.remove(name)),
            Kind::Team => self.remove_team(name),
            Kind::AccessRole => {
                self.access_roles.remove(name);
                self.compile_roles();
            }
            Kind::Grant => self.remove_grant(name),
            Kind::Claim => self.remove_claim(name),
            Kind::Account => drop(self.accounts.remove(name)),
            Kind::Token => self.remove_token(name),
            Kind::ClusterCredential => drop(self.credentials.remove(name)),
            Kind::Platform => {}
        }
    }

    fn put_project(&mut self, name: Arc<str>, revision: Revision, value: &Bytes) -> Result<(), String> {
        self.remove_project(&name);
        insert(&mut self.projects, name.clone(), revision, value)?;
        if let Some(project) = self.projects.get(&name).cloned() {
            grants::place(&mut self.granted_projects, &name, Some(project.clone()));
            for on in &project.object.spec.clusters {
                link(&mut self.projects_of_cluster, on.cluster.as_str().into(), name.clone());
            }
        }
        Ok(())
    }

    fn remove_project(&mut self, name: &Arc<str>) {
        let Some(old) = self.projects.remove(name) else { return };
        grants::place(&mut self.granted_projects, name, None);
        for on in &old.object.spec.clusters {
            unlink(&mut self.projects_of_cluster, &on.cluster, |project| project == name);
        }
    }

    fn put_team(&mut self, name: Arc<str>, revision: Revision, value: &Bytes) -> Result<(), String> {
        self.remove_team(&name);
        insert(&mut self.teams, name.clone(), revision, value)?;
        if let Some(team) = self.teams.get(&name).cloned() {
            for user in &team.object.spec.users {
                let membership = Membership::new(name.clone(), team.clone(), user);
                link(&mut self.teams_of_user, user.as_str().into(), membership);
            }
        }
        Ok(())
    }

    fn remove_team(&mut self, name: &Arc<str>) {
        let Some(old) = self.teams.remove(name) else { return };
        for user in &old.object.spec.users {
            unlink(&mut self.teams_of_user, user, |membership| Arc::ptr_eq(&membership.team, &old));
        }
    }

    fn put_grant(&mut self, name: Arc<str>, revision: Revision, value: &Bytes) -> Result<(), String> {
        self.remove_grant(&name);
        let object: Grant = read(value)?;
        let expires_at = match &object.spec.expires_at {
            None => None,
            Some(text) => Some(text.parse::<Timestamp>().map_err(|e| format!("spec.expiresAt: {e}"))?),
        };
        let entry = Arc::new(GrantEntry::new(revision, name.clone(), object, expires_at));
        let subject: Arc<str> = entry.object.spec.subject.name.as_str().into();
        match entry.object.spec.subject.kind {
            SubjectKind::User => link(&mut self.grants_of_user, subject, entry.clone()),
            SubjectKind::Team => link(&mut self.grants_of_team, subject, entry.clone()),
        }
        self.file_grant(&entry);
        self.grants.insert(name, entry);
        Ok(())
    }

    fn remove_grant(&mut self, name: &Arc<str>) {
        let Some(old) = self.grants.remove(name) else { return };
        let subject = &old.object.spec.subject;
        let map = match subject.kind {
            SubjectKind::User => &mut self.grants_of_user,
            SubjectKind::Team => &mut self.grants_of_team,
        };
        unlink(map, &subject.name, |grant| grant.name == *name);
        self.unfile_grant(&old);
    }

    fn put_claim(&mut self, name: Arc<str>, revision: Revision, value: &Bytes) -> Result<(), String> {
        self.remove_claim(&name);
        insert(&mut self.claims, name.clone(), revision, value)?;
        if let Some(claim) = self.claims.get(&name) {
            let cluster: Arc<str> = claim.object.cluster.as_str().into();
            let namespace: Arc<str> = claim.object.namespace.as_str().into();
            self.claims_of_cluster.entry(cluster).or_default().insert(namespace, claim.clone());
            let project: Arc<str> = claim.object.project.as_str().into();
            let there = Arc::make_mut(self.claims_of_project.entry(project).or_default());
            let at = there.partition_point(|other| place(&other.object) < place(&claim.object));
            there.insert(at, claim.clone());
        }
        Ok(())
    }

    fn remove_claim(&mut self, name: &Arc<str>) {
        let Some(old) = self.claims.remove(name) else { return };
        if let Some(claims) = self.claims_of_cluster.get_mut(old.object.cluster.as_str()) {
            claims.remove(old.object.namespace.as_str());
        }
        unlink(&mut self.claims_of_project, &old.object.project, |claim| Arc::ptr_eq(claim, &old));
    }

    fn put_token(&mut self, id: Arc<str>, revision: Revision, record: TokenRecord) -> Result<(), String> {
        let hash: [u8; 32] = STANDARD
            .decode(&record.hash)
            .ok()
            .and_then(|h| h.try_into().ok())
            .ok_or("hash is not 32 bytes of base64")?;
        let expires_at = record.expires_at.parse::<Timestamp>().map_err(|e| format!("expiresAt: {e}"))?;
        link(&mut self.tokens_of_user, record.user.as_str().into(), id.clone());
        self.tokens.insert(id, Arc::new(TokenEntry { revision, record, hash, expires_at }));
        Ok(())
    }

    fn remove_token(&mut self, id: &Arc<str>) {
        let Some(old) = self.tokens.remove(id) else { return };
        unlink(&mut self.tokens_of_user, &old.record.user, |token| token == id);
    }

    /// Compiles all roles again: they are few, and any of them may inherit the changed one.
    fn compile_roles(&mut self) {
        let specs: BTreeMap<String, RoleSpec> =
            self.access_roles.iter().map(|(name, role)| (name.to_string(), (&role.object.spec).into())).collect();
        let names = roles::BUILT_IN.into_iter().map(str::to_owned).chain(specs.keys().cloned());
        let compiled = names.map(|name| {
            let (rules, error) = match roles::effective_rules(&name, &specs) {
                Ok(rules) => (RuleSet::new(rules), None),
                Err(error) => (RuleSet::default(), Some(error.to_string())),
            };
            let name: Arc<str> = name.into();
            (name.clone(), Arc::new(CompiledRole { name, rules, error }))
        });
        self.roles = compiled.collect();
    }
}

fn read<T: DeserializeOwned>(value: &Bytes) -> Result<T, String> {
    serde_json::from_slice(value).map_err(|e| e.to_string())
}

/// Replaces an entry; one that cannot be read removes its predecessor, which is no longer the truth.
fn insert<T: DeserializeOwned>(
    map: &mut Map<Arc<Stored<T>>>,
    name: Arc<str>,
    revision: Revision,
    value: &Bytes,
) -> Result<(), String> {
    map.remove(&name);
    let object = read(value)?;
    map.insert(name, Arc::new(Stored { revision, object }));
    Ok(())
}

fn place(claim: &Claim) -> (&str, &str) {
    (&claim.cluster, &claim.namespace)
}

fn link<T: Clone>(map: &mut Map<Many<T>>, key: Arc<str>, value: T) {
    Arc::make_mut(map.entry(key).or_default()).push(value);
}

fn unlink<T: Clone>(map: &mut Map<Many<T>>, key: &str, is: impl Fn(&T) -> bool) {
    if let Some(values) = map.get_mut(key).map(Arc::make_mut) {
        values.retain(|value| !is(value));
        if values.is_empty() {
            map.remove(key);
        }
    }
}
