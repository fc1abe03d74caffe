//! From an object to the keys of its owners.

use crate::{
    informer::Watched,
    object::{Object, ObjectKey, Scope},
};

/// Finds the keys of an object's owners of a kind, those that do not control it included.
///
/// For [`Controller::watches`](super::Controller::watches), where an object has several owners:
///
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use watchkeeper::prelude::*;
/// # fn wakes_all<R: Reconciler<Secret>>(controller: Controller<Secret, R>) -> Controller<Secret, R> {
/// use watchkeeper::controller::owners_of;
///
/// controller.watches::<ConfigMap>(owners_of::<Secret, _>)
/// # }
/// ```
pub fn owners_of<K: Watched<DynamicType = ()>, C: Object>(object: &C) -> Vec<ObjectKey> {
    let (kind, meta) = (K::kind_of(&()), object.meta());
    let namespace = match kind.scope {
        Scope::Namespaced => meta.namespace.as_deref().unwrap_or_default(),
        Scope::Cluster => "",
    };
    let owners = meta.owner_references.iter().flatten();
    let of_kind = owners.filter(|owner| kind.is_named_by(&owner.api_version, &owner.kind));
    of_kind.map(|owner| ObjectKey::new(namespace, &owner.name)).collect()
}
