//! One informer under test: its cache, its indexes, and those who listen to it.

use std::{collections::BTreeMap, sync::Arc};

use futures::{FutureExt as _, future::BoxFuture};
use kube::Resource as _;
use watchkeeper::{
    Lister, ObjectKey, SharedInformer, SharedInformerFactory,
    informer::{EventHandler as _, InformerBuilder},
    store::{IndexDefinition, IndexValue, Lookup, Objects, Selector},
};

use super::{
    ear::{Ear, Keep, Listening},
    ledger::{Ledger, differences},
    plan::{Listener, NAMESPACES, TAGS, TIERS},
    state::{Content, Form, State},
};

/// What an informer is asked to show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selection {
    /// Its namespaces; none: all.
    pub(crate) namespaces: &'static [&'static str],
    /// Its tier; empty: any.
    pub(crate) tier: &'static str,
    /// Whether a transform refuses poisoned objects.
    pub(crate) transform: bool,
    /// Whether objects are held as bytes.
    pub(crate) compact: bool,
    /// Whether selectors are answered by an index.
    pub(crate) label_index: bool,
}

/// An informer of any form.
pub(crate) trait Subject {
    /// Starts it, if it was not started.
    fn start(&self);
    /// Lets somebody listen.
    fn join(&mut self, listener: Listener);
    /// Lets somebody go: the `n`-th of those who listen.
    fn leave(&mut self, n: usize);
    /// Returns the version of the cache.
    fn version(&self) -> u64;
    /// Counts the watches that fill the cache.
    fn extents(&self) -> usize;
    /// Lists what is not as it must be.
    fn check(&self, truth: &Content) -> Vec<String>;
    /// Ends it; nothing of it may be left.
    fn end(&self) -> BoxFuture<'_, ()>;
}

/// An informer of one form.
pub(crate) struct Watching<F: Form> {
    name: String,
    ledger: Ledger,
    factory: SharedInformerFactory,
    informer: SharedInformer<F>,
    lister: Lister<F::Object>,
    selection: Selection,
    ears: Vec<Listening<F>>,
    joined: usize,
}

impl<F: Form<Lister = Lister<<F as watchkeeper::Watched>::Object>>> Watching<F> {
    pub(crate) fn boxed(
        name: &str,
        ledger: &Ledger,
        factory: SharedInformerFactory,
        mut asked: InformerBuilder<F>,
        selection: Selection,
    ) -> Box<dyn Subject> {
        for namespace in selection.namespaces {
            asked = asked.namespace(*namespace);
        }
        if !selection.tier.is_empty() {
            asked = asked.label_selector(&format!("tier={}", selection.tier)).unwrap();
        }
        if selection.transform {
            asked = asked.transform(|object: &mut F::Object| match F::state(object).is_poisoned() {
                true => Err("it is poisoned"),
                false => Ok(()),
            });
        }
        if selection.compact {
            asked = asked.compact();
        }
        if selection.label_index {
            asked = asked.index_label("tier");
        }
        let informer = asked.build();
        for (name, index) in [("tier", values::<F> as fn(&F::Object) -> Vec<IndexValue>), ("tags", tags::<F>)]
        {
            informer.add_index(IndexDefinition::new(name, index)).unwrap();
        }
        let lister = informer.lister();
        let (name, ledger, ears) = (name.to_owned(), ledger.clone(), Vec::new());
        Box::new(Self { name, ledger, factory, informer, lister, selection, ears, joined: 0 })
    }

    fn selects(&self, key: &ObjectKey, state: &State) -> bool {
        let Selection { namespaces, tier, .. } = self.selection;
        let here = namespaces.is_empty() || key.namespace().is_some_and(|name| namespaces.contains(&name));
        here && (tier.is_empty() || state.label("tier") == tier)
    }

    fn shown(&self, objects: Objects<F::Object>) -> Content {
        objects.iter().map(|object| (ObjectKey::of(&**object), F::state(object))).collect()
    }

    /// Checks the look-ups against what the whole list shows.
    fn check_look_ups(&self, cached: &Content) -> Vec<String> {
        let lister = &self.lister;
        let with = |label: &str, value: &str| -> Content {
            let has = |state: &State| state.label(label).split('.').any(|one| one == value);
            cached
                .iter()
                .filter(|(_, state)| has(state))
                .map(|(key, state)| (key.clone(), state.clone()))
                .collect()
        };
        let mut wrongs = Vec::new();
        let mut compare = |what: String, wanted: &Content, objects: Objects<F::Object>| {
            wrongs.extend(differences(&format!("{} {what}", self.name), wanted, &self.shown(objects)));
        };
        for value in TIERS.iter().filter(|tier| !tier.is_empty()) {
            let wanted = with("tier", value);
            compare(format!("index tier={value}"), &wanted, lister.by_index("tier", &(*value).into()));
            let selector: Selector = format!("tier={value}").parse().unwrap();
            compare(format!("selector tier={value}"), &wanted, lister.list_matching(&selector));
        }
        for value in TAGS {
            compare(
                format!("index tags={value}"),
                &with("tags", value),
                lister.by_index("tags", &value.into()),
            );
        }
        for namespace in NAMESPACES {
            let wanted = cached.iter().filter(|(key, _)| key.namespace() == Some(namespace));
            let wanted = wanted.map(|(key, state)| (key.clone(), state.clone())).collect();
            compare(format!("namespace {namespace}"), &wanted, lister.namespace(namespace).list());
        }
        for key in cached.keys() {
            let wanted = BTreeMap::from([(key.clone(), cached[key].clone())]);
            compare(format!("get {key}"), &wanted, lister.get(key).into_iter().collect());
        }
        wrongs
    }

