//! The caches of real client libraries: `tests/informers`, once for each form.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde::Deserialize;

use super::process::DEADLINE;

/// How a cache is kept: client-go with lists and watches, with watches that begin with what is there, of metadata only,
/// the manager of controller-runtime, and of the namespaces themselves instead of ConfigMaps.
pub const FORMS: [&str; 5] = ["list-watch", "watch-list", "metadata", "manager", "namespaces"];

/// Objects as `namespace/name`, namespaces as `name`, with their revisions.
pub type Objects = BTreeMap<String, String>;

/// What the program says; see there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    pub cache: Objects,
    pub told: Objects,
    pub synced: bool,
    pub lists: u64,
    pub watches: u64,
    pub streams: u64,
}

/// One running cache. It ends with this.
pub struct Informer {
    pub form: &'static str,
    child: Child,
    lines: Receiver<String>,
    log: PathBuf,
}

impl Informer {
    /// Starts one with a kubeconfig, its log in a folder. `server` is where it goes instead of the kubeconfig's server.
    pub fn start(form: &'static str, kubeconfig: &Path, server: &str, folder: &Path) -> Self {
        let log = folder.join(format!("{form}.log"));
        let mut command = Command::new(built());
        command.args(["-form", form, "-context", "demo", "-server", server, "-kubeconfig"]).arg(kubeconfig);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(std::fs::File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { form, child, lines, log }
    }

    /// What it holds now.
    pub fn report(&mut self) -> Report {
        let Self { form, child, lines, log } = self;
        let said = child.stdin.as_mut().unwrap().write_all(b"\n").map_err(|why| why.to_string());
        let line = said.and_then(|()| lines.recv_timeout(DEADLINE).map_err(|why| why.to_string()));
        let line = line.unwrap_or_else(|why| {
            panic!("{form} says nothing ({why}): {}", std::fs::read_to_string(log).unwrap_or_default())
        });
        serde_json::from_str(&line).unwrap_or_else(|why| panic!("{form}: {why}: {line}"))
    }
}

impl Drop for Informer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/informers");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("informers");
        let mut build = Command::new("go");
        build.current_dir(root).env("CGO_ENABLED", "0").args(["build", "-trimpath", "-o"]).arg(&program).arg(".");
        assert!(build.status().expect("Go is installed").success(), "tests/informers is built");
        program
    })
}

/// What differs between two states, for people; nothing where they are the same.
pub fn difference(what: &str, has: &Objects, should: &Objects) -> Option<String> {
    let mut found = vec![];
    for (name, revision) in should {
        match has.get(name) {
            None => found.push(format!("{name} is missing (its revision is {revision})")),
            Some(old) if old != revision => found.push(format!("{name} is at {old} and not at {revision}")),
            Some(_) => {}
        }
    }
    found.extend(
        has.iter()
            .filter(|(name, _)| !should.contains_key(*name))
            .map(|(name, at)| format!("{name} at {at} is a ghost")),
    );
    (!found.is_empty()).then(|| {
        let more = found.len().saturating_sub(10);
        found.truncate(10);
        format!("{what}: {}{}", found.join(", "), if more > 0 { format!(" and {more} more") } else { String::new() })
    })
}
