//! A cluster that speaks both protocols by hand, and fails in the way that it is told, for one namespace only.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::harness::Pki;
use super::rough_streams::multiplexed;

pub type Tls = TlsStream<TcpStream>;

/// What it does to requests for shop-web.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// Nothing wrong: an empty list, an event and silence, an echo.
    None,
    /// Accepts connections and says nothing, as a process that is stopped. To everybody.
    Mute,
    /// Closes connections before they are any. To everybody.
    HangsUp,
    /// Takes requests and answers nothing.
    Silent,
    /// Resets the connection instead of an answer.
    Gone,
    /// Closes it in good order.
    Closes,
    /// Answers in no known language.
    Nonsense,
    /// Half of a head, and then silence.
    HalfHead,
    /// Amid an answer, resets the connection.
    CutByReset,
    /// Amid an answer, closes in good order.
    CutByClose,
    /// Amid an answer, says nothing more, to pings neither.
    CutBySilence,
    /// Amid an answer, resets the stream of HTTP/2 with this error; on HTTP/1.1 as [`Fault::CutByClose`].
    CutStream(u32),
    /// Amid an answer, ends the connection with this error of HTTP/2.
    CutByGoaway(u32),
    /// A byte now and then, and no end.
    Drips,
    /// As much as it can, and no end.
    Pours,
    /// As [`Fault::Pours`], without regard for the window of HTTP/2.
    PoursOverTheWindow,
    /// This body with this type and coding.
    Says(&'static str, &'static str, &'static [u8]),
    /// Fields that are of one hop only, and cookies.
    SaysTooMuch,
    /// Switches to this protocol, or to none that it names.
    Switches(&'static str),
    /// Says with the beginning of each answer that this was the last one on its connection; the answer goes on.
    LastOne,
    /// Ends each connection of HTTP/2 before anything is asked.
    Storm,
    /// Ends each connection of HTTP/2 after the request, which it says it has not seen.
    NotSeen,
}

/// The cluster and what is known of it.
pub struct Rough {
    pub address: SocketAddr,
    known: Arc<Known>,
}

pub struct Known {
    pub fault: Mutex<Fault>,
    open: AtomicUsize,
    accepted: AtomicUsize,
    busy: AtomicUsize,
    pub sent: AtomicU64,
    received: AtomicU64,
    targets: Mutex<Vec<String>>,
}

impl Rough {
    pub async fn start(pki: &Pki) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut config = pki.server();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let known = Arc::new(Known {
            fault: Mutex::new(Fault::None),
            open: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            targets: Mutex::default(),
        });
        let shared = known.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, known) = (acceptor.clone(), shared.clone());
                tokio::spawn(async move {
                    known.accepted.fetch_add(1, Ordering::SeqCst);
                    known.open.fetch_add(1, Ordering::SeqCst);
                    converse(tcp, acceptor, &known).await;
                    known.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, known }
    }

    pub fn behave(&self, fault: Fault) {
        *self.known.fault.lock() = fault;
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.known.open.load(Ordering::SeqCst)
    }

    /// Connections that there were.
    pub fn accepted(&self) -> usize {
        self.known.accepted.load(Ordering::SeqCst)
    }

    /// Requests that are not over.
    pub fn busy(&self) -> usize {
        self.known.busy.load(Ordering::SeqCst)
    }

    /// Bytes that were poured.
    pub fn sent(&self) -> u64 {
        self.known.sent.load(Ordering::SeqCst)
    }

    /// Bytes of sessions that came.
    pub fn received(&self) -> u64 {
        self.known.received.load(Ordering::SeqCst)
    }

    /// Targets of requests since the last call.
    pub fn targets(&self) -> Vec<String> {
        std::mem::take(&mut self.known.targets.lock())
    }
}

impl Known {
    pub fn fault_for(&self, target: &str) -> Fault {
        self.targets.lock().push(target.to_owned());
        // Others go on.
        if target.contains("shop-web") { *self.fault.lock() } else { Fault::None }
    }
}

/// A request that is not over.
pub struct Busy(Arc<Known>);

