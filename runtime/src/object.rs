//! Objects: the trait that all implement, and their keys, kinds and versions.

use std::{
    any::Any,
    borrow::Cow,
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
    sync::Arc,
};

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::core::{ObjectMeta, object::HasStatus};
use serde::{Serialize, de::DeserializeOwned};

use crate::plain::plain;

/// A type that watchkeeper can cache.
///
/// Implemented for every `kube::Resource` that is `Clone`, `Debug` and (de)serialisable: built-in kinds, custom
/// resources, `DynamicObject`, `PartialObjectMeta`. It cannot be implemented by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an object that watchkeeper can cache",
    note = "an object implements kube::Resource, Clone, Debug, Serialize and Deserialize, and is Send + Sync + 'static"
)]
pub trait Object:
    kube::Resource + Clone + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Returns the name, or an empty text if it has none.
    fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }
}

impl<T> Object for T where
    T: kube::Resource + Clone + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

/// An object whose type is forgotten.
///
/// Reflectors, queues, stores and informers hold these, so that they are compiled once and not for each type.
#[doc(hidden)]
pub trait AnyObject: Any + Send + Sync {
    /// Returns the metadata.
    fn metadata(&self) -> &ObjectMeta;

    /// Encodes the object as JSON.
    ///
    /// # Errors
    /// The type's `Serialize` fails.
    fn to_json(&self) -> serde_json::Result<Vec<u8>>;
}

/// As many bytes as most objects take as JSON.
const USUAL_BYTES: usize = 2 << 10;

impl<K: Object> AnyObject for K {
    fn metadata(&self) -> &ObjectMeta {
        self.meta()
    }

    fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        // Most objects are larger than what serde_json would begin with.
        let mut json = Vec::with_capacity(USUAL_BYTES);
        serde_json::to_writer(&mut json, self)?;
        Ok(json)
    }
}

/// Shows no content.
impl fmt::Debug for dyn AnyObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyObject({:?})", ObjectKey::of_meta(self.metadata()))
    }
}

/// Takes an object as what it is.
///
/// # Panics
/// It is of another type: a cache holds objects of one type.
pub(crate) fn downcast<K: Object>(object: Arc<dyn AnyObject>) -> Arc<K> {
    let object: Arc<dyn Any + Send + Sync> = object;
    object.downcast().expect("a cache holds objects of one type")
}

/// Looks at an object as what it is.
///
/// # Panics
/// It is of another type.
pub(crate) fn downcast_ref<K: 'static>(object: &dyn AnyObject) -> &K {
    let object: &dyn Any = object;
    object.downcast_ref().expect("a cache holds objects of one type")
}

/// A kind whose type of status is known: the one that `#[kube(status = "..")]` names.
///
/// Implemented for every type whose `#[kube(..)]` names one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a type for its status",
    note = "name it next to the kind: `#[kube(.., status = \"MyStatus\")]`; for built-in kinds, and kinds that are known only at run time, use `patch_status_as`"
)]
#[doc(hidden)]
pub trait Statused {
    /// The type of the status.
    type Status;
}

#[diagnostic::do_not_recommend]
impl<K: HasStatus> Statused for K {
    type Status = K::Status;
}

/// An object, or an `Arc` of one as listers and reconcilers have it.
///
/// The parameter only distinguishes the two. Callers never name it.
#[doc(hidden)]
pub trait AsObject<Form> {
    /// The object.
    type Object: kube::Resource;

    /// Returns the object.
    fn as_object(&self) -> &Self::Object;
}

/// Marks an object itself.
#[derive(Debug)]
#[doc(hidden)]
pub enum Itself {}

/// Marks an `Arc` of an object.
#[derive(Debug)]
#[doc(hidden)]
pub enum InArc {}

impl<K: kube::Resource> AsObject<Itself> for K {
    type Object = K;

    fn as_object(&self) -> &K {
        self
    }
}

impl<K: kube::Resource> AsObject<InArc> for Arc<K> {
    type Object = K;

    fn as_object(&self) -> &K {
        self
    }
}

