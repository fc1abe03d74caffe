//! Builds the requests of lists and watches.

use http::{Request, header};
use kube::client::Body;

use crate::list_watch::{ListOptions, ListWatchError, Representation, VersionMatch};

const JSON: &str = "application/json";

/// Prefers metadata, and takes whole objects of a server that can't make it.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

pub(super) fn list(
    path: &str,
    options: &ListOptions,
    of: Representation,
) -> Result<Request<Body>, ListWatchError> {
    let mut query = UrlQuery::default();
    query.add_common(options);
    query.add("limit", options.limit);
    query.add("continue", options.continue_token.as_deref());
    build(Request::get(query.after(path)), if of == Representation::Whole { JSON } else { METADATA_LIST })
}

/// A watch asks for no compression: it would hold events back, and a stream has no use for it.
pub(super) fn watch(
    path: &str,
    options: &ListOptions,
    of: Representation,
) -> Result<Request<Body>, ListWatchError> {
    let mut query = UrlQuery::default();
    query.add("watch", Some("true"));
    query.add_common(options);
    query.add("timeoutSeconds", options.timeout.map(|timeout| timeout.as_secs()));
    query.add("allowWatchBookmarks", options.bookmarks.then_some("true"));
    query.add("sendInitialEvents", options.initial_events.then_some("true"));
    let request = Request::get(query.after(path)).header(header::ACCEPT_ENCODING, "identity");
    build(request, if of == Representation::Whole { JSON } else { METADATA })
}

fn build(request: http::request::Builder, accept: &str) -> Result<Request<Body>, ListWatchError> {
    let request = request.header(header::ACCEPT, accept).body(Body::empty());
    request.map_err(|error| ListWatchError::Other(Box::new(error)))
}

/// The query of a URL, in the order in which parameters are added.
#[derive(Default)]
struct UrlQuery(String);

impl UrlQuery {
    fn add_common(&mut self, options: &ListOptions) {
        let version_match = options.version_match.map(|version_match| match version_match {
            VersionMatch::Exact => "Exact",
            VersionMatch::NotOlderThan => "NotOlderThan",
        });
        self.add("resourceVersion", options.resource_version.as_deref());
        self.add("resourceVersionMatch", version_match);
        self.add("labelSelector", options.label_selector.as_deref());
        self.add("fieldSelector", options.field_selector.as_deref());
    }

    fn add(&mut self, name: &str, value: Option<impl ToString>) {
        let Some(value) = value else { return };
        if !self.0.is_empty() {
            self.0.push('&');
        }
        self.0.push_str(name);
        self.0.push('=');
        for byte in value.to_string().bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    self.0.push(char::from(byte));
                }
                _ => self.0.push_str(&format!("%{byte:02X}")),
            }
        }
    }

    fn after(self, path: &str) -> String {
        if self.0.is_empty() { path.to_owned() } else { format!("{path}?{}", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    // R6
    #[test]
    fn options_are_spelled_as_the_server_reads_them() {
        let options = ListOptions {
            resource_version: Some("7".into()),
            version_match: Some(VersionMatch::NotOlderThan),
            limit: Some(500),
            label_selector: Some("a in (b,c)".into()),
            timeout: Some(Duration::from_millis(300_500)),
            bookmarks: true,
            initial_events: true,
            ..ListOptions::default()
        };
        let listed = list("/api/v1/pods", &options, Representation::Whole).unwrap();
        assert_eq!(
            listed.uri(),
            "/api/v1/pods?resourceVersion=7&resourceVersionMatch=NotOlderThan\
             &labelSelector=a%20in%20%28b%2Cc%29&limit=500"
        );
        let watched = watch("/api/v1/pods", &options, Representation::Metadata).unwrap();
        assert_eq!(
            watched.uri(),
            "/api/v1/pods?watch=true&resourceVersion=7&resourceVersionMatch=NotOlderThan\
             &labelSelector=a%20in%20%28b%2Cc%29&timeoutSeconds=300&allowWatchBookmarks=true\
             &sendInitialEvents=true"
        );
        assert_eq!(watched.headers()[header::ACCEPT_ENCODING], "identity");
        assert_eq!(watched.headers()[header::ACCEPT], METADATA);
        let bare = list("/api/v1/pods", &ListOptions::default(), Representation::Whole).unwrap();
        assert_eq!(bare.uri(), "/api/v1/pods");
    }
}
