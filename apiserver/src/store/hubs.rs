//! Hubs: the logs of one resource, each for the followers of one part of it.

use std::collections::HashMap;
use std::sync::Arc;

use super::change::Change;
use super::feed::{Feed, Hub};
use super::scope::{Scope, split};

/// How many changes a follower may be behind before it is cut.
const FURTHEST_BEHIND: usize = 10_000;

/// The logs of one resource; unused ones are removed when they are found.
#[derive(Debug, Default)]
pub(super) struct Hubs {
    all: Option<Arc<Hub>>,
    namespaces: HashMap<String, Arc<Hub>>,
    /// By the object's name.
    names: HashMap<String, Vec<Named>>,
}

/// The log of objects of one name: in one namespace, or in all.
#[derive(Debug)]
struct Named {
    namespace: Option<String>,
    hub: Arc<Hub>,
}

impl Hubs {
    /// Follows a part of the resource from now on.
    pub(super) fn follow(&mut self, scope: Scope) -> Feed {
        let Scope { namespace, name } = scope;
        self.clean();
        let hub = match (namespace, name) {
            (None, None) => self.all.get_or_insert_with(make),
            (Some(namespace), None) => self.namespaces.entry(namespace).or_insert_with(make),
            (namespace, Some(name)) => {
                let hubs = self.names.entry(name).or_default();
                let at = hubs.iter().position(|named| named.namespace == namespace).unwrap_or_else(|| {
                    hubs.push(Named { namespace, hub: make() });
                    hubs.len() - 1
                });
                &mut hubs[at].hub
            }
        };
        hub.feed()
    }

    /// Adds a change to each log that holds its object; those go to `due`, to be woken.
    pub(super) fn publish(&self, change: &Arc<Change>, due: &mut Vec<Arc<Hub>>) {
        let (namespace, name) = split(&change.object.key);
        let named = self.names.get(name).into_iter().flatten();
        let named = named.filter(|named| named.namespace.as_deref().is_none_or(|own| own == namespace));
        let in_namespace = self.namespaces.get(namespace);
        for hub in self.all.iter().chain(in_namespace).chain(named.map(|named| &named.hub)) {
            hub.publish(change.clone());
            if !due.iter().any(|there| Arc::ptr_eq(there, hub)) {
                due.push(hub.clone());
            }
        }
    }

    /// Ends all feeds; their logs go to `due`, to be woken.
    pub(super) fn end(&mut self, due: &mut Vec<Arc<Hub>>) {
        let Self { all, namespaces, names } = std::mem::take(self);
        let named = names.into_values().flatten().map(|named| named.hub);
        for hub in all.into_iter().chain(namespaces.into_values()).chain(named) {
            hub.end();
            due.push(hub);
        }
    }

    fn clean(&mut self) {
        self.all.take_if(|hub| hub.is_deserted());
        self.namespaces.retain(|_, hub| !hub.is_deserted());
        self.names.retain(|_, hubs| {
            hubs.retain(|named| !named.hub.is_deserted());
            !hubs.is_empty()
        });
    }
}

fn make() -> Arc<Hub> {
    Hub::new(FURTHEST_BEHIND)
}

/// Readers of published changes; dropping this wakes them, when the lock is released.
#[derive(Debug, Default)]
pub(crate) struct Wakes(pub(super) Vec<Arc<Hub>>);

impl Drop for Wakes {
    fn drop(&mut self) {
        self.0.iter().for_each(|hub| hub.wake());
    }
}
