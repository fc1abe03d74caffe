//! Flow control: the flow schema and the priority level that a request is counted to, as its answer names them.
//!
//! Requests are neither delayed nor refused here: only the classification is a real server's.

mod defaults;
mod rules;

use http::HeaderValue;

use self::rules::FlowSchema;
use crate::authz::Attributes;
use crate::identity::User;
use crate::object;
use crate::store::{ResourceId, Store};

pub(crate) use defaults::install;

/// The group of flow schemas and priority levels.
const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// The uids that an answer carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    /// The flow schema's.
    pub(crate) schema: HeaderValue,
    /// The priority level's.
    pub(crate) level: HeaderValue,
}

/// The stored flow schemas, in the order in which they are matched.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    /// The store's history and version at which they were read; `None` before the first time.
    looked: Option<(u64, u64)>,
    schemas: Vec<(FlowSchema, Class)>,
}

impl Flows {
    /// Classifies a request; `None` if no schema matches, which requires deleting the default ones.
    pub(crate) fn classify(&mut self, store: &Store, user: &User, asked: &Attributes) -> Option<Class> {
        self.look(store);
        let fitting = self.schemas.iter().find(|(schema, _)| schema.fits(user, asked));
        fitting.map(|(_, class)| class.clone())
    }

    /// Reads the schemas again if they have changed.
    fn look(&mut self, store: &Store) {
        let now = store.moment();
        if self.looked == Some(now) {
            return;
        }
        let ids = ["flowschemas", "prioritylevelconfigurations"].map(|plural| ResourceId::new(GROUP, plural));
        let changed = |(era, version)| era != now.0 || ids.iter().any(|id| store.changed_since(id, version));
        if self.looked.is_none_or(changed) {
            self.schemas = read(store, &ids);
        }
        self.looked = Some(now);
    }
}

/// Reads the schemas whose priority level exists: by precedence, then by name.
fn read(store: &Store, [schemas, levels]: &[ResourceId; 2]) -> Vec<(FlowSchema, Class)> {
    let mut found: Vec<(FlowSchema, Class)> = Vec::new();
    for stored in store.scan(schemas, "") {
        let value = stored.value();
        let Some(schema) = FlowSchema::read(&value) else { continue };
        let Some(level) = store.get(levels, schema.level()) else { continue };
        let uid = |value| HeaderValue::from_str(object::text(value, "uid")).ok();
        if let (Some(own), Some(level)) = (uid(&value), uid(&level.value())) {
            found.push((schema, Class { schema: own, level }));
        }
    }
    // The store's order is by name.
    found.sort_by_key(|(schema, _)| schema.precedence());
    found
}
