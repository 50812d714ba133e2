//! Roles and grants: who was bound to what.

use std::collections::{BTreeMap, BTreeSet};

use super::input::{Binding, Entry, Export, RoleTemplate, Source};
use super::people::{self, People};
use super::projects::Draft;
use super::rules::{self, Effective, Templates};
use super::{Losses, MAX_GRANTS, Refused, Resource, RoleStyle, What, names};
use crate::domain::rbac::{PolicyRule, VERBS};
use crate::domain::roles::{self, Base};
use crate::resources::grant::{Subject, SubjectKind, Target, TargetKind};
use crate::resources::validation::ResourceKind;
use crate::resources::{AccessRoleSpec, GrantSpec};

/// Rancher's role for those who own a cluster.
const CLUSTER_OWNER: &str = "cluster-owner";
/// Most roles of a project beside the built-in ones.
const MAX_PROJECT_ROLES: usize = 50;

/// What was made of the bindings.
pub struct Made {
    /// Users, teams and roles.
    pub before: Vec<Resource>,
    /// Grants.
    pub grants: Vec<Resource>,
    /// API groups that each AccessRole names.
    pub groups: BTreeMap<String, BTreeSet<String>>,
}

/// A grant in the making; equal ones are one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Sentence {
    target: (bool, String),
    role: String,
    subject: (bool, String),
}

/// Translates all bindings, and enters the roles that projects use.
pub fn translate(
    export: &Export,
    clusters: &BTreeMap<String, String>,
    projects: &mut BTreeMap<String, Draft>,
    style: RoleStyle,
    losses: &mut Losses,
) -> Result<Made, Refused> {
    let mut before = vec![];
    let people = People::new(export, losses);
    for (id, name) in &people.names {
        let Some(Entry { source, object }) = export.users.get(*id) else { continue };
        before.push(people::user(name, source, object, losses)?);
    }
    for binding in export.global_bindings.values() {
        global(export, binding, &people, losses);
    }
    let mut work = Work {
        export,
        people,
        role_names: role_names(export),
        templates: Templates::new(export),
        roles: BTreeMap::new(),
        sentences: BTreeMap::new(),
        style,
        widened: BTreeSet::new(),
        losses,
    };
    for binding in export.project_bindings.values() {
        work.on_project(binding, projects)?;
    }
    for binding in export.cluster_bindings.values() {
        work.on_cluster(binding, clusters, projects)?;
    }
    work.finish(before)
}

fn global(export: &Export, binding: &Entry<Binding>, people: &People<'_>, losses: &mut Losses) {
    let role = &binding.object.global_role_name;
    let who = people.described(&binding.object);
    let mut message = format!("global role {role:?} of {who} is not translated");
    match role.as_str() {
        "admin" => message.push_str("; where it is meant, write a Grant of role admin with target Platform"),
        _ => message.push_str(": it gives rights on Rancher itself"),
    }
    let inherited = export.global_roles.get(role).map_or(&[][..], |role| &role.object.inherited_cluster_roles);
    if !inherited.is_empty() {
        let roles = rules::listed(inherited);
        message
            .push_str(&format!("; it also gives {roles} on every cluster: write a Grant with target Cluster for each"));
    }
    losses.note(What::Skipped, &binding.source, "globalRoleName", message);
}

/// Names of AccessRoles by template. The prefix keeps them apart from roles that are there already.
fn role_names(export: &Export) -> BTreeMap<&str, String> {
    let texts: Vec<String> = export
        .templates
        .iter()
        .map(|(id, template)| {
            let RoleTemplate { display_name, builtin, .. } = &template.object;
            // The ids of Rancher's own are words; those of others are random.
            let text = if *builtin || display_name.is_empty() { id } else { display_name };
            format!("rancher-{}", names::fold(text, names::Grammar::Label))
        })
        .collect();
    let wanted: Vec<names::Wanted<'_>> =
        export.templates.keys().zip(&texts).map(|(id, text)| names::Wanted { id, text, qualifier: "" }).collect();
    let names = names::assign(&wanted, &["rancher"], names::Grammar::Label);
    export.templates.keys().map(String::as_str).zip(names).collect()
}

struct Work<'a, 'l> {
    export: &'a Export,
    people: People<'a>,
    role_names: BTreeMap<&'a str, String>,
    templates: Templates<'a>,
    /// AccessRoles by name, with their template; `None`: not possible.
    roles: BTreeMap<String, Option<(AccessRoleSpec, Source)>>,
    /// Each with the bindings that say it.
    sentences: BTreeMap<Sentence, Vec<Source>>,
    style: RoleStyle,
    /// Templates of which it was said what a built-in role gives beyond them.
    widened: BTreeSet<&'a str>,
    losses: &'l mut Losses,
}

