//! The main job with the real parts: the real `bailiwick serve`, a real Kubernetes with a kubelet, real kubectl.
//!
//! One cluster and one service are shared by all tests of this binary; each test has its own accounts and namespaces
//! where it changes rights.

#[allow(dead_code)]
#[path = "proxy/harness.rs"]
mod proxy_harness;

mod service {
    mod here;
    #[path = "../support/kubernetes.rs"]
    #[expect(dead_code, reason = "outages are for the tests of the cluster alone")]
    mod kubernetes;
    #[path = "../support/process.rs"]
    mod process;
    mod site;

    mod across;
    mod adoption;
    mod bad_input;
    mod creations;
    mod cutoff;
    mod explained;
    mod helm;
    mod history;
    mod kubectls;
    mod namespaces;
    mod refusals;
    mod refused_pods;
    mod restart;
    mod sessions;
    mod verbs;
    mod walls;
}
