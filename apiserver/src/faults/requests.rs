//! The recorder: which requests have come, with their options.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{HeaderMap, Method, Uri, header};

use crate::route::{RequestInfo, Verb};

/// The number of requests remembered whole; counts go on for ever.
const REMEMBERED: usize = 10_000;

/// The requests that the server has received; a clone is the same recorder.
///
/// Requests of the test kit itself are left out; refused ones and those a fault swallows are in.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    book: Arc<Mutex<Book>>,
}

#[derive(Debug, Default)]
struct Book {
    counts: BTreeMap<Verb, BTreeMap<String, u64>>,
    total: u64,
    records: VecDeque<Kept>,
    /// The number of records that came before the first one kept.
    dropped: u64,
}

/// A request in its original form; few are ever read.
#[derive(Debug)]
struct Kept {
    method: Method,
    info: Arc<RequestInfo>,
    /// The query, three headers and the user, a line each.
    texts: Box<str>,
    status: Option<u16>,
}

impl Kept {
    fn record(&self) -> RequestRecord {
        let info = &self.info;
        let mut texts = self.texts.splitn(5, '\n').map(str::to_owned);
        let mut text = || texts.next().unwrap_or_default();
        RequestRecord {
            verb: info.verb,
            method: self.method.to_string(),
            path: info.path.clone(),
            group: info.group.clone(),
            resource: info.resource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            subresource: info.subresource.clone(),
            query: text(),
            user_agent: text(),
            accept: text(),
            content_type: text(),
            user: text(),
            status: self.status,
        }
    }
}

/// One request, without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestRecord {
    /// The verb; `None` for paths that do not address a resource.
    pub verb: Option<Verb>,
    /// The HTTP method.
    pub method: String,
    /// The path, decoded.
    pub path: String,
    /// The query as sent, without `?`.
    pub query: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural of the resource; empty for paths that do not address a resource.
    pub resource: String,
    /// The namespace in the path.
    pub namespace: Option<String>,
    /// The object's name, in the path or by a field selector.
    pub name: Option<String>,
    /// The subresource; empty for the object itself.
    pub subresource: String,
    /// The user's name as authentication found it.
    pub user: String,
    /// The header `User-Agent`.
    pub user_agent: String,
    /// The header `Accept`.
    pub accept: String,
    /// The header `Content-Type`.
    pub content_type: String,
    /// The status code; `None` before the answer, and if the connection broke first.
    pub status: Option<u16>,
}

impl RequestRecord {
    /// Returns the first value of a query parameter, as sent.
    #[must_use]
    pub fn parameter(&self, key: &str) -> Option<&str> {
        self.query.split('&').find_map(|pair| match pair.split_once('=') {
            Some((k, value)) => (k == key).then_some(value),
            None => (pair == key && !key.is_empty()).then_some(""),
        })
    }
}

impl Requests {
    /// Counts the requests with a verb on a resource, by its plural, since the last clearing.
    #[must_use]
    pub fn count(&self, verb: Verb, resource: &str) -> u64 {
        self.lock().counts.get(&verb).and_then(|counts| counts.get(resource)).copied().unwrap_or(0)
    }

    /// Counts all requests since the last clearing.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.lock().total
    }

    /// Lists the last 10,000 requests, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<RequestRecord> {
        self.lock().records.iter().map(Kept::record).collect()
    }

    /// Lists those of the last 10,000 with a verb on a resource, oldest first.
    #[must_use]
    pub fn of(&self, verb: Verb, resource: &str) -> Vec<RequestRecord> {
        let matches = |kept: &&Kept| kept.info.verb == Some(verb) && kept.info.resource == resource;
        self.lock().records.iter().filter(matches).map(Kept::record).collect()
    }

    /// Returns the counts by verb and resource, in order.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<(Verb, String), u64> {
        let book = self.lock();
        let of = |(verb, counts): (&Verb, &BTreeMap<String, u64>)| {
            let verb = *verb;
            counts.iter().map(move |(resource, count)| ((verb, resource.clone()), *count)).collect::<Vec<_>>()
        };
        book.counts.iter().flat_map(of).collect()
    }

    /// Forgets all requests and starts counting from 0.
    pub fn clear(&self) {
        let mut book = self.lock();
        book.dropped += book.records.len() as u64;
        book.records.clear();
        book.counts.clear();
        book.total = 0;
    }

    pub(crate) fn arrived(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        info: &Arc<RequestInfo>,
        user: &str,
    ) -> Recorded {
        // Neither of these contains a line break; the user comes last.
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (agent, accept) = (header(header::USER_AGENT), header(header::ACCEPT));
        let texts = [uri.query().unwrap_or_default(), agent, accept, header(header::CONTENT_TYPE), user];
        let kept = Kept {
            method: method.clone(),
            info: info.clone(),
            texts: texts.join("\n").into_boxed_str(),
            status: None,
        };
        let mut book = self.lock();
        book.total += 1;
        if let Some(verb) = info.verb {
            let counts = book.counts.entry(verb).or_default();
            match counts.get_mut(&info.resource) {
                Some(count) => *count += 1,
                None => drop(counts.insert(info.resource.clone(), 1)),
            }
        }
        if book.records.len() == REMEMBERED {
            book.records.pop_front();
            book.dropped += 1;
        }
        book.records.push_back(kept);
        Recorded { requests: self.clone(), index: book.dropped + book.records.len() as u64 - 1 }
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one request in the book, for its answer.
#[derive(Debug)]
pub(crate) struct Recorded {
    requests: Requests,
    index: u64,
}

impl Recorded {
    pub(crate) fn answered(self, status: u16) {
        let mut book = self.requests.lock();
        let place = self.index.checked_sub(book.dropped).and_then(|place| usize::try_from(place).ok());
        if let Some(record) = place.and_then(|place| book.records.get_mut(place)) {
            record.status = Some(status);
        }
    }
}

/// Returns a header as text; empty when it is absent or no text.
pub(crate) fn text(headers: &HeaderMap, name: header::HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}
