//! What is said when a budget is used up: which one it is, what to do, and who can raise it.

use super::{Kind, Scope};
use crate::status::Status;

/// A budget has not so many places left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Over {
    /// Which budget.
    pub scope: Scope,
    /// Of what.
    pub kind: Kind,
    /// Places that are taken by whom it is about.
    pub taken: usize,
    /// Places that there are.
    pub most: usize,
    /// Places that were asked for.
    pub places: usize,
    /// The project, where it is about one.
    pub project: Option<String>,
    /// The cluster, where it is about one.
    pub cluster: Option<String>,
}

impl Over {
    /// Bounded, for the audit log.
    pub fn reason(&self) -> &'static str {
        match self.kind {
            Kind::Requests => "too-many-requests",
            Kind::Streams => "too-many-streams",
        }
    }

    /// The setting that bounds it.
    fn setting(&self) -> String {
        let of = match self.scope {
            Scope::Token => "token",
            Scope::User => "user",
            Scope::Project | Scope::ProjectShare => "project",
            Scope::Cluster | Scope::ClusterShare => "cluster",
        };
        format!("proxy.max_{}_per_{of}", self.kind.as_str())
    }

    /// The answer: 429 with the time after which it may be worth a try.
    pub fn status(&self) -> Status {
        let Self { scope, kind, taken, most, places, .. } = self;
        let what = match kind {
            Kind::Requests => "requests in flight",
            Kind::Streams => "long-running responses open",
        };
        let cluster = self.cluster.as_deref().unwrap_or_default();
        let project = self.project.as_deref().unwrap_or_default();
        // What others have on a cluster is nobody's business.
        let full = match scope {
            Scope::Token => format!("this token has {taken} {what}, and {most} is the most one token may have"),
            Scope::User => format!("you have {taken} {what}, and {most} is the most one account may have"),
            Scope::Project => format!(
                "project {project:?} has {taken} {what} on cluster {cluster:?}, and {most} is the most one project may have there"
            ),
            Scope::ProjectShare => format!(
                "you have {taken} {what} in project {project:?} on cluster {cluster:?}, which is your share of the {most} that \
                 its members may have there together"
            ),
            Scope::Cluster => format!("cluster {cluster:?} is busy: it cannot take so many at a time just now"),
            Scope::ClusterShare if project.is_empty() => {
                format!("you have {taken} {what} on cluster {cluster:?}, which is your share of it")
            }
            Scope::ClusterShare => {
                format!("project {project:?} has {taken} {what} on cluster {cluster:?}, which is its share of it")
            }
        };
        let wide = match places {
            1 => String::new(),
            wide => format!("; this one would be {wide} of them"),
        };
        let (instead, seconds) = match kind {
            Kind::Requests => ("try again when some have ended", 1),
            Kind::Streams => ("close some", 10),
        };
        let setting = self.setting();
        let message = format!("{full}{wide}; {instead}, or ask an administrator of the platform to raise {setting}");
        Status::too_many_requests(message, seconds)
    }
}
