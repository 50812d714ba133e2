use super::*;
use clap::CommandFactory;
use clap::error::ErrorKind;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("bailiwick").chain(line.split_whitespace()))
}

#[test]
fn the_tree_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn what_is_accepted() {
    for line in [
        "serve --data-dir d --listen 127.0.0.1:0",
        "recover-admin --data-dir d",
        "backup b --data-dir d",
        "restore b --data-dir d",
        "restore --as-it-is",
        "keys list --data-dir d",
        "keys retire 08bb1e72",
        "login https://x.example.com",
        "login https://x.example.com --username jane --password-stdin --ca-file ca.pem --no-kubeconfig",
        "logout",
        "whoami -o json",
        "get projects",
        "get project shop -o yaml",
        "apply -f a.yaml -f b --dry-run",
        "apply -f -",
        "delete project shop",
        "delete -f a.yaml",
        "user suspend jane --reason lost",
        "user disable jane",
        "user resume jane --url https://x.example.com",
        "user set-password",
        "user set-password jane --password-stdin --must-change",
        "token list --user jane -o json",
        "token create --audience api --expires 30d",
        "token create --cluster a --cluster b --project p --read-only",
        "token revoke abc def",
        "kubeconfig --cluster demo --project shop --expires 30d --read-only -o f",
        "kubeconfig --merge f --user ci",
        "cluster manifest demo --kubernetes-version 1.36 --tenant-api-group example.com",
        "cluster import demo --kubeconfig f --context c",
        "cluster check demo",
        "cluster check-upgrade demo 1.37.0",
        "cluster forget demo --project shop",
        "project namespace create shop shop-x --cluster demo",
        "project ns delete shop shop-x --cluster demo",
        "project namespace move shop-x --cluster demo --from shop --to billing",
        "why create pods -n shop-dev",
        "why jane get pods/exec web-0 -n shop-dev --cluster demo --project shop --by abc -o json",
        "who-can get secrets -n shop-dev --cluster demo --subresource status",
        "audit --user jane --refused --since 1h --until 2026-01-01T00:00:00Z --limit 5 -o json",
    ] {
        if let Err(error) = parse(line) {
            panic!("{line}: {error}");
        }
    }
}

#[test]
fn what_is_refused_and_names_the_flag() {
    for (line, named) in [
        ("login https://x.example.com --password hunter2", "--password"),
        ("login https://x.example.com --insecure", "--insecure"),
        ("login https://x.example.com --insecure-skip-tls-verify", "--insecure-skip-tls-verify"),
        ("login https://x.example.com --password-stdin", "--username"),
        ("user set-password jane --password hunter2", "--password"),
        ("user set-password --must-change --password-stdin", "NAME"),
        ("whoami --token bwk_x_y", "--token"),
        ("kubeconfig -o a --merge b", "--merge"),
        ("restore", "FILE"),
        ("restore b --as-it-is", "--as-it-is"),
        ("kubeconfig --expires soon", "--expires"),
        ("token create --audience both", "--audience"),
        ("cluster import demo", "--kubeconfig"),
        ("project namespace create shop shop-x", "--cluster"),
        ("delete", "KIND"),
        ("delete project shop -f x", "--filename"),
        ("apply", "--filename"),
        ("audit --since yesterday", "--since"),
        ("get projects -o wide", "--output"),
        ("serve --listen 8443", "--listen"),
        ("serve --tls-cert-file x", "--tls-key-file"),
    ] {
        let error = parse(line).expect_err(line).to_string();
        assert!(error.contains(named), "{line}: {error}");
    }
}

#[test]
fn usage_errors_have_exit_code_2_and_help_has_0() {
    assert_eq!(parse("frobnicate").unwrap_err().exit_code(), 2);
    assert_eq!(parse("--help").unwrap_err().exit_code(), 0);
    assert_eq!(parse("--version").unwrap_err().kind(), ErrorKind::DisplayVersion);
}

#[test]
fn no_option_takes_a_secret_and_every_option_says_what_it_is() {
    fn walk(command: &clap::Command, path: &str) {
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            assert!(argument.get_help().is_some(), "{path} {id} has no help");
            let takes_value = argument.get_action().takes_values();
            let secret = id.contains("password") || id.contains("secret") || id.contains("token");
            let by_file = id.ends_with("_file");
            assert!(!(takes_value && secret && !by_file), "{path} --{id} would put a secret on the command line");
        }
        for sub in command.get_subcommands() {
            assert!(sub.get_about().is_some(), "{path} {} has no help", sub.get_name());
            walk(sub, &format!("{path} {}", sub.get_name()));
        }
    }
    let mut command = Cli::command();
    command.build();
    walk(&command, "bailiwick");
}

#[test]
fn top_level_help_tells_the_exit_codes() {
    let help = Cli::command().render_help().to_string();
    assert!(help.contains("3 server not reachable or not trusted"), "{help}");
}
