//! What can be watched: built-in kinds, derived types, and the markers for all others.

use std::{fmt, hash::Hash, marker::PhantomData};

use kube::core::{DynamicObject, ObjectMeta, PartialObjectMeta};

use crate::{
    list_watch::{ItemForm, Representation},
    object::{Kind, Object, TypedScope},
    store::{IndexDefinition, Lister},
};

/// Which objects a type stands for: itself, or those that it marks.
///
/// Implemented for every typed `kube::Resource`, whether it can be [`Watched`] or not. Reconcilers and contexts ask for
/// no more, so that a kind without its derive is one error, where its controller is made.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a kind of object",
    note = "name the kind that `#[kube(kind = \"..\")]` generates, not its spec, and derive `Informer` next to `CustomResource`"
)]
pub trait Marker: 'static {
    /// The object that reconcilers see.
    type Seen: Send + Sync + 'static;
}

#[diagnostic::do_not_recommend]
impl<K: kube::Resource<DynamicType = ()> + Send + Sync + 'static> Marker for K {
    type Seen = K;
}

/// What an informer watches, and what its users get.
///
/// Built-in kinds (`Pod`, `Deployment`, …) stand for themselves, and so do types with `#[derive(Informer)]`.
/// [`Dynamic`], [`Metadata`] and [`External`] mark the rest: kinds known only at run time, metadata alone, and
/// custom resources of other crates.
///
/// | Marker | Objects |
/// |---|---|
/// | `Pod`, or a type with `#[derive(Informer)]` | themselves |
/// | [`Metadata<Pod>`](Metadata) | names, labels and owners: the rest is not sent |
/// | [`Compact<Pod>`](Compact) | themselves, kept as bytes and decoded when they are read |
/// | [`External<K>`](External) | a type of another crate |
/// | [`Dynamic`] | `DynamicObject`, of a kind that is known only at run time |
///
/// ```
/// use k8s_openapi::api::core::v1::{Pod, Secret};
/// use watchkeeper::{informer::{Compact, Metadata}, prelude::*};
///
/// # fn listers(manager: &Manager) {
/// let pods = manager.lister::<Compact<Pod>>();
/// let secrets = manager.lister::<Metadata<Secret>>();
/// # let _ = (pods.list().len(), secrets.list().len()); }
/// ```
///
/// The book has more: [kinds that you did not define](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/how-to/kinds.md).
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be watched: derive `Informer` next to `CustomResource`, and name the kind, not its spec",
    note = "for a type of another crate, which can't derive it, say `External<{Self}>`"
)]
pub trait Watched: Marker<Seen = <Self as Watched>::Object> + Send + Sync + 'static {
    /// The object that handlers, listers and reconcilers see.
    type Object: Object;
    /// The lister that users get, with typed index look-ups where there are indexes.
    type Lister: From<Lister<Self::Object>> + Clone + Send + Sync + 'static;
    /// What must be known beyond the type to ask the server: `()` for typed kinds.
    type DynamicType: Clone + fmt::Debug + Eq + Hash + Send + Sync + 'static;

    /// Returns the question that this marker value asks.
    fn dynamic_type(&self) -> Self::DynamicType;

    /// Describes the kind as the API server serves it.
    fn kind_of(dynamic_type: &Self::DynamicType) -> Kind;

    /// Lists the indexes that come with the type.
    fn indexes() -> Vec<IndexDefinition<Self::Object>> {
        Vec::new()
    }

    /// Returns whether the kind has a status that its controller writes.
    ///
    /// True of types with `#[derive(Informer)]` whose `#[kube(..)]` names a status; not known of others.
    fn has_status() -> bool {
        false
    }

    /// Says how much of each object is asked for.
    fn form() -> Representation {
        Representation::Whole
    }

    /// Says in which form objects are cached, unless the one who asks says otherwise.
    fn item_form() -> ItemForm {
        ItemForm::Typed
    }
}

