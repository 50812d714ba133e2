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
#[path = "proxy/every_route.rs"]
mod every_route;
#[path = "proxy/failing.rs"]
mod failing;
#[path = "proxy/faults.rs"]
mod faults;
#[path = "proxy/floods.rs"]
mod floods;
#[path = "proxy/harness.rs"]
mod harness;
#[path = "proxy/hostile_clients.rs"]
mod hostile_clients;
#[path = "proxy/hostile_clusters.rs"]
mod hostile_clusters;
#[path = "proxy/hpack.rs"]
mod hpack;
#[path = "proxy/leavers.rs"]
mod leavers;
#[path = "proxy/matrix.rs"]
mod matrix;
#[path = "proxy/namespaces.rs"]
mod namespaces;
#[path = "proxy/our_own.rs"]
mod our_own;
#[path = "proxy/past.rs"]
mod past;
#[path = "proxy/places.rs"]
mod places;
#[path = "proxy/readings.rs"]
mod readings;
#[path = "proxy/rough.rs"]
mod rough;
#[path = "proxy/rough_streams.rs"]
mod rough_streams;
#[path = "proxy/smuggling.rs"]
mod smuggling;
#[path = "proxy/strangers.rs"]
mod strangers;
#[path = "proxy/wire.rs"]
mod wire;
