//! `changes: git`: on such a cluster people read what is a project's and change nothing, unless a grant gives them the
//! right for a time. Machines work as their grants say: they are what brings the changes from Git.

use crate::resources::project::{Changes, GitSource};
use crate::resources::user::UserType;
use crate::resources::{Project, User};

/// That a project's namespaces on a cluster are changed by Git, and where.
#[derive(Debug, Clone, Copy)]
pub struct ByGit<'a> {
    project: &'a str,
    source: Option<&'a GitSource>,
}

impl ByGit<'_> {
    /// What to do instead, for people.
    pub fn instead(&self) -> String {
        let project = self.project;
        let place = match self.source {
            Some(GitSource { repository, path }) => format!("change {path} in {repository}"),
            None => "change it in its repository".to_owned(),
        };
        format!(
            "what project {project:?} has on this cluster is changed by Git: {place}; for a change by hand an owner of \
             {project:?} can give a grant that ends (spec.expiresAt)"
        )
    }
}

/// Whether a person needs a grant that ends in order to change what the project has on the cluster; `None` where they do
/// not, and for machines.
pub fn by_git<'a>(project: &'a Project, cluster: &str, user: &User) -> Option<ByGit<'a>> {
    let place = project.spec.on(cluster)?;
    let person = match user.spec.type_ {
        UserType::Human => true,
        UserType::Machine => false,
    };
    (place.changes == Changes::Git && person)
        .then(|| ByGit { project: project.metadata.name.as_deref().unwrap_or_default(), source: place.git.as_ref() })
}
