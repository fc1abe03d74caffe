//! Who listens: a view folded from what is heard, and a check of every word.

use std::{
    collections::BTreeMap,
    marker::PhantomData,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use watchkeeper::{
    ObjectKey,
    informer::{
        AddOrigin, CacheChange, Deleted, EventHandler, Observer, Progress, ProgressVia, Registration,
    },
    store::CachedObject,
};

use super::{
    ledger::Ledger,
    state::{Content, Form, State},
};

/// A handler or an observer that believes what it hears, and checks it.
pub(crate) struct Ear<F> {
    view: Arc<Mutex<View>>,
    form: PhantomData<fn() -> F>,
}

/// What has been heard.
pub(crate) struct View {
    name: String,
    ledger: Ledger,
    content: Content,
    /// The last version heard of each object, and how often it fell.
    newest: BTreeMap<String, (u64, u64)>,
    progress: u64,
    gone: bool,
}

impl<F> Clone for Ear<F> {
    fn clone(&self) -> Self {
        Self { view: self.view.clone(), form: PhantomData }
    }
}

impl<F: Form> Ear<F> {
    pub(crate) fn new(name: String, ledger: Ledger) -> Self {
        let (content, newest) = Default::default();
        let view = View { name, ledger, content, newest, progress: 0, gone: false };
        Self { view: Arc::new(Mutex::new(view)), form: PhantomData }
    }

    /// Returns who it is, and what it believes is there.
    pub(crate) fn believes(&self) -> (String, Content) {
        let view = self.view();
        (view.name.clone(), view.content.clone())
    }

    /// From here on nothing may be heard any more.
    pub(crate) fn leave(&self) {
        self.view().gone = true;
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View {
    fn hears(&mut self, word: &str, key: &ObjectKey, what: &dyn std::fmt::Display) {
        let Self { name, ledger, .. } = self;
        ledger.trace(format_args!("{name} {word} {key} {what}"));
        if self.gone {
            self.wrong("hears after it was removed", key, what);
        }
    }

    fn wrong(&self, wrong: &str, key: &ObjectKey, what: &dyn std::fmt::Display) {
        self.ledger.wrong(format_args!("{} {wrong}: {key} {what}", self.name));
    }

    fn add(&mut self, key: ObjectKey, state: State) {
        self.hears("+", &key, &state);
        self.check(&key, &state);
        if let Some(held) = self.content.get(&key) {
            self.wrong("hears of an addition twice", &key, held);
        }
        self.content.insert(key, state);
    }

    fn update(&mut self, key: ObjectKey, old: &State, state: State) {
        self.hears("~", &key, &state);
        self.check(&key, &state);
        if old.uid != state.uid {
            self.wrong("hears of a change into another object", &key, &state);
        }
        match self.content.get(&key) {
            Some(held) if held == old => {}
            Some(held) => {
                self.wrong("gets another old state than it has seen", &key, &format!("{old}, not {held}"));
            }
            None => self.wrong("hears of a change without an addition", &key, &state),
        }
        self.content.insert(key, state);
    }

    fn delete(&mut self, key: ObjectKey, uid: Option<&str>) {
        let uid = uid.unwrap_or_default();
        self.hears("-", &key, &uid.get(..4).unwrap_or_default());
        self.ledger.heard_end(&self.name, uid);
        match self.content.get(&key) {
            Some(held) if held.uid != uid => {
                self.wrong("hears of another object's end", &key, &format!("{uid}, not {held}"));
            }
            Some(_) => drop(self.content.remove(&key)),
            // It came and went while the handler was busy.
            None => {}
        }
    }

    /// No object goes back in time, but once for each time that the server did.
    fn check(&mut self, key: &ObjectKey, state: &State) {
        self.ledger.heard(&self.name, state);
        let (newest, falls) = self.newest.get(&state.uid).copied().unwrap_or_default();
        let falls = falls + u64::from(state.version < newest);
        if state.version < newest && falls > self.ledger.epoch() {
            self.wrong("sees time go backwards", key, &format!("{state}, after version {newest}"));
        }
        self.newest.insert(state.uid.clone(), (state.version, falls));
    }
}

impl<F: Form> EventHandler<F::Object> for Ear<F> {
    fn on_add(&self, object: Arc<F::Object>, _: AddOrigin) {
        self.view().add(ObjectKey::of(&*object), F::state(&object));
    }

    fn on_update(&self, old: Arc<F::Object>, new: Arc<F::Object>) {
        self.view().update(ObjectKey::of(&*new), &F::state(&old), F::state(&new));
    }

    fn on_delete(&self, deleted: Deleted<F::Object>) {
        self.view().delete(deleted.key(), deleted.uid());
    }
}

impl<F: Form> Observer for Ear<F> {
    fn changed(&self, change: &CacheChange) {
        let mut view = self.view();
        let read = |held: &CachedObject| held.object_as::<F::Object>().ok().map(|object| F::state(&object));
        match change {
            CacheChange::Added { object, .. } => {
                read(object).into_iter().for_each(|state| view.add(object.key().clone(), state));
            }
            CacheChange::Updated { old, new, .. } => {
                if let Some((old, state)) = read(old).zip(read(new)) {
                    view.update(new.key().clone(), &old, state);
                }
            }
            CacheChange::Unchanged { object } => {
                if let Some(state) = read(object) {
                    view.update(object.key().clone(), &state.clone(), state);
                }
            }
            CacheChange::Deleted { gone, .. } => view.delete(gone.key().clone(), gone.uid()),
            CacheChange::Unreadable { unreadable, .. } => {
                if let Some(key) = &unreadable.identity.key {
                    view.hears("?", key, &"");
                }
            }
        }
    }

    fn progressed(&self, progress: Progress) {
        let mut view = self.view();
        let version = progress.version.map_or(0, |version| version.0);
        if version < view.progress && progress.via != ProgressVia::NewEpoch {
            let wrong = format!("{} sees the cache go back from {} to {version}", view.name, view.progress);
            view.ledger.wrong(wrong);
        }
        view.progress = version;
    }
}

/// An ear and what keeps it listening.
pub(crate) struct Listening<F> {
    pub(crate) ear: Ear<F>,
    pub(crate) keep: Keep,
}

/// What keeps an ear listening.
pub(crate) enum Keep {
    /// It hears from a task of its own.
    Handler(Registration),
    /// It looks on inline.
    Observer(watchkeeper::informer::ObserverRegistration),
}
