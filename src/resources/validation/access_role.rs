//! `AccessRole`.

use super::cluster::UNREACHABLE_GROUPS;
use super::{Causes, References, text};
use crate::domain::roles::{self, RoleError};
use crate::resources::AccessRoleSpec;

const MAX_RULES: usize = 200;
/// Most groups, resources, verbs or names of one rule.
const MAX_WORDS: usize = 100;
const MAX_INHERITS: usize = 20;

/// Checks the spec of a role of this name. Whether its API groups are within reach is each cluster's own matter.
pub fn validate_access_role(name: &str, spec: &AccessRoleSpec, refs: &dyn References, causes: &mut Causes) {
    let AccessRoleSpec { base: _, rules, inherits } = spec;
    if causes.bounded("spec.rules", rules.len(), MAX_RULES) {
        for (at, rule) in rules.iter().enumerate() {
            let field = |below: &str| format!("spec.rules[{at}].{below}");
            if let Err(error) = rule.check() {
                causes.invalid(field(&error.field), error.message);
                continue;
            }
            let lists = [
                ("apiGroups", rule.api_groups.len()),
                ("resources", rule.resources.len()),
                ("verbs", rule.verbs.len()),
                ("resourceNames", rule.resource_names.len()),
            ];
            if !lists.into_iter().all(|(list, length)| causes.bounded(&field(list), length, MAX_WORDS)) {
                continue;
            }
            for (at, group) in rule.api_groups.iter().enumerate() {
                let field = field(&format!("apiGroups[{at}]"));
                if !group.is_empty() && !text::is_dns_name(group) {
                    causes.invalid(field, "must be a DNS name such as apps or example.com, or \"\" for the core group");
                } else if UNREACHABLE_GROUPS.contains(&group.as_str()) {
                    causes.forbidden(field, format!("{group} belongs to the whole cluster and cannot be granted"));
                }
            }
            for (at, object) in rule.resource_names.iter().enumerate() {
                let legal = !object.is_empty()
                    && object.len() <= 253
                    && !object.contains(['/', '*', '%'])
                    && !object.chars().any(|c| c.is_control() || c.is_whitespace());
                if !legal {
                    causes.invalid(field(&format!("resourceNames[{at}]")), "must be the name of an object");
                }
            }
        }
    }
    if causes.bounded("spec.inherits", inherits.len(), MAX_INHERITS) {
        check_inherits(name, spec, refs, causes);
    }
}

fn check_inherits(name: &str, spec: &AccessRoleSpec, refs: &dyn References, causes: &mut Causes) {
    text::distinct("spec.inherits", spec.inherits.iter().map(String::as_str), causes);
    if spec.inherits.is_empty() {
        return;
    }
    let mut all = refs.access_roles();
    all.insert(name.to_owned(), spec.into());
    for (at, inherited) in spec.inherits.iter().enumerate() {
        let field = format!("spec.inherits[{at}]");
        match roles::effective_rules(inherited, &all) {
            Ok(_) => {}
            Err(RoleError::Unknown(role)) => {
                causes.not_found(field, format!("role {:?} does not exist", text::shown(&role)))
            }
            Err(cycle @ RoleError::Cycle(_)) => causes.invalid(field, super::metadata::bounded(&cycle.to_string())),
        }
    }
}
