//! Who may do what on our own resources: casbin's decision, over the model and rules in `policies/`.
//!
//! The engine runs once, when the service starts: every question that can be asked is asked then, and the answers are
//! kept in a table. A request is a look-up; what is not in the table is refused before any engine sees it. The
//! kubectl path does not come here.

mod classes;
mod held;
mod policy;
mod questions;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

pub use classes::field_classes;
pub use held::{ObjectRef, role_by, roles_held};
pub use policy::AccessError;
pub use questions::{EVERYBODY, ROLES, questions};

const MODEL: &str = include_str!("../policies/model.conf");
const RULES: &str = include_str!("../policies/policy.csv");

/// One question: role held, kind, verb, class of fields.
type Question<'a> = [&'a str; 4];

/// The decisions, tabulated.
pub struct Access {
    allowed: HashSet<Question<'static>>,
}

impl Access {
    /// Reads the rules that come with the service and answers every question in advance. Takes well under a second;
    /// an error means that the rules themselves are wrong.
    pub fn load() -> Result<Self, AccessError> {
        Self::from_rules(MODEL, RULES)
    }

    /// The table of the process, made at the first call: the rules are compiled in and the same for everybody.
    pub fn shared() -> Result<Arc<Self>, AccessError> {
        static SHARED: OnceLock<Arc<Access>> = OnceLock::new();
        if let Some(made) = SHARED.get() {
            return Ok(made.clone());
        }
        let made = Arc::new(Self::load()?);
        Ok(SHARED.get_or_init(|| made).clone())
    }

    fn from_rules(model: &str, rules: &str) -> Result<Self, AccessError> {
        policy::tabulate(model, rules).map(|allowed| Self { allowed })
    }

    /// Whether somebody who holds these roles may do this. Roles add up; what no rule allows, and what a rule denies
    /// to everybody, is refused, and so is every word that the rules do not know.
    ///
    /// `kind` is the name of a resource, or `Namespace`, `Audit` or `Self`; `verb` a verb of Kubernetes or the name of
    /// an act; `field_class` comes from [`field_classes`], or is `object` for reading and for acts.
    pub fn allows(&self, roles: &[&str], kind: &str, verb: &str, field_class: &str) -> bool {
        roles.iter().any(|role| self.allowed.contains(&[*role, kind, verb, field_class]))
    }
}

#[cfg(test)]
mod tests;
