//! From which version on the lines of a part show all that its watches saw.

use std::{borrow::Cow, collections::BTreeMap};

use http::Uri;
use serde::Deserialize;

use crate::{
    api_request::ResourcePath,
    object::{Kind, Version},
};

/// The watches that are open, by their requests.
#[derive(Default)]
pub(super) struct OpenWatches(BTreeMap<u64, OpenWatch>);

struct OpenWatch {
    group: String,
    plural: String,
    /// `None`: all.
    namespace: Option<String>,
    /// No earlier part shows a higher version of what it watches; `None`: this part shows nothing of it so far.
    earlier: Option<Version>,
}

impl OpenWatches {
    pub(super) fn open(&mut self, request: u64, path: &ResourcePath) {
        let ResourcePath { group, plural, namespace, .. } = path.clone();
        self.0.insert(request, OpenWatch { group, plural, namespace, earlier: None });
    }

    /// Notes the version of the first event that a part shows of a watch.
    pub(super) fn note(&mut self, request: u64, version: Version) {
        if let Some(watch) = self.0.get_mut(&request) {
            watch.earlier.get_or_insert(version);
        }
    }

    pub(super) fn close(&mut self, request: u64) {
        self.0.remove(&request);
    }

    /// Begins another part; returns what the one before it shows.
    pub(super) fn turn(&mut self) -> ShownVersions {
        let watches = self.0.values_mut().map(|watch| {
            let (group, plural, namespace) =
                (watch.group.clone(), watch.plural.clone(), watch.namespace.clone());
            OpenWatch { group, plural, namespace, earlier: watch.earlier.take() }
        });
        ShownVersions(watches.collect())
    }
}

/// What the lines of a part show, by the watches that were open at its end.
#[derive(Default)]
pub(crate) struct ShownVersions(Vec<OpenWatch>);

impl ShownVersions {
    /// Returns a function that says of an object of a kind whether it is shown: its namespace and version.
    ///
    /// Several watches may see parts of one kind, and nobody knows here which of them saw an object. So each of the parts
    /// of caches that are kept of the kind must have its watch.
    pub(super) fn of<'s>(
        &'s self,
        kind: &Kind,
        parts: usize,
    ) -> impl Fn(Option<&str>, Option<Version>) -> bool + use<'s> {
        let is_of = |watch: &&OpenWatch| *watch.group == *kind.group && *watch.plural == *kind.plural;
        let watches: Vec<_> = self.0.iter().filter(is_of).collect();
        let all_watch = watches.len() >= parts;
        move |namespace, version| {
            let could_see =
                |watch: &&&OpenWatch| watch.namespace.is_none() || watch.namespace.as_deref() == namespace;
            let mut could_see = watches.iter().filter(could_see).peekable();
            let shows = |watch: &&OpenWatch| {
                watch.earlier.is_some_and(|earlier| version.is_some_and(|version| version > earlier))
            };
            all_watch && could_see.peek().is_some() && could_see.all(shows)
        }
    }
}

/// Notes, with the first event of each part, that what earlier parts show of a watch is older.
pub(super) struct WatchOrder {
    /// The part in which that was noted last; they are counted from 1 on.
    noted: u64,
    /// Versions grow from event to event: not while it lists.
    grows: bool,
}

/// How a bookmark begins.
const BOOKMARK: &[u8] = br#"{"type":"BOOKMARK","#;

impl WatchOrder {
    pub(super) fn of(uri: &Uri) -> Self {
        let pairs = || uri.query().unwrap_or_default().split('&');
        let lists = pairs().any(|pair| pair == "sendInitialEvents=true");
        let from = pairs().find_map(|pair| pair.strip_prefix("resourceVersion="));
        // One from any version begins with what there is.
        Self { noted: 0, grows: !lists && from.is_some_and(|from| !from.is_empty() && from != "0") }
    }

    /// Returns the version of an event, if it is the first of the part that has an order.
    pub(super) fn first(&mut self, part: u64, event: &[u8]) -> Option<Version> {
        if self.noted == part || !(self.grows || event.starts_with(BOOKMARK)) {
            return None;
        }
        let metadata = serde_json::from_slice::<VersionedEvent>(event).ok()?.object.metadata;
        self.grows |= metadata.annotations.contains_key("k8s.io/initial-events-end");
        if !self.grows {
            return None;
        }
        self.noted = part;
        metadata.resource_version.parse().ok()
    }
}

#[derive(Deserialize)]
struct VersionedEvent<'j> {
    #[serde(borrow)]
    object: VersionedObject<'j>,
}

