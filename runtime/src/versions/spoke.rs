//! The versions of a kind with their types erased: how objects are read into the hub, and written from it.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::CustomResourceExt;
use serde_json::Value;

use crate::object::Object;

/// A kind whose versions are known; implemented by `#[derive(Informer)]`.
///
/// The type is the hub, which is stored. A kind without `#[informer(versions(..))]` has the hub alone.
#[doc(hidden)]
pub trait Versioned: Sized {
    /// Returns the versions other than the hub.
    fn spokes() -> Vec<Spoke<Self>>;
}

/// A version that can be converted to another one.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be converted into `{T}`",
    label = "a version of the kind needs `From` in both directions",
    note = "write `impl From<{Self}> for {T}`"
)]
pub trait ConvertsInto<T> {
    /// Converts it.
    fn convert(self) -> T;
}

#[diagnostic::do_not_recommend]
impl<S: Into<T>, T> ConvertsInto<T> for S {
    fn convert(self) -> T {
        self.into()
    }
}

/// One version of a kind, as seen from the hub `H`.
#[doc(hidden)]
pub struct Spoke<H> {
    pub(super) definition: fn() -> CustomResourceDefinition,
    pub(super) read: fn(&Value) -> Result<Read<H>, WrongField>,
    pub(super) write: fn(H) -> Result<Value, WrongField>,
    pub(super) normal: fn(&Value) -> Result<Value, WrongField>,
}

/// An object of a version: as the version's type writes it, and as the hub.
pub(super) struct Read<H> {
    pub(super) typed: Value,
    pub(super) hub: H,
}

/// Why an object can't be read or written: the field, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WrongField {
    pub(super) field: String,
    pub(super) why: String,
}

impl<H> Spoke<H> {
    /// Describes a version that converts to and from the hub.
    pub fn of<S>() -> Self
    where
        S: Object + CustomResourceExt + ConvertsInto<H>,
        H: ConvertsInto<S>,
    {
        Self {
            definition: S::crd,
            read: |object| {
                let spoke: S = decode(object)?;
                Ok(Read { typed: encode(&spoke)?, hub: spoke.convert() })
            },
            write: |hub| encode::<S>(&hub.convert()),
            normal: |object| encode(&decode::<S>(object)?),
        }
    }
}

impl<H: Object + CustomResourceExt> Spoke<H> {
    /// Describes the hub itself.
    pub(super) fn hub() -> Self {
        Self {
            definition: H::crd,
            read: |object| {
                let hub = decode(object)?;
                Ok(Read { typed: encode(&hub)?, hub })
            },
            write: |hub| encode(&hub),
            normal: |object| encode(&decode::<H>(object)?),
        }
    }
}

impl<H> fmt::Debug for Spoke<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spoke")
    }
}

fn decode<K: Object>(object: &Value) -> Result<K, WrongField> {
    serde_path_to_error::deserialize(object)
        .map_err(|error| WrongField { field: error.path().to_string(), why: error.inner().to_string() })
}

fn encode<K: Object>(object: &K) -> Result<Value, WrongField> {
    serde_path_to_error::serialize(object, serde_json::value::Serializer)
        .map_err(|error| WrongField { field: error.path().to_string(), why: error.inner().to_string() })
}
