//! Converts one raw object from one version to another.

use std::fmt;
#[cfg(feature = "webhooks")]
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{CustomResourceExt, crd::merge_crds};
use serde_json::Value;

use super::{
    lost::{LOST_ANNOTATION, LostValues, loses_no_more, losses, restore, restored},
    schema::{COMMON, carry_unknown, of as schema_of, own_members, with_unknown},
    spoke::{Read, Spoke, Versioned, WrongField},
};
use crate::{
    object::{Object, ObjectKey},
    plain::plain,
    users_code::contained,
};

/// Most bytes of all annotations of an object, keys and values: an API server takes no more.
const MOST_OF_ANNOTATIONS: usize = 256 << 10;

/// Converts the raw objects of one kind.
pub(crate) trait Convert: Send + Sync {
    /// Returns the names of the versions, the hub's first.
    fn versions(&self) -> Vec<&str>;

    /// Returns one definition of all versions; the hub is stored.
    ///
    /// # Errors
    /// The versions differ in group, kind or scope.
    fn definition(&self) -> Result<CustomResourceDefinition, String>;

    /// Converts an object to an `apiVersion`.
    ///
    /// # Errors
    /// It can't be converted.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, Box<InconvertibleObject>>;
}

/// Why an object can't be converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InconvertibleObject {
    pub(crate) kind: String,
    pub(crate) api_version: String,
    pub(crate) key: ObjectKey,
    /// The field; empty if it is not one field.
    pub(crate) field: String,
    /// Says what is wrong. It may contain a value of the object, so it must not be logged.
    pub(crate) why: String,
}

impl fmt::Display for InconvertibleObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, api_version, key, field, why } = self;
        write!(f, "{} {key} of {}: ", plain(kind), plain(api_version))?;
        if !field.is_empty() && field != "." {
            write!(f, "{}: ", plain(field))?;
        }
        plain(why).fmt(f)
    }
}

/// The versions of the kind whose hub is `H`.
pub(crate) struct Conversions<H> {
    /// The hub comes first.
    all: Vec<ServedVersion<H>>,
}

/// One version, and what its definition says.
pub(super) struct ServedVersion<H> {
    spoke: Spoke<H>,
    pub(super) name: String,
    pub(super) api_version: String,
    pub(super) schema: Value,
    pub(super) definition: CustomResourceDefinition,
}

impl<H> ServedVersion<H> {
    fn new(spoke: Spoke<H>) -> Self {
        let definition = (spoke.definition)();
        let name = definition.spec.versions.first().map(|version| version.name.clone()).unwrap_or_default();
        let api_version = format!("{}/{name}", definition.spec.group);
        Self { spoke, api_version, name, schema: schema_of(&definition), definition }
    }

    /// Writes an object as the version's type does.
    pub(super) fn normal(&self, object: &Value) -> Result<Value, WrongField> {
        contained(|| (self.spoke.normal)(object)).unwrap_or_else(|| Err(panicked()))
    }

    pub(super) fn read(&self, object: &Value) -> Result<Read<H>, WrongField> {
        contained(|| (self.spoke.read)(object)).unwrap_or_else(|| Err(panicked()))
    }

    pub(super) fn write(&self, hub: H) -> Result<Value, WrongField> {
        contained(|| (self.spoke.write)(hub)).unwrap_or_else(|| Err(panicked()))
    }
}

fn panicked() -> WrongField {
    WrongField { field: String::new(), why: "the conversion panicked".to_owned() }
}

impl<H: Versioned + Object + CustomResourceExt> Conversions<H> {
    pub(crate) fn new() -> Self {
        let spokes = [Spoke::hub()].into_iter().chain(H::spokes());
        Self { all: spokes.map(ServedVersion::new).collect() }
    }

    #[cfg(feature = "webhooks")]
    pub(crate) fn shared() -> Arc<dyn Convert>
    where
        H: 'static,
    {
        Arc::new(Self::new())
    }
}

impl<H> Conversions<H> {
    pub(super) fn all(&self) -> &[ServedVersion<H>] {
        &self.all
    }

    fn find(&self, api_version: &str) -> Option<&ServedVersion<H>> {
        self.all.iter().find(|version| version.api_version == api_version)
    }

    /// Converts an object between two versions.
    pub(super) fn between(
        &self,
        from: &ServedVersion<H>,
        to: &ServedVersion<H>,
        object: &Value,
    ) -> Result<Value, WrongField> {
        let read = as_read(object);
        let Read { typed, hub } = from.read(&read)?;
        let mut made = to.write(hub)?;
        let mut lost_values = LostValues::of(object);
        let whole = with_unknown(&own_members(&typed), &own_members(object), &from.schema);
        let mut converted = own_members(&made);
        carry_unknown(&whole, &own_members(&typed), &mut converted, &to.schema);
        let lost = lost_values.take(&to.name);
        set_common(&mut made, object, &read, &to.api_version);
        let plain = self.back(from, to, &made, converted.clone());
        // What an old conversion kept may not fit what was changed since. And anybody can write it who can write the object:
        // it must not change what the object shows.
        let shows_the_same = |back: &Value| match &plain {
            Ok((_, plain)) => loses_no_more(&whole, plain, back),
            Err(_) => true,
        };
        let restored = restored(&lost, |values| {
            let mut converted = converted.clone();
            restore(&mut converted, values);
            self.back(from, to, &made, converted).ok().filter(|(_, back)| shows_the_same(back))
        });
        let (mut result, back) = match restored {
            Some(both) => both,
            None => plain?,
        };
        lost_values.set(&from.name, losses(&whole, &own_members(&back)));
        annotate(&mut result, lost_values.text());
        check_annotations(&result, &to.name)?;
        Ok(result)
    }