#[diagnostic::do_not_recommend]
impl<K> Watched for K
where
    K: k8s_openapi::Resource<Scope: TypedScope> + k8s_openapi::Metadata<Ty = ObjectMeta>,
    K: Object + kube::Resource<DynamicType = (), Scope = <K as k8s_openapi::Resource>::Scope>,
{
    type Object = K;
    type Lister = Lister<K>;
    type DynamicType = ();

    fn dynamic_type(&self) {}

    fn kind_of((): &()) -> Kind {
        Kind::of::<K>()
    }
}

/// Marks a custom resource type of another crate, which can't derive `Informer`.
pub struct External<K>(PhantomData<fn() -> K>);

impl<K: Object> Marker for External<K> {
    type Seen = K;
}

impl<K: Object + kube::Resource<DynamicType = (), Scope: TypedScope>> Watched for External<K> {
    type Object = K;
    type Lister = Lister<K>;
    type DynamicType = ();

    fn dynamic_type(&self) {}

    fn kind_of((): &()) -> Kind {
        Kind::of::<K>()
    }
}

/// Marks a kind whose objects are cached as bytes, and decoded when somebody reads them.
///
/// For controllers and listers of large kinds: `owns::<Compact<Pod>>()`. See
/// [`InformerBuilder::compact`](super::InformerBuilder::compact) for what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Compact<W>(W);

impl<W> Compact<W> {
    /// Marks what a marker value says: `Compact::new(Dynamic::new(kind))`.
    pub fn new(marker: W) -> Self {
        Self(marker)
    }
}

impl<W: Marker> Marker for Compact<W> {
    type Seen = W::Seen;
}

impl<W: Watched> Watched for Compact<W> {
    type Object = W::Object;
    type Lister = W::Lister;
    type DynamicType = W::DynamicType;

    fn dynamic_type(&self) -> W::DynamicType {
        self.0.dynamic_type()
    }

    fn kind_of(dynamic_type: &W::DynamicType) -> Kind {
        W::kind_of(dynamic_type)
    }

    fn indexes() -> Vec<IndexDefinition<W::Object>> {
        W::indexes()
    }

    fn form() -> Representation {
        W::form()
    }

    fn has_status() -> bool {
        W::has_status()
    }

    fn item_form() -> ItemForm {
        ItemForm::Bytes
    }
}

/// Marks the metadata of a kind: nothing else is asked for, decoded or kept.
///
/// What can do with names, labels, owners and the like takes least from the server and least memory this way:
/// even less, and not decoded, as `Compact<Metadata<Pod>>`.
pub struct Metadata<W>(PhantomData<fn() -> W>);

impl<W: Marker<Seen: kube::Resource<DynamicType = ()>>> Marker for Metadata<W> {
    type Seen = PartialObjectMeta<W::Seen>;
}

impl<W: Watched<DynamicType = (), Object: kube::Resource<DynamicType = ()>>> Watched for Metadata<W> {
    type Object = PartialObjectMeta<W::Object>;
    type Lister = Lister<Self::Object>;
    type DynamicType = ();

    fn dynamic_type(&self) {}

    fn kind_of((): &()) -> Kind {
        W::kind_of(&())
    }

    fn form() -> Representation {
        Representation::Metadata
    }
}

/// Marks a kind that is known only at run time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dynamic {
    kind: Kind,
}

impl Dynamic {
    /// Says which kind is meant.
    pub fn new(kind: Kind) -> Self {
        Self { kind }
    }
}

impl Marker for Dynamic {
    type Seen = DynamicObject;
}

impl Watched for Dynamic {
    type Object = DynamicObject;
    type Lister = Lister<DynamicObject>;
    type DynamicType = Kind;

    fn dynamic_type(&self) -> Kind {
        self.kind.clone()
    }

    fn kind_of(dynamic_type: &Kind) -> Kind {
        dynamic_type.clone()
    }
}

impl_debug!([K] External<K>);

impl_debug!([W] Metadata<W>);
