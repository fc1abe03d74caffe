//! The core: requests in, answers or event streams out, one mutex around one state.

use bytes::Bytes;
use http::{HeaderMap, Method, Response, Uri};

use crate::route::RequestInfo;
pub(crate) use crate::watch::{EventType, Frame, WatchStream};

/// Who sends a request, as far as authentication has found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// May do everything.
    Admin,
    /// A user whose rights are looked up.
    Named {
        /// The user's name, e.g. `viewer`.
        name: String,
        /// The groups of the user.
        groups: Vec<String>,
    },
    /// Sent no token.
    Anonymous,
}

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

/// The answer to one request.
#[derive(Debug)]
pub(crate) enum Reply {
    /// A whole response.
    Full(Response<Bytes>),
    /// A stream of events.
    Stream {
        /// Status and headers.
        parts: http::response::Parts,
        /// The events, one line a frame.
        events: WatchStream,
    },
}

/// What a restart forgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Nothing: streams are cut, data and history stay.
    Keep,
    /// The history: older versions are gone, watches from them get 410.
    ForgetHistory,
    /// Everything: a fresh store whose versions start low again.
    Empty,
}

/// The settings of a core; the defaults suit tests.
#[derive(Clone, Debug)]
pub(crate) struct CoreConfig {
    /// The clock of `creationTimestamp` and the like.
    pub(crate) clock: crate::clock::Clock,
    /// The seed of uids and generated names.
    pub(crate) seed: u64,
    /// The resource version before the first write.
    pub(crate) first_version: u64,
    /// The number of changes kept for each resource.
    pub(crate) history: usize,
    /// The time between two bookmarks of a watch that asked for them.
    pub(crate) bookmark_period: std::time::Duration,
    /// The time from a CRD's creation to its being served.
    pub(crate) establish_delay: std::time::Duration,
}

/// The server itself; a clone is the same server.
#[derive(Clone, Debug)]
pub(crate) struct Core;

impl Core {
    /// Starts a core with the four namespaces every cluster has.
    pub(crate) fn new(_config: CoreConfig) -> Self {
        Self
    }

    /// Forgets all history up to a version; open watches go on.
    pub(crate) fn compact_to(&self, _version: u64) {}

    /// Restarts: every stream ends, then what is said is forgotten.
    pub(crate) fn restart(&self, _what: Restart) {}

    /// Runs the controllers (garbage, namespaces, CRDs) until nothing is left to do now.
    pub(crate) fn settle(&self) {}

    /// Collects garbage now; gives the number of objects it touched.
    pub(crate) fn collect_garbage(&self) -> usize {
        0
    }

    /// Gives the newest resource version.
    pub(crate) fn resource_version(&self) -> u64 {
        0
    }

    /// Lets a named user do `verb` on `resource` (`*` is any).
    pub(crate) fn allow(&self, _user: &str, _verb: &str, _resource: &str) {}

    /// Answers one request; waits only on tokio time.
    pub(crate) async fn serve(&self, _request: ApiRequest) -> Reply {
        Reply::Full(crate::status::Status::page_not_found().to_response())
    }
}
