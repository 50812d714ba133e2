//! The local Kubernetes of `tests/kubernetes`: building, starting, outages, kubectl. Shared by the tests on it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A running cluster. It ends when this is dropped, and with the test process.
pub struct Kubernetes {
    /// Everything about it: `ready.json`, `admin.kubeconfig`, `bin/kubectl`, logs.
    pub folder: PathBuf,
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Kubernetes {
    /// Starts a cluster in this folder and returns once it is ready. `more` are further arguments.
    pub fn start(name: &str, folder: &Path, more: &[&str]) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        // Commands of Pods are processes of this machine: what they need is found there.
        let path = format!("{}:{}", root.join("tests/service/shims").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(built(&[]));
        command.args(["cluster", "--name", name, "--exit-with-stdin", "--outlive-parent"]).args(more);
        command.arg("--dir").arg(folder).env("PATH", path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        let mut cluster = Self { folder: folder.to_owned(), process, answers };
        let line = cluster.answer();
        assert!(line.contains("kubeconfig"), "the cluster did not become ready; see {}", folder.display());
        cluster
    }

    /// Stops the API server; etcd and everything else stay. Returns once it is gone.
    pub fn stop_api_server(&mut self) {
        self.command("stop kube-apiserver");
    }

    /// Starts it again at the same address. Returns once it is ready.
    pub fn start_api_server(&mut self) {
        self.command("start kube-apiserver");
    }

    fn command(&mut self, command: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{command}").unwrap();
        let line = self.answer();
        assert_eq!(line.trim(), format!("{command}: done"), "see {}", self.folder.display());
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line
    }
}

/// What `tests/kubernetes/build.sh` makes: without arguments the binary that behaves as the component that it is called
/// by, kubectl among them.
pub fn built(args: &[&str]) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubernetes/build.sh");
    let built = Command::new(script).args(args).stderr(Stdio::inherit()).output().unwrap();
    assert!(built.status.success(), "tests/kubernetes/build.sh {args:?} failed");
    String::from_utf8(built.stdout).unwrap().trim().into()
}

/// A folder of this process' own for files of its tests, below a common one, where those of processes that are gone are
/// removed. The name ends with the process' id.
pub fn own_folder(common: &str, name: &str) -> PathBuf {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR")).join(common);
    for entry in std::fs::read_dir(&parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let gone = name.rsplit('-').next().is_some_and(|pid| !Path::new("/proc").join(pid).exists());
        if gone {
            // Another test process may do the same.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let folder = parent.join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// kubectl with a kubeconfig. Its caches are beside the cluster's files, never at home.
pub fn kubectl(cluster: &Path, kubeconfig: &Path) -> Command {
    let mut command = Command::new(cluster.join("bin/kubectl"));
    command.env("KUBECONFIG", kubeconfig).env("HOME", cluster).current_dir(cluster);
    command
}
