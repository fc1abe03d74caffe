//! Objects that a transform or a decode error hides: kept, marked, tried again, never in a log.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;

use super::testing::{Fed, Log, key, settle, show};
use crate::{
    delta_fifo::{Extent, Transform},
    informer::Registration,
    object::Version,
    store::Lookup,
};

/// A transform that fails on demand, and counts its runs.
#[derive(Clone, Default)]
struct Moody {
    fails: Arc<AtomicBool>,
    runs: Arc<AtomicUsize>,
}

impl Moody {
    fn transform(&self) -> Transform<ConfigMap> {
        let moody = self.clone();
        Transform::new(move |object: &mut ConfigMap| {
            moody.runs.fetch_add(1, Ordering::Relaxed);
            let labels = object.metadata.labels.get_or_insert_default();
            let touched = labels.insert("seen".to_owned(), String::new()).is_some();
            match (touched, moody.fails.load(Ordering::Relaxed)) {
                (true, _) => Err("tried again on what a failure left behind"),
                (false, true) => Err("not in the mood"),
                (false, false) => Ok(()),
            }
        })
    }

    fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }
}

async fn listed(moody: &Moody) -> (Fed, Log, Registration) {
    let fed = Fed::of(&[Extent::All], Some(moody.transform()));
    fed.informer.start();
    settle().await;
    fed.replace(&["a@1"], "1");
    let log = Log::default();
    let registration = fed.informer.add_handler(log.clone());
    registration.synced().await.unwrap();
    log.take();
    (fed, log, registration)
}

// R20
#[tokio::test(start_paused = true)]
async fn an_object_that_a_transform_hides_is_kept_marked_and_tried_again() {
    let moody = Moody::default();
    let (fed, log, _heard) = listed(&moody).await;
    let lister = fed.informer.lister();

    // By a resync: the version advances at once, the object when the transform lets it through.
    moody.fail(true);
    fed.upsert("a@2");
    settle().await;
    let Lookup::Outdated { kept, unreadable } = lister.lookup(&key("a")) else { panic!("a is outdated") };
    assert_eq!((show(&*kept), lister.resource_version()), ("a@1".to_owned(), Some(Version(2))));
    assert_eq!(unreadable.error, "the transform failed: not in the mood");
    let named = fed.informer.sync_state().unreadable;
    assert_eq!(
        named.iter().map(|object| object.identity.key.clone().unwrap()).collect::<Vec<_>>(),
        [key("a")]
    );
    fed.source(0).resync();
    settle().await;
    assert!(matches!(lister.lookup(&key("a")), Lookup::Outdated { .. }));
    moody.fail(false);
    fed.source(0).resync();
    settle().await;
    assert_eq!(log.take(), ["~a@1>1", "~a@1>2"], "the first resync shows what is kept");
    assert!(matches!(lister.lookup(&key("a")), Lookup::Found(_)));
    assert!(fed.informer.sync_state().unreadable.is_empty());

    // By the next event.
    moody.fail(true);
    fed.upsert("a@3");
    settle().await;
    moody.fail(false);
    fed.upsert("a@4");
    settle().await;
    assert_eq!(log.take(), ["~a@2>4"]);

    // By the next list, though the object did not change.
    moody.fail(true);
    fed.upsert("a@5");
    settle().await;
    moody.fail(false);
    fed.replace(&["a@5"], "6");
    settle().await;
    assert_eq!(log.take(), ["~a@4>5"]);
    let runs = moody.runs.load(Ordering::Relaxed);
    fed.source(0).resync();
    settle().await;
    assert_eq!(moody.runs.load(Ordering::Relaxed), runs, "what is visible is transformed once");
}

// R20
#[tokio::test(start_paused = true)]
async fn a_retry_never_overtakes_what_is_newer() {
    let moody = Moody::default();
    let (fed, log, _heard) = listed(&moody).await;
    moody.fail(true);
    fed.upsert("a@2");
    fed.upsert("b@3");
    fed.upsert("c@4");
    moody.fail(false);
    fed.upsert("a@5");
    fed.delete("b@6");
    fed.replace(&["a@5"], "7");
    fed.source(0).resync();
    settle().await;
    let heard = log.take();
    assert!(heard.iter().any(|line| line == "~a@1>5"), "{heard:?}");
    assert!(!heard.iter().any(|line| line.starts_with("+b") || line.starts_with("+c")), "{heard:?}");
    let names: Vec<_> = fed.informer.lister().list().iter().map(|object| show(&**object)).collect();
    assert_eq!(names, ["a@5"]);
    moody.fail(true);
    fed.upsert("a@8");
    moody.fail(false);
    fed.upsert("a@9");
    settle().await;
    let runs = moody.runs.load(Ordering::Relaxed);
    fed.source(0).resync();
    settle().await;
    assert_eq!(moody.runs.load(Ordering::Relaxed), runs, "what came after what failed is all that there is");
}

// R20
#[tokio::test(start_paused = true)]
async fn a_handlers_resync_tries_again_too() {
    let moody = Moody::default();
    let (fed, log, _heard) = listed(&moody).await;
    let _due = fed.informer.handler().resync_every(Duration::from_secs(60)).register();
    moody.fail(true);
    fed.upsert("new@2");
    settle().await;
    moody.fail(false);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(log.take(), ["+new@2 watch"]);
}