impl<'a> Work<'a, '_> {
    fn skip(&mut self, binding: &Entry<Binding>, field: &str, why: impl AsRef<str>) {
        let message = format!("grants nothing: {}", why.as_ref());
        self.losses.note(What::Skipped, &binding.source, field, message);
    }

    /// The template of a binding and who is bound, where both can be had.
    fn parties(
        &mut self,
        binding: &'a Entry<Binding>,
        context: &str,
    ) -> Option<(&'a Entry<RoleTemplate>, (SubjectKind, String))> {
        let name = binding.object.role_template_name.as_str();
        let subject = match self.people.subject(&binding.object) {
            Ok((kind, name)) => (kind, name.to_owned()),
            Err(why) => {
                self.skip(binding, "", why);
                return None;
            }
        };
        let Some(template) = self.export.templates.get(name) else {
            self.skip(binding, "roleTemplateName", format!("role template {name:?} is not in the export"));
            return None;
        };
        if template.object.context != context {
            let why = format!("role template {name:?} is of context {:?}, not {context:?}", template.object.context);
            self.skip(binding, "roleTemplateName", why);
            return None;
        }
        Some((template, subject))
    }

    fn on_project(
        &mut self,
        binding: &'a Entry<Binding>,
        projects: &mut BTreeMap<String, Draft>,
    ) -> Result<(), Refused> {
        let Some((template, subject)) = self.parties(binding, "project") else { return Ok(()) };
        let id = &binding.object.project_name;
        let Some(project) = projects.get_mut(id) else {
            self.skip(binding, "projectName", format!("project {id:?} is not translated"));
            return Ok(());
        };
        let built_in = match (self.style, template.object.metadata.name.as_str()) {
            (RoleStyle::BuiltIn, "project-owner") => Some((roles::OWNER, Base::Admin)),
            (RoleStyle::BuiltIn, "project-member") => Some((roles::MEMBER, Base::Edit)),
            (RoleStyle::BuiltIn, "read-only") => Some((roles::VIEWER, Base::View)),
            _ => None,
        };
        let effective = self.templates.effective(template, self.losses);
        if let Some((role, base)) = built_in.filter(|_| template.object.builtin) {
            self.widened(template, role, base, &effective);
            return self.say(binding, TargetKind::Project, project.name.clone(), role.to_owned(), subject);
        }
        if template.object.metadata.name == "project-owner" && template.object.builtin {
            let message =
                format!("owners managed members and quota; grant the role owner on {} for that", project.name);
            self.losses.note(What::Narrowed, &binding.source, "roleTemplateName", message);
        }
        self.in_project(binding, template, &effective, project, subject)
    }

    fn on_cluster(
        &mut self,
        binding: &'a Entry<Binding>,
        clusters: &BTreeMap<String, String>,
        projects: &mut BTreeMap<String, Draft>,
    ) -> Result<(), Refused> {
        let Some((template, subject)) = self.parties(binding, "cluster") else { return Ok(()) };
        let id = &binding.object.cluster_name;
        let Some(cluster) = clusters.get(id) else {
            self.skip(binding, "clusterName", format!("cluster {id:?} is not known"));
            return Ok(());
        };
        let effective = self.templates.effective(template, self.losses);
        if template.object.metadata.name == CLUSTER_OWNER && template.object.builtin && effective.everything {
            let message = format!(
                "becomes owner on Cluster {cluster}: in every project's namespaces there, and neither in other namespaces nor on the cluster itself"
            );
            self.losses.note(What::Narrowed, &binding.source, "", message);
            return self.say(binding, TargetKind::Cluster, cluster.clone(), roles::OWNER.to_owned(), subject);
        }
        if effective.rights.is_empty() {
            self.skip(
                binding,
                "roleTemplateName",
                "its template gives nothing inside of namespaces that can be granted",
            );
            return Ok(());
        }
        let message = format!(
            "on a Cluster only owner, member and viewer can be granted: it becomes one grant in each project on {cluster}, without those to come, and without namespaces of no project"
        );
        self.losses.note(What::Narrowed, &binding.source, "", message);
        for project in projects.values_mut().filter(|project| project.cluster == *id) {
            self.in_project(binding, template, &effective, project, subject.clone())?;
        }
        Ok(())
    }

    /// Grants the template's own role in a project.
    fn in_project(
        &mut self,
        binding: &'a Entry<Binding>,
        template: &'a Entry<RoleTemplate>,
        effective: &Effective,
        project: &mut Draft,
        subject: (SubjectKind, String),
    ) -> Result<(), Refused> {
        let Some(role) = self.role(template, effective) else {
            self.skip(binding, "roleTemplateName", "nothing of its template can be granted");
            return Ok(());
        };
        if !project.spec.roles.contains(&role) {
            if project.spec.roles.len() == MAX_PROJECT_ROLES {
                self.skip(binding, "", format!("a project uses at most {MAX_PROJECT_ROLES} roles ({})", project.name));
                return Ok(());
            }
            project.spec.roles.push(role.clone());
            project.spec.roles.sort();
        }
        self.say(binding, TargetKind::Project, project.name.clone(), role, subject)
    }

    /// The AccessRole that gives what a template gives.
    fn role(&mut self, template: &'a Entry<RoleTemplate>, effective: &Effective) -> Option<String> {
        let id = template.object.metadata.name.as_str();
        let name = self.role_names.get(id)?.clone();
        if !self.roles.contains_key(&name) {
            let rules = rules::rules_of(&effective.rights);
            if rules.is_none() {
                let message = "has more different rules than one role can hold; nothing of it is given";
                self.losses.note(What::Dropped, &template.source, "rules", message);
            }
            let inherited = template.object.role_template_names.len();
            if inherited > 0 && rules.is_some() {
                let message = format!(
                    "the rules of {inherited} inherited templates are written out in {name}; it does not follow them"
                );
                self.losses.note(What::Narrowed, &template.source, "roleTemplateNames", message);
            }
            let spec = rules.filter(|rules: &Vec<PolicyRule>| !rules.is_empty());
            let spec = spec.map(|rules| AccessRoleSpec { base: None, rules, inherits: vec![] });
            self.roles.insert(name.clone(), spec.map(|spec| (spec, template.source.clone())));
        }
        self.roles.get(&name).is_some_and(Option::is_some).then_some(name)
    }

    /// Says once per template what a built-in role gives beyond it.
    fn widened(&mut self, template: &'a Entry<RoleTemplate>, role: &str, base: Base, effective: &Effective) {
        let mut more: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for right in rules::table_rights(base).difference(&effective.rights) {
            let group = if right.group.is_empty() { "core" } else { &right.group };
            let verbs = more.entry(format!("{} ({group})", right.resource)).or_default();
            verbs.extend(VERBS.get(right.verb));
        }
        let more: Vec<String> =
            more.into_iter().map(|(what, verbs)| format!("{} on {what}", verbs.join(","))).collect();
        if !more.is_empty() && self.widened.insert(template.object.metadata.name.as_str()) {
            let message = format!("{role} gives beyond it: {}", more.join("; "));
            self.losses.note(What::Widened, &template.source, "", message);
        }
    }

    fn say(
        &mut self,
        binding: &Entry<Binding>,
        kind: TargetKind,
        target: String,
        role: String,
        subject: (SubjectKind, String),
    ) -> Result<(), Refused> {
        let sentence = Sentence {
            target: (kind == TargetKind::Cluster, target),
            role,
            subject: (subject.0 == SubjectKind::Team, subject.1),
        };
        let sources = self.sentences.entry(sentence).or_default();
        sources.push(binding.source.clone());
        if self.sentences.len() > MAX_GRANTS { Err(Refused::TooMany) } else { Ok(()) }
    }

    fn finish(self, mut before: Vec<Resource>) -> Result<Made, Refused> {
        let Self { export, people, templates, roles, sentences, losses, .. } = self;
        let granted: BTreeSet<&str> = sentences.keys().filter(|s| s.subject.0).map(|s| s.subject.1.as_str()).collect();
        for (key, name) in &people.teams {
            if granted.contains(name.as_str()) {
                before.push(people::team(export, &people, *key, name, losses)?);
            }
        }
        let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, role) in roles {
            let Some((spec, source)) = role else { continue };
            let named = spec.rules.iter().flat_map(|rule| rule.api_groups.iter().cloned());
            groups.entry(name.clone()).or_default().extend(named);
            before.push(Resource::new(ResourceKind::AccessRole, &name, vec![source.to_string()], &spec)?);
        }
        let used = templates.used();
        for (id, template) in &export.templates {
            if !used.contains(id.as_str()) {
                losses.note(What::Skipped, &template.source, "", "no binding that is translated uses it");
            }
        }
        let ids: Vec<(String, String)> = sentences
            .iter()
            .map(|(sentence, sources)| {
                let Sentence { target, role, subject } = sentence;
                let role = role.strip_prefix("rancher-").unwrap_or(role);
                let id = format!("{}-{}", sources.first().map_or("", |s| s.id.as_str()), target.1);
                (id, format!("{}-{}-{role}", target.1, subject.1))
            })
            .collect();
        let wanted: Vec<names::Wanted<'_>> =
            ids.iter().map(|(id, text)| names::Wanted { id, text, qualifier: "" }).collect();
        let names = names::assign(&wanted, &[], names::Grammar::Subdomain);
        let mut grants = vec![];
        for ((sentence, sources), name) in sentences.into_iter().zip(names) {
            let Sentence { target, role, subject } = sentence;
            for again in sources.iter().skip(1) {
                losses.note(What::Skipped, again, "", format!("says the same as the Grant {name}"));
            }
            let spec = GrantSpec {
                subject: Subject {
                    kind: if subject.0 { SubjectKind::Team } else { SubjectKind::User },
                    name: subject.1,
                },
                role,
                target: Target {
                    kind: if target.0 { TargetKind::Cluster } else { TargetKind::Project },
                    name: target.1,
                },
                namespaces: vec![],
                expires_at: None,
                reason: None,
            };
            let sources = sources.iter().map(Source::to_string).collect();
            grants.push(Resource::new(ResourceKind::Grant, &name, sources, &spec)?);
        }
        Ok(Made { before, grants, groups })
    }
}