/// The name of an object within its kind, and its namespace if the kind has namespaces.
///
/// It is cheap to clone, and ordered by namespace, then name. It is shown as `namespace/name`, or as `name` for
/// cluster-scoped kinds, and parsed from the same. Control characters, which names in Kubernetes never have, are escaped.
///
/// ```
/// use watchkeeper::ObjectKey;
///
/// let key = ObjectKey::new("shop", "a");
/// assert_eq!((key.namespace(), key.name()), (Some("shop"), "a"));
/// assert_eq!("shop/a".parse::<ObjectKey>()?, key);
/// assert_eq!(ObjectKey::cluster("node-1").to_string(), "node-1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The book has more: [the queue](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/explain/queue.md), which holds keys.
#[derive(Clone, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    namespace: Option<Arc<str>>,
    name: Arc<str>,
}

impl PartialEq for ObjectKey {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        #[cfg(test)]
        crate::counted::count(1);
        self.namespace == other.namespace && self.name == other.name
    }
}

impl Hash for ObjectKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        #[cfg(test)]
        crate::counted::count(1);
        self.namespace.hash(state);
        self.name.hash(state);
    }
}

impl ObjectKey {
    /// Makes the key of an object in a namespace. An empty namespace means none.
    pub fn new(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        let namespace = namespace.as_ref();
        Self { namespace: (!namespace.is_empty()).then(|| namespace.into()), name: name.as_ref().into() }
    }

    /// Makes the key of a cluster-scoped object.
    pub fn cluster(name: impl AsRef<str>) -> Self {
        Self { namespace: None, name: name.as_ref().into() }
    }

    /// Makes a key of shared parts, without copying them.
    pub fn from_parts(namespace: Option<Arc<str>>, name: Arc<str>) -> Self {
        Self { namespace: namespace.filter(|namespace| !namespace.is_empty()), name }
    }

    /// Returns the key in an object's metadata; `None` if it has no name.
    pub fn of_meta(meta: &ObjectMeta) -> Option<Self> {
        let name = meta.name.as_deref().filter(|name| !name.is_empty())?;
        Some(Self::new(meta.namespace.as_deref().unwrap_or_default(), name))
    }

    /// Returns the key of an object. An object without a name has an empty one.
    pub fn of(object: &impl Object) -> Self {
        Self::of_meta(object.meta())
            .unwrap_or_else(|| Self::new(object.meta().namespace.as_deref().unwrap_or_default(), ""))
    }

    /// Returns the namespace, if the kind has namespaces.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the namespace that clones of the key share.
    pub fn shared_namespace(&self) -> Option<&Arc<str>> {
        self.namespace.as_ref()
    }

    /// Returns the name that clones of the key share.
    pub fn shared_name(&self) -> &Arc<str> {
        &self.name
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{}/{}", plain(namespace), plain(&self.name)),
            None => plain(&self.name).fmt(f),
        }
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is not the key of an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a key: write `namespace/name`, or `name` for a cluster-scoped kind")]
#[doc(hidden)]
pub struct InvalidObjectKey(String);

impl FromStr for ObjectKey {
    type Err = InvalidObjectKey;

    fn from_str(text: &str) -> Result<Self, InvalidObjectKey> {
        let refused = || InvalidObjectKey(text.to_owned());
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self::new(namespace, name))
            }
            None if !text.is_empty() => Ok(Self::cluster(text)),
            _ => Err(refused()),
        }
    }
}

/// Returns whether a text is a label value, or the last part of a qualified name: 63 characters at most.
pub(crate) fn is_name(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let bytes = text.as_bytes();
    bytes.len() <= 63 && edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inner)
}

/// Returns whether a text is a DNS subdomain.
pub(crate) fn is_domain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_domain_part)
}

/// Returns whether a text is a DNS label, as the names of namespaces are.
pub(crate) fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_domain_part(text)
}

/// Returns whether a text is a part of a DNS subdomain, as the API server has it: of any length.
fn is_domain_part(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && !text.starts_with('-') && !text.ends_with('-') && text.bytes().all(plain)
}

/// Cuts a text to a number of bytes. A text that was cut ends with an ellipsis.
pub(crate) fn cut_to(mut text: String, most: usize) -> String {
    const CUT: &str = "…";
    if text.len() > most {
        let end = (0..=most.saturating_sub(CUT.len())).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or_default());
        text.push_str(CUT);
    }
    text
}

/// Whether the objects of a kind live in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Objects have a namespace.
    Namespaced,
    /// Objects belong to the cluster as a whole.
    Cluster,
}

