//! The HTTP/2 of the cluster that fails as it is told.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, WriteHalf};
use tokio::task::AbortHandle;

use super::hpack;
use super::rough::{Busy, EVENT, Fault, Known, Tls};
use super::wire::*;

/// HTTP/2: each stream is answered by itself.
pub async fn multiplexed(tls: Tls, twin: std::net::TcpStream, known: &Arc<Known>) {
    let (mut read, write) = tokio::io::split(tls);
    let write = Arc::new(tokio::sync::Mutex::new(write));
    let windows = Arc::new(Windows::default());
    let mut buffer = vec![];
    let mut heads = hpack::Reader::default();
    let mut streams = tokio::task::JoinSet::new();
    let mut open = HashMap::new();
    let mut silent = false;
    say(&write, &frame(SETTINGS, 0, 0, &[])).await;
    if *known.fault.lock() == Fault::Storm {
        say(&write, &goaway(0, 0)).await;
        return drop(write.lock().await.shutdown().await);
    }
    let mut preface = true;
    loop {
        while let Some((kind, flags, stream, payload)) = take_frame_after(&mut preface, &mut buffer) {
            match kind {
                SETTINGS if flags & ACK == 0 => {
                    windows.learn(&payload);
                    say(&write, &frame(SETTINGS, ACK, 0, &[])).await;
                }
                PING if flags & ACK == 0 && !silent => say(&write, &frame(PING, ACK, 0, &payload)).await,
                RST_STREAM => {
                    if let Some((_, task)) = open.remove(&stream) {
                        let task: AbortHandle = task;
                        task.abort();
                    }
                }
                WINDOW_UPDATE => windows.widen(stream, u32::from_be_bytes(payload[..4].try_into().unwrap())),
                HEADERS => {
                    assert_ne!(flags & END_HEADERS, 0, "heads are small");
                    let fields = heads.read(&payload);
                    let target = fields.iter().find(|(name, _)| name == ":path").unwrap().1.clone();
                    let fault = known.fault_for(&target);
                    silent |= matches!(fault, Fault::CutBySilence | Fault::Silent | Fault::Mute);
                    let (write, shared, windows) = (write.clone(), known.clone(), windows.clone());
                    let task = streams.spawn(async move { answer(&write, stream, fault, &shared, &windows).await });
                    open.insert(stream, (Busy::new(known), task));
                }
                _ => {}
            }
        }
        tokio::select! {
            over = streams.join_next(), if !streams.is_empty() => match over.unwrap().unwrap_or(After::GoOn) {
                After::GoOn => {}
                After::Ended(stream) => drop(open.remove(&stream)),
                After::Reset => return socket2::SockRef::from(&twin).set_linger(Some(Duration::ZERO)).unwrap(),
                After::Close => return drop(write.lock().await.shutdown().await),
            },
            read = read.read_buf(&mut buffer) => if !matches!(read, Ok(1..)) { return },
        }
    }
}

fn take_frame_after(preface: &mut bool, buffer: &mut Vec<u8>) -> Option<(u8, u8, u32, Vec<u8>)> {
    if *preface {
        if buffer.len() < PREFACE.len() {
            return None;
        }
        buffer.drain(..PREFACE.len());
        *preface = false;
    }
    take_frame(buffer)
}

fn goaway(last: u32, error: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last.to_be_bytes(), error.to_be_bytes()].concat())
}

type Shared = Arc<tokio::sync::Mutex<WriteHalf<Tls>>>;

async fn say(write: &Shared, bytes: &[u8]) {
    let mut write = write.lock().await;
    let _ = write.write_all(bytes).await;
    let _ = write.flush().await;
}

/// How much may be sent.
#[derive(Default)]
struct Windows {
    // By stream; 0 is the connection.
    open: Mutex<HashMap<u32, i64>>,
    first: AtomicU64,
    wider: tokio::sync::Notify,
}

impl Windows {
    fn learn(&self, settings: &[u8]) {
        for setting in settings.chunks(6).filter(|setting| setting[..2] == [0, 4]) {
            self.first.store(u32::from_be_bytes(setting[2..].try_into().unwrap()).into(), Ordering::SeqCst);
        }
    }

    fn widen(&self, stream: u32, by: u32) {
        let first = self.first(stream);
        *self.open.lock().entry(stream).or_insert(first) += i64::from(by);
        self.wider.notify_waiters();
    }

    fn first(&self, stream: u32) -> i64 {
        let first = self.first.load(Ordering::SeqCst) as i64;
        if stream == 0 || first == 0 { 65_535 } else { first }
    }

