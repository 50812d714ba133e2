//! A way to a cluster that can be cut, or fall silent.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Passes connections on to one address.
pub struct Relay {
    pub address: SocketAddr,
    // Cancelled to end the connections of the moment; `None` while the way is cut.
    way: watch::Sender<Option<CancellationToken>>,
    // Whether bytes pass on the connections of the moment.
    silent: watch::Sender<CancellationToken>,
}

impl Relay {
    /// To the server of an URL `https://<address>`.
    pub async fn to(server: &str) -> Self {
        let target: SocketAddr = server.trim_start_matches("https://").parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (way, open) = watch::channel(Some(CancellationToken::new()));
        let (silent, hush) = watch::channel(CancellationToken::new());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Some(end) = open.borrow().clone() else { continue };
                let hush = hush.borrow().clone();
                tokio::spawn(end.run_until_cancelled_owned(pass(client, target, hush)));
                // The test is over.
                if open.has_changed().is_err() {
                    return;
                }
            }
        });
        Self { address, way, silent }
    }

    /// Ends every connection and lets no new one through.
    pub fn cut(&self) {
        if let Some(end) = self.way.send_replace(None) {
            end.cancel();
        }
    }

    /// From now on nothing passes on the connections that stand, and nobody is told: they look alive. New ones pass.
    pub fn silence(&self) {
        self.silent.send_replace(CancellationToken::new()).cancel();
    }

    /// Lets everybody through again.
    pub fn mend(&self) {
        self.way.send_replace(Some(CancellationToken::new()));
    }

    /// Sockets of this machine that are, or were and are not closed, connected to it.
    pub fn sockets(&self) -> usize {
        const TIME_WAIT: &str = "06";
        let port = format!(":{:04X}", self.address.port());
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let theirs = |line: &&str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields[2].ends_with(&port) && fields[3] != TIME_WAIT
        };
        table.lines().skip(1).filter(theirs).count()
    }
}

async fn pass(mut client: TcpStream, target: SocketAddr, hush: CancellationToken) {
    // Nobody listens there during an outage: the client's connection ends, as it would without us.
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    // Where nobody listens, a connection can be one with itself, and would keep the port from who comes back.
    if server.local_addr().ok() == server.peer_addr().ok() {
        return;
    }
    if hush.run_until_cancelled(copy_bidirectional(&mut client, &mut server)).await.is_none() {
        std::future::pending::<()>().await;
    }
}
