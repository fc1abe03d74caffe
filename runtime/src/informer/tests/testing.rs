//! Tools of the tests: objects, feeds in the test's hands, and a record of what was heard.

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;

use super::FORM;
use crate::{
    delta_fifo::{Extent, Transform},
    informer::{
        change::{AddOrigin, CacheChange, Deleted, Gone, Progress},
        core::InformerParts,
        handler::EventHandler,
        handler::Observer,
        reflector_task::ReflectorTask,
        shared::SharedInformer,
        watched::Watched,
    },
    list_watch::{
        AnyItem, AnySource, FetchedItem, Identity, ItemForm, ListOptions, ListPage, ListWatchError,
        ListerWatcher, RawObject, TypedSource, Unreadable, WatchStream,
    },
    object::{Object, ObjectKey},
    reflector::{AnyStore, Epoch, List, ReflectorConfig, StoreChange},
    store::{CachedObject, IndexDefinition, Indexer},
};

pub(super) type Item1 = AnyItem;

/// An item of the informer's, or of a source of the user's.
pub(super) trait Item: From<FetchedItem<ConfigMap>> {}

impl<I: From<FetchedItem<ConfigMap>>> Item for I {}

/// An object in namespace `shop`: `name:uid@version`, its data saying what `content` says.
pub(super) fn object(text: &str, content: &str) -> Arc<ConfigMap> {
    let (name, version) = text.split_once('@').unwrap();
    let (name, uid) = name.split_once(':').unwrap_or((name, "u"));
    let (namespace, name) = name.split_once('/').unwrap_or(("shop", name));
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some(namespace.to_owned());
    object.metadata.name = Some(name.to_owned());
    object.metadata.uid = Some(uid.to_owned());
    object.metadata.resource_version = Some(version.to_owned()).filter(|version| !version.is_empty());
    object.data = Some(BTreeMap::from([("content".to_owned(), content.to_owned())]));
    Arc::new(object)
}

pub(super) fn item<I: Item>(text: &str) -> I {
    item_with(text, "")
}

/// An object in the form that is tested.
pub(super) fn item_with<I: Item>(text: &str, content: &str) -> I {
    let object = object(text, content);
    let item = match FORM {
        ItemForm::Typed => FetchedItem::Object(object),
        ItemForm::Bytes => FetchedItem::Raw(RawObject::of(&*object).unwrap().into()),
    };
    item.into()
}

/// An object as a cache of the tested form holds it.
pub(super) fn cached(text: &str) -> CachedObject {
    Indexer::<ConfigMap>::new().write(|batch| batch.hold(item(text))).unwrap()
}

/// The same object as it is when it can't be decoded.
pub(super) fn broken<I: Item>(text: &str) -> I {
    let object = object(text, "");
    let identity = Identity {
        key: ObjectKey::of_meta(&object.metadata),
        uid: object.metadata.uid.clone(),
        resource_version: object.metadata.resource_version.clone(),
        ..Identity::default()
    };
    FetchedItem::Unreadable(Unreadable { identity, error: "data: not a map".to_owned() }.into()).into()
}

/// An item that cannot be read at all.
pub(super) fn nameless<I: Item>() -> I {
    FetchedItem::Unreadable(Unreadable { identity: Identity::default(), error: "no JSON".to_owned() }.into())
        .into()
}

pub(super) fn key(name: &str) -> ObjectKey {
    let (namespace, name) = name.split_once('/').unwrap_or(("shop", name));
    ObjectKey::new(namespace, name)
}

pub(super) fn by_content() -> IndexDefinition<ConfigMap> {
    IndexDefinition::new("content", |object: &ConfigMap| {
        object.data.iter().flat_map(BTreeMap::values).cloned().collect::<Vec<_>>()
    })
}

pub(super) fn show(object: &impl Object) -> String {
    let meta = object.meta();
    let uid = meta.uid.as_deref().unwrap_or_default();
    let uid = if uid == "u" { String::new() } else { format!(":{uid}") };
    let name = meta.name.as_deref().unwrap_or_default();
    format!("{name}{uid}@{}", meta.resource_version.as_deref().unwrap_or_default())
}

/// Lets every task run until nothing is left to do.
pub(super) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// What a started feed writes to.
type Source = Arc<Mutex<Option<Arc<AnyStore>>>>;

/// An informer whose reflectors are played by the test.
pub(super) struct Fed {
    pub(super) informer: SharedInformer<ConfigMap>,
    sources: Vec<Source>,
}

impl Fed {
    pub(super) fn new() -> Self {
        Self::of(&[Extent::All], None)
    }

    /// A started one, that has listed these.
    pub(super) async fn listed(items: &[&str], version: &str) -> Self {
        let fed = Self::new();
        fed.informer.start();
        fed.replace(items, version);
        fed.informer.wait_for_sync(Duration::from_secs(30)).await.unwrap();
        fed
    }

    pub(super) fn of(extents: &[Extent], transform: Option<Transform<ConfigMap>>) -> Self {
        let sources: Vec<Source> = extents.iter().map(|_| Arc::default()).collect();
        let feeds = extents.iter().zip(&sources).map(|(extent, source)| feed(extent, source)).collect();
        let parts = InformerParts::new::<ConfigMap>(ConfigMap::kind_of(&()), &ReflectorConfig::default());
        let informer = SharedInformer::of_parts(InformerParts {
            indexes: vec![by_content().erased()],
            feeds,
            transform: transform.map(Transform::erased),
            ..parts
        });
        Self { informer, sources }
    }

