//! Pages in plain HTTP/1.1 for those who operate the service: bounded like everything that listens.

use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::Limits;
use super::places::Places;

/// Longest that one connection lasts, whatever it carries; who scrapes dials anew.
const LIFE: Duration = Duration::from_secs(300);
/// Largest head, in bytes.
const MAX_HEAD: usize = 16 * 1024;

impl Limits {
    /// For the pages: a few scrapers and probes, and nobody who has said nothing yet.
    pub fn of_pages() -> Self {
        Self { head: Duration::from_secs(10), connections: 256, per_address: 64, ..Self::default() }
    }
}

/// Accepts connections until `shutdown`. Needs no credential; whoever can reach the address may ask.
pub async fn serve_pages(listener: TcpListener, pages: axum::Router, shutdown: CancellationToken, limits: Limits) {
    let Limits { head, connections, per_address, .. } = limits;
    let places = Places::new(connections, per_address);
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(MAX_HEAD).max_headers(100);
    loop {
        let accepting = async {
            let place = places.one().await;
            (listener.accept().await, place)
        };
        let (accepted, mut place) = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = accepting => accepted,
        };
        let Ok((tcp, peer)) = accepted else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        if !place.count(peer.ip()) {
            debug!(%peer, "too many connections of one address");
            continue;
        }
        let connection = builder.serve_connection(TokioIo::new(tcp), TowerToHyperService::new(pages.clone()));
        let shutdown = shutdown.clone();
        tokio::spawn(async move {
            let _place = place;
            let mut connection = std::pin::pin!(connection);
            let served = async {
                tokio::select! {
                    ended = connection.as_mut() => return ended,
                    () = shutdown.cancelled() => connection.as_mut().graceful_shutdown(),
                }
                connection.await
            };
            if let Ok(Err(why)) = tokio::time::timeout(LIFE, served).await {
                debug!(%why, %peer, "connection ended");
            }
        });
    }
}
