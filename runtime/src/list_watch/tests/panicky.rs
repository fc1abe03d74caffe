//! A kind whose type panics on some of its objects, for tests.

use std::thread::{self, ThreadId};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A config map that panics as it is decoded where its name begins with `panicky`, as it is encoded with `shy`.
#[derive(Clone, Debug, kube::Resource)]
#[resource(inherit = ConfigMap)]
pub(crate) struct Panicky {
    pub(crate) metadata: ObjectMeta,
    /// The thread that made it.
    pub(crate) thread: ThreadId,
}

/// What travels.
#[derive(Serialize, Deserialize)]
struct PlainConfigMap {
    metadata: ObjectMeta,
}

impl Panicky {
    pub(crate) fn named(name: &str) -> Self {
        Self::of(ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() })
    }

    fn of(metadata: ObjectMeta) -> Self {
        Self { metadata, thread: thread::current().id() }
    }

    fn calm(metadata: &ObjectMeta, panicky: &str) {
        let name = metadata.name.as_deref().unwrap_or_default();
        assert!(!name.starts_with(panicky), "hunter2: a planted panic");
    }
}

impl<'de> Deserialize<'de> for Panicky {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let PlainConfigMap { metadata } = PlainConfigMap::deserialize(deserializer)?;
        Self::calm(&metadata, "panicky");
        Ok(Self::of(metadata))
    }
}

impl Serialize for Panicky {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::calm(&self.metadata, "shy");
        PlainConfigMap { metadata: self.metadata.clone() }.serialize(serializer)
    }
}
