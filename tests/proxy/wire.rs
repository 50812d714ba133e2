//! Requests by the byte, over both protocols: also those that a client library would not write.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::connections::dial;
use super::harness::{DEADLINE, Pki};
use super::hpack;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const ACK: u8 = 1;
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame of HTTP/2.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Takes a whole frame off the front of what was read.
pub fn take_frame(buffer: &mut Vec<u8>) -> Option<(u8, u8, u32, Vec<u8>)> {
    let head = buffer.get(..9)?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let (kind, flags) = (head[3], head[4]);
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
    let payload = buffer.get(9..9 + length)?.to_vec();
    buffer.drain(..9 + length);
    Some((kind, flags, stream, payload))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    Http1,
    Http2,
}

pub const PROTOCOLS: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

impl Protocol {
    pub fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// A request as it is written. Nothing is checked, added or put in order but what the protocol cannot do without.
#[derive(Debug, Clone, Default)]
pub struct Raw {
    pub method: String,
    pub target: String,
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub body: Vec<u8>,
    /// Left open: what is there of the body is not its end.
    pub open: bool,
}

impl Raw {
    pub fn new(method: &str, target: &str) -> Self {
        Self { method: method.into(), target: target.into(), ..Self::default() }
    }

    pub fn field(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.fields.push((name.as_ref().to_vec(), value.as_ref().to_vec()));
        self
    }

    pub fn bearer(self, token: &str) -> Self {
        self.field("authorization", format!("Bearer {token}"))
    }

    /// A body with its length and type.
    pub fn body(mut self, media_type: &str, body: &str) -> Self {
        self = self.field("content-type", media_type).field("content-length", body.len().to_string());
        self.body = body.into();
        self
    }

    /// The bytes of HTTP/1.1.
    pub fn http1(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\nHost: proxy\r\n", self.method, self.target).into_bytes();
        for (name, value) in &self.fields {
            bytes.extend([name, &b": "[..], value, b"\r\n"].concat());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// The frames of HTTP/2, with names in lower case, as they must be; [`Raw::frames`] writes others.
    pub fn http2(&self, stream: u32) -> Vec<u8> {
        let mut fields: Vec<(Vec<u8>, Vec<u8>)> = vec![
            (b":method".into(), self.method.clone().into()),
            (b":scheme".into(), b"https".into()),
            (b":authority".into(), b"proxy".into()),
            (b":path".into(), self.target.clone().into()),
        ];
        fields.extend(self.fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())));
        self.frames(stream, &fields)
    }

    /// The frames of HTTP/2 with exactly these fields.
    pub fn frames(&self, stream: u32, fields: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let ends = self.body.is_empty() && !self.open;
        let mut rest = hpack::block(fields);
        // No frame is larger than the smallest that everybody takes.
        let next = rest.split_off(rest.len().min(16_000));
        let alone = if next.is_empty() { END_HEADERS } else { 0 };
        let mut bytes = frame(HEADERS, alone | if ends { END_STREAM } else { 0 }, stream, &rest);
        let parts: Vec<&[u8]> = next.chunks(16_000).collect();
        for (n, part) in parts.iter().enumerate() {
            bytes.extend(frame(CONTINUATION, if n + 1 == parts.len() { END_HEADERS } else { 0 }, stream, part));
        }
        let parts: Vec<&[u8]> = self.body.chunks(16_000).collect();
        for (n, part) in parts.iter().enumerate() {
            let last = n + 1 == parts.len() && !self.open;
            bytes.extend(frame(DATA, if last { END_STREAM } else { 0 }, stream, part));
        }
        bytes
    }
}

/// How an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// So that its client takes it for the whole.
    Whole,
    /// So that its client knows that something is missing.
    Cut(String),
}

/// What comes next of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Head(u16, Vec<(String, String)>),
    Data(Vec<u8>),
    End(End),
}

/// An answer; code 0 where none came.
#[derive(Debug, Clone)]
pub struct Reply {
    pub code: u16,
    pub fields: Vec<(String, String)>,
    pub body: String,
    pub end: End,
}

impl Reply {
    /// All values of a field.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.fields.iter().filter(|(is, _)| is == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Whether it is an error as kubectl understands it, and whole.
    pub fn is_status(&self) -> bool {
        let value: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        self.end == End::Whole
            && value["kind"] == "Status"
            && value["code"] == self.code
            && value["message"].as_str().is_some_and(|message| !message.is_empty())
    }
}

