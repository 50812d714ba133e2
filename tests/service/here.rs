//! One kubectl of one person, in one context and namespace.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::kubernetes::built;
use super::process::*;
use super::site::*;

/// How kubectl opens its sessions.
#[derive(Debug, Clone, Copy)]
pub enum Protocol {
    WebSocket,
    Spdy,
}

impl Protocol {
    pub fn set(self, command: &mut Command) {
        let value = match self {
            Self::WebSocket => "true",
            Self::Spdy => "false",
        };
        command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", value).env("KUBECTL_PORT_FORWARD_WEBSOCKETS", value);
    }
}

/// Where a command line is meant.
pub struct Here {
    pub site: &'static Site,
    pub person: Person,
    pub context: String,
    pub namespace: String,
    pub protocol: Protocol,
    /// `1.36` or older, and the program.
    pub kubectl: (String, PathBuf),
}

impl Here {
    /// With the kubectl that the cluster has.
    pub fn new(site: &'static Site, person: Person, context: &str, namespace: &str, protocol: Protocol) -> Self {
        let kubectl = ("1.36".to_owned(), site.folder.join("cluster/bin/kubectl"));
        Self { site, person, context: context.into(), namespace: namespace.into(), protocol, kubectl }
    }

    /// The argument of `--raw` for a path of the cluster: kubectl before 1.34 drops the path of the server's URL.
    pub fn raw(&self, path: &str) -> String {
        let minor: u32 = self.kubectl.0.strip_prefix("1.").unwrap().parse().unwrap();
        if minor >= 34 {
            return path.to_owned();
        }
        match self.context.split_once('@') {
            Some((project, cluster)) => format!("/k8s/clusters/{cluster}/projects/{project}{path}"),
            None => format!("/k8s/clusters/{}{path}", self.context),
        }
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let Self { person, context, namespace, kubectl: (_, program), .. } = self;
        let mut command = self.site.kubectl_of(program, &person.kubeconfig);
        command.args(["--context", context, "-n", namespace]).args(args);
        self.protocol.set(&mut command);
        command
    }

    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, "")
    }

    #[track_caller]
    pub fn run_with(&self, args: &[&str], input: impl AsRef<[u8]>) -> Ran {
        run_with(self.command(args), input.as_ref())
    }

    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        self.run(args).ok()
    }

    pub fn start(&self, args: &[&str]) -> Running {
        Running::start(self.command(args))
    }

    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[args, &["-o", "json"]].concat())).unwrap()
    }

    /// A folder of this one's own, for files and for what kubectl remembers.
    pub fn folder(&self, purpose: &str) -> PathBuf {
        let folder = self.site.folder.join(purpose).join(format!("{}-{:?}", self.namespace, self.protocol));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }
}

/// The kubectl of an older minor version.
pub fn older_kubectl(minor_version: &str) -> PathBuf {
    built(&["kubectl", minor_version])
}

/// Helm 3.
pub fn helm_program() -> PathBuf {
    built(&["helm"])
}
