//! Without the feature `tls`: webhooks are only those of this process.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Response, Uri};
use serde_json::Value;

/// Never exists: nothing is sent.
pub(super) enum NoTrust {}

pub(super) use NoTrust as Trust;

/// Sends nothing.
///
/// # Errors
/// Never: this build can't verify certificates.
pub(super) async fn send(
    _: &Uri,
    _: Option<SocketAddr>,
    trust: &Trust,
    _: Method,
    _: Bytes,
) -> Result<Response<Bytes>, String> {
    match *trust {}
}

/// Refuses to trust anybody.
///
/// # Errors
/// Always: it names the feature.
pub(super) fn trust(_: &Value) -> Result<Trust, String> {
    Err("webhooks outside of the process need the feature `tls` of watchkeeper-apiserver".to_owned())
}
