//! Accounts and groups: who is who.

use std::collections::{BTreeMap, BTreeSet};

use super::input::{Binding, Export, Source, User};
use super::{Losses, Refused, Resource, What, display_name, names, rules};
use crate::resources::grant::SubjectKind;
use crate::resources::user::UserType;
use crate::resources::validation::ResourceKind;
use crate::resources::{TeamSpec, UserSpec};

/// Most members of a team.
const MAX_MEMBERS: usize = 5_000;

/// Accounts and groups.
pub struct People<'a> {
    /// Our names by Rancher's ids.
    pub names: BTreeMap<&'a str, String>,
    /// Rancher's ids by principal; `None` where more than one account has it.
    by_principal: BTreeMap<&'a str, Option<&'a str>>,
    /// Team names by group.
    pub teams: BTreeMap<GroupKey<'a>, String>,
}

/// What a binding calls a group by. A principal is never taken for a group of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupKey<'a> {
    /// A group of Rancher's, whose members are objects of the export.
    Group(&'a str),
    /// A group of an identity provider.
    Principal(&'a str),
}

impl<'a> GroupKey<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::Group(text) | Self::Principal(text) => text,
        }
    }
}

impl<'a> People<'a> {
    /// Names everybody. Accounts of Rancher itself are left out, and said.
    pub fn new(export: &'a Export, losses: &mut Losses) -> Self {
        let mut kept: Vec<(&str, &User)> = vec![];
        let mut by_principal: BTreeMap<&str, Option<&str>> = BTreeMap::new();
        for (id, user) in &export.users {
            if user.object.is_system() {
                losses.note(What::Skipped, &user.source, "principalIds", "an account of Rancher itself");
                continue;
            }
            kept.push((id, &user.object));
            for principal in user.object.principal_ids.iter().collect::<BTreeSet<_>>() {
                by_principal.entry(principal).and_modify(|other| *other = None).or_insert(Some(id));
            }
        }
        let wanted: Vec<names::Wanted<'_>> = kept
            .iter()
            .map(|(id, user)| {
                let text = [&user.username, &user.display_name].into_iter().find(|text| !text.is_empty());
                names::Wanted { id, text: text.map_or(*id, |text| text), qualifier: "" }
            })
            .collect();
        // `admin` is the account that the service comes with; Rancher's is somebody else until an administrator says so.
        let taken = ["admin", "me", "self"];
        let assigned = names::assign(&wanted, &taken, names::Grammar::Subdomain);
        let names = kept.iter().map(|(id, _)| *id).zip(assigned).collect();
        Self { names, by_principal, teams: teams(export) }
    }

    /// Who is bound, in words.
    pub fn described(&self, binding: &Binding) -> String {
        match self.names.get(binding.user_name.as_str()) {
            Some(name) => format!("user {name}"),
            None => {
                let Binding {
                    user_name, user_principal_name, group_name, group_principal_name, service_account, ..
                } = binding;
                let all = [user_name, user_principal_name, group_name, group_principal_name, service_account];
                all.into_iter().find(|text| !text.is_empty()).map_or("nobody".to_owned(), |text| format!("{text:?}"))
            }
        }
    }

    /// Who is bound, or why nobody is.
    pub fn subject<'s>(&'s self, binding: &'s Binding) -> Result<(SubjectKind, &'s str), String> {
        let Binding { user_name, user_principal_name, group_name, group_principal_name, service_account, .. } = binding;
        let user = !user_name.is_empty() || !user_principal_name.is_empty();
        let group = !group_name.is_empty() || !group_principal_name.is_empty();
        match (user, group, service_account.is_empty()) {
            (_, _, false) => {
                Err("binds a ServiceAccount; write a RoleBinding in the namespace, or a User of type Machine"
                    .to_owned())
            }
            (true, true, _) => Err("names a user and a group; which one is meant cannot be told".to_owned()),
            (false, false, _) => Err("names nobody".to_owned()),
            (true, false, _) => {
                let id = match (user_name.as_str(), user_principal_name.as_str()) {
                    ("", principal) => match self.by_principal.get(principal) {
                        Some(Some(id)) => *id,
                        Some(None) => return Err(format!("principal {principal:?} is that of more than one user")),
                        None => return Err(format!("principal {principal:?} is that of no user in the export")),
                    },
                    (id, _) => id,
                };
                match self.names.get(id) {
                    Some(name) => Ok((SubjectKind::User, name)),
                    None => Err(format!("user {id:?} is not in the export, or is one of Rancher's own accounts")),
                }
            }
            (false, true, _) => {
                if !group_name.is_empty() && !group_principal_name.is_empty() {
                    return Err("names two groups; which one is meant cannot be told".to_owned());
                }
                let key = match group_name.as_str() {
                    "" => GroupKey::Principal(group_principal_name),
                    name => GroupKey::Group(name),
                };
                match self.teams.get(&key) {
                    Some(name) => Ok((SubjectKind::Team, name)),
                    None => Err(format!("group {:?} is not known", key.text())),
                }
            }
        }
    }
}

