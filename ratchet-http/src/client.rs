//! Finds the address of the client that sent a request, also behind proxies.

use std::net::{IpAddr, Ipv6Addr};

use http::header::HeaderName;
use http::{Extensions, HeaderMap};

/// A request extension that contains the address of the client.
///
/// [`serve`](crate::serve) sets this extension. An application that nests the
/// [router](crate::Api::router) sets it in a layer. All requests without this extension count as
/// one client. Together, they have one share of the reads from the store, and one allowance of
/// wrong tokens.
///
/// ```
/// use ratchet_http::ClientAddr;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(ClientAddr([192, 0, 2, 7].into()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddr(pub IpAddr);

impl ClientAddr {
    /// Returns the client of a request that `peer` sent.
    ///
    /// If `peer` is not one of `proxies`, the client is `peer`. Otherwise the function searches the
    /// addresses in `X-Forwarded-For` from the last to the first, and returns the first address
    /// that is not a proxy. The search also ends at a value that is not an address. The client is
    /// then the proxy that added this value.
    pub(crate) fn behind(peer: IpAddr, headers: &HeaderMap, proxies: &[IpAddr]) -> Self {
        let mut client = peer.to_canonical();
        let values = headers.get_all(HeaderName::from_static("x-forwarded-for"));
        // A header line that is not text contains no valid address, so the search ends there.
        let lines = values.iter().rev();
        let forwarded = lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(','));
        for before in forwarded {
            let is_proxy = proxies.iter().any(|one| one.to_canonical() == client);
            match before.trim().parse::<IpAddr>() {
                Ok(before) if is_proxy => client = before.to_canonical(),
                _ => break,
            }
        }
        Self(client)
    }

    /// Returns the client of a request, or `None` if the request does not have this extension.
    pub(crate) fn of(extensions: &Extensions) -> Option<Self> {
        extensions.get().copied()
    }

    /// Returns the key that identifies one client: an IPv4 address, or the /64 network of an IPv6
    /// address, because a single host can use all addresses of its network.
    pub(crate) fn key(self) -> IpAddr {
        match self.0.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                let network = address.to_bits() & !u128::from(u64::MAX);
                IpAddr::V6(Ipv6Addr::from_bits(network))
            }
            address => address,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn only_proxies_name_the_client_they_forward_for() {
        let proxies = [ip("127.0.0.1"), ip("10.0.0.2")];
        let client = |peer: &str, forwarded: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in forwarded {
                let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
                headers.append("x-forwarded-for", value);
            }
            ClientAddr::behind(ip(peer), &headers, &proxies).0
        };
        assert_eq!(client("192.0.2.1", &["198.51.100.9"]), ip("192.0.2.1"));
        assert_eq!(client("127.0.0.1", &[]), ip("127.0.0.1"));
        assert_eq!(client("127.0.0.1", &["192.0.2.1"]), ip("192.0.2.1"));
        assert_eq!(client("::ffff:127.0.0.1", &["192.0.2.1"]), ip("192.0.2.1"));
        // The client may have sent the first addresses itself, so they are not trusted.
        assert_eq!(
            client("127.0.0.1", &["1.1.1.1, 192.0.2.1"]),
            ip("192.0.2.1")
        );
        assert_eq!(
            client("127.0.0.1", &["1.1.1.1", "192.0.2.1, 10.0.0.2"]),
            ip("192.0.2.1")
        );
        assert_eq!(
            client("127.0.0.1", &["192.0.2.1, nonsense"]),
            ip("127.0.0.1")
        );
        assert_eq!(
            client("127.0.0.1", &["1.1.1.1", "é, 192.0.2.1"]),
            ip("127.0.0.1")
        );
    }

    #[test]
    fn an_ipv6_network_is_one_client() {
        let key = |text| ClientAddr(ip(text)).key();
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
        assert_eq!(key("::1"), ip("::1"));
    }
}