    pub(super) fn source(&self, at: usize) -> Arc<AnyStore> {
        self.sources[at].lock().unwrap().clone().expect("the informer was started")
    }

    pub(super) fn replace(&self, items: &[&str], version: &str) {
        self.replace_with(items.iter().map(|text| item(text)).collect(), version);
    }

    pub(super) fn replace_with(&self, items: Vec<Item1>, version: &str) {
        self.source(0).replace(List::new(items, version, Epoch::Same));
    }

    pub(super) fn upsert(&self, text: &str) {
        self.upsert_with(item(text));
    }

    pub(super) fn upsert_with(&self, item: Item1) {
        self.source(0).apply(vec![StoreChange::Upsert(item)]);
    }

    pub(super) fn delete(&self, text: &str) {
        self.delete_with(item(text));
    }

    pub(super) fn delete_with(&self, item: Item1) {
        self.source(0).apply(vec![StoreChange::Delete(item)]);
    }

    pub(super) fn bookmark(&self, version: &str) {
        self.source(0).apply(vec![StoreChange::Bookmark(version.to_owned())]);
    }
}

fn feed(extent: &Extent, source: &Source) -> ReflectorTask {
    let source = source.clone();
    ReflectorTask {
        server: Default::default(),
        source: unasked(),
        extent: extent.clone(),
        run: Box::new(move |sink, stop| {
            *source.lock().unwrap() = Some(sink);
            Box::pin(stop.cancelled_owned())
        }),
    }
}

/// Writes down what it hears, one line a call.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(super) fn push(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    /// Takes what was written since the last time.
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Takes it in alphabetical order, where the order between objects is nobody's promise.
    pub(super) fn sorted(&self) -> Vec<String> {
        let mut lines = self.take();
        lines.sort();
        lines
    }

    pub(super) fn has(&self, start: &str) -> bool {
        self.0.lock().unwrap().iter().any(|line| line.starts_with(start))
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Shows what [`show`] would, without decoding the object.
pub(super) fn show_held(held: &CachedObject) -> String {
    let uid = held.uid().unwrap_or_default();
    let uid = if uid == "u" { String::new() } else { format!(":{uid}") };
    format!("{}{uid}@{}", held.key().name(), held.resource_version().unwrap_or_default())
}

fn show_gone(gone: &Gone) -> String {
    match gone {
        Gone::Final(held) => format!("-{} final", show_held(held)),
        Gone::Inferred(held) => format!("-{} inferred", show_held(held)),
        Gone::Undecoded { key, .. } => format!("-{} undecoded", key.name()),
    }
}

fn show_deleted(deleted: &Deleted<ConfigMap>) -> String {
    match deleted {
        Deleted::Final(object) => format!("-{} final", show(&**object)),
        Deleted::Inferred(object) => format!("-{} inferred", show(&**object)),
        Deleted::Undecoded { key, .. } => format!("-{} undecoded", key.name()),
    }
}

impl EventHandler<ConfigMap> for Log {
    fn on_add(&self, object: Arc<ConfigMap>, origin: AddOrigin) {
        self.push(format!("+{} {origin}", show(&*object)));
    }

    fn on_update(&self, old: Arc<ConfigMap>, new: Arc<ConfigMap>) {
        self.push(format!(
            "~{}>{}",
            show(&*old),
            new.metadata.resource_version.as_deref().unwrap_or_default()
        ));
    }

    fn on_delete(&self, deleted: Deleted<ConfigMap>) {
        self.push(show_deleted(&deleted));
    }
}

impl Observer for Log {
    fn changed(&self, change: &CacheChange) {
        self.push(match change {
            CacheChange::Added { object, origin, via } => format!("+{} {origin} {via:?}", show_held(object)),
            CacheChange::Updated { old, new, via } => {
                format!("~{}>{} {via:?}", show_held(old), show_held(new))
            }
            CacheChange::Unchanged { object } => format!("={}", show_held(object)),
            CacheChange::Deleted { gone, version, via } => {
                format!("{} {:?} {via:?}", show_gone(gone), version.map(|version| version.0))
            }
            CacheChange::Unreadable { unreadable, kept, via } => {
                let key = unreadable.identity.key.as_ref().map_or("", ObjectKey::name);
                format!("?{key} kept {:?} {via:?}", kept.as_ref().map(show_held))
            }
        });
    }

    fn progressed(&self, progress: Progress) {
        self.push(format!("@{:?} {:?}", progress.version.map(|version| version.0), progress.via));
    }
}

/// What nothing is read from: the test feeds the informer.
struct Unasked;

impl ListerWatcher<ConfigMap> for Unasked {
    async fn list(&self, _: &ListOptions) -> Result<ListPage<ConfigMap>, ListWatchError> {
        pending().await
    }

    async fn watch(&self, _: &ListOptions) -> Result<WatchStream<ConfigMap>, ListWatchError> {
        pending().await
    }
}

pub(super) fn unasked() -> Arc<dyn AnySource> {
    Arc::new(TypedSource::new(Unasked))
}
