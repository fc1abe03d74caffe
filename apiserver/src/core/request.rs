//! A request as the core takes it.

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};

use crate::identity::User;
use crate::route::RequestInfo;

/// One request, whole.
#[derive(Clone, Debug)]
pub(crate) struct ApiRequest {
    /// The HTTP method.
    pub(crate) method: Method,
    /// The path and query; an authority is ignored.
    pub(crate) uri: Uri,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The body, complete.
    pub(crate) body: Bytes,
    /// The sender.
    pub(crate) user: User,
}

impl ApiRequest {
    /// Reads what the request is about.
    pub(crate) fn info(&self) -> RequestInfo {
        RequestInfo::of(&self.method, &self.uri)
    }
}
