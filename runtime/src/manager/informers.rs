//! What a program asks of a manager's shared informers, before the start and after it.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    controller::{Narrowing, Synced},
    delta_fifo::Transformed,
    informer::{InformerBuilder, SharedInformer, Watched},
    store::InvalidSelector,
    writes::Rights,
};

/// What an informer needs: its namespaces (empty: all), and the one object that it reads (`None`: all).
type ReadRights = (Rights, Vec<Arc<str>>, Option<String>);

/// The informers that the program asked for before the start.
#[derive(Default)]
pub(super) struct Requested {
    informers: Mutex<Vec<Arc<dyn Synced>>>,
    rights: Mutex<Vec<ReadRights>>,
}

impl Requested {
    pub(super) fn rights(&self) -> MutexGuard<'_, Vec<ReadRights>> {
        self.rights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn into_informers(self) -> Vec<Arc<dyn Synced>> {
        self.informers.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn note<W: Watched>(
        &self,
        informer: &SharedInformer<W>,
        namespaces: Vec<Arc<str>>,
        name: Option<String>,
    ) {
        let informers = &self.informers;
        informers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(informer.clone()));
        let mut rights = Rights::default();
        rights.watch(SharedInformer::kind(informer));
        self.rights().push((rights, namespaces, name));
    }
}

/// Who is asked for an informer.
#[derive(Clone, Copy)]
pub(super) enum AskedOf<'a> {
    /// A manager, which starts it later, and lets controllers wait for it.
    Manager(&'a Requested),
    /// One that runs: it starts at once.
    Running,
}

/// A query of the manager's informers, being built.
#[must_use = "ask it for a lister, a handler or the informer"]
pub struct ManagedInformerBuilder<'a, W: Watched> {
    builder: InformerBuilder<W>,
    asked_of: AskedOf<'a>,
    namespaces: Vec<Arc<str>>,
    /// The one object that is read, as far as that is known.
    name: Option<String>,
}

impl<'a, W: Watched> ManagedInformerBuilder<'a, W> {
    pub(super) fn new(builder: InformerBuilder<W>, asked_of: AskedOf<'a>) -> Self {
        Self { builder, asked_of, namespaces: Vec::new(), name: None }
    }

    pub(super) fn narrowed(
        builder: InformerBuilder<W>,
        asked_of: AskedOf<'a>,
        narrowing: &Narrowing,
    ) -> Self {
        let namespaces = narrowing.namespace.clone().into_iter().collect();
        Self { builder, asked_of, namespaces, name: narrowing.name.clone() }
    }

    /// Narrows it to one namespace.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        let namespace = namespace.into();
        self.namespaces =
            Some(namespace.clone()).filter(|namespace| !namespace.is_empty()).into_iter().collect();
        self.builder = self.builder.namespace(namespace);
        self
    }

    /// Narrows it to objects whose labels match.
    ///
    /// # Errors
    /// The selector does not parse.
    pub fn label_selector(mut self, selector: &str) -> Result<Self, InvalidSelector> {
        self.builder = self.builder.label_selector(selector)?;
        Ok(self)
    }

    /// Narrows it to objects whose fields match, by the server's rules for the kind.
    ///
    /// # Errors
    /// The selector does not parse.
    pub fn field_selector(mut self, selector: &str) -> Result<Self, InvalidSelector> {
        self.builder = self.builder.field_selector(selector)?;
        self.name = None;
        Ok(self)
    }

    /// Keeps the objects as bytes: see [`InformerBuilder::compact`].
    ///
    /// It is another cache than that of a controller of the kind: to share one, name the marker
    /// [`Compact`](crate::informer::Compact) in both.
    pub fn compact(mut self) -> Self {
        self.builder = self.builder.compact();
        self
    }

    /// Changes each object before it is cached, in a cache of its own: see [`InformerBuilder::transform`].
    pub fn transform<T: Transformed>(
        mut self,
        change: impl Fn(&mut W::Object) -> T + Send + Sync + 'static,
    ) -> Self {
        self.builder = self.builder.transform(change);
        self
    }

    /// Returns the shared informer.
    pub fn build(self) -> SharedInformer<W> {
        let informer = self.builder.build();
        match self.asked_of {
            AskedOf::Manager(requested) => requested.note(&informer, self.namespaces, self.name),
            AskedOf::Running => informer.start(),
        }
        informer
    }

    /// Returns the lister of the shared informer.
    pub fn lister(self) -> W::Lister {
        self.build().lister()
    }
}

impl<W: Watched> fmt::Debug for ManagedInformerBuilder<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagedInformerBuilder").field("builder", &self.builder).finish_non_exhaustive()
    }
}
