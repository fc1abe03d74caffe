//! Handlers: what they hear, when they are synced, how they leave.

use std::{
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;

use super::testing::{Fed, Log, by_content, item, item_with, key, settle, show};
use crate::{
    informer::{AddOrigin, CacheChange, Deleted, EventHandler, HandlerRemoved, Observer, Registration},
    store::{DuplicateIndex, Lister},
};

// I1, I4
#[tokio::test(start_paused = true)]
async fn a_late_handler_hears_the_cache_as_adds_then_what_follows() {
    let fed = Fed::listed(&["a@1", "b@2"], "3").await;
    let log = Log::default();
    let registration = fed.informer.add_handler(log.clone());
    // Queued before the handler has joined: neither lost nor told twice.
    fed.upsert("a@4");
    fed.upsert("c@5");
    settle().await;
    assert!(registration.has_synced());
    let heard = log.take();
    assert_eq!(heard.iter().filter(|line| line.starts_with("+a")).count(), 1);
    fed.upsert("d@6");
    fed.delete("b@7");
    settle().await;
    assert_eq!(log.take(), ["+d@6 watch", "-b@7 final"]);
    let mut heard = heard;
    heard.sort();
    assert_eq!(heard, ["+a@4 initial list", "+b@2 initial list", "+c@5 watch"]);
}

// I2
#[tokio::test(start_paused = true)]
async fn a_handler_hears_in_order() {
    let fed = Fed::listed(&[], "1").await;
    let log = Log::default();
    let _registration = fed.informer.add_handler(log.clone());
    for version in 2..50 {
        fed.upsert(&format!("a@{version}"));
        settle().await;
    }
    fed.delete("a@50");
    settle().await;
    let heard = log.take();
    assert_eq!((heard.len(), &*heard[0], &*heard[48]), (49, "+a@2 watch", "-a@50 final"));
    assert!((1..48).all(|n| heard[n] == format!("~a@{}>{}", n + 1, n + 2)));
}

// I3
#[tokio::test(start_paused = true)]
async fn cache_and_indexes_are_ahead_of_what_is_told() {
    let fed = Fed::listed(&[], "1").await;
    let (lister, log) = (fed.informer.lister(), Log::default());
    let told = log.clone();
    let _registration = fed
        .informer
        .handler()
        .on_add(move |object: Arc<ConfigMap>, _| {
            let cached = lister.get(&key("a")).map(|cached| show(&*cached));
            let indexed = lister.by_index("content", &"x".into()).len();
            told.push(format!("{} {cached:?} {indexed}", show(&*object)));
        })
        .register();
    // Told within the same step, so that nothing comes between.
    let observed = Log::default();
    let _observer =
        fed.informer.observe(Arc::new(Reads { lister: fed.informer.lister(), log: observed.clone() }));
    fed.upsert_with(item_with("a@2", "x"));
    settle().await;
    assert_eq!(log.take(), [r#"a@2 Some("a@2") 1"#]);
    assert_eq!(observed.take(), [r#"Some("a@2") 1"#]);
}

/// Reads the cache whenever a change is shown.
struct Reads {
    lister: Lister<ConfigMap>,
    log: Log,
}

impl Observer for Reads {
    fn changed(&self, _: &CacheChange) {
        let cached = self.lister.get(&key("a")).map(|cached| show(&*cached));
        let indexed = self.lister.by_index("content", &"x".into()).len();
        self.log.push(format!("{cached:?} {indexed}"));
    }
}

// I4
#[tokio::test(start_paused = true)]
async fn adds_are_the_initial_list_until_the_first_list_is_through() {
    let fed = Fed::new();
    let log = Log::default();
    let registration = fed.informer.add_handler(log.clone());
    fed.informer.start();
    fed.upsert("early@1");
    settle().await;
    assert!(!registration.has_synced() && !fed.informer.has_synced());
    fed.replace(&["early@1", "a@2"], "3");
    fed.upsert("b@4");
    settle().await;
    assert!(registration.has_synced() && fed.informer.has_synced());
    assert_eq!(log.take(), ["+early@1 initial list", "+a@2 initial list", "+b@4 watch"]);
}

// I5
#[tokio::test(start_paused = true)]
async fn two_registrations_of_one_handler_are_two() {
    let fed = Fed::listed(&["a@1"], "1").await;
    let log = Log::default();
    let (first, second) = (fed.informer.add_handler(log.clone()), fed.informer.add_handler(log.clone()));
    settle().await;
    assert_eq!(log.take(), ["+a@1 initial list", "+a@1 initial list"]);
    drop(first);
    fed.upsert("a@2");
    settle().await;
    assert_eq!(log.take(), ["~a@1>2"]);
    second.synced().await.unwrap();
}

// I6
#[tokio::test(start_paused = true)]
async fn a_removed_handler_hears_nothing_of_what_waited() {
    let fed = Fed::listed(&["a@1"], "1").await;
    let log = Log::default();
    let registration = fed.informer.add_handler(log.clone());
    let other = fed.informer.add_handler(Log::default());
    settle().await;
    log.take();
    fed.upsert("a@2");
    registration.remove().await;
    fed.upsert("a@3");
    settle().await;
    assert!(log.take().is_empty());
    drop(other);
}

// I6
#[tokio::test(start_paused = true)]
async fn a_handler_that_removes_itself_hears_nothing_of_what_waited() {
    let fed = Fed::listed(&["a@1", "b@1"], "1").await;
    let (log, own) = (Log::default(), Arc::new(Mutex::new(None::<Registration>)));
    let (told, removed) = (log.clone(), own.clone());
    let registration = fed.informer.handler().on_update(move |_, new| {
        told.push(show(&*new));
        drop(removed.lock().unwrap().take());
    });
    *own.lock().unwrap() = Some(registration.register());
    settle().await;
    fed.upsert("a@2");
    fed.upsert("b@3");
    settle().await;
    assert_eq!(log.take(), ["a@2"]);
}

// I6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removal_waits_for_the_call_under_way() {
    let fed = Fed::listed(&["a@1"], "1").await;
    let ((entered, entry), (release, gate)) = (mpsc::channel(), mpsc::channel::<()>());
    let registration = fed
        .informer
        .handler()
        .on_add(move |_, _| {
            entered.send(()).unwrap();
            gate.recv().unwrap();
        })
        .register();
    tokio::task::spawn_blocking(move || entry.recv().unwrap()).await.unwrap();
    let mut removal = Box::pin(registration.remove());
    assert!(futures::poll!(&mut removal).is_pending());
    release.send(()).unwrap();
    removal.await;
}

// I6
#[tokio::test(start_paused = true)]
async fn a_handler_may_remove_itself_from_inside_a_call() {
    let fed = Fed::listed(&[], "1").await;
    let own: Arc<Mutex<Option<Registration>>> = Arc::default();
    let (slot, log) = (own.clone(), Log::default());
    let told = log.clone();
    let registration = fed
        .informer
        .handler()
        .on_add(move |object: Arc<ConfigMap>, _| {
            let registration = slot.lock().unwrap().take().unwrap();
            assert!(registration.remove().now_or_never().is_some(), "it waited for itself");
            told.push(show(&*object));
        })
        .register();
    *own.lock().unwrap() = Some(registration);
    fed.upsert("a@2");
    fed.upsert("b@3");
    settle().await;
    assert_eq!(log.take(), ["a@2"]);
}

// I7
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_tasks_add_and_remove_handlers_during_churn() {
    // Real time, on several threads: what hangs fails.
    tokio::time::timeout(Duration::from_secs(120), churn()).await.expect("nothing hangs");
}

async fn churn() {
    let fed = Fed::listed(&["a@1", "b@1"], "1").await;
    let informer = fed.informer.clone();
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let informer = informer.clone();
            tokio::spawn(async move {
                for _ in 0..5 {
                    let (log, lister) = (Log::default(), informer.lister());
                    let registration = informer.add_handler(log.clone());
                    registration.synced().await.unwrap();
                    assert!(log.len() >= 2, "it heard the cache");
                    assert_eq!(lister.len(), 2);
                    registration.remove().await;
                }
            })
        })
        .collect();
    for version in 2..200 {
        fed.upsert(&format!("a@{version}"));
        tokio::task::yield_now().await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    // What is left are the processor and the feed.
    while informer.handle().core.tasks.len() > 2 {
        tokio::task::yield_now().await;
    }
    informer.shutdown().await;
}

// I7
#[tokio::test(start_paused = true)]
async fn who_was_removed_is_let_go_of_while_the_informer_is_quiet() {
    let fed = Fed::listed(&["a@1"], "1").await;
    let core = fed.informer.handle().core.clone();
    let observers: Vec<_> = (0..100).map(|_| Arc::new(Log::default())).collect();
    let watching: Vec<_> = observers.iter().map(|observer| fed.informer.observe(observer.clone())).collect();
    let handlers: Vec<_> = (0..100).map(|_| fed.informer.add_handler(Log::default())).collect();
    settle().await;
    assert_eq!(core.handlers().len(), 100);
    drop((watching, handlers));
    settle().await;
    assert_eq!(core.handlers().len(), 0, "listeners are left");
    assert!(observers.iter().all(|observer| Arc::strong_count(observer) == 1), "observers are left");
    fed.informer.shutdown().await;
}

// I10
#[tokio::test(start_paused = true)]
async fn a_panicking_handler_is_counted_hears_the_next_and_still_syncs() {
    let fed = Fed::listed(&["a@1"], "1").await;
    let log = Log::default();
    let told = log.clone();
    let registration = fed
        .informer
        .handler()
        .on_add(|_, _| panic!("a planted panic"))
        .on_update(move |_, new: Arc<ConfigMap>| told.push(show(&*new)))
        .register();
    settle().await;
    assert!(registration.has_synced());
    assert_eq!(registration.panics(), 1);
    fed.upsert("a@2");
    settle().await;
    assert_eq!(log.take(), ["a@2"]);
}

// I11
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slow_handler_delays_no_other_and_its_backlog_folds() {
    let fed = Fed::listed(&["slow@1", "gone@1"], "1").await;
    let ((entered, entry), (release, gate)) = (mpsc::channel(), mpsc::channel::<()>());
    struct Slow(Log, mpsc::Sender<()>, mpsc::Receiver<()>);
    impl EventHandler<ConfigMap> for Slow {
        fn on_add(&self, object: Arc<ConfigMap>, origin: AddOrigin) {
            EventHandler::on_add(&self.0, object, origin);
            self.1.send(()).unwrap();
            self.2.recv().unwrap();
        }
        fn on_update(&self, old: Arc<ConfigMap>, new: Arc<ConfigMap>) {
            EventHandler::on_update(&self.0, old, new);
        }
        fn on_delete(&self, deleted: Deleted<ConfigMap>) {
            EventHandler::on_delete(&self.0, deleted);
        }
    }
    let (slow_log, quick_log) = (Log::default(), Log::default());
    let slow = fed.informer.add_handler(Slow(slow_log.clone(), entered, gate));
    let quick = fed.informer.add_handler(quick_log.clone());
    tokio::task::spawn_blocking(move || entry.recv().unwrap()).await.unwrap();
    for version in 2..=100 {
        fed.upsert(&format!("slow@{version}"));
    }
    fed.delete("gone@101");
    fed.upsert("new@102");
    fed.delete("new@103");
    fed.upsert("last@104");
    while !quick_log.take().iter().any(|line| line.starts_with("+last")) {
        tokio::task::yield_now().await;
    }
    // Two are live, two are gone; listed objects count in addition to their later changes.
    assert!(slow.backlog().depth <= 5 && slow.backlog().oldest.is_some());
    // One for each add: the one under way, and at most two more that were not folded away.
    (0..3).for_each(|_| release.send(()).unwrap());
    while !slow_log.has("+last") {
        tokio::task::yield_now().await;
    }
    let heard = slow_log.sorted();
    assert_eq!(heard.len(), 5, "{heard:?}");
    assert!(heard.iter().any(|line| line == "-new@103 final"), "never seen, and yet its delete is delivered");
    drop(quick);
}

// I12
#[tokio::test(start_paused = true)]
async fn a_stopped_informer_refuses_handlers_and_allows_removal() {
    let fed = Fed::listed(&["a@1"], "1").await;
    let log = Log::default();
    let before = fed.informer.add_handler(log.clone());
    settle().await;
    fed.informer.shutdown().await;
    let after = fed.informer.add_handler(log.clone());
    assert_eq!(after.synced().await, Err(HandlerRemoved));
    assert_eq!(log.take(), ["+a@1 initial list"]);
    before.remove().await;
    after.remove().await;

    let never = Fed::new();
    let waiting = never.informer.add_handler(log.clone());
    never.informer.shutdown().await;
    assert_eq!(waiting.synced().await, Err(HandlerRemoved));

    // A start next to the stop of all.
    let started = Fed::new();
    let waiting = started.informer.add_handler(log);
    started.informer.handle().core.stop.cancel();
    started.informer.start();
    assert_eq!(waiting.synced().await, Err(HandlerRemoved));
}

// I18
#[tokio::test(start_paused = true)]
async fn a_transform_is_seen_by_handlers_listers_and_indexes_alike() {
    use crate::delta_fifo::{Extent, Transform};
    let transform = Transform::new(|object: &mut ConfigMap| {
        object
            .data
            .as_mut()
            .into_iter()
            .for_each(|data| drop(data.insert("content".into(), "changed".into())));
    });
    let fed = Fed::of(&[Extent::All], Some(transform));
    let log = Log::default();
    let told = log.clone();
    let _registration = fed
        .informer
        .handler()
        .on_add(move |object: Arc<ConfigMap>, _| told.push(object.data.clone().unwrap()["content"].clone()))
        .register();
    fed.informer.start();
    fed.replace_with(vec![item_with("a@1", "given")], "1");
    settle().await;
    let lister = fed.informer.lister();
    assert_eq!(log.take(), ["changed"]);
    assert_eq!(lister.get(&key("a")).unwrap().data.clone().unwrap()["content"], "changed");
    assert_eq!(lister.by_index("content", &"changed".into()).len(), 1);
    assert!(lister.by_index("content", &"given".into()).is_empty());
    assert_eq!(fed.informer.add_index(by_content()).map_err(drop::<DuplicateIndex>), Err(()));
    fed.upsert_with(item("b@2"));
    settle().await;
}

// I9
#[tokio::test(start_paused = true)]
async fn each_resync_period_is_served_on_its_own() {
    let fed = Fed::listed(&["a@1"], "1").await;
    let (never, quick, slow) = (Log::default(), Log::default(), Log::default());
    let with = |log: &Log, seconds: u64| {
        let told = log.clone();
        let handler =
            fed.informer.handler().on_update(move |old, new| EventHandler::on_update(&told, old, new));
        handler.resync_every(Duration::from_secs(seconds)).register()
    };
    let _registrations = (with(&never, 0), with(&quick, 10), with(&slow, 25));
    tokio::time::sleep(Duration::from_secs(101)).await;
    assert_eq!((never.len(), quick.len(), slow.len()), (0, 10, 4));
    assert!(quick.take().iter().all(|line| line == "~a@1>1"));
    // All handlers see a real change in between, and it moves no period.
    fed.upsert("a@2");
    settle().await;
    assert_eq!((never.take(), quick.len(), slow.len()), (vec!["~a@1>2".to_owned()], 1, 5));
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!((never.len(), quick.len(), slow.len()), (0, 2, 5));
}