    async fn take(&self, stream: u32, length: usize) {
        loop {
            let wider = self.wider.notified();
            {
                let (all, own) = (self.first(0), self.first(stream));
                let mut open = self.open.lock();
                let all = *open.entry(0).or_insert(all);
                let own = *open.entry(stream).or_insert(own);
                if all.min(own) >= length as i64 {
                    for stream in [0, stream] {
                        open.entry(stream).and_modify(|open| *open -= length as i64);
                    }
                    return;
                }
            }
            wider.await;
        }
    }
}

enum After {
    GoOn,
    Ended(u32),
    Reset,
    Close,
}

async fn answer(write: &Shared, stream: u32, fault: Fault, known: &Known, windows: &Windows) -> After {
    let head = |fields: &[(&str, &str)]| frame(HEADERS, END_HEADERS, stream, &hpack::block(fields));
    let good = head(&[(":status", "200"), ("content-type", "application/json")]);
    let data = |bytes: &[u8]| frame(DATA, 0, stream, bytes);
    match fault {
        Fault::Silent | Fault::Mute => {}
        Fault::Gone | Fault::HangsUp => return After::Reset,
        Fault::Closes => return After::Close,
        Fault::Nonsense => say(write, b"220 mail.example.com ESMTP\r\n\r\n").await,
        Fault::HalfHead => say(write, &good[..good.len() / 2]).await,
        Fault::NotSeen => {
            say(write, &goaway(0, 0)).await;
            return After::Close;
        }
        Fault::CutByReset | Fault::CutByClose | Fault::CutBySilence => {
            say(write, &[good, data(EVENT.as_bytes())].concat()).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            return match fault {
                Fault::CutByReset => After::Reset,
                Fault::CutByClose => After::Close,
                _ => After::GoOn,
            };
        }
        Fault::CutStream(error) => {
            let cut = frame(RST_STREAM, 0, stream, &error.to_be_bytes());
            say(write, &[good, data(EVENT.as_bytes()), cut].concat()).await;
            return After::Ended(stream);
        }
        Fault::CutByGoaway(error) => {
            say(write, &[good, data(EVENT.as_bytes()), goaway(stream, error)].concat()).await;
            return After::Close;
        }
        Fault::Switches(_) => say(write, &head(&[(":status", "101")])).await,
        Fault::Drips => {
            say(write, &good).await;
            loop {
                windows.take(stream, 1).await;
                say(write, &data(b".")).await;
                known.sent.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Fault::Pours => {
            say(write, &good).await;
            let piece = data(&[b'.'; 16_000]);
            loop {
                windows.take(stream, 16_000).await;
                say(write, &piece).await;
                known.sent.fetch_add(16_000, Ordering::SeqCst);
            }
        }
        Fault::PoursOverTheWindow => {
            say(write, &good).await;
            let piece = data(&[b'.'; 16_000]);
            for _ in 0..10_000 {
                say(write, &piece).await;
                known.sent.fetch_add(16_000, Ordering::SeqCst);
            }
        }
        Fault::Says(media_type, coding, body) => {
            let fields = [(":status", "200"), ("content-type", media_type), ("content-encoding", coding)];
            let fields: Vec<_> = fields.into_iter().filter(|(_, value)| !value.is_empty()).collect();
            say(write, &[head(&fields), frame(DATA, END_STREAM, stream, body)].concat()).await;
            return After::Ended(stream);
        }
        Fault::SaysTooMuch => {
            let fields = [
                (":status", "200"),
                ("set-cookie", "too=much"),
                ("alt-svc", "too-much"),
                ("proxy-authenticate", "too-much"),
                ("trailer", "too-much"),
                ("warning", "299 - \"old\""),
            ];
            let trailer = hpack::block(&[("set-cookie", "too=much")]);
            let end = frame(HEADERS, END_HEADERS | END_STREAM, stream, &trailer);
            say(write, &[head(&fields), data(EVENT.as_bytes()), end].concat()).await;
            return After::Ended(stream);
        }
        Fault::LastOne => {
            say(write, &[good, goaway(0x7fff_ffff, 0), data(EVENT.as_bytes())].concat()).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            say(write, &frame(DATA, END_STREAM, stream, EVENT.as_bytes())).await;
            return After::Ended(stream);
        }
        Fault::None | Fault::Storm => say(write, &[good, data(EVENT.as_bytes())].concat()).await,
    }
    After::GoOn
}
