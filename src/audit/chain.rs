//! The chain of the audit log: each line carries a MAC over itself and the MAC of the line before.
//!
//! A changed line, a missing one and one put in are found wherever the key is. A log that was cut off at its end is still
//! a chain; it is found by its [`Head`], which is kept elsewhere. HMAC-SHA-256 (RFC 2104), cut to 128 bits as its section
//! 5 allows.
//!
//! A line ends in `,"seq":<number>,"mac":"<22 characters>"}`. A file begins with a line that says which file it is and
//! where the one before ended, so that older files can go.

use std::fmt;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// Characters of a MAC in base64.
const MAC_TEXT: usize = 22;
/// What stands around it: `,"mac":"` and `"}`.
const BEFORE: &[u8] = b",\"mac\":\"";
const AFTER: &[u8] = b"\"}";
const SEQUENCE: &[u8] = b",\"seq\":";

/// A MAC, cut to 128 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mac([u8; 16]);

impl Mac {
    fn of(text: &[u8]) -> Option<Self> {
        URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok().map(Self)
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl Serialize for Mac {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Mac::of(text.as_bytes()).ok_or_else(|| serde::de::Error::custom("not a MAC"))
    }
}

/// The key of a chain.
#[derive(Clone)]
pub struct ChainKey(hmac::Key);

impl fmt::Debug for ChainKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChainKey")
    }
}

impl ChainKey {
    /// Of 32 random bytes.
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    fn mac(&self, previous: Mac, body: &[u8]) -> Mac {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(&previous.0);
        context.update(body);
        let tag = context.sign();
        let mut mac = [0; 16];
        mac.copy_from_slice(&tag.as_ref()[..16]);
        Mac(mac)
    }
}

/// Where a chain ends: what is kept elsewhere, to find a log that was cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Number of the last line, from 1; 0 where there is none.
    pub seq: u64,
    /// Its MAC.
    pub mac: Mac,
}

/// The line that a file begins with.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Opening {
    /// Version of the format.
    pub(super) chain: u32,
    /// Number of the file.
    pub(super) file: u64,
    /// Where the chain was before this line.
    pub(super) previous: Head,
    /// Number of the oldest file that is kept from here on. Nothing is said in logs of before there was this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) oldest: Option<u64>,
    /// Lines that are known to be lost before this one: somebody accepted to go on without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lost_up_to: Option<u64>,
}

/// A chain that is being written.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    key: ChainKey,
    pub(super) head: Head,
}

impl Chain {
    pub(super) fn new(key: ChainKey, head: Head) -> Self {
        Self { key, head }
    }

    /// Appends a line (a JSON object that is not empty, without its line break) with its place in the chain.
    pub(super) fn append(&mut self, line: &[u8], to: &mut Vec<u8>) {
        let Some(open) = line.strip_suffix(b"}") else { return };
        let seq = self.head.seq + 1;
        let start = to.len();
        to.extend_from_slice(open);
        to.extend_from_slice(SEQUENCE);
        to.extend_from_slice(seq.to_string().as_bytes());
        let mac = self.key.mac(self.head.mac, &to[start..]);
        to.extend_from_slice(BEFORE);
        to.extend_from_slice(mac.to_string().as_bytes());
        to.extend_from_slice(AFTER);
        to.push(b'\n');
        self.head = Head { seq, mac };
    }

    /// Appends the line that begins a file.
    pub(super) fn open_file(&mut self, file: u64, oldest: u64, lost_up_to: Option<u64>, to: &mut Vec<u8>) {
        let opening = Opening { chain: 1, file, previous: self.head, oldest: Some(oldest), lost_up_to };
        self.head.seq = lost_up_to.unwrap_or(self.head.seq);
        // Numbers and a short text: nothing of it can fail to be written.
        let line = serde_json::to_vec(&opening).unwrap_or_default();
        self.append(&line, to);
    }
}

