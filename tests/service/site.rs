//! The cluster, the service and the people of all tests.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde_json::{Value, json};

use super::kubernetes::{Kubernetes, own_folder};
use super::process::*;

/// Name of the cluster in the service.
pub const CLUSTER: &str = "demo";

const PLATFORM: &str = include_str!("data/platform.yaml");
const BUSY: &str = include_str!("data/pods.yaml");

/// Everything that runs.
pub struct Site {
    pub folder: PathBuf,
    pub url: String,
    pub kubeconfig: PathBuf,
    ports: [u16; 2],
    service: AtomicU32,
    // Ends with the test process.
    kubernetes: OnceLock<Mutex<Kubernetes>>,
}

static SITE: OnceLock<Site> = OnceLock::new();
// Whoever stops the service waits until nobody needs it.
static IN_USE: RwLock<()> = RwLock::new(());

/// The service, which stays up meanwhile.
pub fn site() -> (&'static Site, RwLockReadGuard<'static, ()>) {
    let guard = IN_USE.read();
    (SITE.get_or_init(|| Site::start(str::to_owned)), guard)
}

/// The service for one test alone, which may stop it.
pub fn site_alone() -> (&'static Site, RwLockWriteGuard<'static, ()>) {
    let guard = IN_USE.write();
    (SITE.get_or_init(|| Site::start(str::to_owned)), guard)
}

/// Somebody with a kubeconfig.
pub struct Person {
    pub name: String,
    pub kubeconfig: PathBuf,
}

impl Site {
    /// Starts everything. `through` is given the URL of the API server, and says the one that the service is to use.
    pub fn start(through: impl FnOnce(&str) -> String) -> Self {
        let folder = own_folder("service", "site");
        std::fs::create_dir_all(folder.join("home")).unwrap();
        let cluster = thread::spawn({
            let folder = folder.join("cluster");
            move || Kubernetes::start(CLUSTER, &folder, &[])
        });
        let ports = [free_port(), free_port()];
        let site = Self {
            url: format!("https://127.0.0.1:{}", ports[0]),
            kubeconfig: folder.join("cluster/admin.kubeconfig"),
            folder,
            ports,
            service: AtomicU32::new(0),
            kubernetes: OnceLock::new(),
        };
        std::fs::write(site.folder.join("password"), "first-Pass-93b1-word\n").unwrap();
        site.start_service();
        let mut login = site.bailiwick();
        login.args(["login", "--username", "admin", "--password-stdin"]);
        run_with(login, b"first-Pass-93b1-word\nsecond-Pass-72ca-word\n").ok();
        site.kubernetes.get_or_init(|| Mutex::new(cluster.join().unwrap()));
        let ready = std::fs::read(site.folder.join("cluster/ready.json")).unwrap();
        let ready: Value = serde_json::from_slice(&ready).unwrap();
        let server = ready["server"].as_str().unwrap();
        let import = site.folder.join("import.kubeconfig");
        let text = std::fs::read_to_string(&site.kubeconfig).unwrap();
        std::fs::write(&import, text.replace(server, &through(server))).unwrap();
        let manifest = site.admin(&["cluster", "manifest", CLUSTER]).ok();
        let mut apply = site.cluster_admin_command();
        apply.args(["apply", "--server-side", "-f", "-"]);
        run_with(apply, manifest.as_bytes()).ok();
        site.admin(&["cluster", "import", CLUSTER, "--kubeconfig", import.to_str().unwrap()]).ok();
        site.apply(PLATFORM);
        site.project_ready("work");
        site.project_ready("other");
        for namespace in ["work-pods", "other-api"] {
            site.busy_pod(namespace);
        }
        site
    }

