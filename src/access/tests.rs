use std::fmt::Write as _;
use std::sync::LazyLock;

use super::*;

const EXPECTED: &str = include_str!("../../policies/expected.csv");

/// The outcome of every question, in the order of the questions.
fn outcomes(access: &Access) -> String {
    let mut lines = String::from("# kind, verb, class: the roles that may. Generated: see README.md.\n");
    for [kind, verb, class] in questions() {
        let may: Vec<_> = ROLES.into_iter().filter(|role| access.allows(&[role], kind, verb, class)).collect();
        let may = if may.is_empty() { "nobody".to_owned() } else { may.join("|") };
        writeln!(lines, "{kind}, {verb}, {class}: {may}").unwrap();
    }
    lines
}

/// Loaded once: the engine takes its time without optimisation.
fn load() -> &'static Access {
    static ACCESS: LazyLock<Access> = LazyLock::new(|| Access::load().unwrap());
    &ACCESS
}

fn broken(rules: &str) -> String {
    match Access::from_rules(MODEL, rules) {
        Ok(_) => panic!("{rules:?} must be refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_outcome_is_as_committed() {
    let found = outcomes(load());
    if std::env::var_os("BAILIWICK_REGENERATE").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/policies/expected.csv"), &found).unwrap();
        return;
    }
    for (found, expected) in found.lines().zip(EXPECTED.lines()) {
        assert_eq!(found, expected, "policies/expected.csv tells otherwise; is the change meant?");
    }
    assert_eq!(found.lines().count(), EXPECTED.lines().count());
}

#[test]
fn administrators_do_everything_that_exists_and_nothing_else() {
    let access = load();
    for [kind, verb, class] in questions().filter(|question| question[2] != "status") {
        let own = matches!(kind, "Self");
        assert_eq!(
            access.allows(&["platform:admin"], kind, verb, class),
            !own || verb != "get",
            "{kind} {verb} {class}"
        );
    }
    for (kind, verb, class) in [
        ("Token", "create", "object"),
        ("Token", "update", "object"),
        ("User", "impersonate", "object"),
        ("Cluster", "*", "object"),
        ("Project", "update", "*"),
        ("*", "get", "object"),
        ("Secret", "get", "object"),
        ("Audit", "delete", "object"),
        ("Grant", "create", "object"),
        ("Project", "updatepsa", "project.security"),
    ] {
        assert!(!access.allows(&["platform:admin"], kind, verb, class), "{kind} {verb} {class}");
    }
}

#[test]
fn auditors_read_everything_and_change_nothing() {
    let access = load();
    for [kind, verb, class] in questions() {
        let reads = matches!(verb, "get" | "list" | "watch" | "check" | "check-upgrade") && kind != "Self";
        assert_eq!(access.allows(&["platform:auditor"], kind, verb, class), reads, "{kind} {verb} {class}");
    }
}

#[test]
fn nobody_writes_a_status_whatever_roles_add_up() {
    let access = load();
    for [kind, verb, _] in questions() {
        assert!(!access.allows(&ROLES, kind, verb, "status"), "{kind} {verb}");
    }
}

#[test]
fn owners_keep_within_their_project() {
    let access = load();
    let owner = &["authenticated", "project:owner"][..];
    for (kind, verb, class) in [
        ("Grant", "create", "grant.project"),
        ("Grant", "delete", "grant.project"),
        ("Project", "update", "project.presentation"),
        ("Project", "patch", "project.quota.lower"),
        ("Project", "patch", "project.security.tighten"),
        ("Project", "patch", "project.shares"),
        ("Namespace", "delete", "object"),
        ("Namespace", "move", "object"),
        ("Namespace", "adopt", "object"),
        ("Explanation", "get", "object"),
    ] {
        assert!(access.allows(owner, kind, verb, class), "{kind} {verb} {class}");
    }
    for (kind, verb, class) in [
        ("Grant", "create", "grant.cluster"),
        ("Grant", "create", "grant.platform"),
        ("Grant", "update", "grant.platform"),
        ("Grant", "delete", "grant.platform"),
        ("Grant", "update", "unknown"),
        ("Project", "create", "object"),
        ("Project", "delete", "object"),
        ("Project", "update", "project.quota"),
        ("Project", "update", "project.placement"),
        ("Project", "update", "project.namespaces"),
        ("Project", "update", "project.roles"),
        ("Project", "update", "project.security"),
        ("Project", "update", "unknown"),
        ("User", "get", "object"),
        ("User", "password", "object"),
        ("User", "suspend", "object"),
        ("User", "tokens", "object"),
        ("Cluster", "get", "object"),
        ("Cluster", "credential", "object"),
        ("AccessRole", "update", "role.rules"),
        ("Team", "update", "team.members"),
        ("Token", "delete", "object"),
        ("Audit", "get", "object"),
    ] {
        assert!(!access.allows(owner, kind, verb, class), "{kind} {verb} {class}");
    }
}

#[test]
fn members_and_viewers_read_and_members_make_namespaces() {
    let access = load();
    for [kind, verb, class] in questions() {
        let reads = matches!(verb, "get" | "list" | "watch") && matches!(kind, "Project" | "Grant" | "Team");
        assert_eq!(access.allows(&["project:viewer"], kind, verb, class), reads, "{kind} {verb} {class}");
        let makes = kind == "Namespace" && verb == "create";
        assert_eq!(access.allows(&["project:member"], kind, verb, class), reads || makes, "{kind} {verb} {class}");
    }
}

#[test]
fn everybody_minds_their_own_account_only() {
    let access = load();
    for verb in ["get", "password", "tokens", "kubeconfig"] {
        assert!(access.allows(&["self"], "User", verb, "object"), "{verb}");
        assert!(!access.allows(&["authenticated"], "User", verb, "object"), "{verb}");
    }
    for (kind, verb, class) in [
        ("User", "resume", "object"),
        ("User", "suspend", "object"),
        ("User", "update", "user.disabled"),
        ("User", "update", "user.type"),
        ("User", "update", "user.presentation"),
        ("User", "delete", "object"),
        ("Grant", "update", "grant.platform"),
        ("Grant", "delete", "grant.project"),
    ] {
        assert!(!access.allows(&["self", "authenticated"], kind, verb, class), "{kind} {verb} {class}");
    }
    assert!(access.allows(&["authenticated"], "Self", "get", "object"));
    assert!(access.allows(&["self"], "Token", "delete", "object"));
    assert!(access.allows(&["self"], "Explanation", "get", "object"));
    assert!(!access.allows(&["authenticated"], "Explanation", "get", "object"));
}

#[test]
fn empty_and_strange_words_are_refused() {
    let access = load();
    for (role, kind, verb, class) in [
        ("", "", "", ""),
        ("", "User", "get", "object"),
        ("platform:admin", "", "get", "object"),
        ("platform:admin", "User", "", "object"),
        ("platform:admin", "User", "get", ""),
        ("everybody", "User", "get", "object"),
        ("everybody", "User", "update", "status"),
        ("platform:admin|self", "User", "get", "object"),
        ("platform:admin", "User|Team", "get", "object"),
        ("PLATFORM:ADMIN", "User", "get", "object"),
        ("platform:admin ", "User", "get", "object"),
    ] {
        assert!(!access.allows(&[role], kind, verb, class), "{role:?} {kind:?} {verb:?} {class:?}");
    }
    assert!(!access.allows(&[], "User", "get", "object"));
}

#[test]
fn a_denial_overrides_every_allowance() {
    let allowed = "p, self|platform:admin, Token, delete, object, allow";
    let access = Access::from_rules(MODEL, allowed).unwrap();
    assert!(access.allows(&["self"], "Token", "delete", "object"));
    for rules in [
        format!("{allowed}\np, everybody, Token, delete, object, deny"),
        format!("p, everybody, Token, get|delete, object, deny\n{allowed}"),
    ] {
        let access = Access::from_rules(MODEL, &rules).unwrap();
        assert!(!access.allows(&["self", "platform:admin"], "Token", "delete", "object"), "{rules}");
    }
}

#[test]
fn careless_rules_are_refused() {
    for (rules, why) in [
        ("", "no rules"),
        ("# nothing\n\n", "no rules"),
        ("p, self, Token, *, object, allow", "wildcards"),
        ("p, *, Token, get, object, allow", "wildcards"),
        ("p, everybody, Token, get, object, allow", "unknown"),
        ("p, self, Token, get, object, deny", "for everybody"),
        ("p, self, Token, get, object, maybe", "allow or deny"),
        ("p, self, Token, get, object", "six fields"),
        ("p, self, Token, get, object, allow, x", "six fields"),
        ("g, self, Token, get, object, allow", "begin with p"),
        ("p, , Token, get, object, allow", "unknown"),
        ("p, self|, Token, get, object, allow", "unknown"),
        ("p, self, Tokens, get, object, allow", "unknown"),
        ("p, self, Token, get|get, object, allow", "twice"),
        ("p, self, Token, suspend, object, allow", "there is no suspend on Token"),
        ("p, self, User|Token, update, user.type, allow", "there is no update on Token"),
        ("p, self, Token, get, object, allow\np, self, Token, get, object, allow", "policy line 2: stands there twice"),
    ] {
        let error = broken(rules);
        assert!(error.contains(why), "{rules:?}: {error}");
    }
}

#[test]
fn a_model_that_the_engine_does_not_take_is_an_error() {
    for (from, to) in [
        ("some(where (p.eft == allow)) && !some(where (p.eft == deny))", "most(where (p.eft == allow))"),
        ("[matchers]", "[nothing]"),
        ("among(r.role, p.role)", "unheard(r.role, p.role)"),
        ("r = role, kind, verb, class", "r = role"),
    ] {
        let model = MODEL.replace(from, to);
        assert_ne!(model, MODEL, "{from}");
        assert!(Access::from_rules(&model, RULES).is_err(), "{to}");
    }
}