/// A line taken apart; nothing is known yet of its truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link<'a> {
    /// What the MAC covers besides the MAC before.
    body: &'a [u8],
    /// The place it claims, with the MAC it claims.
    pub(super) claims: Head,
}

impl<'a> Link<'a> {
    /// Takes a line apart, without its line break. `None` where it is no line of a chain.
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        let rest = line.strip_suffix(AFTER)?;
        let (rest, mac) = rest.split_at_checked(rest.len().checked_sub(MAC_TEXT)?)?;
        let body = rest.strip_suffix(BEFORE)?;
        let digits = body.iter().rev().take_while(|b| b.is_ascii_digit()).count();
        let (before, number) = body.split_at(body.len() - digits);
        let seq = std::str::from_utf8(number).ok()?.parse().ok()?;
        before.ends_with(SEQUENCE).then_some(Self { body, claims: Head { seq, mac: Mac::of(mac)? } })
    }

    /// Whether it follows the line whose MAC is given.
    pub(super) fn follows(&self, key: &ChainKey, previous: Mac) -> bool {
        key.mac(previous, self.body) == self.claims.mac
    }

    /// What it says where it is the first line of a file.
    pub(super) fn opening(&self) -> Option<Opening> {
        let mut text = self.body.to_vec();
        text.push(b'}');
        serde_json::from_slice(&text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: usize) -> (ChainKey, Vec<Vec<u8>>) {
        let key = ChainKey::new(&[7; 32]);
        let mut chain = Chain::new(key.clone(), Head::default());
        let mut log = vec![];
        chain.open_file(1, 1, None, &mut log);
        for n in 0..count {
            chain.append(format!("{{\"user\":\"u{n}\"}}").as_bytes(), &mut log);
        }
        (key, log.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(<[u8]>::to_vec).collect())
    }

    #[test]
    fn each_line_follows_the_one_before_and_no_other() {
        let (key, lines) = lines(5);
        let links: Vec<Link<'_>> = lines.iter().map(|line| Link::parse(line).unwrap()).collect();
        assert!(links[0].follows(&key, Mac::default()));
        for (n, pair) in links.windows(2).enumerate() {
            assert!(pair[1].follows(&key, pair[0].claims.mac));
            assert_eq!(pair[1].claims.seq, n as u64 + 2);
        }
        assert!(!links[3].follows(&key, links[1].claims.mac), "one is missing");
        assert!(!links[2].follows(&key, links[3].claims.mac), "two are swapped");
        assert!(!links[1].follows(&ChainKey::new(&[8; 32]), links[0].claims.mac), "another key");
    }

    #[test]
    fn every_changed_byte_is_found() {
        let (key, lines) = lines(2);
        let previous = Link::parse(&lines[1]).unwrap().claims.mac;
        for at in 0..lines[2].len() {
            let mut changed = lines[2].clone();
            changed[at] ^= 1;
            assert!(!Link::parse(&changed).is_some_and(|link| link.follows(&key, previous)), "byte {at}");
        }
    }

    #[test]
    fn lines_stay_json_and_what_is_none_is_no_link() {
        let (_, lines) = lines(1);
        let value: serde_json::Value = serde_json::from_slice(&lines[1]).unwrap();
        assert_eq!((value["user"].as_str(), value["seq"].as_u64()), (Some("u0"), Some(2)));
        let opening = Link::parse(&lines[0]).unwrap().opening().unwrap();
        assert_eq!((opening.chain, opening.file, opening.previous), (1, 1, Head::default()));
        assert!(Link::parse(&lines[1]).unwrap().opening().is_none(), "a record is no opening");
        let torn = &lines[1][..lines[1].len() - 3];
        for other in [b"".as_slice(), b"{}", b"{\"user\":\"x\"}", torn, b"\xff,\"mac\":\"\"}"] {
            assert_eq!(Link::parse(other), None);
        }
    }
}
