//! Tests against real Kubernetes clusters: what the two accounts and members can do there, in both forms of
//! impersonation. The clusters are built by `tests/kubernetes` and end with the test process.

mod cluster {
    #[macro_use]
    mod harness;

    mod ask;
    mod controllers;
    mod forwarding;
    mod housekeeping;
    mod housekeeping_rbac;
    mod limited;
    mod manager;
    mod members;
    mod namespaces;
    mod probes;
    mod uninstall;
}