    /// Tells how a key that the transform refuses is shown, if that is wrong.
    fn check_hidden(&self, key: &ObjectKey, state: &State) -> Option<String> {
        let (kept, unreadable) = match self.lister.lookup(key) {
            Lookup::Outdated { kept, unreadable } => (Some(F::state(&kept)), unreadable),
            Lookup::Unreadable(unreadable) => (None, unreadable),
            Lookup::Found(found) => {
                return Some(format!("{}: {key} is shown as {} and not marked", self.name, F::state(&found)));
            }
            Lookup::Absent => return Some(format!("{}: {key} is forgotten", self.name)),
        };
        let version = unreadable.identity.resource_version.as_deref();
        let right = version == Some(&state.version.to_string());
        let own = kept.is_none_or(|kept| kept.uid == state.uid);
        (!right || !own).then(|| format!("{}: {key} is marked as of {version:?}, not {state}", self.name))
    }
}

fn values<F: Form>(object: &F::Object) -> Vec<IndexValue> {
    object.meta().labels.iter().filter_map(|labels| labels.get("tier")).map(IndexValue::from).collect()
}

fn tags<F: Form>(object: &F::Object) -> Vec<IndexValue> {
    let tags = object.meta().labels.iter().filter_map(|labels| labels.get("tags"));
    tags.flat_map(|tags| tags.split('.')).map(IndexValue::from).collect()
}

impl<F: Form<Lister = Lister<<F as watchkeeper::Watched>::Object>>> Subject for Watching<F> {
    fn start(&self) {
        self.factory.start();
    }

    fn join(&mut self, listener: Listener) {
        self.joined += 1;
        let ear = Ear::<F>::new(format!("{}/{listener:?}{}", self.name, self.joined), self.ledger.clone());
        let keep = match listener {
            Listener::Handler => Keep::Handler(self.informer.add_handler(ear.clone())),
            Listener::Resynced(period) => Keep::Handler({
                let (added, updated, deleted) = (ear.clone(), ear.clone(), ear.clone());
                let handler = self.informer.handler().resync_every(period);
                let handler = handler.on_add(move |object, origin| added.on_add(object, origin));
                let handler = handler.on_update(move |old, new| updated.on_update(old, new));
                handler.on_delete(move |gone| deleted.on_delete(gone)).register()
            }),
            Listener::Observer => Keep::Observer(self.informer.observe(Arc::new(ear.clone()))),
        };
        self.ears.push(Listening { ear, keep });
    }

    fn leave(&mut self, n: usize) {
        if !self.ears.is_empty() {
            let Listening { ear, keep } = self.ears.remove(n % self.ears.len());
            drop(keep);
            ear.leave();
        }
    }

    fn version(&self) -> u64 {
        self.lister.resource_version().map_or(0, |version| version.0)
    }

    fn extents(&self) -> usize {
        self.selection.namespaces.len().max(1)
    }

    fn check(&self, truth: &Content) -> Vec<String> {
        let selected = truth.iter().filter(|(key, state)| self.selects(key, state));
        let (hidden, wanted): (Vec<_>, Vec<_>) =
            selected.partition(|(_, state)| self.selection.transform && state.is_poisoned());
        let cached = self.shown(self.lister.list());
        let mut wrongs: Vec<_> =
            hidden.iter().filter_map(|(key, state)| self.check_hidden(key, state)).collect();
        let is_hidden = |key: &ObjectKey| hidden.iter().any(|(other, _)| *other == key);
        let shown = cached.iter().filter(|(key, _)| !is_hidden(key));
        let shown = shown.map(|(key, state)| (key.clone(), state.clone())).collect();
        let wanted = wanted.into_iter().map(|(key, state)| (key.clone(), state.clone())).collect();
        wrongs.extend(differences(&format!("{} cache", self.name), &wanted, &shown));
        wrongs.extend(self.check_look_ups(&cached));
        for Listening { ear, keep } in &self.ears {
            let (name, believed) = ear.believes();
            wrongs.extend(differences(&name, &cached, &believed));
            let synced = match keep {
                Keep::Handler(registration) => registration.has_synced(),
                Keep::Observer(registration) => registration.has_synced(),
            };
            if !synced {
                wrongs.push(format!("{name} is not synced"));
            }
        }
        wrongs
    }

    fn end(&self) -> BoxFuture<'_, ()> {
        async {
            self.factory.shutdown().await;
            if self.factory.tasks() > 0 {
                self.ledger.wrong(format_args!("{} left {} tasks behind", self.name, self.factory.tasks()));
            }
        }
        .boxed()
    }
}
