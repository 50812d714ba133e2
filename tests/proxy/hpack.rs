//! Heads of HTTP/2: written without compression, so that any bytes can stand in them; read with all of it (RFC 7541).

use std::collections::VecDeque;

/// Characters by the length of their Huffman code. The code is canonical: within a length they follow one another.
const HUFFMAN: [(usize, &str); 10] = [
    (5, "012aceiost"),
    (6, " %-./3456789=A_bdfghlmnpru"),
    (7, ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, "&*,;XZ"),
    (10, "!\"()?"),
    (11, "'+|"),
    (12, "#>"),
    (13, "\0$@[]~"),
    (14, "^}"),
    (15, "<`{"),
];

/// The static table, from index 1 on.
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// A number with a prefix of so many bits, after what stands in the other bits of its first byte.
fn number(first: u8, bits: u32, value: usize) -> Vec<u8> {
    let most = (1 << bits) - 1;
    if value < most {
        return vec![first | value as u8];
    }
    let mut bytes = vec![first | most as u8];
    let mut rest = value - most;
    while rest >= 128 {
        bytes.push((rest % 128 + 128) as u8);
        rest /= 128;
    }
    bytes.push(rest as u8);
    bytes
}

/// A text as it is.
pub fn text(value: &[u8]) -> Vec<u8> {
    [&number(0, 7, value.len()), value].concat()
}

/// Fields that are not remembered.
pub fn block<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    fields.iter().flat_map(|(name, value)| [vec![0], text(name.as_ref()), text(value.as_ref())].concat()).collect()
}

/// What one side remembers of the heads that it received.
pub struct Reader {
    remembered: VecDeque<(String, String)>,
    most: usize,
}

impl Default for Reader {
    fn default() -> Self {
        Self { remembered: VecDeque::new(), most: 4096 }
    }
}

impl Reader {
    /// The fields of a head. Malformed ones are a failure of the test.
    pub fn read(&mut self, block: &[u8]) -> Vec<(String, String)> {
        let mut fields = vec![];
        let mut at = 0;
        while at < block.len() {
            let first = block[at];
            if first & 0x80 != 0 {
                let index = take_number(block, &mut at, 7);
                fields.push(self.field(index));
            } else if first & 0xe0 == 0x20 {
                self.most = take_number(block, &mut at, 5);
                self.forget();
            } else {
                let remember = first & 0x40 != 0;
                let index = take_number(block, &mut at, if remember { 6 } else { 4 });
                let name = if index == 0 { take_text(block, &mut at) } else { self.field(index).0 };
                let field = (name, take_text(block, &mut at));
                if remember {
                    self.remembered.push_front(field.clone());
                    self.forget();
                }
                fields.push(field);
            }
        }
        fields
    }

    fn field(&self, index: usize) -> (String, String) {
        match STATIC.get(index - 1) {
            Some((name, value)) => ((*name).to_owned(), (*value).to_owned()),
            None => self.remembered[index - 1 - STATIC.len()].clone(),
        }
    }

    fn forget(&mut self) {
        let size = |fields: &VecDeque<(String, String)>| -> usize {
            fields.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
        };
        while size(&self.remembered) > self.most {
            self.remembered.pop_back();
        }
    }
}

fn take_number(block: &[u8], at: &mut usize, bits: u32) -> usize {
    let most = (1 << bits) - 1;
    let mut value = usize::from(block[*at]) & most;
    *at += 1;
    if value < most {
        return value;
    }
    for shift in (0..).step_by(7) {
        let byte = block[*at];
        *at += 1;
        value += usize::from(byte & 127) << shift;
        if byte < 128 {
            break;
        }
    }
    value
}

fn take_text(block: &[u8], at: &mut usize) -> String {
    let coded = block[*at] & 0x80 != 0;
    let length = take_number(block, at, 7);
    let bytes = &block[*at..*at + length];
    *at += length;
    if coded { decode(bytes) } else { String::from_utf8(bytes.to_vec()).unwrap() }
}

fn decode(bytes: &[u8]) -> String {
    let mut text = String::new();
    let (mut code, mut length) = (0, 0);
    for bit in bytes.iter().flat_map(|byte| (0..8).rev().map(move |n| usize::from(byte >> n & 1))) {
        (code, length) = (code << 1 | bit, length + 1);
        if let Some(char) = symbol(code, length) {
            text.push(char);
            (code, length) = (0, 0);
        }
    }
    text
}

fn symbol(code: usize, length: usize) -> Option<char> {
    let (mut first, mut before) = (0, HUFFMAN[0].0);
    for (bits, chars) in HUFFMAN {
        first <<= bits - before;
        before = bits;
        if bits == length {
            return code.checked_sub(first).and_then(|n| chars.chars().nth(n));
        }
        first += chars.chars().count();
    }
    None
}

/// Appendix C of RFC 7541: a request and an answer, each twice on one connection.
#[test]
fn heads_are_read_as_the_standard_has_them() {
    let bytes = |hex: &str| -> Vec<u8> {
        let hex: String = hex.split_whitespace().collect();
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    };
    let mut reader = Reader::default();
    let first = reader.read(&bytes("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff"));
    assert_eq!(first[3], (":authority".to_owned(), "www.example.com".to_owned()));
    let second = reader.read(&bytes("8286 84be 5886 a8eb 1064 9cbf"));
    assert_eq!(second[3], first[3]);
    assert_eq!(second[4], ("cache-control".to_owned(), "no-cache".to_owned()));
    let mut reader = Reader { most: 256, ..Reader::default() };
    let first = reader.read(&bytes(
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718
         63c7 8f0b 97c8 e9ae 82ae 43d3",
    ));
    assert_eq!(first[0], (":status".to_owned(), "302".to_owned()));
    assert_eq!(first[2].1, "Mon, 21 Oct 2013 20:13:21 GMT");
    let second = reader.read(&bytes("4883 640e ffc1 c0bf"));
    assert_eq!(second[0].1, "307");
    assert_eq!(second[1..], first[1..]);
    let long = "x".repeat(300);
    let own = block(&[("name", long.as_str())]);
    assert_eq!(reader.read(&own), [("name".to_owned(), long)]);
}
