//! Whether a request comes from this machine.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, header, request::Parts, uri::Authority};

/// Headers that proxies add: the client is on another machine. Headers that begin with `x-forwarded-` count too.
const FORWARDED: [&str; 6] =
    ["forwarded", "via", "x-real-ip", "x-client-ip", "x-original-forwarded-for", "x-envoy-external-address"];

/// The address of who sent a request: an extension that a server of the program's own puts into each.
///
/// Without it nobody counts as local, and `/debug` is shown only where it is [for all](super::Http::debug_for_all).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Tells whether a request comes from this machine, and was meant for it.
///
/// A peer of this machine may be a proxy that passes on what others ask, and a browser may ask for a page from
/// elsewhere: so the host that is asked for must be this machine too.
pub(super) fn is_local(request: &Parts) -> bool {
    let peer = request.extensions.get::<Peer>();
    peer.is_some_and(|Peer(peer)| is_loopback(peer.ip()))
        && host(request).is_some_and(|host| names_this_machine(&host))
        && !request.headers.keys().any(|name| is_of_a_proxy(name.as_str()))
}

fn is_of_a_proxy(header: &str) -> bool {
    FORWARDED.contains(&header) || header.starts_with("x-forwarded-")
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn host(request: &Parts) -> Option<String> {
    let named = |headers: &HeaderMap| {
        let host = headers.get(header::HOST)?.to_str().ok()?;
        Some(host.parse::<Authority>().ok()?.host().to_owned())
    };
    request.uri.host().map(str::to_owned).or_else(|| named(&request.headers))
}

fn names_this_machine(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || address.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(peer: Option<&str>, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::get("/debug");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(()).unwrap();
        if let Some(peer) = peer {
            request.extensions_mut().insert(Peer(peer.parse().unwrap()));
        }
        request.into_parts().0
    }

    // P4
    #[test]
    fn only_what_this_machine_asks_of_itself_is_local() {
        let here = Some("127.0.0.1:4000");
        for (peer, host) in [
            (here, "localhost:8080"),
            (here, "127.0.0.1:8080"),
            (Some("[::1]:4000"), "[::1]:8080"),
            (Some("[::ffff:127.0.0.1]:4000"), "LOCALHOST"),
        ] {
            assert!(is_local(&parts(peer, &[("host", host)])), "{peer:?} {host}");
        }
        for (peer, headers) in [
            (None, &[("host", "localhost")][..]),
            (Some("10.0.0.7:4000"), &[("host", "localhost")]),
            (Some("[::ffff:10.0.0.7]:4000"), &[("host", "localhost")]),
            (here, &[("host", "evil.example:8080")]),
            (here, &[("host", "localhost.evil.example")]),
            (here, &[("host", "10.0.0.9:8080")]),
            (here, &[]),
            (here, &[("host", "localhost"), ("x-forwarded-for", "10.0.0.7")]),
            (here, &[("host", "localhost"), ("X-Forwarded-Proto", "https")]),
            (here, &[("host", "localhost"), ("forwarded", "for=10.0.0.7")]),
            (here, &[("host", "localhost"), ("Via", "1.1 proxy")]),
            (here, &[("host", "localhost"), ("X-Real-IP", "10.0.0.7")]),
        ] {
            assert!(!is_local(&parts(peer, headers)), "{peer:?} {headers:?}");
        }
    }
}
