//! `User` and `Team`.

use super::{Causes, text};
use crate::resources::{TeamSpec, UserSpec};

const MAX_MEMBERS: usize = 5_000;

/// Checks the spec of a user.
pub fn validate_user(spec: &UserSpec, causes: &mut Causes) {
    let UserSpec { display_name, email, type_: _, disabled: _ } = spec;
    text::line("spec.displayName", display_name.as_deref(), text::MAX_DISPLAY, causes);
    text::line("spec.email", email.as_deref(), 254, causes);
    if let Some(email) = email {
        // Shown, never used to identify: only what cannot be an address is refused.
        let plausible = email
            .split_once('@')
            .is_some_and(|(local, host)| !local.is_empty() && !host.is_empty() && !host.contains('@'));
        if !plausible || email.chars().any(|c| c.is_whitespace() || matches!(c, '<' | '>' | ',' | ';' | '"')) {
            causes.invalid("spec.email", "must be an address such as jane@example.com");
        }
    }
}

/// Checks the spec of a team. Its users need not exist: they get nothing until they do.
pub fn validate_team(spec: &TeamSpec, causes: &mut Causes) {
    let TeamSpec { display_name, users } = spec;
    text::line("spec.displayName", display_name.as_deref(), text::MAX_DISPLAY, causes);
    if causes.bounded("spec.users", users.len(), MAX_MEMBERS) {
        for (at, user) in users.iter().enumerate() {
            text::subdomain(&format!("spec.users[{at}]"), user, causes);
        }
        text::distinct("spec.users", users.iter().map(String::as_str), causes);
    }
}