#[derive(Deserialize)]
struct VersionedObject<'j> {
    #[serde(borrow)]
    metadata: VersionedMetadata<'j>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VersionedMetadata<'j> {
    #[serde(borrow, default)]
    resource_version: Cow<'j, str>,
    #[serde(borrow, default)]
    annotations: BTreeMap<Cow<'j, str>, Cow<'j, str>>,
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};

    use super::*;

    fn event(r#type: &str, version: &str, annotations: &str) -> Vec<u8> {
        format!(
            r#"{{"type":"{type}","object":{{"metadata":{{"resourceVersion":"{version}","annotations":{{{annotations}}}}}}}}}"#
        )
        .into_bytes()
    }

    // P26
    #[test]
    fn the_first_event_of_a_part_says_what_is_older_once_a_watch_has_listed() {
        let order = |query: &str| WatchOrder::of(&format!("/api/v1/pods?watch=true{query}").parse().unwrap());
        let mut watch = order("&resourceVersion=7");
        assert_eq!(watch.first(1, &event("MODIFIED", "9", "")), Some(Version(9)));
        assert_eq!(watch.first(1, &event("MODIFIED", "10", "")), None);
        assert_eq!(watch.first(2, &event("BOOKMARK", "11", "")), Some(Version(11)));
        // As far as the end of the list, events come in the order of names.
        let mut lists = order("&sendInitialEvents=true&resourceVersion=7");
        assert_eq!(lists.first(1, &event("ADDED", "900", "")), None);
        assert_eq!(lists.first(2, &event("ADDED", "5", "")), None);
        assert_eq!(lists.first(2, &event("BOOKMARK", "950", "")), None);
        let end = r#""k8s.io/initial-events-end":"true""#;
        assert_eq!(lists.first(2, &event("BOOKMARK", "950", end)), Some(Version(950)));
        assert_eq!(lists.first(3, &event("MODIFIED", "951", "")), Some(Version(951)));
        for any in ["", "&resourceVersion=", "&resourceVersion=0"] {
            assert_eq!(order(any).first(1, &event("ADDED", "5", "")), None, "{any}");
        }
        // An error has no version, and rubbish is none.
        let mut watch = order("&resourceVersion=7");
        assert_eq!(watch.first(1, &event("ERROR", "", "")), None);
        assert_eq!(order("&resourceVersion=7").first(1, br#"{"type":"ADDED","object":"#), None);
        assert_eq!(watch.first(2, &event("ADDED", "not-a-number", "")), None);
    }

    // P26
    #[test]
    fn an_object_is_shown_if_each_watch_that_could_see_it_shows_what_is_newer_than_before() {
        let path = |path: &str| ResourcePath::parse(path).unwrap();
        let mut open = OpenWatches::default();
        open.open(1, &path("/api/v1/configmaps"));
        open.note(1, Version(10));
        open.note(1, Version(12));
        open.open(2, &path("/api/v1/secrets"));
        open.open(3, &path("/api/v1/namespaces/shop/pods"));
        open.open(4, &path("/api/v1/namespaces/quiet/pods"));
        open.note(3, Version(10));
        let shown = open.turn();
        let (maps, secrets) = (shown.of(&Kind::of::<ConfigMap>(), 1), shown.of(&Kind::of::<Secret>(), 1));
        assert!(maps(Some("shop"), Some(Version(11))));
        assert!(!maps(Some("shop"), Some(Version(10))) && !maps(Some("shop"), None));
        assert!(!secrets(Some("shop"), Some(Version(11))), "it has shown nothing");
        let pods = shown.of(&Kind::of::<k8s_openapi::api::core::v1::Pod>(), 2);
        assert!(pods(Some("shop"), Some(Version(11))));
        let third = shown.of(&Kind::of::<k8s_openapi::api::core::v1::Pod>(), 3);
        assert!(!third(Some("shop"), Some(Version(11))), "one part of the cache has no watch");
        assert!(!pods(Some("quiet"), Some(Version(11))) && !pods(Some("other"), Some(Version(11))));
        let none = shown.of(&Kind::of::<k8s_openapi::api::apps::v1::Deployment>(), 1);
        assert!(!none(Some("shop"), Some(Version(11))), "nobody watches it");

        // Another watch of the kind may have seen it, and says nothing; once it is closed, it does not count.
        open.note(1, Version(20));
        open.open(5, &path("/api/v1/configmaps"));
        let shown = open.turn();
        assert!(!shown.of(&Kind::of::<ConfigMap>(), 1)(Some("shop"), Some(Version(21))));
        open.note(1, Version(30));
        open.close(5);
        let shown = open.turn();
        assert!(shown.of(&Kind::of::<ConfigMap>(), 1)(Some("shop"), Some(Version(31))));
        assert!(!shown.of(&Kind::of::<ConfigMap>(), 1)(Some("shop"), Some(Version(30))));
    }
}
