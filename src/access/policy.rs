//! Reads the rules, refuses careless ones, and lets casbin answer every question once.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use casbin::function_map::dynamic_to_str;
use casbin::rhai::Dynamic;
use casbin::{CoreApi, DefaultModel, Enforcer, MgmtApi, NullAdapter};
use futures::FutureExt as _;

use super::Question;
use super::questions::{EVERYBODY, ROLES, questions};

/// Why the rules cannot be used. The service does not start with such rules.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A line that is no rule, or a careless one.
    #[error("policy line {line}: {why}")]
    Rule {
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// No rules at all. The engine would then judge by the bare matcher.
    #[error("the policy has no rules")]
    Empty,
    /// The engine failed.
    #[error("the policy engine failed: {0}")]
    Engine(String),
}

/// The effect of a rule.
const ALLOW: &str = "allow";
const DENY: &str = "deny";

/// Answers every question; returns those whose answer is yes.
pub(super) fn tabulate(model: &str, rules: &str) -> Result<HashSet<Question<'static>>, AccessError> {
    let rules = read(rules)?;
    // The engine panics on what it does not know, an effect expression for example.
    catch_unwind(AssertUnwindSafe(|| ask(model, rules)))
        .unwrap_or_else(|_| Err(AccessError::Engine("it panicked on the model".to_owned())))
}

fn ask(model: &str, rules: Vec<Vec<String>>) -> Result<HashSet<Question<'static>>, AccessError> {
    let failed = |error: casbin::Error| AccessError::Engine(error.to_string());
    let stuck = || AccessError::Engine("it waited for something".to_owned());
    let count = rules.len();
    // Nothing here waits: model and rules are in memory.
    let mut engine = async {
        let mut engine = Enforcer::new(DefaultModel::from_str(model).await?, NullAdapter).await?;
        engine.add_function("among", casbin::function_map::OperatorFunction::Arg2(among));
        engine.add_policies(rules).await?;
        casbin::Result::Ok(engine)
    }
    .now_or_never()
    .ok_or_else(stuck)?
    .map_err(failed)?;
    engine.enable_enforce(true);
    if engine.get_policy().len() != count {
        return Err(AccessError::Engine("it did not take every rule".to_owned()));
    }
    let mut allowed = HashSet::new();
    for [kind, verb, class] in questions() {
        for role in ROLES {
            if casbin::CoreApi::enforce(&engine, (role, kind, verb, class)).map_err(failed)? {
                allowed.insert([role, kind, verb, class]);
            }
        }
    }
    Ok(allowed)
}

/// Whether a word is one of the alternatives of a rule. `everybody` stands for any role.
fn among(word: Dynamic, alternatives: Dynamic) -> Dynamic {
    let (word, alternatives) = (dynamic_to_str(&word), dynamic_to_str(&alternatives));
    (!word.is_empty() && alternatives.split('|').any(|one| one == word || one == EVERYBODY)).into()
}

/// Reads `p, role, kind, verb, class, effect` lines, with alternatives separated by `|`.
///
/// Refused: wildcards, empty and unknown words, words twice, a rule that no question meets, an allowance for
/// everybody, and a denial that is not for everybody (roles add up, so it would hold only for those who hold nothing
/// else; or take from an administrator what he has as one).
fn read(text: &str) -> Result<Vec<Vec<String>>, AccessError> {
    let existing = questions().collect::<Vec<_>>();
    let mut rules: Vec<Vec<String>> = vec![];
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: String| AccessError::Rule { line: at + 1, why };
        if line.contains('*') {
            return Err(wrong("wildcards are not allowed; name each one".into()));
        }
        let fields = line.split(',').map(str::trim).collect::<Vec<_>>();
        let [p, role, kind, verb, class, effect] = fields[..] else {
            return Err(wrong("must have six fields".into()));
        };
        if p != "p" {
            return Err(wrong("must begin with p".into()));
        }
        let words = |field: &str, known: &dyn Fn(&str) -> bool| -> Result<(), AccessError> {
            let mut seen = HashSet::new();
            for word in field.split('|') {
                if !known(word) || !seen.insert(word) {
                    return Err(wrong(format!("{word:?} is unknown or stands there twice")));
                }
            }
            Ok(())
        };
        match effect {
            ALLOW => words(role, &|word| ROLES.contains(&word))?,
            DENY if role == EVERYBODY => {}
            DENY => return Err(wrong("a denial must be for everybody".into())),
            _ => return Err(wrong("the effect must be allow or deny".into())),
        }
        for (field, at) in [(kind, 0), (verb, 1), (class, 2)] {
            words(field, &|word| existing.iter().any(|question| question[at] == word))?;
        }
        // Every combination that a rule lists must exist; else it says something that its author did not mean.
        for kind in kind.split('|') {
            for verb in verb.split('|') {
                for class in class.split('|') {
                    if !existing.contains(&[kind, verb, class]) {
                        return Err(wrong(format!("there is no {verb} on {kind} that touches {class}")));
                    }
                }
            }
        }
        let rule = [role, kind, verb, class, effect].map(str::to_owned).to_vec();
        if rules.contains(&rule) {
            return Err(wrong("stands there twice".into()));
        }
        rules.push(rule);
    }
    if rules.is_empty() { Err(AccessError::Empty) } else { Ok(rules) }
}