/// Team names for every group that is bound.
fn teams(export: &Export) -> BTreeMap<GroupKey<'_>, String> {
    let bindings = export.project_bindings.values().chain(export.cluster_bindings.values());
    let bound = bindings.flat_map(|binding| {
        let Binding { group_name, group_principal_name, .. } = &binding.object;
        [GroupKey::Group(group_name), GroupKey::Principal(group_principal_name)]
    });
    let keys: BTreeSet<GroupKey<'_>> = bound.filter(|key| !key.text().is_empty()).collect();
    let texts: Vec<&str> = keys
        .iter()
        .map(|key| match key {
            GroupKey::Group(id) => match export.groups.get(*id).map(|group| group.object.display_name.as_str()) {
                Some(called) if !called.is_empty() => called,
                _ => id,
            },
            GroupKey::Principal(principal) => short(principal),
        })
        .collect();
    let wanted: Vec<names::Wanted<'_>> = keys
        .iter()
        .zip(&texts)
        .map(|(key, text)| names::Wanted { id: key.text(), text, qualifier: provider(key.text()) })
        .collect();
    let names = names::assign(&wanted, &[], names::Grammar::Label);
    keys.into_iter().zip(names).collect()
}

/// `keycloakoidc_group://developers` is called developers, `…://CN=Developers,OU=…` too.
fn short(principal: &str) -> &str {
    let name = principal.split_once("://").map_or(principal, |(_, name)| name);
    match name.split_once('=') {
        Some((key, rest)) if key.bytes().all(|b| b.is_ascii_alphanumeric()) => rest.split(',').next().unwrap_or(rest),
        _ => name,
    }
}

fn provider(principal: &str) -> &str {
    principal.split_once("_group://").map_or("", |(provider, _)| provider)
}

/// The User of an account.
pub fn user(name: &str, source: &Source, object: &User, losses: &mut Losses) -> Result<Resource, Refused> {
    let User { metadata: _, display_name: called, username, principal_ids, enabled } = object;
    if name != username {
        let from = if username.is_empty() { called } else { username };
        losses.note(What::Renamed, source, "username", format!("{from:?} is called {name:?} here"));
    }
    let outside: Vec<String> = principal_ids.iter().filter(|id| !id.starts_with("local://")).cloned().collect();
    if !outside.is_empty() {
        let message =
            format!("identities of a provider are not linked here: {}; set a password", rules::listed(&outside));
        losses.note(What::Dropped, source, "principalIds", message);
    }
    let disabled = *enabled == Some(false);
    if !disabled {
        let message = format!("no password is taken over: bailiwick user set-password {name} --must-change");
        losses.note(What::Todo, source, "", message);
    }
    let spec = UserSpec {
        display_name: display_name(called, source, "displayName", losses),
        email: None,
        type_: UserType::Human,
        disabled,
    };
    Resource::new(ResourceKind::User, name, vec![source.to_string()], &spec)
}

/// The Team of a group, with the members that the export names.
pub fn team(
    export: &Export,
    people: &People<'_>,
    key: GroupKey<'_>,
    name: &str,
    losses: &mut Losses,
) -> Result<Resource, Refused> {
    let id = key.text();
    let group = export.groups.get(id).filter(|_| matches!(key, GroupKey::Group(_)));
    let source = match group {
        Some(group) => group.source.clone(),
        None => Source { place: String::new(), kind: "Group", id: id.to_owned() },
    };
    let members = export.members.values().filter(|member| member.object.group_name == id);
    let mut users = BTreeSet::new();
    for member in members.filter(|_| matches!(key, GroupKey::Group(_))) {
        let principal = member.object.principal_id.as_str();
        let user = people.by_principal.get(principal).copied().flatten().and_then(|id| people.names.get(id));
        match user {
            Some(user) if users.len() < MAX_MEMBERS => drop(users.insert(user.clone())),
            Some(_) => {
                losses.note(What::Skipped, &member.source, "", format!("a team has at most {MAX_MEMBERS} users"))
            }
            None => {
                let message = format!("principal {principal:?} is not that of exactly one user in the export");
                losses.note(What::Skipped, &member.source, "principalId", message);
            }
        }
    }
    if users.is_empty() {
        let message = format!("who is in this group is known to its provider only: add the users to Team {name}");
        losses.note(What::Todo, &source, "", message);
    }
    let called = group.map_or(id, |group| group.object.display_name.as_str());
    let spec = TeamSpec {
        display_name: display_name(called, &source, "displayName", losses),
        users: users.into_iter().collect(),
    };
    Resource::new(ResourceKind::Team, name, vec![source.to_string()], &spec)
}
