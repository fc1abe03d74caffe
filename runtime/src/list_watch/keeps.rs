//! Which objects a cache keeps, where replicas share a kind out: the others are dropped before they are decoded.

use std::{borrow::Cow, fmt, sync::Arc};

use serde::Deserialize;

use crate::object::ObjectKey;

/// Tells which objects are kept, by namespace and name. The answer may change: then the kind is listed again.
#[derive(Clone)]
pub(crate) struct Keeps(Arc<KeepsFn>);

type KeepsFn = dyn Fn(Option<&str>, &str) -> bool + Send + Sync;

/// As little of an object as tells who it is. All of its text is checked on the way.
#[derive(Deserialize)]
struct WhoseObject<'a> {
    #[serde(borrow)]
    metadata: WhoseMetadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WhoseMetadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
}

impl Keeps {
    pub(crate) fn new(keeps: impl Fn(Option<&str>, &str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(keeps))
    }

    /// Returns whether the object of a key is kept.
    pub(crate) fn keeps(&self, key: &ObjectKey) -> bool {
        (self.0)(key.namespace(), key.name())
    }

    /// Returns the version of an object that is not kept. One that can't be read is not dropped, but reported.
    pub(super) fn dropped(&self, text: &str) -> Option<String> {
        let WhoseObject { metadata } = serde_json::from_str(text).ok()?;
        let namespace = metadata.namespace.as_deref().filter(|namespace| !namespace.is_empty());
        let is_kept = metadata.name.is_empty() || (self.0)(namespace, &metadata.name);
        (!is_kept).then(|| metadata.resource_version.into_owned())
    }
}

impl fmt::Debug for Keeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keeps")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // H7
    #[test]
    fn only_what_is_whole_and_belongs_to_others_is_dropped() {
        let keeps = Keeps::new(|namespace, _| namespace == Some("ours"));
        let object = |namespace: &str| {
            format!(
                r#"{{"kind":"A","metadata":{{"name":"a","namespace":"{namespace}","resourceVersion":"7"}},"x":[1]}}"#
            )
        };
        assert_eq!(keeps.dropped(&object("ours")), None);
        assert_eq!(keeps.dropped(&object("theirs")).as_deref(), Some("7"));
        assert_eq!(keeps.dropped(&object("th\\u0065irs")).as_deref(), Some("7"));
        let theirs = object("theirs");
        for text in [
            &theirs[..theirs.len() - 1],
            &format!("{theirs}]"),
            "{}",
            r#"{"metadata":{"name":"","resourceVersion":"7"}}"#,
        ] {
            assert_eq!(keeps.dropped(text), None, "{text}");
        }
    }
}
