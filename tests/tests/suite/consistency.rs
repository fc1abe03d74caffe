//! The consistency check: a cache that a watch left behind is found and healed; one that is right is left alone.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, future};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, core::ObjectMeta};
use watchkeeper::{
    list_watch::{
        ClientListWatch, ItemForm, ListOptions, ListPage, ListWatchError, ListerWatcher, WatchStream,
    },
    object::Kind,
    prelude::*,
    reflector::{FirstList, ReflectorConfig},
};
use watchkeeper_apiserver::ApiServer;

/// Reads as a client does, but keeps events of one name to itself.
struct Forgetful {
    inner: ClientListWatch<ConfigMap>,
    swallows: &'static str,
}

impl Forgetful {
    fn new(client: Client, form: ItemForm, swallows: &'static str) -> Self {
        let inner = ClientListWatch::new(client, Kind::of::<ConfigMap>()).item_form(form);
        Self { inner, swallows }
    }
}

impl ListerWatcher<ConfigMap> for Forgetful {
    async fn list(&self, options: &ListOptions) -> Result<ListPage<ConfigMap>, ListWatchError> {
        self.inner.list(options).await
    }

    async fn watch(&self, options: &ListOptions) -> Result<WatchStream<ConfigMap>, ListWatchError> {
        let (events, swallows) = (self.inner.watch(options).await?, self.swallows);
        let of = move |key: ObjectKey| key.name() == swallows;
        let passes = move |event: &Result<_, _>| {
            let item = event.as_ref().ok().and_then(watchkeeper::list_watch::WatchEvent::item);
            !item.and_then(watchkeeper::list_watch::FetchedItem::key).is_some_and(of)
        };
        Ok(events.filter(move |event| future::ready(passes(event))).boxed())
    }
}

fn map(name: &str) -> ConfigMap {
    let metadata =
        ObjectMeta { name: Some(name.into()), namespace: Some("shop".into()), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

// R52
#[tokio::test(start_paused = true)]
async fn what_a_watch_kept_to_itself_is_found_and_listed() {
    for form in [ItemForm::Typed, ItemForm::Bytes] {
        let server = ApiServer::in_memory().namespace("shop").start().await;
        server.create(&map("there")).await;
        let told = Arc::new(Mutex::new(Vec::new()));
        let hears = told.clone();
        let config = ReflectorConfig {
            first_list: FirstList::Paged,
            consistency_check: Some(Duration::from_secs(60)),
            on_error: Arc::new(move |error| hears.lock().unwrap().push(error.to_string())),
            ..ReflectorConfig::default()
        };
        let source = Forgetful::new(server.client(), form, "swallowed");
        let informer = SharedInformer::<ConfigMap>::from_source(&(), source, config);
        let added = Arc::new(AtomicUsize::new(0));
        let count = added.clone();
        let count_it = move |_, _| {
            count.fetch_add(1, Ordering::SeqCst);
        };
        let _registration = informer.handler().on_add(count_it).register();
        informer.start();
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.create(&map("swallowed")).await;
        server.create(&map("seen")).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        let lister = informer.lister();
        let swallowed = ObjectKey::new("shop", "swallowed");
        assert_eq!((lister.len(), lister.get(&swallowed).is_some()), (2, false), "the watch lost it");
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert!(lister.get(&swallowed).is_some(), "it was found, and listed");
        assert_eq!(added.load(Ordering::SeqCst), 3, "and handlers heard of it");
        let named = told.lock().unwrap().join("\n");
        assert!(named.contains("shop/swallowed (shown: nothing, listed: "), "{named}");
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(told.lock().unwrap().len(), 1, "what is right is left alone");
        informer.shutdown().await;
    }
}
