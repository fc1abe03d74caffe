//! The declared writes of a controller: the manager's rules are made of them.

use super::Controller;
use crate::{
    informer::{Marker, Watched, typed_kind},
    writes::Use,
};

impl<K: Marker, R> Controller<K, R> {
    /// Declares what the reconciler does with a kind, in addition to what watches and owned kinds imply.
    ///
    /// [`Manager::rules`](crate::Manager::rules) is made of it, and nothing else: it neither allows nor forbids
    /// anything here. Said already are
    ///
    /// - the status of the reconciled kind, where its type has one, and what the [`finalizer`](Self::finalizer) needs;
    /// - [`Use::Apply`] of what it [`owns`](Self::owns);
    /// - lists and watches of what it owns, [`watches`](Self::watches) and [`reads`](Self::reads).
    ///
    /// What a run does beyond that is said once in the log, at debug. For kinds without namespaces, and for what is written in
    /// other namespaces than the controller's own, see [`Rules`](crate::manager::Rules).
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
    /// # use watchkeeper::{prelude::*, writes::Use};
    /// # fn declared<R: Reconciler<ConfigMap>>(controller: Controller<ConfigMap, R>) -> Controller<ConfigMap, R> {
    /// controller.uses::<Secret>(Use::Get).uses::<Namespace>(Use::Apply).records_events()
    /// # }
    /// ```
    pub fn uses<C: Watched<DynamicType = ()>>(mut self, what: Use) -> Self {
        self.definition.rights.allow(&C::kind_of(&()), what);
        self
    }

    /// Says the same of what a marker asks for.
    pub fn uses_for<C: Watched>(mut self, marker: C, what: Use) -> Self {
        self.definition.rights.allow(&C::kind_of(&marker.dynamic_type()), what);
        self
    }

    /// Says that the reconciler records [events](crate::Context::event).
    pub fn records_events(mut self) -> Self {
        self.definition.rights.record_events(&typed_kind::<k8s_openapi::api::events::v1::Event>());
        self
    }
}
