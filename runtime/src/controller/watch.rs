//! Which objects of a kind feed a controller, or are read by it.

use std::{fmt, sync::Arc};

use crate::{
    informer::{InformerBuilder, SharedInformer, SharedInformerFactory, Watched},
    object::Scope,
    store::{FieldSelector, InvalidSelector, Selector},
    writes::Selects,
};

/// Says which objects of a kind are watched: all, unless it is narrowed.
///
/// For [`Controller::watches_for`](super::Controller::watches_for), [`owns_for`](super::Controller::owns_for) and
/// [`reads_for`](super::Controller::reads_for), and for [`Manager::lister_for`](crate::Manager::lister_for). Equal ones
/// share an informer. The API server is asked for these objects only, and the cache holds no others; so does
/// [`Manager::rules`](crate::Manager::rules), which allows no more than that.
///
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use watchkeeper::{controller::Watch, prelude::*};
/// # fn defaulted<R: Reconciler<Secret>>(manager: &Manager, controller: Controller<Secret, R>) -> Controller<Secret, R> {
/// let defaults = Watch::<ConfigMap>::new().namespace("ops").named("defaults");
/// let lister = manager.lister_for(defaults.clone());
/// controller.watches_for(defaults, move |_| vec![ObjectKey::new("shop", "all")])
/// # }
/// ```
#[must_use = "it does nothing until a controller or a manager is given it"]
pub struct Watch<W: Watched> {
    dynamic_type: W::DynamicType,
    narrowing: Narrowing,
}

/// What a watch is narrowed to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Narrowing {
    /// `None`: as its controller.
    pub(crate) namespace: Option<Arc<str>>,
    /// The one object that is meant.
    pub(crate) name: Option<String>,
    selection: Selection,
}

/// Which objects of a kind are meant, apart from their namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Selectors in Kubernetes' syntax, known to be readable; empty: all.
    pub(crate) labels: String,
    pub(crate) fields: String,
}

impl Selection {
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn selects(&self) -> Selects {
        match (self.is_everything(), self.labels.parse()) {
            (true, _) => Selects::Everything,
            (false, Ok(labels)) if self.fields.is_empty() => Selects::Labels(labels),
            (false, _) => Selects::SomeFields,
        }
    }
}

/// Says what is watched: a marker such as [`Dynamic`](crate::informer::Dynamic), or a [`Watch`].
pub trait ToWatch {
    /// The marker.
    type Marker: Watched;

    /// Returns the watch.
    fn to_watch(self) -> Watch<Self::Marker>;
}

impl<W: Watched> ToWatch for W {
    type Marker = W;

    fn to_watch(self) -> Watch<W> {
        Watch::of(self.dynamic_type())
    }
}

impl<W: Watched> ToWatch for Watch<W> {
    type Marker = W;

    fn to_watch(self) -> Self {
        self
    }
}

impl<W: Watched<DynamicType = ()>> Watch<W> {
    /// Watches all objects of a kind that its type names.
    pub fn new() -> Self {
        Self::of(())
    }
}

impl<W: Watched<DynamicType = ()>> Default for Watch<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W: Watched> Watch<W> {
    /// Watches all objects of what a marker asks for.
    pub fn for_kind(marker: W) -> Self {
        marker.to_watch()
    }

    pub(crate) fn of(dynamic_type: W::DynamicType) -> Self {
        Self { dynamic_type, narrowing: Narrowing::default() }
    }

    /// Narrows it to one namespace, whatever namespaces the controller keeps to; an empty name means those.
    ///
    /// Kinds without namespaces ignore it.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        let namespaced = W::kind_of(&self.dynamic_type).scope == Scope::Namespaced;
        self.narrowing.namespace =
            Some(namespace.into()).filter(|namespace| namespaced && !namespace.is_empty());
        self
    }

    /// Narrows it to the objects of one name.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.narrowing.name = Some(name.into());
        self
    }

    /// Narrows it to objects whose labels match, in Kubernetes' syntax.
    ///
    /// # Errors
    /// The selector can't be read.
    pub fn label_selector(mut self, selector: &str) -> Result<Self, InvalidSelector> {
        selector.parse::<Selector>()?;
        self.narrowing.selection.labels = selector.to_owned();
        Ok(self)
    }

    /// Narrows it to objects whose fields match; the server knows only some fields of each kind.
    ///
    /// # Errors
    /// The selector can't be read.
    pub fn field_selector(mut self, selector: &str) -> Result<Self, InvalidSelector> {
        selector.parse::<FieldSelector>()?;
        self.narrowing.selection.fields = selector.to_owned();
        Ok(self)
    }

    pub(crate) fn selecting(mut self, selection: &Selection) -> Self {
        self.narrowing.selection = selection.clone();
        self
    }

    pub(crate) fn dynamic_type(&self) -> &W::DynamicType {
        &self.dynamic_type
    }

    pub(crate) fn narrowing(&self) -> &Narrowing {
        &self.narrowing
    }

    /// Asks a factory for it, in a namespace of its own or else in another.
    pub(crate) fn builder(
        &self,
        factory: &SharedInformerFactory,
        otherwise: Option<&str>,
    ) -> InformerBuilder<W> {
        const READ: &str = "selectors were checked when they were given";
        let Selection { labels, fields } = self.narrowing.selection();
        let mut builder = factory.informer_of::<W>(self.dynamic_type.clone());
        if let Some(namespace) = self.narrowing.namespace.as_deref().or(otherwise) {
            builder = builder.namespace(namespace);
        }
        if !labels.is_empty() {
            builder = builder.label_selector(&labels).expect(READ);
        }
        if !fields.is_empty() {
            builder = builder.field_selector(&fields).expect(READ);
        }
        builder
    }

    pub(crate) fn informer(
        &self,
        factory: &SharedInformerFactory,
        otherwise: Option<&str>,
    ) -> SharedInformer<W> {
        self.builder(factory, otherwise).build()
    }
}

impl Narrowing {
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The selectors, that of the name among them.
    pub(crate) fn selection(&self) -> Selection {
        let Selection { labels, fields } = self.selection.clone();
        let name = self.name.as_ref().map(|name| format!("metadata.name={}", escaped(name)));
        let fields = name.into_iter().chain(Some(fields).filter(|fields| !fields.is_empty()));
        Selection { labels, fields: fields.collect::<Vec<_>>().join(",") }
    }
}

/// Writes a value as field selectors have it.
fn escaped(value: &str) -> String {
    value.chars().flat_map(|c| matches!(c, '\\' | ',' | '=').then_some('\\').into_iter().chain([c])).collect()
}

impl<W: Watched> Clone for Watch<W> {
    fn clone(&self) -> Self {
        Self { dynamic_type: self.dynamic_type.clone(), narrowing: self.narrowing.clone() }
    }
}

impl<W: Watched> fmt::Debug for Watch<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = W::kind_of(&self.dynamic_type);
        f.debug_struct("Watch").field("kind", &kind).field("narrowing", &self.narrowing).finish()
    }
}
