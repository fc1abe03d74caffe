//! Kinds: every resource served, built in or defined by a CRD.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::object;
use crate::schema::Schema;
use crate::store::{ResourceId, Stored};
use crate::table::Columns;

mod autoscalers;
mod builtin;
mod data;
mod defaults;
pub(crate) mod definition;
mod events;
mod fields;
mod fill;
mod fixed;
mod life;
mod maps;
mod more;
mod policies;
pub(crate) mod prepare;
mod registry;
mod row;
mod schemas;
mod services;
mod storage;
mod templates;
mod unstored;
mod validate;
mod webhooks;

pub(crate) use fields::{field_text, known_field};
pub(crate) use registry::{Registry, version_rank};
pub(crate) use row::{BuiltIn, Generation, OnPut, Reach};
pub(crate) use schemas::format_warnings;
pub(crate) use unstored::{UNSTORED_GROUPS, Unstored, unstored};
pub(crate) use validate::selects;

/// The origin of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// The server's own table.
    BuiltIn(&'static BuiltIn),
    /// A CRD, with the generation of its specification.
    Custom { generation: Option<i64> },
}

/// The paths of a scale subresource, dotted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    /// The path of the wanted number of replicas.
    pub(crate) spec: String,
    /// The path of the current number of replicas.
    pub(crate) status: String,
    /// The path of the selector's text; empty if it has none.
    pub(crate) selector: String,
}

/// One version of a resource, as served.
#[derive(Debug)]
pub(crate) struct Served {
    /// A number no other served version has.
    pub(crate) id: u64,
    /// The group.
    pub(crate) group: String,
    /// The version, e.g. `v1`.
    pub(crate) version: String,
    /// The kind.
    pub(crate) kind: String,
    /// Whether requests may name this version.
    pub(crate) served: bool,
    /// The schema.
    pub(crate) schema: Schema,
    /// The subresources, e.g. `status`.
    pub(crate) subresources: Vec<String>,
    /// The paths of the scale subresource.
    pub(crate) scale: Option<ScalePaths>,
    /// The columns of tables.
    pub(crate) columns: Columns,
    /// The paths that field selectors may name, with a leading dot removed.
    pub(crate) selectable: Vec<String>,
    /// The warning for users of this version.
    pub(crate) deprecation: Option<String>,
    /// How stored objects turn into this version's.
    pub(crate) view: VersionView,
    /// The webhook that turns objects into this version's and back.
    pub(crate) conversion: Option<Arc<Conversion>>,
}

/// A webhook that turns objects of a custom kind from one version into another.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conversion {
    /// Its `clientConfig`.
    pub(crate) client: Value,
    /// The versions of reviews that it takes.
    pub(crate) review_versions: Vec<String>,
}

/// How a stored object is shown in a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionView {
    /// Unchanged.
    Same,
    /// Renamed to this version, pruned and defaulted by its schema.
    Schema,
    /// A core event as `events.k8s.io` has it.
    Events,
    /// An autoscaler as `autoscaling/v1` has it.
    Autoscalers,
}

impl Served {
    /// Returns `group/version`.
    pub(crate) fn api_version(&self) -> String {
        object::api_version(&self.group, &self.version)
    }

    /// Returns whether a subresource is offered.
    pub(crate) fn offers(&self, subresource: &str) -> bool {
        self.subresources.iter().any(|s| s == subresource)
    }

    /// Returns whether a webhook has to turn a stored object into this version's.
    pub(crate) fn converts(&self, stored: &Stored) -> bool {
        self.conversion.is_some() && stored.api_version() != Some(&*self.api_version())
    }

    /// Shows a stored object in this version; a webhook's conversion must already be there.
    pub(crate) fn show_stored(&self, stored: &Stored) -> Value {
        let converted = if self.converts(stored) { stored.converted(self.id) } else { None };
        self.show(&converted.unwrap_or_else(|| stored.value())).into_owned()
    }

    /// Shows an object of a stored form in this version.
    pub(crate) fn show<'a>(&self, stored: &'a Value) -> Cow<'a, Value> {
        match self.view {
            VersionView::Same => Cow::Borrowed(stored),
            VersionView::Schema => {
                let mut value = stored.clone();
                object::map_mut(&mut value).insert("apiVersion".into(), self.api_version().into());
                self.schema.prune(&mut value);
                self.schema.default(&mut value);
                Cow::Owned(value)
            }
            VersionView::Events => Cow::Owned(events::to_new(stored)),
            VersionView::Autoscalers => Cow::Owned(autoscalers::to_v1(stored)),
        }
    }

    /// Turns an object of this version into the stored form.
    pub(crate) fn unshow(&self, shown: Value, storage: &Served) -> Value {
        match self.view {
            VersionView::Events => events::to_old(shown),
            VersionView::Autoscalers => autoscalers::to_v2(shown),
            VersionView::Same => shown,
            VersionView::Schema => {
                let mut value = shown;
                object::map_mut(&mut value).insert("apiVersion".into(), storage.api_version().into());
                value
            }
        }
    }
}

/// A resource in all its versions.
#[derive(Debug)]
pub(crate) struct Resource {
    /// Its group and plural.
    pub(crate) id: ResourceId,
    /// The storage of its objects; that of another resource if this one is a second view of it.
    pub(crate) storage: ResourceId,
    /// The kind.
    pub(crate) kind: String,
    /// The list's kind.
    pub(crate) list_kind: String,
    /// The singular.
    pub(crate) singular: String,
    /// Short names.
    pub(crate) short_names: Vec<String>,
    /// Categories, e.g. `all`.
    pub(crate) categories: Vec<String>,
    /// Whether its objects live in namespaces.
    pub(crate) reach: Reach,
    /// Its versions, the preferred first.
    pub(crate) versions: Vec<Arc<Served>>,
    /// The version objects are stored in, an index into `versions`.
    pub(crate) stored_as: usize,
    /// Its origin.
    pub(crate) origin: Origin,
}

impl Resource {
    /// Returns the group.
    pub(crate) fn group(&self) -> &str {
        &self.id.group
    }

    /// Returns the plural.
    pub(crate) fn plural(&self) -> &str {
        &self.id.plural
    }

    /// Returns a served version.
    pub(crate) fn served(&self, version: &str) -> Option<&Arc<Served>> {
        self.versions.iter().find(|v| v.served && v.version == version)
    }

    /// Returns the version objects are stored in.
    pub(crate) fn storage_version(&self) -> &Arc<Served> {
        &self.versions[self.stored_as]
    }

    /// Returns whether a CRD defines it.
    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.origin, Origin::Custom { .. })
    }

    /// Returns which generation of its CRD it is.
    pub(crate) fn generation(&self) -> Option<i64> {
        match self.origin {
            Origin::Custom { generation } => generation,
            Origin::BuiltIn(_) => None,
        }
    }

    /// Returns the row of the built-in table.
    pub(crate) fn built_in(&self) -> Option<&'static BuiltIn> {
        match self.origin {
            Origin::BuiltIn(row) => Some(row),
            Origin::Custom { .. } => None,
        }
    }
}

impl From<crate::schema::FieldError> for crate::status::Cause {
    fn from(error: crate::schema::FieldError) -> Self {
        Self { reason: error.reason.as_str(), message: error.message, field: error.field }
    }
}