    /// Completes a converted object, and tries the way back.
    fn back(
        &self,
        from: &ServedVersion<H>,
        to: &ServedVersion<H>,
        made: &Value,
        converted: Value,
    ) -> Result<(Value, Value), WrongField> {
        let mut result = converted;
        let common = COMMON.into_iter().filter_map(|name| Some((name, made.get(name)?)));
        for (name, value) in common {
            result[name] = value.clone();
        }
        let back = from.write(to.read(&as_read(&result))?.hub)?;
        Ok((result, back))
    }
}

impl<H: 'static> Convert for Conversions<H> {
    fn versions(&self) -> Vec<&str> {
        self.all.iter().map(|version| version.name.as_str()).collect()
    }

    fn definition(&self) -> Result<CustomResourceDefinition, String> {
        let hub = self.all.first().map(|hub| hub.name.clone()).unwrap_or_default();
        let definitions = self.all.iter().map(|version| version.definition.clone()).rev().collect();
        merge_crds(definitions, &hub).map_err(|error| error.to_string())
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, Box<InconvertibleObject>> {
        let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
        let own = text("apiVersion");
        let wrong = |WrongField { field, why }| {
            let (kind, api_version, key) = (text("kind"), own.clone(), key(object));
            Box::new(InconvertibleObject { kind, api_version, key, field, why })
        };
        let unknown = |version: &str| {
            let known: Vec<_> = self.all.iter().map(|version| version.api_version.as_str()).collect();
            let why = format!("{version:?} is not a version of this program: it knows {}", known.join(", "));
            wrong(WrongField { field: "apiVersion".to_owned(), why })
        };
        let from = self.find(&own).ok_or_else(|| unknown(&own))?;
        let to = self.find(api_version).ok_or_else(|| unknown(api_version))?;
        let kind = &from.definition.spec.names.kind;
        if object["kind"] != *kind {
            let why = format!("it is not a {kind}");
            return Err(wrong(WrongField { field: "kind".to_owned(), why }));
        }
        if own == api_version {
            return Ok(object.clone());
        }
        self.between(from, to, object).map_err(wrong)
    }
}

/// Returns the key of a raw object.
fn key(object: &Value) -> ObjectKey {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
    ObjectKey::new(text("namespace"), text("name"))
}

/// Leaves out what only the API server reads, and what is long. An object that is being created gets a UID: by that it is seen
/// whether a conversion passes metadata on.
fn as_read(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        metadata.entry("uid").or_insert_with(|| "being-created".into());
    }
    object
}

/// Sets what is the same in both versions, except labels and annotations if the conversion of what was read passes metadata on.
fn set_common(made: &mut Value, object: &Value, read: &Value, api_version: &str) {
    let same = |name: &str| made["metadata"].get(name) == read["metadata"].get(name);
    let passes_on = same("name") && same("uid");
    let mut metadata = object["metadata"].clone();
    if let Some(metadata) = metadata.as_object_mut().filter(|_| passes_on) {
        for name in ["labels", "annotations"] {
            match made["metadata"].get(name) {
                Some(value) => drop(metadata.insert(name.to_owned(), value.clone())),
                None => drop(metadata.remove(name)),
            }
        }
    }
    made["metadata"] = metadata;
    made["kind"] = object["kind"].clone();
    made["apiVersion"] = api_version.into();
}

/// Sets the annotation, or removes it.
fn annotate(object: &mut Value, text: Option<String>) {
    let metadata = &mut object["metadata"];
    match text {
        Some(text) => metadata["annotations"][LOST_ANNOTATION] = text.into(),
        None => {
            let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else {
                return;
            };
            annotations.remove(LOST_ANNOTATION);
            if annotations.is_empty()
                && let Some(metadata) = metadata.as_object_mut()
            {
                metadata.remove("annotations");
            }
        }
    }
}

/// Refuses annotations that no API server takes: it would fail the whole list, and not say which object is the reason.
fn check_annotations(object: &Value, version: &str) -> Result<(), WrongField> {
    let annotations = object["metadata"]["annotations"].as_object();
    if annotations.is_none_or(|annotations| !annotations.contains_key(LOST_ANNOTATION)) {
        return Ok(());
    }
    let bytes = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
    let bytes: usize = annotations.into_iter().flatten().map(bytes).sum();
    if bytes <= MOST_OF_ANNOTATIONS {
        return Ok(());
    }
    let why = format!(
        "what {version} can't express makes them {bytes} bytes, and an API server takes {MOST_OF_ANNOTATIONS}: shorten the \
         object, or give {version} these fields"
    );
    Err(WrongField { field: "metadata.annotations".to_owned(), why })
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