/// One connection, with one request at a time.
pub struct Client<S = TlsStream<TcpStream>> {
    pub stream: S,
    protocol: Protocol,
    buffer: Vec<u8>,
    heads: hpack::Reader,
    /// Of the newest request.
    pub id: u32,
    block: Vec<u8>,
    state: State,
    method: String,
    asked: String,
}

/// What is expected next on HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Head,
    Length(usize),
    Chunks,
    Rest,
    Over,
}

impl Client {
    pub async fn dial(address: SocketAddr, pki: &Pki, protocol: Protocol) -> Self {
        Self::on(dial(address, pki, protocol.alpn()).await, protocol).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    /// Speaks over what was dialled; on HTTP/2 with these settings and an open window for the connection.
    pub async fn on(mut stream: S, protocol: Protocol) -> Self {
        if protocol == Protocol::Http2 {
            let window = frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
            let hello = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &window].concat();
            // A server that is full closes.
            let _ = stream.write_all(&hello).await;
        }
        let (buffer, heads) = Default::default();
        Self {
            stream,
            protocol,
            buffer,
            heads,
            id: 0,
            block: vec![],
            state: State::Over,
            method: String::new(),
            asked: String::new(),
        }
    }

    /// Writes a request; `false` where the connection is gone.
    pub async fn send(&mut self, raw: &Raw) -> bool {
        let bytes = match self.protocol {
            Protocol::Http1 => raw.http1(),
            Protocol::Http2 => raw.http2(self.next_id()),
        };
        self.asked = format!("{:?} {} {}", self.protocol, raw.method, raw.target);
        self.write(&raw.method, &bytes).await
    }

    /// The number of the next request on HTTP/2.
    pub fn next_id(&self) -> u32 {
        if self.id == 0 { 1 } else { self.id + 2 }
    }

    /// Writes what is the next request, in bytes.
    pub async fn write(&mut self, method: &str, bytes: &[u8]) -> bool {
        self.id = self.next_id();
        self.state = State::Head;
        self.method = method.to_owned();
        // A server that has seen enough closes while we still write.
        self.stream.write_all(bytes).await.is_ok() && self.stream.flush().await.is_ok()
    }

    /// What comes next, in time.
    pub async fn next(&mut self) -> Part {
        let part = tokio::time::timeout(3 * DEADLINE, self.part()).await;
        part.unwrap_or_else(|_| panic!("nothing comes of {}", self.asked))
    }

    /// What comes next, however long it takes. May be given up and taken up again.
    pub async fn part(&mut self) -> Part {
        loop {
            let taken = match self.protocol {
                Protocol::Http1 => self.take1(),
                Protocol::Http2 => self.take2().await,
            };
            if let Some(part) = taken {
                return part;
            }
            let read = self.stream.read_buf(&mut self.buffer).await;
            let why = match read {
                Ok(1..) => continue,
                Ok(_) if self.state == State::Rest => return self.over(End::Whole),
                Ok(_) => "closed".to_owned(),
                Err(why) if why.kind() == ErrorKind::UnexpectedEof => "closed without a word".to_owned(),
                Err(why) => why.to_string(),
            };
            return self.over(End::Cut(why));
        }
    }

    fn over(&mut self, end: End) -> Part {
        self.state = State::Over;
        Part::End(end)
    }

    fn take1(&mut self) -> Option<Part> {
        match self.state {
            State::Head => {
                let (code, fields) = self.head1()?;
                let find = |name: &str| fields.iter().find(|(is, _)| is == name).map(|(_, value)| value.as_str());
                let length = find("content-length").and_then(|value| value.parse().ok());
                self.state = match code {
                    101 => State::Rest,
                    100..200 => State::Head,
                    204 | 304 => State::Length(0),
                    _ if self.method == "HEAD" => State::Length(0),
                    _ if find("transfer-encoding") == Some("chunked") => State::Chunks,
                    _ => length.map_or(State::Rest, State::Length),
                };
                if code != 101 && (100..200).contains(&code) { self.take1() } else { Some(Part::Head(code, fields)) }
            }
            State::Length(0) => Some(self.over(End::Whole)),
            State::Length(left) => {
                let data = self.take_up_to(left)?;
                self.state = State::Length(left - data.len());
                Some(Part::Data(data))
            }
            State::Chunks => {
                let line = self.buffer.windows(2).position(|w| w == b"\r\n")?;
                let length = usize::from_str_radix(std::str::from_utf8(&self.buffer[..line]).ok()?, 16).ok()?;
                let data = self.buffer.get(line + 2..line + 2 + length + 2)?[..length].to_vec();
                self.buffer.drain(..line + 2 + length + 2);
                Some(if length == 0 { self.over(End::Whole) } else { Part::Data(data) })
            }
            State::Rest => self.take_up_to(usize::MAX).map(Part::Data),
            State::Over => Some(Part::End(End::Cut("nothing was asked".into()))),
        }
    }

