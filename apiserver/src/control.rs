//! The control port: compaction, faults and the recorder for other processes, without TLS.
//!
//! | Request | Does |
//! |---|---|
//! | `POST /compact` | forgets all history; `?resourceVersion=N` or `?revision=N`: up to N |
//! | `POST /restart` | breaks every connection; `?mode=keep`, `forget-history`, `empty`, or `at&resourceVersion=N` |
//! | `POST /partition` | holds everything back, in both directions |
//! | `POST /heal` | ends the partition |
//! | `POST /faults` | arms the rule in the body, or each of a list of rules ([`RuleScript`]) |
//! | `GET /faults` | lists the faults that fired, one per line |
//! | `DELETE /faults` | disarms all rules and lets go on what they hold |
//! | `GET /requests` | lists the requests: `{total, counts, requests}` |
//! | `DELETE /requests` | forgets the requests |
//!
//! The port has no token: every user of this machine can reach it, and so cut connections, arm faults and read what was
//! asked. What a browser sends for a web page is refused: see
//! [`is_foreign`].

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::core::Restart;
use crate::faults::{RequestRecord, RuleScript};
use crate::http::bind;
use crate::route::Query;
use crate::service::Front;
use crate::start_error::StartError;
use crate::store::Forgotten;

/// The longest body taken, in bytes.
const BODY_LIMIT: usize = 1 << 20;

