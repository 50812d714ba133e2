//! What must hold over time, with the real parts: clients' caches through outages of every part and changes of what is
//! theirs, and cut-offs under load. Short forms run with all tests, `make informers` and `make soak` run the long ones.
//!
//! One cluster and one service are shared; between the two and towards clients are relays, which can be cut.

mod endurance {
    #[path = "../support/kubernetes.rs"]
    #[allow(dead_code)]
    mod kubernetes;
    #[path = "../support/process.rs"]
    #[allow(dead_code)]
    mod process;
    #[path = "../cluster/relay.rs"]
    #[allow(dead_code)]
    mod relay;
    #[path = "../service/site.rs"]
    #[allow(dead_code)]
    mod site;

    mod informer;
    mod informers;
    mod load;
    mod place;
    mod schedule;
    mod soak;
    mod writer;
}