    fn head1(&mut self) -> Option<(u16, Vec<(String, String)>)> {
        let end = self.buffer.windows(4).position(|w| w == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
        self.buffer.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let code = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let fields = lines.filter_map(|line| line.split_once(':'));
        Some((code, fields.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect()))
    }

    fn take_up_to(&mut self, most: usize) -> Option<Vec<u8>> {
        let length = self.buffer.len().min(most);
        (length > 0).then(|| self.buffer.drain(..length).collect())
    }

    async fn take2(&mut self) -> Option<Part> {
        if self.state == State::Over {
            return Some(Part::End(End::Cut("it is over".into())));
        }
        while let Some((kind, flags, stream, payload)) = take_frame(&mut self.buffer) {
            let own = stream == self.id;
            match kind {
                SETTINGS if flags & ACK == 0 => drop(self.stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await),
                PING if flags & ACK == 0 => drop(self.stream.write_all(&frame(PING, ACK, 0, &payload)).await),
                GOAWAY => {
                    let (last, code) = payload.split_at(4);
                    let last = u32::from_be_bytes(last.try_into().unwrap());
                    let code = u32::from_be_bytes(code[..4].try_into().unwrap());
                    if code != 0 || last < self.id {
                        return Some(self.over(End::Cut(format!("the connection ends with error {code}"))));
                    }
                }
                RST_STREAM if own => {
                    let code = u32::from_be_bytes(payload[..4].try_into().unwrap());
                    return Some(self.over(End::Cut(format!("reset with {code}"))));
                }
                HEADERS | CONTINUATION => {
                    // The server neither pads nor gives priorities. What it says of others' heads must be remembered.
                    self.block.extend(payload);
                    if flags & END_HEADERS == 0 {
                        continue;
                    }
                    let mut fields = self.heads.read(&std::mem::take(&mut self.block));
                    if !own {
                        continue;
                    }
                    if self.state == State::Rest {
                        return Some(self.over(End::Whole));
                    }
                    let code: u16 = fields.remove(0).1.parse().unwrap();
                    if code < 200 {
                        continue;
                    }
                    // What is left is remembered as the end of an empty body.
                    self.state = if flags & END_STREAM != 0 { State::Length(0) } else { State::Rest };
                    return Some(Part::Head(code, fields));
                }
                DATA if own => {
                    let more = (payload.len() as u32).to_be_bytes();
                    if !payload.is_empty() {
                        let windows = [frame(WINDOW_UPDATE, 0, stream, &more), frame(WINDOW_UPDATE, 0, 0, &more)];
                        drop(self.stream.write_all(&windows.concat()).await);
                    }
                    if flags & END_STREAM != 0 {
                        self.state = State::Length(0);
                    }
                    if !payload.is_empty() {
                        return Some(Part::Data(payload));
                    }
                }
                _ => {}
            }
            if self.state == State::Length(0) {
                return Some(self.over(End::Whole));
            }
        }
        (self.state == State::Length(0)).then(|| self.over(End::Whole))
    }

    /// The rest of an answer.
    pub async fn reply(&mut self) -> Reply {
        let mut reply = Reply { code: 0, fields: vec![], body: String::new(), end: End::Whole };
        loop {
            match self.next().await {
                Part::Head(code, fields) => (reply.code, reply.fields) = (code, fields),
                Part::Data(data) => reply.body += &String::from_utf8_lossy(&data),
                Part::End(end) => return Reply { end, ..reply },
            }
        }
    }
}
