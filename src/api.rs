//! The management API: our resources under Kubernetes' conventions, and the acts that no resource can express.
//!
//! Everything is decided from a snapshot of the index and written through the store by compare-and-swap. A client is
//! known by a bearer token of audience `api`; no cookie is looked at. What a caller may not see answers exactly like
//! what does not exist. Every mutation has an audit record before it and one after it.

mod accept;
mod acts;
mod assemble;
mod body;
mod call;
mod deletion;
mod discovery;
mod front;
mod kinds;
mod kubeconfig;
mod openapi;
mod pages;
mod params;
mod reach;
mod read;
mod references;
mod resolve;
mod rights;
mod routes;
mod rules;
mod selector;
mod strict;
mod table;
mod view;
mod watch;
mod write;
mod yaml;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use axum::response::{IntoResponse, Response};
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::audit::Audit;
use crate::clusters::Clusters;
use crate::clusters::probe::Aspect;
use crate::controllers::NamespaceActs;
use crate::identity::accounts::Accounts;
use crate::identity::last_used::LastUsed;
use crate::index::Index;
use crate::status::Status;
use crate::store::Store;
use crate::store::sealed::Sealer;
use crate::tenancy::Tenancy;

/// Where a request really came from; put into a request's extensions by whoever accepts connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// Where clients find the service, as it stands in kubeconfigs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicEndpoint {
    /// `https://host[:port]`.
    pub url: String,
    /// The CA that the served chain ends at, in PEM; absent where that is one that every system knows.
    pub certificate_authority: Option<Vec<u8>>,
}

/// One thing that was looked at in a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterCheck {
    /// What was looked at, for people.
    pub name: String,
    /// Whether it is as it must be.
    pub ok: bool,
    /// What was found, and what to do about it.
    pub message: String,
    /// Whether requests are refused while it is not met; otherwise it is advice.
    pub required: bool,
}

/// What the API asks of clusters themselves.
#[async_trait]
pub trait ClusterActs: Send + Sync + 'static {
    /// Looks at a cluster now: reached, identified, version, rights, guards. Never fails: what could not be looked at
    /// is a check that is not met. Ends within a bounded time.
    async fn check(&self, cluster: &str) -> Vec<ClusterCheck>;
}

#[async_trait]
impl ClusterActs for Clusters {
    async fn check(&self, cluster: &str) -> Vec<ClusterCheck> {
        let report = match Clusters::check(self, cluster).await {
            Some(Ok(report)) => report,
            Some(Err(message)) => {
                return vec![ClusterCheck { name: "probe".to_owned(), ok: false, message, required: true }];
            }
            None => return vec![],
        };
        let checks = report.checks.iter().map(|check| ClusterCheck {
            name: check.name.clone(),
            ok: check.ok,
            message: check.message.clone(),
            required: check.aspect != Aspect::Advice,
        });
        checks.collect()
    }
}

/// What the API works with.
pub struct ApiParts {
    /// Where resources are written.
    pub store: Arc<dyn Store>,
    /// Opens token records where a watch tells of one that is gone, and seals cluster credentials.
    pub sealer: Arc<Sealer>,
    /// What is read.
    pub index: Arc<Index>,
    /// Signing in, suspension, tokens.
    pub accounts: Accounts,
    /// Notes the use of tokens.
    pub last_used: Arc<LastUsed>,
    /// Who may do what.
    pub access: Arc<Access>,
    /// Claims and shares of namespaces.
    pub tenancy: Arc<Tenancy>,
    /// Namespaces, down to their effect.
    pub namespaces: Arc<dyn NamespaceActs>,
    /// What is asked of clusters themselves.
    pub clusters: Arc<dyn ClusterActs>,
    /// Where audit records go.
    pub audit: Arc<Audit>,
    /// Where clients find us.
    pub public: PublicEndpoint,
    /// Ends watches when the process goes down.
    pub shutdown: CancellationToken,
}

/// The shared state of all handlers.
#[derive(Clone)]
pub struct ApiState(Arc<Inner>);

struct Inner {
    parts: ApiParts,
    pages: pages::Pages,
    watches: watch::Watches,
    // Rules that look at several objects (no prefix within another's, nothing that refers to what is being deleted)
    // need one writer at a time: the store's compare-and-swap is on single objects.
    writes: tokio::sync::Mutex<()>,
}

/// The system gave no random bytes for the key of continue tokens.
#[derive(Debug, thiserror::Error)]
#[error("no random bytes: {0}")]
pub struct NoRandomness(#[from] getrandom::Error);

impl ApiState {
    /// Makes the state.
    pub fn new(parts: ApiParts) -> Result<Self, NoRandomness> {
        let pages = pages::Pages::new()?;
        Ok(Self(Arc::new(Inner {
            parts,
            pages,
            watches: watch::Watches::default(),
            writes: tokio::sync::Mutex::new(()),
        })))
    }
}

/// The router. Paths that it does not know are answered with a `Status` too.
pub fn router(state: ApiState) -> axum::Router {
    routes::router(state)
}

/// An error on its way out; remembers its reason for the audit record.
#[derive(Debug)]
struct Failure(Status);

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self(status)
    }
}

/// The reason of an error, for the audit record of the request.
#[derive(Clone)]
struct Reason(String);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let reason = Reason(self.0.message.clone());
        let mut response = self.0.into_response();
        response.extensions_mut().insert(reason);
        response
    }
}

type Answer = Result<Response, Failure>;
