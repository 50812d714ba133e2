//! A platform in front of a cluster that fails as it is told, and whether all is as before afterwards.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bailiwick::clock::Clock;
use bailiwick::listener::Limits;
use bailiwick::proxy::ProxySettings;

use super::harness::{DEADLINE, Pki, World};
use super::matrix::Site;
use super::rough::Rough;
use super::wire::{Client, End, PROTOCOLS, Part, Protocol, Raw, Reply};

const FORMS: [&str; 2] = ["/k8s/clusters/demo", "/k8s/clusters/demo/projects/shop"];
const NS: &str = "/api/v1/namespaces/shop-web";

/// A platform in front of a cluster that fails as it is told.
pub struct Failing {
    pub site: Site,
    pub rough: Rough,
    joe: String,
    /// Tasks of everything while nothing is asked.
    tasks: usize,
}

/// What is asked: one of each kind of way to a cluster.
#[derive(Clone, Debug)]
pub struct Asked {
    pub name: &'static str,
    pub protocol: Protocol,
    pub raw: Raw,
    /// Asks for another protocol, and has a connection to the cluster of its own.
    pub upgrade: bool,
    /// Goes over HTTP/2 to the cluster.
    pub streams: bool,
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

impl Failing {
    pub async fn start() -> Self {
        Self::within(Limits::default(), Duration::from_secs(3)).await
    }

    /// With other limits, and so much time for a cluster to answer and to go on.
    pub async fn within(limits: Limits, patience: Duration) -> Self {
        let settings = ProxySettings { response_timeout: patience, stall: patience, ..ProxySettings::default() };
        let cluster_pki = Pki::new();
        let rough = Rough::start(&cluster_pki).await;
        let world = World::start_before(settings, Arc::new(Clock::system()), cluster_pki, rough.address).await;
        let joe = world.issue("joe", Default::default()).await;
        let mut made = Self { site: Site::around(world, limits).await, rough, joe, tasks: 0 };
        made.others_go_on("the start").await;
        made.tasks = tasks();
        made
    }

    /// Reads and writes, streams and sessions; in both forms of the URL, over both protocols where they can.
    pub fn all(&self) -> Vec<Asked> {
        let mut all = vec![];
        for form in FORMS {
            for (name, method, tail, upgrade) in [
                ("list", "GET", "/pods", ""),
                ("object", "GET", "/pods/p", ""),
                ("log", "GET", "/pods/p/log", ""),
                ("create", "POST", "/configmaps", ""),
                ("patch", "PATCH", "/configmaps/c", ""),
                ("delete", "DELETE", "/pods/p", ""),
                ("watch", "GET", "/pods?watch=1", ""),
                ("followed log", "GET", "/pods/p/log?follow=true", ""),
                ("exec", "GET", "/pods/p/exec?command=sh", "websocket"),
                ("exec over SPDY", "POST", "/pods/p/exec?command=sh", "SPDY/3.1"),
                ("attach", "GET", "/pods/p/attach?stdin=1", "websocket"),
                ("port-forward", "POST", "/pods/p/portforward?ports=1", "SPDY/3.1"),
                ("port-forward over WebSocket", "GET", "/pods/p/portforward?ports=1", "websocket"),
            ] {
                for protocol in PROTOCOLS {
                    if !upgrade.is_empty() && protocol == Protocol::Http2 {
                        continue;
                    }
                    let mut raw = Raw::new(method, &format!("{form}{NS}{tail}")).bearer(&self.site.world.token);
                    if matches!(method, "POST" | "PATCH") && upgrade.is_empty() {
                        raw = raw.body(
                            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" },
                            "{}",
                        );
                    }
                    if !upgrade.is_empty() {
                        raw = raw.field("connection", "Upgrade").field("upgrade", upgrade);
                    }
                    let streams = matches!(name, "watch" | "followed log");
                    all.push(Asked { name, protocol, raw, upgrade: !upgrade.is_empty(), streams });
                }
            }
        }
        all
    }

    pub async fn ask(&self, asked: &Asked) -> Reply {
        let mut client = Client::dial(self.site.address, &self.site.pki, asked.protocol).await;
        client.send(&asked.raw).await;
        client.reply().await
    }

    /// As [`Failing::ask`]; what goes on for long is left once it has begun.
    pub async fn begin(&self, asked: &Asked) -> Reply {
        let mut client = Client::dial(self.site.address, &self.site.pki, asked.protocol).await;
        client.send(&asked.raw).await;
        match client.next().await {
            Part::Head(code, fields) if code >= 400 => Reply { code, fields, ..client.reply().await },
            Part::Head(code, fields) => Reply { code, fields, body: String::new(), end: End::Cut("left".into()) },
            Part::Data(_) => unreachable!("a head is first"),
            Part::End(end) => Reply { code: 0, fields: vec![], body: String::new(), end },
        }
    }

    /// Opens what goes on, up to its head.
    pub async fn open(&self, asked: &Asked) -> Client {
        let mut client = Client::dial(self.site.address, &self.site.pki, asked.protocol).await;
        client.send(&asked.raw).await;
        let code = if asked.upgrade { 101 } else { 200 };
        let head = client.next().await;
        assert!(matches!(&head, Part::Head(is, _) if *is == code), "{asked:?}: {head:?}");
        client
    }

    /// Another account's requests to another namespace of the same cluster.
    pub async fn others_go_on(&self, after: &str) {
        let billing = "/k8s/clusters/demo/api/v1/namespaces/billing-api";
        for protocol in PROTOCOLS {
            let mut client = Client::dial(self.site.address, &self.site.pki, protocol).await;
            client.send(&Raw::new("GET", &format!("{billing}/pods")).bearer(&self.joe)).await;
            let reply = client.reply().await;
            assert!(reply.code == 200 && reply.body.contains("PodList"), "after {after}: {reply:?}");
            client.send(&Raw::new("GET", &format!("{billing}/pods?watch=1")).bearer(&self.joe)).await;
            let head = client.next().await;
            assert!(matches!(head, Part::Head(200, _)), "after {after}: {head:?}");
            assert!(matches!(client.next().await, Part::Data(_)), "after {after}");
        }
    }

    /// Nothing is left: no stream, no place, no task, no connection but a few that are kept for the next request.
    pub async fn all_is_as_before(&self, after: &str) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let streams = self.site.world.proxy.streams().len();
            let (now, open) = (tasks(), self.rough.open());
            let busy = self.rough.busy();
            // Connections wait for their next request, and each has a task at the cluster; those of HTTP/2 one here, too.
            // So many have waited at a time as a crowd of requests needed.
            if streams == 0 && busy == 0 && open <= 30 && now <= self.tasks + open + 8 {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "after {after}: {streams} streams, {busy} requests at the cluster, {now} tasks ({} before), {open} open",
                self.tasks
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
