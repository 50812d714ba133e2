//! The `bailiwick` command as a process: exit codes, what goes to which stream, and readers that stop reading.

use std::process::{Command, Output, Stdio};

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The command with nothing of this machine's user in it, and without a terminal.
    fn bailiwick(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bailiwick"));
        command.args(arguments).env_clear().env("HOME", self.0.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.bailiwick(arguments).output().unwrap();
        (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    }
}

#[test]
fn exit_codes_are_the_documented_ones() {
    let home = Home::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("https://{}", free.local_addr().unwrap());
    drop(free);
    for (arguments, code, text) in [
        (&["--help"][..], 0, ""),
        (&["get", "--help"], 0, ""),
        (&["frobnicate"], 2, "frobnicate"),
        (&["get", "pods"], 2, "kind \"pods\" is unknown"),
        (&["apply", "-f", "/does/not/exist.yaml"], 2, "/does/not/exist.yaml"),
        (&["cluster", "check-upgrade", "demo", "abc"], 2, "write it like 1.36"),
        (&["cluster", "check-upgrade", "demo", "1.37.0"], 4, "not signed in"),
        (&["login", "http://127.0.0.1:1"], 2, "plain http"),
        (&["login", &nobody, "--ca-file", "/does/not/exist.pem"], 2, "/does/not/exist.pem"),
        (&["login", &nobody, "-u", "jane", "--password-stdin"], 3, &nobody),
        (&["whoami"], 4, "not signed in"),
        (&["get", "projects", "--url", &nobody], 4, "not signed in"),
    ] {
        let (got, stdout, stderr) = home.run(arguments);
        assert_eq!(got, Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(text), "{arguments:?}: {stderr}");
        assert_eq!(stdout.is_empty(), code != 0, "{arguments:?}: results go to standard output, complaints do not");
    }
    assert_eq!(std::fs::read_dir(home.0.path()).unwrap().count(), 0, "nothing was written");
}

#[test]
fn a_reader_that_stops_reading_is_no_error() {
    let home = Home::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let Output { status, stderr, .. } =
        home.bailiwick(&["cluster", "manifest", "demo"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((status.code(), String::from_utf8(stderr).unwrap().as_str()), (Some(0), ""));
}

#[test]
fn the_manifest_needs_no_server_and_names_what_is_wrong() {
    let home = Home::new();
    let (code, manifest, _) = home.run(&["cluster", "manifest", "demo", "--kubernetes-version", "1.36.3"]);
    assert_eq!(code, Some(0));
    assert!(manifest.contains("kind: ValidatingAdmissionPolicy"), "{manifest}");
    for (arguments, named) in [
        (["cluster", "manifest", "Demo", "--kubernetes-version", "1.36"], "\"Demo\""),
        (["cluster", "manifest", "demo", "--kubernetes-version", "latest"], "--kubernetes-version"),
        (["cluster", "manifest", "demo", "--tenant-api-group", "*"], "\"*\""),
    ] {
        let (code, stdout, stderr) = home.run(&arguments);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(stderr.contains(named), "{arguments:?}: {stderr}");
    }
}

#[test]
fn an_export_of_rancher_is_translated_without_a_server() {
    let home = Home::new();
    let export = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cli/import/rancher/tests/export.yaml");
    let (code, yaml, losses) = home.run(&["import", "rancher", "-f", export]);
    assert_eq!(code, Some(0), "{losses}");
    assert!(yaml.contains("kind: Project") && losses.contains("skipped: Namespace loose"), "{losses}");
    let piped = || {
        let mut command =
            home.bailiwick(&["import", "rancher", "-f", "-", "-o", "json", "--cluster", "c-m-east1=east"]);
        command.stdin(std::fs::File::open(export).unwrap()).output().unwrap()
    };
    let list: serde_json::Value = serde_json::from_slice(&piped().stdout).unwrap();
    assert_eq!(list["clusters"][0]["name"], "east");
    assert!(
        list["losses"].as_array().unwrap().iter().all(|loss| loss["what"].is_string() && loss["source"].is_string())
    );
    for (arguments, named) in [
        (&["import", "rancher"][..], "--filename"),
        (&["import", "rancher", "-f", export, "--cluster", "east"], "write ID=NAME"),
        (&["import", "rancher", "-f", export, "--cluster", "x=east"], "has no cluster \"x\""),
        (&["import", "rancher", "-f", "/does/not/exist.yaml"], "/does/not/exist.yaml"),
    ] {
        let (code, stdout, stderr) = home.run(arguments);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(stderr.contains(named), "{arguments:?}: {stderr}");
    }
    assert_eq!(std::fs::read_dir(home.0.path()).unwrap().count(), 0, "nothing was written");
}
