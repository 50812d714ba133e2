//! For which project a new namespace is: by the path of the request, by a label, or by the prefix of its name.

use super::super::metadata::{about, shown};
use super::super::right::{self, Candidate};
use crate::proxy::decide::Context;
use crate::records::ClaimOrigin;
use crate::status::Status;
use crate::tenancy::names;

/// Most projects that a refusal lists.
const LISTED: usize = 20;

/// Chooses the one project that may have the name.
///
/// Nothing is looked at but the rights of the caller and the specs of the projects where they have them, so that a
/// refusal says nothing of who has a name or whether anybody has.
pub(super) fn choose<'a>(ctx: &Context<'a>, name: &str, label: Option<&str>) -> Result<Candidate<'a>, Status> {
    let all = right::creators(ctx);
    let within: Vec<&Candidate<'a>> =
        all.iter().filter(|candidate| label.is_none_or(|label| label == candidate.project)).collect();
    let forbidden = |why: String| about(Status::forbidden(format!("namespaces {name:?} is forbidden: {why}")), name);
    if let (Some(label), []) = (label, within.as_slice()) {
        let narrowed =
            ctx.place.project.map(|p| format!(" (the context is that of project {p:?})")).unwrap_or_default();
        return Err(forbidden(format!(
            "you may not make namespaces on cluster {:?} for a project {:?}{narrowed}; {}",
            ctx.place.cluster,
            shown(label),
            listed(&all)
        )));
    }
    let fitting: Vec<&Candidate<'a>> = within
        .iter()
        .filter(|c| matches!(names::origin(c.project, c.place, name), Ok(ClaimOrigin::Created | ClaimOrigin::Declared)))
        .copied()
        .collect();
    let by_git = right::creations_held_back(ctx, name).filter(|_| fitting.is_empty());
    if let Some(by_git) = by_git {
        return Err(forbidden(by_git.instead()));
    }
    match fitting.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(forbidden(format!(
            "no project of yours may have a namespace of this name on cluster {:?}; {}",
            ctx.place.cluster,
            listed(within.iter().copied())
        ))),
        several => {
            let projects: Vec<&str> = several.iter().take(LISTED).map(|c| c.project).collect();
            Err(forbidden(format!(
                "it could be for any of the projects {}; say which by the label bailiwick.dev/project, or by the context <project>@{}",
                projects.join(", "),
                ctx.place.cluster
            )))
        }
    }
}

/// What the caller could have instead.
fn listed<'a, 'b: 'a>(candidates: impl IntoIterator<Item = &'a Candidate<'b>>) -> String {
    let prefixes: Vec<String> = candidates
        .into_iter()
        .filter_map(|c| Some(format!("{:?} (project {})", c.prefix()?, c.project)))
        .take(LISTED)
        .collect();
    if prefixes.is_empty() {
        return "your projects there have the namespaces that they declare and no others; a platform administrator can set \
                prefix and maxNamespaces"
            .to_owned();
    }
    format!("names have to begin with {}", prefixes.join(" or "))
}
