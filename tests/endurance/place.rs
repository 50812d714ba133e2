//! Where everything happens: one site with a relay before the cluster, a runtime, and numbers that come again.

use std::path::Path;
use std::sync::OnceLock;

use kube::config::{KubeConfigOptions, Kubeconfig};
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Runtime;

use super::relay::Relay;
use super::site::*;

/// The site, and what stands between its parts.
pub struct Place {
    pub site: Site,
    /// Between the service and the API server.
    pub to_cluster: Relay,
    pub runtime: Runtime,
}

static PLACE: OnceLock<Place> = OnceLock::new();
static ALONE: Mutex<()> = Mutex::new(());

/// The place, for one test at a time: everything may be stopped.
pub fn place() -> (&'static Place, MutexGuard<'static, ()>) {
    let guard = ALONE.lock();
    (PLACE.get_or_init(Place::start), guard)
}

impl Place {
    fn start() -> Self {
        // As the service does: both libraries of cryptography that are there would be possible.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let mut relay = None;
        let site = Site::start(|server| {
            let made = relay.insert(runtime.block_on(Relay::to(server)));
            format!("https://{}", made.address)
        });
        Self { site, to_cluster: relay.unwrap(), runtime }
    }

    /// A relay before the service.
    pub fn before_service(&self) -> Relay {
        self.runtime.block_on(Relay::to(&self.site.url))
    }

    /// The cluster's administrator, past service and relays.
    pub fn cluster_admin(&self) -> kube::Client {
        self.client(&self.site.kubeconfig, None)
    }

    /// A client of a kubeconfig.
    pub fn client(&self, kubeconfig: &Path, context: Option<&str>) -> kube::Client {
        self.runtime.block_on(async {
            let file = Kubeconfig::read_from(kubeconfig).unwrap();
            let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
            let config = kube::Config::from_custom_kubeconfig(file, &options).await.unwrap();
            kube::Client::try_from(config).unwrap()
        })
    }
}

/// Numbers that seem random, the same for the same seed.
#[derive(Debug, Clone)]
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Less than this.
    pub fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound.max(1)
    }

    /// One of these.
    pub fn one_of<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        if of.is_empty() { None } else { of.get(self.below(of.len())) }
    }
}

/// A number that the environment may set.
pub fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}
