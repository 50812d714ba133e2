//! What is told of an answer: everything that whoever asks may see, and no name beyond that.

use serde_json::{Map, Value, json};

use super::super::super::call::Call;
use super::super::super::rights::Rights;
use super::Question;
use crate::domain::request::{RequestInfo, ResourceRequest};
use crate::index::GrantEntry;
use crate::proxy::decide::{self, Refusal, Right};
use crate::proxy::explain::{self, Members, Permitted, WhoCan};
use crate::proxy::resolve;
use crate::records::TokenScopes;
use crate::resources::grant::{SubjectKind, TargetKind};
use crate::resources::{Project, User};
use crate::store::Kind;

/// Most grants that are listed as falling short, and most members of a team that are named.
const LISTED: usize = 20;

/// Refusals whose text is about the question and the roles held, and names nothing else of the account's. The others
/// list what is the account's, which is for its own eyes.
const TELLABLE: [&str; 8] = [
    "no-rule",
    "changes-by-git",
    "group-out-of-reach",
    "proxy-subresource",
    "cluster-unusable",
    "token-read-only",
    "method",
    "account-inactive",
];

pub(super) struct Told<'a> {
    pub(super) call: &'a Call,
    pub(super) rights: Rights<'a>,
    pub(super) question: &'a Question,
    /// Owner of the namespace, whether or not the caller may know it.
    pub(super) owned: Option<&'a Project>,
    pub(super) account: &'a User,
    pub(super) asks_of_self: bool,
}