/// A control port under way; dropping it closes it.
#[derive(Debug)]
pub(crate) struct Control {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Control {
    /// Opens the port; port 0 takes a free one.
    pub(crate) async fn start(front: Arc<Front>, address: SocketAddr) -> Result<Self, StartError> {
        let socket = bind(address).await?;
        let address = socket.local_addr().map_err(|source| StartError::Listen { address, source })?;
        Ok(Self { address, accepting: tokio::spawn(accept(socket, front)) })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Closes the port, and returns when it is closed.
    pub(crate) async fn stop(mut self) {
        self.accepting.abort();
        // The task was cancelled: its result does not matter.
        let _ended = (&mut self.accepting).await;
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(socket: TcpListener, front: Arc<Front>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = socket.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let front = Arc::clone(&front);
                connections.spawn(async move {
                    let service = service_fn(|request| answer(&front, request));
                    let mut server = http1::Builder::new();
                    // The server ignores clients that disconnect.
                    let _ended = server.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(front: &Front, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    if is_foreign(&parts.headers) {
        let error = "web pages may not use this port: send no Origin, and the port's own address as Host";
        return Ok(reply(StatusCode::FORBIDDEN, &json!({ "error": error })));
    }
    let body = match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return Ok(reply(StatusCode::BAD_REQUEST, &json!({ "error": error.to_string() }))),
    };
    let query = Query::of(&parts.uri);
    let done = match (&parts.method, parts.uri.path()) {
        (&Method::POST, "/compact") => compact(front, &query),
        (&Method::POST, "/restart") => restart(front, &query),
        (&Method::POST, "/partition") => {
            front.partition();
            Ok(json!({}))
        }
        (&Method::POST, "/heal") => {
            front.heal();
            Ok(json!({}))
        }
        (&Method::POST, "/faults") => arm(front, &body),
        (&Method::GET, "/faults") => {
            Ok(json!({ "fired": front.faults().log().iter().map(ToString::to_string).collect::<Vec<_>>() }))
        }
        (&Method::DELETE, "/faults") => {
            front.faults().clear();
            Ok(json!({}))
        }
        (&Method::GET, "/requests") => Ok(requests(front)),
        (&Method::DELETE, "/requests") => {
            front.requests().clear();
            Ok(json!({}))
        }
        (_, "/compact" | "/restart" | "/partition" | "/heal" | "/faults" | "/requests") => {
            return Ok(reply(StatusCode::METHOD_NOT_ALLOWED, &json!({ "error": "not with this method" })));
        }
        _ => {
            let error = "only /compact, /restart, /partition, /heal, /faults and /requests are here";
            return Ok(reply(StatusCode::NOT_FOUND, &json!({ "error": error })));
        }
    };
    Ok(match done {
        Ok(value) => reply(StatusCode::OK, &value),
        Err(error) => reply(StatusCode::BAD_REQUEST, &json!({ "error": error })),
    })
}

/// Returns whether a web page may have sent a request.
///
/// A browser names the page's origin in all that may change something, and says that it fetches for a page. A page whose
/// name leads to this machine has its own name as the host.
fn is_foreign(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).map(|host| host.to_str().unwrap_or("?"));
    let is_local = host.is_none_or(|host| {
        let name = host.parse::<Authority>().map(|host| host.host().trim_matches(['[', ']']).to_owned());
        name.is_ok_and(|name| name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()))
    });
    let by_hand = headers.get("sec-fetch-site").is_none_or(|site| site == "none");
    !is_local || !by_hand || headers.contains_key(header::ORIGIN)
}

fn compact(front: &Front, query: &Query) -> Result<Value, String> {
    let core = front.core();
    let version = match query.get("resourceVersion").or_else(|| query.get("revision")) {
        None => core.resource_version(),
        Some(text) => number(text)?,
    };
    core.compact_to(version);
    Ok(json!({ "resourceVersion": version.to_string() }))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("resourceVersion {text:?} is not a number"))
}

fn restart(front: &Front, query: &Query) -> Result<Value, String> {
    let what = match (query.text("mode"), query.get("resourceVersion")) {
        ("keep", None) => Restart::Keep,
        ("forget-history", None) => Restart::ForgetHistory,
        ("empty", None) => Restart::Empty,
        ("at", Some(version)) => Restart::At(number(version)?),
        _ => return Err("mode is keep, forget-history, empty, or at with a resourceVersion".to_owned()),
    };
    let forgotten = |Forgotten(oldest)| format!("no version before {oldest} is remembered");
    front.restart(what).map_err(forgotten)?;
    Ok(json!({ "resourceVersion": front.core().resource_version().to_string() }))
}

fn arm(front: &Front, body: &[u8]) -> Result<Value, String> {
    let value: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let rules = if value.is_array() { value } else { json!([value]) };
    let rules: Vec<RuleScript> = serde_json::from_value(rules).map_err(|error| error.to_string())?;
    let armed = rules.len();
    for rule in rules {
        rule.arm(front.faults());
    }
    Ok(json!({ "armed": armed }))
}

fn requests(front: &Front) -> Value {
    let requests = front.requests();
    let counts: serde_json::Map<String, Value> = requests
        .counts()
        .into_iter()
        .map(|((verb, resource), count)| (format!("{verb} {resource}"), count.into()))
        .collect();
    let list: Vec<Value> = requests.list().iter().map(record).collect();
    json!({ "total": requests.total(), "counts": counts, "requests": list })
}

fn record(record: &RequestRecord) -> Value {
    json!({
        "verb": record.verb.map(|verb| verb.as_str()),
        "method": record.method,
        "path": record.path,
        "query": record.query,
        "group": record.group,
        "resource": record.resource,
        "namespace": record.namespace,
        "name": record.name,
        "subresource": record.subresource,
        "user": record.user,
        "userAgent": record.user_agent,
        "accept": record.accept,
        "contentType": record.content_type,
        "status": record.status,
    })
}

fn reply(status: StatusCode, value: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{value}\n"))));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    // A36
    #[test]
    fn what_a_web_page_can_send_is_refused() {
        let of = |fields: &[(&'static str, &'static str)]| -> HeaderMap {
            let pairs = fields.iter().map(|(name, value)| {
                (HeaderName::from_static(name), header::HeaderValue::from_static(value))
            });
            pairs.collect()
        };
        for script in [
            &[][..],
            &[("host", "127.0.0.1:7000")],
            &[("host", "localhost:7000"), ("user-agent", "curl/8")],
            &[("host", "[::1]:7000")],
            &[("host", "127.0.0.1"), ("sec-fetch-site", "none")],
        ] {
            assert!(!is_foreign(&of(script)), "{script:?}");
        }
        for page in [
            &[("host", "127.0.0.1:7000"), ("origin", "https://example.com")][..],
            &[("host", "127.0.0.1:7000"), ("origin", "null")],
            &[("host", "127.0.0.1:7000"), ("sec-fetch-site", "cross-site")],
            &[("host", "rebound.example.com:7000")],
            &[("host", "localhost.example.com")],
            &[("host", "127.0.0.1.example.com")],
            &[("host", "10.0.0.1")],
            &[("host", "a b")],
        ] {
            assert!(is_foreign(&of(page)), "{page:?}");
        }
    }
}
