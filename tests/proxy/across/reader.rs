//! A client that reads an answer as it comes, and knows whether it ended whole.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::harness::{DEADLINE, World};

pub const ROOT: &str = "/k8s/clusters/demo";
pub const NARROW: &str = "/k8s/clusters/demo/projects/shop";

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As HTTP says that a body is complete.
    Whole,
    /// In the middle.
    Torn,
}

pub struct Reader {
    stream: TlsStream<TcpStream>,
    raw: Vec<u8>,
    plain: Vec<u8>,
    // Bytes of the body that are still to come, where its length was said.
    length: Option<usize>,
    end: Option<End>,
    pub head: String,
    pub code: u16,
}

/// The head of a GET that keeps its connection.
pub fn get(token: &str, target: &str, more: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {token}\r\n{more}\r\n")
}

impl Reader {
    /// Asks, and reads the head of the answer.
    pub async fn open(world: &World, token: &str, target: &str) -> Self {
        Self::begin(world.connect().await, token, target).await
    }

    pub async fn begin(mut stream: TlsStream<TcpStream>, token: &str, target: &str) -> Self {
        stream.write_all(get(token, target, "").as_bytes()).await.unwrap();
        let mut raw = vec![];
        let ends = loop {
            if let Some(at) = raw.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            let mut part = [0; 4096];
            let read = tokio::time::timeout(DEADLINE, stream.read(&mut part)).await.expect("a head in time").unwrap();
            assert!(read > 0, "closed before a head: {}", String::from_utf8_lossy(&raw));
            raw.extend_from_slice(&part[..read]);
        };
        let rest = raw.split_off(ends);
        let head = String::from_utf8(raw).unwrap().to_ascii_lowercase();
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let mut reader = Self { stream, raw: rest, plain: vec![], length, end: None, head, code };
        reader.take_apart();
        reader
    }

    fn take_apart(&mut self) {
        if let Some(left) = &mut self.length {
            *left -= self.raw.len();
            self.plain.append(&mut self.raw);
            if *left == 0 {
                self.end = Some(End::Whole);
            }
            return;
        }
        while let Some(at) = self.raw.windows(2).position(|w| w == b"\r\n") {
            let length = usize::from_str_radix(std::str::from_utf8(&self.raw[..at]).unwrap(), 16).unwrap();
            if self.raw.len() < at + 2 + length + 2 {
                return;
            }
            if length == 0 {
                self.end = Some(End::Whole);
                return;
            }
            self.plain.extend_from_slice(&self.raw[at + 2..at + 2 + length]);
            self.raw.drain(..at + 2 + length + 2);
        }
    }

    async fn more(&mut self) {
        let mut part = vec![0; 64 * 1024];
        match tokio::time::timeout(DEADLINE, self.stream.read(&mut part)).await.expect("more in time") {
            Ok(0) | Err(_) => self.end = Some(End::Torn),
            Ok(read) => {
                self.raw.extend_from_slice(&part[..read]);
                self.take_apart();
            }
        }
    }

    /// The next line; nothing at the end.
    pub async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.plain.iter().position(|b| *b == b'\n') {
                let rest = self.plain.split_off(at + 1);
                return Some(String::from_utf8(std::mem::replace(&mut self.plain, rest)).unwrap());
            }
            if self.end.is_some() {
                return None;
            }
            self.more().await;
        }
    }

    /// The next event: its type, and its object.
    pub async fn event(&mut self) -> Option<(String, Value)> {
        let line = self.line().await?;
        let event: Value = serde_json::from_str(&line).unwrap_or_else(|why| panic!("{why}: {line}"));
        Some((event["type"].as_str().unwrap().to_owned(), event["object"].clone()))
    }

    /// The next event that is no bookmark, as its type and the name of its object.
    pub async fn change(&mut self) -> Option<(String, String)> {
        loop {
            let (kind, object) = self.event().await?;
            if kind != "BOOKMARK" {
                return Some((kind, object["metadata"]["name"].as_str().unwrap_or_default().to_owned()));
            }
        }
    }

    /// Everything that is left, and how it ended.
    pub async fn rest(&mut self) -> (String, End) {
        let mut text = String::new();
        while self.end.is_none() {
            self.more().await;
            text.push_str(&String::from_utf8_lossy(&std::mem::take(&mut self.plain)));
        }
        text.push_str(&String::from_utf8_lossy(&std::mem::take(&mut self.plain)));
        (text, self.end.unwrap())
    }

    /// It ends with the word that the client is to list anew, and whole, so that clients do so.
    pub async fn lists_anew(&mut self, after: &str) -> String {
        let (text, end) = self.rest().await;
        assert_eq!(end, End::Whole, "{after}: {text}");
        let last = text.lines().last().unwrap_or_else(|| panic!("{after}: nothing was said"));
        let last: Value = serde_json::from_str(last).unwrap_or_else(|why| panic!("{after}: {why}: {text}"));
        assert_eq!((&last["type"], &last["object"]["code"]), (&"ERROR".into(), &410.into()), "{after}: {text}");
        text
    }
}
