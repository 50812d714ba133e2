//! `Grant`.

use jiff::Timestamp;

use super::{Causes, References, text};
use crate::domain::roles;
use crate::resources::GrantSpec;
use crate::resources::grant::{SubjectKind, Target, TargetKind};

const MAX_NAMESPACES: usize = 200;

/// Checks the spec of a grant. Subject and target need not exist: until they do, the grant waits and gives nothing.
/// `old` is the stored spec; one that cannot be read makes every change of the three sentence parts a refusal.
pub fn validate_grant(
    old: Option<Result<GrantSpec, serde_json::Error>>,
    spec: &GrantSpec,
    refs: &dyn References,
    causes: &mut Causes,
) {
    let GrantSpec { subject, role, target, namespaces, expires_at, reason } = spec;
    let old = match old {
        None => None,
        Some(Ok(old)) => Some(old),
        Some(Err(_)) => {
            causes.forbidden("spec", "the stored grant cannot be read; delete it and write a new one");
            return;
        }
    };
    match &old {
        Some(old) => {
            for (field, same) in [
                ("spec.subject", old.subject == *subject),
                ("spec.role", old.role == *role),
                ("spec.target", old.target == *target),
            ] {
                if !same {
                    causes.forbidden(field, "cannot be changed; delete the grant and write a new one");
                }
            }
        }
        None => {
            match subject.kind {
                SubjectKind::User => text::subdomain("spec.subject.name", &subject.name, causes),
                SubjectKind::Team => text::label("spec.subject.name", &subject.name, causes),
            };
            check_target(target, causes);
            check_role(role, target, refs, causes);
        }
    }
    if target.kind != TargetKind::Project && !namespaces.is_empty() {
        causes.forbidden("spec.namespaces", "only a grant on a Project can be limited to namespaces");
    } else if causes.bounded("spec.namespaces", namespaces.len(), MAX_NAMESPACES) {
        for (at, namespace) in namespaces.iter().enumerate() {
            text::namespace(&format!("spec.namespaces[{at}]"), namespace, causes);
        }
        text::distinct("spec.namespaces", namespaces.iter().map(String::as_str), causes);
    }
    text::line("spec.reason", reason.as_deref(), text::MAX_REASON, causes);
    if let Some(text) = expires_at {
        match rfc3339(text) {
            None => causes.invalid("spec.expiresAt", "must be a time such as 2030-01-31T18:00:00Z (RFC 3339)"),
            // Later it may be set to the past: that ends the grant.
            Some(end) if old.is_none() && end <= refs.now() => {
                causes.invalid("spec.expiresAt", "must be in the future");
            }
            Some(_) => {}
        }
    }
}

fn check_target(target: &Target, causes: &mut Causes) {
    const FIELD: &str = "spec.target.name";
    match target.kind {
        TargetKind::Platform if !target.name.is_empty() => {
            causes.forbidden(FIELD, "must be absent: there is one platform");
        }
        TargetKind::Platform => {}
        TargetKind::Project | TargetKind::Cluster => {
            text::label(FIELD, &target.name, causes);
        }
    }
}

fn check_role(role: &str, target: &Target, refs: &dyn References, causes: &mut Causes) {
    const FIELD: &str = "spec.role";
    let built_in = roles::BUILT_IN.contains(&role);
    match target.kind {
        TargetKind::Platform if roles::PLATFORM.contains(&role) => {}
        TargetKind::Platform => causes.invalid(FIELD, "must be admin or auditor on the Platform"),
        TargetKind::Cluster if built_in => {}
        TargetKind::Cluster => causes.invalid(FIELD, "must be owner, member or viewer on a Cluster"),
        TargetKind::Project if built_in => {}
        TargetKind::Project => {
            let project = refs.project(&target.name);
            if roles::PLATFORM.contains(&role) {
                causes.invalid(FIELD, format!("{role} is a role on the Platform, not on a Project"));
            } else if !project.is_some_and(|project| project.roles.iter().any(|used| used == role)) {
                let (role, project) = (text::shown(role), text::shown(&target.name));
                causes.not_found(
                    FIELD,
                    format!("must be owner, member, viewer or one of the project's spec.roles; project {project:?} does not use {role:?}"),
                );
            } else if !refs.access_roles().contains_key(role) {
                causes.not_found(FIELD, format!("AccessRole {:?} does not exist", text::shown(role)));
            }
        }
    }
}

/// A time in the one format of RFC 3339 that Kubernetes writes; the parser alone would accept more.
fn rfc3339(text: &str) -> Option<Timestamp> {
    let shape = text.len() >= 20
        && text.len() <= 40
        && text.bytes().enumerate().all(|(at, b)| match at {
            4 | 7 => b == b'-',
            10 => b == b'T',
            13 | 16 => b == b':',
            0..=18 => b.is_ascii_digit(),
            _ => b.is_ascii_digit() || matches!(b, b'.' | b':' | b'+' | b'-' | b'Z'),
        });
    shape.then(|| text.parse().ok())?
}