    /// Starts the service and waits until it can work.
    pub fn start_service(&self) {
        let mut command = Command::new("sh");
        // Ends with the test process, however that ends: its standard input is a pipe from us.
        command.args(["-c", "\"$@\" >&2 & echo $!; cat >/dev/null; kill -9 $!", "sh"]);
        command.arg(env!("CARGO_BIN_EXE_bailiwick")).arg("serve").arg("--data-dir").arg(self.folder.join("data"));
        command.arg("--listen").arg(format!("127.0.0.1:{}", self.ports[0]));
        command.arg("--metrics-listen").arg(format!("127.0.0.1:{}", self.ports[1]));
        command.args(["--public-url", &self.url]);
        command.arg("--bootstrap-password-file").arg(self.folder.join("password"));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.folder.join("service.log")).unwrap();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let pid = first_line(&mut child).trim().parse().unwrap();
        self.service.store(pid, Ordering::Relaxed);
        // Never dropped: the pipe is what keeps the service going.
        std::mem::forget(child);
        until("the service is ready", || {
            let answer = http(self.ports[1], "/readyz");
            if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(answer) }
        });
    }

    /// SIGKILL for the service; its end is waited for.
    pub fn kill_service(&self) {
        let pid = self.service_pid();
        kill(pid);
        let gone = || {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // Its sockets are closed with its last thread, and not with its first.
            let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
            if state.is_empty() || state.contains(") Z ") && threads <= 1 { Ok(()) } else { Err(state) }
        };
        until("the service is gone", gone);
    }

    pub fn service_pid(&self) -> u32 {
        self.service.load(Ordering::Relaxed)
    }

    /// The metrics of the service.
    #[allow(dead_code, reason = "not all that have a site need it")]
    pub fn metrics(&self) -> String {
        http(self.ports[1], "/metrics")
    }

    /// The cluster, for outages.
    #[allow(dead_code, reason = "not all that have a site need it")]
    pub fn kubernetes(&self) -> MutexGuard<'_, Kubernetes> {
        self.kubernetes.get().expect("it was started").lock()
    }

    /// The command line, with the sign-in of the administrator.
    pub fn bailiwick(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bailiwick"));
        command.env("BAILIWICK_URL", &self.url).env("BAILIWICK_CA_FILE", self.folder.join("data/ca.crt"));
        command.env("XDG_CONFIG_HOME", self.folder.join("home")).env("HOME", self.folder.join("home"));
        command.env("KUBECONFIG", self.folder.join("home/kubeconfig"));
        command
    }

    /// A command of the administrator's.
    #[track_caller]
    pub fn admin(&self, args: &[&str]) -> Ran {
        let mut command = self.bailiwick();
        command.args(args);
        run(command)
    }

    /// kubectl on the service's own API, as its administrator.
    #[track_caller]
    pub fn api(&self, args: &[&str]) -> Ran {
        let mut command = self.kubectl(&self.folder.join("home/kubeconfig"));
        command.args(["--context", "bailiwick"]).args(args);
        run(command)
    }

    /// Applies manifests as the administrator.
    #[track_caller]
    pub fn apply(&self, manifests: &str) {
        let mut command = self.bailiwick();
        command.args(["apply", "-f", "-"]);
        run_with(command, manifests.as_bytes()).ok();
    }

    /// The cluster's own administrator, past the service.
    #[track_caller]
    pub fn cluster_admin(&self, args: &[&str]) -> Ran {
        let mut command = self.cluster_admin_command();
        command.args(args);
        run(command)
    }

    pub fn cluster_admin_command(&self) -> Command {
        self.kubectl(&self.kubeconfig)
    }

    fn kubectl(&self, kubeconfig: &Path) -> Command {
        self.kubectl_of(&self.folder.join("cluster/bin/kubectl"), kubeconfig)
    }

    /// This program as kubectl.
    pub fn kubectl_of(&self, program: &Path, kubeconfig: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("KUBECONFIG", kubeconfig).env("HOME", self.folder.join("home")).current_dir(&self.folder);
        command
    }

    pub fn project_ready(&self, project: &str) {
        until(&format!("project {project} is ready"), || {
            let text = self.admin(&["get", "project", project, "-o", "json"]).ok();
            let value: Value = serde_json::from_str(&text).unwrap();
            if value["status"]["ready"] == "True" { Ok(()) } else { Err(value["status"].to_string()) }
        });
    }

    /// UID of a resource of ours.
    pub fn uid(&self, kind: &str, name: &str) -> String {
        let text = self.admin(&["get", kind, name, "-o", "json"]).ok();
        let value: Value = serde_json::from_str(&text).unwrap();
        value["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// The Pod `busy` in a namespace, running.
    pub fn busy_pod(&self, namespace: &str) {
        let mut create = self.cluster_admin_command();
        create.args(["-n", namespace, "apply", "-f", "-"]);
        run_with(create, BUSY.as_bytes()).ok();
        self.cluster_admin(&["-n", namespace, "wait", "--for=condition=Ready", "pod/busy", "--timeout=30s"]).ok();
    }

    /// A new machine with a role in a project and a kubeconfig.
    #[track_caller]
    pub fn machine(&self, name: &str, grants: &[(&str, &str)]) -> Person {
        let mut manifests = vec![user(name)];
        manifests.extend(grants.iter().map(|(role, project)| grant(name, role, project)));
        self.apply(&manifests.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n"));
        self.kubeconfig_of(name)
    }

    /// A kubeconfig for a machine that exists.
    #[track_caller]
    pub fn kubeconfig_of(&self, name: &str) -> Person {
        let kubeconfig = self.folder.join(format!("{name}.kubeconfig"));
        let file = kubeconfig.to_str().unwrap().to_owned();
        self.admin(&["kubeconfig", "--user", name, "--output", &file]).ok();
        Person { name: name.to_owned(), kubeconfig }
    }

    /// kubectl of a person in a context.
    pub fn command(&self, person: &Person, context: &str, args: &[&str]) -> Command {
        let mut command = self.kubectl(&person.kubeconfig);
        command.args(["--context", context]).args(args);
        command
    }

    #[track_caller]
    pub fn run(&self, person: &Person, context: &str, args: &[&str]) -> Ran {
        run(self.command(person, context, args))
    }
}

/// The resource of a machine.
pub fn user(name: &str) -> Value {
    json!({"apiVersion": "bailiwick.dev/v1alpha1", "kind": "User", "metadata": {"name": name}, "spec": {"type": "Machine"}})
}

/// A grant named `<user>-<role>-<project>`.
pub fn grant(user: &str, role: &str, project: &str) -> Value {
    json!({
        "apiVersion": "bailiwick.dev/v1alpha1", "kind": "Grant",
        "metadata": {"name": format!("{user}-{role}-{project}")},
        "spec": {"subject": {"kind": "User", "name": user}, "role": role,
                 "target": {"kind": "Project", "name": project}},
    })
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line
}

/// A port to listen on, again and again: none that the kernel gives to somebody's outgoing connection meanwhile.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id() % 10_000;
    let mut candidates = (0..10_000).map(|_| {
        let port = 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
        u16::try_from(port).unwrap()
    });
    candidates.find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a port is free")
}

/// The answer of a plain HTTP server; empty where there is none.
pub fn http(port: u16, path: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut answer = String::new();
    let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) else { return answer };
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    if stream.write_all(head.as_bytes()).is_ok() {
        let _ = stream.read_to_string(&mut answer);
    }
    answer
}
