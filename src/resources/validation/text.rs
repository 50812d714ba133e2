//! Texts and names that occur in several kinds.

use super::Causes;
use crate::domain::names;

/// Longest text for people, in characters.
pub(super) const MAX_DISPLAY: usize = 128;
/// Longest reason or description, in characters.
pub(super) const MAX_REASON: usize = 512;

/// A value as it may stand in a message: bounded.
pub(super) fn shown(value: &str) -> String {
    value.chars().take(80).collect()
}

/// Whether a character has no place in a line of text: it moves the cursor, turns the direction of writing, or is
/// invisible, so that two names look alike.
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{061c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Checks a line of text for people.
pub(super) fn line(field: &str, value: Option<&str>, most: usize, causes: &mut Causes) {
    let Some(value) = value else { return };
    if value.trim().is_empty() {
        causes.invalid(field, "must not be empty; leave the field out instead");
    } else if value.chars().count() > most {
        causes.invalid(field, format!("must be at most {most} characters"));
    } else if value.chars().any(is_deceptive) {
        causes.invalid(field, "must not contain control, direction or invisible characters");
    }
}

/// A text made a line for people: without what [`line`] refuses, cut at `most` characters. `None` where nothing is left.
pub fn cleaned_line(text: &str, most: usize) -> Option<String> {
    let kept: String = text.chars().filter(|c| !is_deceptive(*c)).take(most).collect();
    let kept = kept.trim();
    (!kept.is_empty()).then(|| kept.to_owned())
}

/// Checks a name that must be an RFC 1123 label; returns whether it is.
pub(super) fn label(field: &str, value: &str, causes: &mut Causes) -> bool {
    checked(field, names::check_label(value), causes)
}

/// Checks a name that must be an RFC 1123 subdomain; returns whether it is.
pub(super) fn subdomain(field: &str, value: &str, causes: &mut Causes) -> bool {
    checked(field, names::check_subdomain(value), causes)
}

fn checked(field: &str, result: Result<(), names::NameError>, causes: &mut Causes) -> bool {
    match result {
        Ok(()) => true,
        Err(names::NameError::Empty) => {
            causes.required(field, "must not be empty");
            false
        }
        Err(error) => {
            causes.invalid(field, error.to_string());
            false
        }
    }
}

/// Checks a namespace that a project may have; returns whether it may.
pub(super) fn namespace(field: &str, value: &str, causes: &mut Causes) -> bool {
    if !label(field, value, causes) {
        return false;
    }
    if names::is_system_namespace(value) {
        causes.forbidden(field, format!("{value:?} belongs to the cluster itself and can be in no project"));
        return false;
    }
    true
}

/// A DNS name of up to 253 characters: labels joined by dots.
pub(super) fn is_dns_name(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(|label| names::check_label(label).is_ok())
}

/// Reports the second and later occurrences of a value, at `field[i]`.
pub(super) fn distinct<'a>(field: &str, values: impl IntoIterator<Item = &'a str>, causes: &mut Causes) {
    let mut seen = std::collections::HashSet::new();
    for (at, value) in values.into_iter().enumerate() {
        if !seen.insert(value) {
            causes.duplicate(format!("{field}[{at}]"), value);
        }
    }
}