impl Told<'_> {
    fn user(&self) -> &str {
        self.account.metadata.name.as_deref().unwrap_or_default()
    }

    /// What was asked, as it was understood.
    fn asked(&self) -> Map<String, Value> {
        let Question { request, cluster, project, namespace } = self.question;
        let mut asked = Map::new();
        let mut put = |key: &str, value: &str| {
            if !value.is_empty() {
                asked.insert(key.to_owned(), Value::from(value));
            }
        };
        put("cluster", cluster);
        put("namespace", namespace);
        put("narrowedTo", project.as_deref().unwrap_or_default());
        match request {
            RequestInfo::Resource(request) => {
                put("verb", request.verb.as_str());
                put("resource", &request.resource);
                put("name", &request.name);
                asked.insert("group".to_owned(), Value::from(request.group.as_str()));
            }
            RequestInfo::Path(path) => put("path", &path.path),
        }
        asked
    }

    /// The owner of the namespace, where the caller may see it: as an object, by its name.
    fn project(&self) -> Option<(&Project, &str)> {
        let project = self.owned?;
        let name = project.metadata.name.as_deref()?;
        let object = self.call.view().object(Kind::Project, name)?;
        self.rights.sees(Kind::Project, &object).then_some((project, name))
    }

    /// The answer of `why`.
    pub(super) fn why(&self, outcome: Result<Permitted, Refusal>) -> Value {
        let mut told = self.asked();
        told.insert("user".to_owned(), Value::from(self.user()));
        if let Some((_, name)) = self.project() {
            told.insert("project".to_owned(), Value::from(name));
        }
        told.insert("allowed".to_owned(), Value::from(outcome.is_ok()));
        match outcome {
            Ok(Permitted::Once(decision)) => self.permitted(&mut told, decision.permit.right()),
            Ok(Permitted::Across(members)) => self.across(&mut told, &members),
            Err(refusal) => self.refused(&mut told, &refusal),
        }
        Value::Object(told)
    }

    fn permitted(&self, told: &mut Map<String, Value>, right: &Right) {
        told.extend(self.by(right));
        let (kind, message) = match right {
            Right::Rule { .. } => ("Rule", "a rule of the role permits it"),
            Right::Namespaces { .. } => {
                ("Namespaces", "the role on the project permits making and deleting namespaces")
            }
            Right::Discovery => ("Discovery", "whoever has anything on the cluster may read what it serves"),
            Right::TenantRead => ("TenantRead", "a kind of the whole cluster that all tenants may read"),
            Right::SelfReview => ("SelfReview", "a question about oneself"),
            Right::Forced => ("Forced", "forced by a test"),
        };
        told.insert("right".to_owned(), Value::from(kind));
        told.insert("message".to_owned(), Value::from(message));
    }

    /// A list or watch without a namespace. Only about oneself, or by who may ask about everything.
    fn across(&self, told: &mut Map<String, Value>, members: &Members) {
        let namespaces = members.permitted.iter().map(|member| {
            let mut one = self.by(member.decision.permit.right());
            one.insert("namespace".to_owned(), Value::from(member.namespace.as_str()));
            Value::Object(one)
        });
        told.insert("namespaces".to_owned(), namespaces.collect());
        told.insert("leftOut".to_owned(), json!(members.left_out));
        told.insert("right".to_owned(), Value::from("Across"));
        told.insert("message".to_owned(), Value::from(members.in_words()));
    }

    /// Grant, role and rule of a right that has them. Of a grant that the caller may not see (an owner sees those on the
    /// project, and may ask who reaches into it by one on the cluster) only the target is told.
    fn by(&self, right: &Right) -> Map<String, Value> {
        let mut told = Map::new();
        let grant = match right {
            Right::Rule { grant, role, rule } => {
                told.insert("role".to_owned(), Value::from(&*role.name));
                told.insert("rule".to_owned(), json!(role.rules.rule(*rule)));
                told.insert("ruleText".to_owned(), Value::from(role.rules.describe(*rule)));
                grant
            }
            Right::Namespaces { grant, role } => {
                told.insert("role".to_owned(), Value::from(grant.object.spec.role.as_str()));
                told.insert("ruleText".to_owned(), Value::from(format!("{role} makes or deletes namespaces")));
                grant
            }
            Right::Discovery | Right::TenantRead | Right::SelfReview | Right::Forced => return told,
        };
        let grant = if self.sees_grant(grant) { shown(grant) } else { json!({"target": grant.object.spec.target}) };
        told.insert("grant".to_owned(), grant);
        told
    }

    fn refused(&self, told: &mut Map<String, Value>, refusal: &Refusal) {
        // Of somebody else who holds nothing in the namespace nothing more is told: not whether they know the cluster
        // by something that they hold elsewhere.
        let elsewhere = !self.asks_of_self && self.owned.is_some() && !self.holds_something();
        let reason = if elsewhere { "no-namespace" } else { refusal.reason };
        told.insert("reason".to_owned(), Value::from(reason));
        told.insert("message".to_owned(), Value::from(self.message(reason, refusal)));
        let view = self.call.view();
        let (snapshot, now) = (view.snapshot, view.now);
        let lacks = matches!(reason, "no-rule" | "no-namespace" | "no-cluster");
        if lacks {
            let short = explain::short(snapshot, self.account, self.question.place(), now);
            let short = short.iter().filter(|short| self.sees_grant(&short.grant)).take(LISTED);
            let short: Vec<Value> = short
                .map(|short| {
                    let mut told = shown(&short.grant);
                    told["why"] = Value::from(short.why.as_str());
                    told
                })
                .collect();
            if !short.is_empty() {
                told.insert("grantsThatFallShort".to_owned(), Value::from(short));
            }
        }
        told.insert("remedy".to_owned(), self.remedy(reason));
    }

    /// Whether the account holds any role in the namespace.
    fn holds_something(&self) -> bool {
        let view = self.call.view();
        let none = TokenScopes::default();
        resolve::namespace(view.snapshot, self.account, &none, self.question.place(), view.now).is_some()
    }

    fn message(&self, reason: &str, refusal: &Refusal) -> String {
        if self.asks_of_self || TELLABLE.contains(&reason) || reason.starts_with("token-") {
            // Without the command that asks this.
            let message = &refusal.status.message;
            return message.split(decide::SEE).next().unwrap_or_default().to_owned();
        }
        let (user, cluster) = (self.user(), &self.question.cluster);
        match reason {
            "no-namespace" => {
                let of = self.project().map(|(_, name)| format!(" of project {name:?}")).unwrap_or_default();
                format!("{user} holds no role in namespace {:?}{of} on cluster {cluster:?}", self.question.namespace)
            }
            "no-cluster" => format!("{user} has nothing on a cluster {cluster:?}"),
            "across-namespaces" => {
                format!("{user} may not do this across all namespaces of cluster {cluster:?}; name one")
            }
            "no-namespace-right" => format!("{user} may not do this to namespaces on cluster {cluster:?}"),
            reason => format!("{user} is refused ({reason})"),
        }
    }

    /// What would help, and who can do it, by name where the names may be seen.
    fn remedy(&self, reason: &str) -> Value {
        let RequestInfo::Resource(request) = &self.question.request else {
            return json!({"text": "none: only discovery, OpenAPI and version are served beside resources"});
        };
        match reason {
            "no-rule" | "no-namespace" => self.grant_that_would(request),
            "no-cluster" => json!({
                "text": "a grant on a project that has a place on the cluster; its owners and platform administrators can give one",
                "by": self.granters(None),
            }),
            "across-namespaces" => json!({"text": "none by a grant: roles hold in namespaces; name one"}),
            "no-namespace-right" => json!({
                "text": "a grant on the whole project: members make namespaces, owners make and delete them",
                "by": self.granters(self.project().map(|(_, name)| name)),
            }),
            "namespace-exists" => json!({"text": "none needed: it is there already"}),
            "changes-by-git" => json!({
                "text": "change it in Git, or a grant with spec.expiresAt; owners of the project can give one",
                "by": self.granters(self.project().map(|(_, name)| name)),
            }),
            "group-out-of-reach" => json!({
                "text": "a platform administrator can add the API group to spec.tenantAPIGroups of the Cluster",
                "by": self.granters(None),
            }),
            "proxy-subresource" => json!({"text": "none: nobody is permitted this; use port-forward"}),
            "cluster-unusable" => json!({"text": "none by a grant: the cluster must be usable again"}),
            "account-inactive" => json!({
                "text": "a platform administrator can resume or enable the account",
                "by": self.granters(None),
            }),
            "token-read-only" | "token-audience" | "token-dead" => json!({"text": "another token"}),
            _ => json!({"text": "ask a platform administrator", "by": self.granters(None)}),
        }
    }

    fn grant_that_would(&self, request: &ResourceRequest) -> Value {
        let Some((project, name)) = self.project() else {
            if self.question.namespace.is_empty() {
                let text = "a grant of a role that permits it, on a project; its owners and platform administrators can give one";
                return json!({"text": text, "by": self.granters(None)});
            }
            let text = "a grant on the project that has the namespace, if there is one; its owners and platform administrators can give it";
            return json!({"text": text, "by": self.granters(None)});
        };
        let roles = explain::roles_that_would(&self.call.snapshot, project, request);
        let text = if roles.is_empty() {
            format!(
                "no role of project {name:?} permits it; a platform administrator can write an AccessRole that does and add it to spec.roles of the Project"
            )
        } else {
            format!(
                "a grant of {} on project {name:?}; its owners and platform administrators can give it",
                roles.join(" or ")
            )
        };
        let by = self.granters(Some(name));
        json!({"text": text, "roles": roles, "project": name, "by": by})
    }

    /// Who can grant, as far as the grants that let them may be seen.
    fn granters(&self, project: Option<&str>) -> Vec<Value> {
        let view = self.call.view();
        let granters = explain::granters(view.snapshot, project, view.now);
        granters.iter().filter(|grant| self.sees_grant(grant)).map(|grant| self.subject(grant)).collect()
    }

    /// Subject of a grant that may be seen, with members where it is a team that may be seen.
    fn subject(&self, grant: &GrantEntry) -> Value {
        let subject = &grant.object.spec.subject;
        let as_what = match grant.object.spec.target.kind {
            TargetKind::Platform => "platform administrator",
            _ => "owner",
        };
        let mut told = json!({"kind": subject.kind, "name": subject.name, "as": as_what});
        let team = self.call.view().object(Kind::Team, &subject.name);
        if subject.kind == SubjectKind::Team
            && let Some(team) = team.filter(|team| self.rights.sees(Kind::Team, team))
        {
            let members = team["status"]["members"].as_array().cloned().unwrap_or_default();
            told["members"] = members.into_iter().take(LISTED).collect();
        }
        told
    }

    fn sees_grant(&self, grant: &GrantEntry) -> bool {
        let object = self.call.view().object(Kind::Grant, &grant.name);
        object.is_some_and(|object| self.rights.sees(Kind::Grant, &object))
    }

    /// The answer of `who-can`.
    pub(super) fn who_can(&self, found: &WhoCan) -> Value {
        let mut told = self.asked();
        match self.project() {
            Some((_, name)) => drop(told.insert("project".to_owned(), Value::from(name))),
            None => {
                let message = "no project has this namespace, or it does not exist: nobody reaches it by this service";
                told.insert("message".to_owned(), Value::from(message));
            }
        }
        let users = found.holders.iter().map(|holder| {
            let mut user = self.by(&holder.right);
            user.insert("name".to_owned(), json!(holder.user.object.metadata.name));
            user.insert("type".to_owned(), json!(holder.user.object.spec.type_));
            Value::Object(user)
        });
        told.insert("users".to_owned(), users.collect());
        let grants = found.givings.iter().filter(|giving| self.sees_grant(&giving.grant));
        let grants = grants.map(|giving| {
            let mut grant = self.by(&giving.right);
            grant.insert("subject".to_owned(), json!(giving.grant.object.spec.subject));
            Value::Object(grant)
        });
        told.insert("grants".to_owned(), grants.collect());
        if let Some(refusal) = &found.against {
            told.insert("reason".to_owned(), Value::from(refusal.reason));
            told.insert("message".to_owned(), Value::from(refusal.status.message.as_str()));
        }
        Value::Object(told)
    }
}

/// A grant in short.
fn shown(grant: &GrantEntry) -> Value {
    let spec = &grant.object.spec;
    let mut told = json!({"name": &*grant.name, "role": spec.role, "subject": spec.subject, "target": spec.target});
    if !spec.namespaces.is_empty() {
        told["namespaces"] = json!(spec.namespaces);
    }
    if let Some(end) = &spec.expires_at {
        told["expiresAt"] = json!(end);
    }
    if let Some(reason) = &spec.reason {
        told["reason"] = json!(reason);
    }
    told
}
