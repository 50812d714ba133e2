//! A host with a service on it that is stopped and started, and people who sign in to it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bailiwick::store::sealed::{Ring, Sealer};
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;

use super::process::*;

pub const FIRST: &str = "first-Pass-93b1-word";
pub const ADMIN: &str = "second-Pass-72ca-word";

pub struct Host {
    folder: TempDir,
    running: Mutex<Option<(Running, String)>>,
}

impl Host {
    /// With a service that runs, and an administrator who is signed in.
    pub fn start() -> Self {
        let host = Self::stopped();
        host.serve();
        host.login("admin", &[FIRST, ADMIN]).ok();
        host
    }

    pub fn stopped() -> Self {
        let host = Self { folder: tempfile::tempdir().unwrap(), running: Mutex::new(None) };
        std::fs::write(host.path("password"), FIRST).unwrap();
        host
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// A command as somebody, who has a home of their own.
    pub fn command(&self, who: &str, arguments: &[&str]) -> Command {
        let home = self.path(&format!("home-{who}"));
        std::fs::create_dir_all(&home).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_bailiwick"));
        command.args(arguments).env_clear().env("HOME", home).env("BAILIWICK_SERVE_DATA_DIR", self.data());
        command
    }

    pub fn run(&self, who: &str, arguments: &[&str]) -> Ran {
        run(self.command(who, arguments))
    }

    /// A command of the host's administrator.
    pub fn host(&self, arguments: &[&str]) -> Ran {
        self.run("root", arguments)
    }

    fn serve_command(&self) -> Command {
        let mut command = self.command("service", &["serve", "--listen", "127.0.0.1:0"]);
        command.args(["--metrics-listen", "127.0.0.1:0", "--bootstrap-password-file"]).arg(self.path("password"));
        command
    }

    /// Starts the service and waits until it serves.
    pub fn serve(&self) {
        let running = Running::start(self.serve_command());
        let said = running.prints("serving on https://");
        let url = said.split("serving on ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        *self.running.lock() = Some((running, url));
    }

    /// A start that must be refused: what it says.
    #[track_caller]
    pub fn refused_start(&self) -> String {
        run(self.serve_command()).ends(1)
    }

    pub fn pid(&self) -> u32 {
        std::fs::read_to_string(self.data().join("lock")).unwrap().trim().parse().unwrap()
    }

    /// SIGTERM, and the end.
    pub fn stop(&self) {
        let (running, _) = self.running.lock().take().unwrap();
        let pid = rustix::process::Pid::from_raw(self.pid() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        running.finish().ok();
    }

    /// SIGKILL, and the end.
    pub fn kill(&self) {
        let (running, _) = self.running.lock().take().unwrap();
        kill(self.pid());
        running.finish();
    }

    pub fn login(&self, who: &str, passwords: &[&str]) -> Ran {
        let url = self.running.lock().as_ref().unwrap().1.clone();
        let mut command = self.command(who, &["login", &url, "--no-kubeconfig", "--password-stdin", "-u", who]);
        command.arg("--ca-file").arg(self.data().join("ca.crt"));
        run_with(command, passwords.join("\n").as_bytes())
    }

    /// Somebody is signed in from before, at the address of then: asks at the address of now.
    pub fn whoami(&self, who: &str) -> Ran {
        self.as_from_before(who, &["whoami"])
    }

    pub fn as_from_before(&self, who: &str, arguments: &[&str]) -> Ran {
        let url = self.running.lock().as_ref().unwrap().1.clone();
        let config = self.path(&format!("home-{who}")).join(".config/bailiwick/config.json");
        let text = std::fs::read_to_string(&config).unwrap();
        let port = |url: &str| url.rsplit(':').next().unwrap().trim_matches('/').to_owned();
        let old = text.split("https://127.0.0.1:").nth(1).unwrap();
        let old: String = old.chars().take_while(char::is_ascii_digit).collect();
        std::fs::write(&config, text.replace(&format!(":{old}"), &format!(":{}", port(&url)))).unwrap();
        self.run(who, arguments)
    }

    /// A person with a password who is signed in.
    pub fn person(&self, name: &str, password: &str) {
        self.user(name);
        self.set_password(name, password);
        self.login(name, &[password]).ok();
    }

    pub fn user(&self, name: &str) {
        let user = json!({
            "apiVersion": "bailiwick.dev/v1alpha1", "kind": "User", "metadata": {"name": name},
            "spec": {"displayName": name},
        });
        run_with(self.command("admin", &["apply", "-f", "-"]), user.to_string().as_bytes()).ok();
    }

    pub fn set_password(&self, name: &str, password: &str) {
        let command = self.command("admin", &["user", "set-password", name, "--password-stdin"]);
        run_with(command, password.as_bytes()).ok();
    }

    /// The key file's keys, for a look at the store from outside.
    pub fn sealer(&self) -> Arc<Sealer> {
        let file = self.data().join("master.key");
        Arc::new(ring(&std::fs::read_to_string(file).unwrap()).into())
    }
}

/// The ring of a key file, by its documented form.
pub fn ring(text: &str) -> Ring {
    use base64::Engine as _;
    use sha2::Digest as _;
    let keys = text.lines().map(|line| {
        let bytes = base64::engine::general_purpose::STANDARD.decode(line.trim()).unwrap();
        let key: [u8; 32] = bytes.try_into().unwrap();
        let id: String = sha2::Sha256::digest(key)[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        (id, key)
    });
    let keys: Vec<_> = keys.collect();
    let mut ring = Ring::new(&keys[0].0, &keys[0].1);
    keys.iter().for_each(|(id, key)| ring.add(id, key));
    ring
}

/// Everything in a folder but the lock, by name: to see that a refusal changed nothing.
pub fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .filter(|(name, _)| name != "lock" && !name.ends_with("-shm") && !name.ends_with("-wal"))
        .collect();
    found.sort();
    found
}
