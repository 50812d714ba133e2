//! The proxy against hostile clients and hostile clusters, over real sockets and TLS.
//!
//! The cluster here is a recorder: what it is for is to show exactly which bytes would reach an API server, and to misbehave
//! in ways that a real one does not. Nothing here claims how Kubernetes answers; `tests/cluster` does, on a real one.

#[path = "proxy/across.rs"]
mod across;
#[path = "proxy/budgets.rs"]
mod budgets;
#[path = "proxy/changes.rs"]
mod changes;
#[path = "proxy/clock.rs"]
mod clock;
#[path = "proxy/connections.rs"]
mod connections;
#[path = "proxy/cutoff.rs"]
mod cutoff;
#[path = "proxy/desync.rs"]
mod desync;
#[path = "proxy/floods.rs"]
mod floods;
#[path = "proxy/harness.rs"]
mod harness;
#[path = "proxy/hostile_clients.rs"]
mod hostile_clients;
#[path = "proxy/hostile_clusters.rs"]
mod hostile_clusters;
#[path = "proxy/namespaces.rs"]
mod namespaces;
#[path = "proxy/places.rs"]
mod places;