/// A kind as the API server serves it.
///
/// It is shown as `plural.group` (`deployments.apps`; the core group's is `pods`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// The served version, such as `v1`.
    pub version: Cow<'static, str>,
    /// The kind in CamelCase, such as `Deployment`.
    pub kind: Cow<'static, str>,
    /// The plural in lower case, as in URLs: `deployments`.
    pub plural: Cow<'static, str>,
    /// Whether objects live in namespaces.
    pub scope: Scope,
}

/// An object and its kind, for errors.
///
/// It is shown as the kind and the key, `Deployment shop/web`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: Kind,
    /// Its key. The name is empty if the server chooses it.
    pub key: ObjectKey,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", plain(&self.kind.kind), self.key)
    }
}

/// Maps the scopes that a type can have to [`Scope`].
#[doc(hidden)]
pub trait TypedScope {
    /// The scope as a value.
    const SCOPE: Scope;
}

impl TypedScope for NamespaceResourceScope {
    const SCOPE: Scope = Scope::Namespaced;
}

impl TypedScope for ClusterResourceScope {
    const SCOPE: Scope = Scope::Cluster;
}

impl Kind {
    /// Returns the kind of a type: a built-in one, or one with `#[derive(CustomResource)]`.
    pub fn of<K: kube::Resource<DynamicType = (), Scope: TypedScope>>() -> Self {
        Self {
            group: K::group(&()).into_owned().into(),
            version: K::version(&()).into_owned().into(),
            kind: K::kind(&()).into_owned().into(),
            plural: K::plural(&()).into_owned().into(),
            scope: K::Scope::SCOPE,
        }
    }

    /// Returns the apiVersion: `group/version`, or `version` for the core group.
    pub fn api_version(&self) -> String {
        match self.group.is_empty() {
            true => self.version.to_string(),
            false => format!("{}/{}", self.group, self.version),
        }
    }

    /// Returns whether an owner reference or an object reference names this kind, in any version.
    pub fn is_named_by(&self, api_version: &str, kind: &str) -> bool {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        group == self.group && kind == self.kind
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.is_empty() {
            true => plain(&self.plural).fmt(f),
            false => write!(f, "{}.{}", plain(&self.plural), plain(&self.group)),
        }
    }
}

/// A resource version that can be compared: an unsigned integer.
///
/// Kubernetes allows comparing the versions of one kind as integers (KEP-5504). Versions of aggregated APIs may be other
/// text. Those are opaque and do not parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// A resource version is not an unsigned integer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("resource version {0:?} is not an unsigned integer and can't be compared")]
#[doc(hidden)]
pub struct InvalidVersion(String);

impl Version {
    /// Returns the version in an object's metadata; `None` if it is absent, empty or opaque.
    pub fn of_meta(meta: &ObjectMeta) -> Option<Self> {
        meta.resource_version.as_deref()?.parse().ok()
    }
}

impl FromStr for Version {
    type Err = InvalidVersion;

    // S11: digits only; no sign, no blank, no leading zero, so that equal numbers are equal texts.
    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        let canonical = text == "0" || !text.starts_with(['+', '0']);
        let parsed = text.parse().ok().filter(|_| canonical);
        parsed.map(Self).ok_or_else(|| InvalidVersion(text.to_owned()))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // S11
    #[test]
    fn versions_compare_as_integers_and_refuse_garbage() {
        let version = |text: &str| text.parse::<Version>();
        assert!(version("9").unwrap() < version("10").unwrap());
        assert_eq!(version("0").unwrap(), Version(0));
        for garbage in ["", " 1", "+1", "-1", "01", "1.0", "0x1", "abc", "18446744073709551616"] {
            assert!(version(garbage).is_err(), "{garbage:?} was taken");
        }
    }

    #[test]
    fn keys_read_as_they_are_written() {
        for text in ["shop/a", "node-1"] {
            assert_eq!(text.parse::<ObjectKey>().unwrap().to_string(), text);
        }
        for text in ["", "/", "a/", "/a", "a/b/c"] {
            assert!(text.parse::<ObjectKey>().is_err(), "{text:?} was taken");
        }
        assert_eq!(ObjectKey::new("", "a"), ObjectKey::cluster("a"));
    }
}