impl Busy {
    pub fn new(known: &Arc<Known>) -> Self {
        known.busy.fetch_add(1, Ordering::SeqCst);
        Self(known.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn converse(mut tcp: TcpStream, acceptor: TlsAcceptor, known: &Arc<Known>) {
    let fault = *known.fault.lock();
    match fault {
        // Until the other side gives up.
        Fault::Mute => return drain(&mut tcp).await,
        Fault::HangsUp => return reset(&tcp),
        _ => tcp.set_nodelay(true).unwrap(),
    }
    // The same socket, for whoever no longer has it in one piece.
    let tcp = tcp.into_std().unwrap();
    let twin = tcp.try_clone().unwrap();
    let tcp = TcpStream::from_std(tcp).unwrap();
    let Ok(tls) = acceptor.accept(tcp).await else { return };
    match tls.get_ref().1.alpn_protocol() {
        Some(b"h2") => multiplexed(tls, twin, known).await,
        _ => plain(tls, known).await,
    }
}

async fn drain(stream: &mut (impl tokio::io::AsyncRead + Unpin)) {
    let mut buffer = [0; 4096];
    while matches!(stream.read(&mut buffer).await, Ok(1..)) {}
}

/// The connection ends with a reset when it is dropped.
fn reset(tcp: &TcpStream) {
    socket2::SockRef::from(tcp).set_linger(Some(Duration::ZERO)).unwrap();
}

pub const EVENT: &str =
    "{\"type\":\"ADDED\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\"}}}\n";
const LIST: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}"#;

/// HTTP/1.1: one request after another.
async fn plain(mut tls: Tls, known: &Arc<Known>) {
    let mut pending = vec![];
    loop {
        let ends = loop {
            if let Some(at) = pending.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if !matches!(tls.read_buf(&mut pending).await, Ok(1..)) {
                return;
            }
        };
        let _busy = Busy::new(known);
        let head = String::from_utf8(pending.drain(..ends).collect()).unwrap();
        let target = head.split(' ').nth(1).unwrap().to_owned();
        let field = |name: &str| {
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.into_iter().find(|(is, _)| is.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
        };
        let length = field("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        while pending.len() < length {
            if !matches!(tls.read_buf(&mut pending).await, Ok(1..)) {
                return;
            }
        }
        pending.drain(..length);
        let fault = known.fault_for(&target);
        let upgrade = field("upgrade");
        let head_of_stream = match &upgrade {
            Some(protocol) => {
                format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n")
            }
            None => "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n".to_owned(),
        };
        match fault {
            Fault::Silent | Fault::Mute => return drain(&mut tls).await,
            Fault::Gone | Fault::HangsUp => return reset(tls.get_ref().0),
            Fault::Closes => return drop(tls.shutdown().await),
            Fault::Nonsense => {
                let _ = tls.write_all(b"220 mail.example.com ESMTP\r\n\r\n").await;
                return drain(&mut tls).await;
            }
            Fault::HalfHead => {
                let _ = tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Le").await;
                return drain(&mut tls).await;
            }
            Fault::CutByReset
            | Fault::CutByClose
            | Fault::CutBySilence
            | Fault::CutStream(_)
            | Fault::CutByGoaway(_) => {
                let _ = tls.write_all(format!("{head_of_stream}stump").as_bytes()).await;
                let _ = tls.flush().await;
                match fault {
                    // What was written is to arrive first.
                    Fault::CutByReset => {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        reset(tls.get_ref().0);
                    }
                    Fault::CutBySilence => drain(&mut tls).await,
                    _ => drop(tls.shutdown().await),
                }
                return;
            }
            Fault::Drips | Fault::Pours | Fault::PoursOverTheWindow => {
                let _ = tls.write_all(head_of_stream.as_bytes()).await;
                let (mut read, write) = tokio::io::split(tls);
                tokio::select! {
                    () = pour(write, fault, known) => {}
                    () = count(&mut read, known) => {}
                }
                return;
            }
            Fault::Says(media_type, coding, body) if upgrade.is_none() => {
                let line = |name: &str, value: &str| match value {
                    "" => String::new(),
                    value => format!("{name}: {value}\r\n"),
                };
                let (media_type, coding) = (line("Content-Type", media_type), line("Content-Encoding", coding));
                let head = format!("HTTP/1.1 200 OK\r\n{media_type}{coding}Content-Length: {}\r\n\r\n", body.len());
                let _ = tls.write_all(&[head.as_bytes(), body].concat()).await;
            }
            Fault::Switches(protocol) => {
                let line = if protocol.is_empty() { String::new() } else { format!("Upgrade: {protocol}\r\n") };
                let head = format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{line}\r\n");
                let _ = tls.write_all(head.as_bytes()).await;
                return echo(tls, known).await;
            }
            Fault::SaysTooMuch => {
                let more = "Connection: Upgrade, X-Secret\r\nX-Secret: too-much\r\nSet-Cookie: too=much\r\nKeep-Alive: too-much\r\n\
                            Proxy-Authenticate: too-much\r\nTrailer: too-much\r\nAlt-Svc: too-much\r\nTE: too-much\r\nWarning: 299 - \"old\"\r\n";
                let answer = match upgrade {
                    Some(protocol) => format!("HTTP/1.1 101 Switching Protocols\r\n{more}Upgrade: {protocol}\r\n\r\n"),
                    None => format!("HTTP/1.1 200 OK\r\n{more}Content-Length: {}\r\n\r\n{LIST}", LIST.len()),
                };
                let _ = tls.write_all(answer.as_bytes()).await;
                if answer.contains(" 101 ") {
                    return echo(tls, known).await;
                }
            }
            _ if upgrade.is_some() => {
                let _ = tls.write_all(head_of_stream.as_bytes()).await;
                return echo(tls, known).await;
            }
            _ => {
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{LIST}",
                    LIST.len()
                );
                let _ = tls.write_all(answer.as_bytes()).await;
            }
        }
        let _ = tls.flush().await;
    }
}

async fn count(read: &mut ReadHalf<Tls>, known: &Known) {
    let mut buffer = [0; 64 * 1024];
    while let Ok(n @ 1..) = read.read(&mut buffer).await {
        known.received.fetch_add(n as u64, Ordering::SeqCst);
    }
}

async fn pour(mut write: WriteHalf<Tls>, fault: Fault, known: &Known) {
    let piece = vec![b'.'; if fault == Fault::Drips { 1 } else { 64 * 1024 }];
    loop {
        if write.write_all(&piece).await.is_err() || write.flush().await.is_err() {
            return;
        }
        known.sent.fetch_add(piece.len() as u64, Ordering::SeqCst);
        if fault == Fault::Drips {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// What comes goes back. After the end of what comes there is a last word.
async fn echo(tls: Tls, known: &Known) {
    let (mut read, mut write) = tokio::io::split(tls);
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = read.read(&mut buffer).await {
        known.received.fetch_add(n as u64, Ordering::SeqCst);
        // `FIN` asks for an end of this direction only.
        if buffer[..n].ends_with(b"FIN") {
            let _ = write.shutdown().await;
        } else if write.write_all(&buffer[..n]).await.is_err() || write.flush().await.is_err() {
            return;
        }
    }
    let _ = write.write_all(b"last word").await;
    let _ = write.shutdown().await;
}
