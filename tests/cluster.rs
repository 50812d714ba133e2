//! Tests against real Kubernetes clusters: what the two accounts and members can do there, in both forms of
//! impersonation. The clusters are built by `tests/kubernetes` and end with the test process.

#[allow(dead_code)]
#[path = "proxy/harness.rs"]
mod proxy_harness;

mod cluster {
    #[path = "../support/kubernetes.rs"]
    mod kubernetes;
    #[path = "../support/process.rs"]
    #[allow(dead_code)]
    mod process;

    #[macro_use]
    mod harness;

    mod adoption;
    mod appliers;
    mod ask;
    mod controllers;
    mod explained;
    mod forwarding;
    mod hostile;
    mod housekeeping;
    mod housekeeping_rbac;
    mod impostor;
    mod limited;
    mod limited_service;
    mod manager;
    mod members;
    mod namespaces;
    mod outage;
    mod platform;
    mod probes;
    mod relay;
    mod uninstall;
}
