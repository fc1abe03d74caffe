//! What is compared: an object as far as any form of informer shows it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource as _;
use watchkeeper::{
    ObjectKey, Watched,
    informer::{Dynamic, Metadata},
};

/// One state of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Which object.
    pub(crate) uid: String,
    /// Its version.
    pub(crate) version: u64,
    /// Its labels.
    pub(crate) labels: BTreeMap<String, String>,
    /// Its content; `None` if a form does not show it.
    pub(crate) data: Option<BTreeMap<String, String>>,
}

/// What is on the server, or in a cache.
pub(crate) type Content = BTreeMap<ObjectKey, State>;

/// A form in which config maps can be watched.
pub(crate) trait Form: Watched {
    /// Reads the content of an object; `None` if the form has none.
    fn data(object: &Self::Object) -> Option<BTreeMap<String, String>>;

    /// Reads an object.
    fn state(object: &Self::Object) -> State {
        let meta = object.meta();
        State {
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default(),
            labels: meta.labels.clone().unwrap_or_default(),
            data: Self::data(object),
        }
    }
}

impl Form for ConfigMap {
    fn data(object: &ConfigMap) -> Option<BTreeMap<String, String>> {
        Some(object.data.clone().unwrap_or_default())
    }
}

impl Form for Metadata<ConfigMap> {
    fn data(_: &Self::Object) -> Option<BTreeMap<String, String>> {
        None
    }
}

impl Form for Dynamic {
    fn data(object: &Self::Object) -> Option<BTreeMap<String, String>> {
        let data = object.data.get("data").cloned().unwrap_or_default();
        Some(serde_json::from_value(data).unwrap_or_default())
    }
}

impl State {
    /// Returns whether a form that may show less shows this state.
    pub(crate) fn shown_as(&self, shown: &Self) -> bool {
        let same = self.uid == shown.uid && self.version == shown.version && self.labels == shown.labels;
        same && (shown.data.is_none() || shown.data == self.data)
    }

    /// Returns whether the transform of the tests refuses it.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.data.as_ref().is_some_and(|data| data.contains_key(POISON))
    }

    pub(crate) fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let uid = self.uid.get(..4).unwrap_or_default();
        write!(f, "{uid}@{} {}.{}", self.version, self.label("tier"), self.label("tags"))?;
        match &self.data {
            Some(data) => write!(f, " {data:?}"),
            None => Ok(()),
        }
    }
}

/// The entry of an object's data at which the transform fails.
pub(crate) const POISON: &str = "poison";
