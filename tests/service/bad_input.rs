//! Clear errors and exit codes for what is wrong.

use std::process::Command;

use super::process::*;
use super::site::*;

fn serve(site: &Site, name: &str, config: &str) -> Ran {
    let file = site.folder.join(format!("{name}.toml"));
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bailiwick"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--config"]).arg(file);
    command.arg("--data-dir").arg(site.folder.join(format!("{name}-data")));
    run(command)
}

#[test]
fn a_configuration_with_mistakes_is_refused() {
    let (site, _guard) = site();
    let text = serve(site, "unknown-key", "listen_on = '127.0.0.1:1'\n").ends(2);
    has(&text, &["unknown-key.toml", "line 1", "listen_on"]);
    has(&serve(site, "bad-value", "public_url = 'http://x'\n").ends(2), &["public_url", "https://"]);
    let text = serve(site, "no-certificate", "[tls]\ncert_file = '/nowhere/a'\nkey_file = '/nowhere/b'\n").ends(1);
    has(&text, &["/nowhere/a"]);
    let garbage = site.folder.join("garbage.pem");
    std::fs::write(&garbage, "no certificate\n").unwrap();
    let garbage = garbage.display();
    let text = serve(site, "garbage", &format!("[tls]\ncert_file = '{garbage}'\nkey_file = '{garbage}'\n")).ends(1);
    has(&text, &["garbage.pem"]);
    let mut no_config = Command::new(env!("CARGO_BIN_EXE_bailiwick"));
    no_config.args(["serve", "--config", "/nowhere/config.toml"]);
    has(&run(no_config).ends(2), &["/nowhere/config.toml"]);
}

#[test]
fn an_unknown_certificate_is_not_trusted() {
    let (site, _guard) = site();
    // The cluster's CA is not the service's.
    let wrong = site.folder.join("cluster/pki/ca.crt");
    let mut command = site.bailiwick();
    command.arg("whoami").env("BAILIWICK_CA_FILE", &wrong);
    has(&run(command).ends(3), &["not trusted"]);
    let mut command = site.bailiwick();
    command.args(["login", "https://127.0.0.1:1", "--username", "admin", "--password-stdin", "--no-kubeconfig"]);
    has(&run_with(command, b"password\n").ends(3), &["127.0.0.1:1"]);
    let mut command = site.bailiwick();
    command.arg("whoami").env("BAILIWICK_CA_FILE", "/nowhere/ca.crt");
    has(&run(command).ends(2), &["/nowhere/ca.crt"]);
}

#[test]
fn kubeconfigs_that_cannot_be_imported() {
    let (site, _guard) = site();
    let import = |name: &str, text: &str, more: &[&str]| {
        let file = site.folder.join(format!("{name}.import"));
        std::fs::write(&file, text).unwrap();
        site.admin(&[&["cluster", "import", "broken", "--kubeconfig", file.to_str().unwrap()], more].concat())
    };
    let good = std::fs::read_to_string(&site.kubeconfig).unwrap();
    let head = "apiVersion: v1\nkind: Config\n";
    for (name, text, more, needle) in [
        ("empty", head.to_owned(), &[][..], "context"),
        ("no-yaml", "{{{".to_owned(), &[][..], "no-yaml.import"),
        ("other-context", good.clone(), &["--context", "nowhere"][..], "nowhere"),
        (
            "dangling",
            format!("{head}current-context: a\ncontexts: [{{name: a, context: {{cluster: b, user: c}}}}]\n"),
            &[][..],
            "\"b\"",
        ),
    ] {
        has(&import(name, &text, more).fails(), &[needle]);
    }
    has(&site.admin(&["cluster", "import", "broken", "--kubeconfig", "/nowhere/file"]).fails(), &["/nowhere/file"]);
    // Nothing is left of it.
    lacks(&site.admin(&["get", "clusters", "-o", "name"]).ok(), &["broken"]);
}

#[test]
fn resources_with_mistakes_are_refused_by_field_and_rule() {
    let (site, _guard) = site();
    let apply = |text: &str| {
        let mut command = site.bailiwick();
        command.args(["apply", "-f", "-"]);
        run_with(command, text.as_bytes())
    };
    let team = |name: &str, spec: &str| {
        format!("{{apiVersion: bailiwick.dev/v1alpha1, kind: Team, metadata: {{name: {name:?}}}, spec: {spec}}}")
    };
    for (text, needle) in [
        (team("fine", "{members: [a]}"), "members"),
        (team("..", "{}"), "name"),
        (team("system:masters", "{}"), "name"),
        (team("😀", "{}"), "name"),
        (team(&"a".repeat(300), "{}"), "name"),
        (team("fine", "{users: ['Jane']}"), "users"),
        ("{{{".to_owned(), "line"),
        (team("fine", "{}").replace("kind: Team", "kind: Crew"), "Crew"),
    ] {
        has(&apply(&text).fails(), &[needle]);
    }
    lacks(&site.admin(&["get", "teams", "-o", "name"]).ok(), &["fine"]);
    apply(&team("fine", "{}")).ok();
}
