//! From which address a request really comes.
//!
//! `X-Forwarded-For` is a claim of whoever wrote it. It is believed hop by hop, from the right, for as long as the
//! hop that made the claim is a trusted proxy.

use std::net::{IpAddr, SocketAddr};

use http::HeaderValue;
use ipnet::IpNet;

/// The client's address: the rightmost hop that is no trusted proxy.
///
/// `forwarded_for` are all `X-Forwarded-For` headers in the order in which they stand
/// (`headers.get_all("x-forwarded-for").iter()`); several count as one list. A malformed entry where a trusted proxy
/// should have written an address makes the whole list worthless, and the peer counts. Addresses are canonical:
/// IPv4-mapped IPv6 is IPv4.
pub fn client_address<'a>(
    peer: IpAddr,
    forwarded_for: impl DoubleEndedIterator<Item = &'a HeaderValue>,
    trusted: &[IpNet],
) -> IpAddr {
    let peer = peer.to_canonical();
    let is_trusted = |address: IpAddr| trusted.iter().any(|net| net.contains(&address));
    if !is_trusted(peer) {
        return peer;
    }
    let mut client = peer;
    for header in forwarded_for.rev() {
        for entry in header.as_bytes().rsplit(|&byte| byte == b',') {
            match parse(entry) {
                None => return peer,
                Some(address) if is_trusted(address) => client = address,
                Some(address) => return address,
            }
        }
    }
    // Trusted proxies all the way: the request began at the leftmost one.
    client
}

/// One entry: an address, or an address with a port as some load balancers write it.
fn parse(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?.trim_matches([' ', '\t']);
    let address =
        text.parse::<IpAddr>().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip())).or_else(
            || text.strip_prefix('[')?.strip_suffix(']')?.parse::<std::net::Ipv6Addr>().ok().map(IpAddr::V6),
        )?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The client's address as text, for a peer, headers from first to last, and the proxies of a typical site.
    fn seen(peer: &str, headers: &[&str]) -> String {
        let trusted: Vec<IpNet> = ["10.0.0.0/8", "fd00::/8"].iter().map(|net| net.parse().unwrap()).collect();
        let headers: Vec<HeaderValue> =
            headers.iter().map(|value| HeaderValue::from_bytes(value.as_bytes()).unwrap()).collect();
        client_address(peer.parse().unwrap(), headers.iter(), &trusted).to_string()
    }

    #[test]
    fn a_stranger_is_not_believed() {
        assert_eq!(seen("192.0.2.1", &["198.51.100.7"]), "192.0.2.1");
        assert_eq!(seen("2001:db8::1", &["198.51.100.7"]), "2001:db8::1");
    }

    #[test]
    fn a_trusted_proxy_is_believed() {
        assert_eq!(seen("10.0.0.1", &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(seen("fd00::1", &["2001:db8::7"]), "2001:db8::7");
        assert_eq!(seen("10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn what_the_client_wrote_itself_is_not_believed() {
        assert_eq!(seen("10.0.0.1", &["203.0.113.9, 198.51.100.7"]), "198.51.100.7");
        assert_eq!(seen("10.0.0.1", &["203.0.113.9, 198.51.100.7, 10.0.0.2"]), "198.51.100.7");
        assert_eq!(seen("10.0.0.1", &["10.9.9.9, 198.51.100.7, 10.0.0.2"]), "198.51.100.7");
    }

    #[test]
    fn several_headers_are_one_list() {
        assert_eq!(seen("10.0.0.1", &["203.0.113.9", "198.51.100.7, 10.0.0.3", "10.0.0.2"]), "198.51.100.7");
        assert_eq!(seen("10.0.0.1", &["10.0.0.3", "10.0.0.2"]), "10.0.0.3");
    }

    #[test]
    fn forms_of_an_address() {
        for (entry, expected) in [
            ("198.51.100.7:4711", "198.51.100.7"),
            ("[2001:db8::7]:4711", "2001:db8::7"),
            ("[2001:db8::7]", "2001:db8::7"),
            ("2001:DB8:0::7", "2001:db8::7"),
            ("::ffff:198.51.100.7", "198.51.100.7"),
            (" \t198.51.100.7 ", "198.51.100.7"),
        ] {
            assert_eq!(seen("10.0.0.1", &[entry]), expected, "{entry}");
        }
        assert_eq!(seen("::ffff:10.0.0.1", &["198.51.100.7"]), "198.51.100.7", "a dual-stack listener's peer");
        assert_eq!(seen("10.0.0.1", &["198.51.100.7, ::ffff:10.0.0.2"]), "198.51.100.7", "a mapped proxy");
    }

    #[test]
    fn malformed_entries_fall_back_to_the_peer() {
        for bad in ["", ",", "unknown", "_hidden", "198.51.100", "198.51.100.7,", "1.2.3.4.5", "[::1", "x:80", "\u{e9}"]
        {
            assert_eq!(seen("10.0.0.1", &[bad]), "10.0.0.1", "{bad:?}");
            assert_eq!(seen("10.0.0.1", &["198.51.100.7", bad]), "10.0.0.1", "{bad:?} behind a good one");
        }
        // Beyond the first untrusted hop nothing is read.
        assert_eq!(seen("10.0.0.1", &["rubbish, 198.51.100.7"]), "198.51.100.7");
    }
}
