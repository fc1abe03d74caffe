//! Churn, relists, resyncs, handlers coming and going, from a seed each: everybody ends up with the same.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::testing::{Fed, broken, item, show};
use crate::{
    informer::{AddOrigin, CacheChange, Deleted, EventHandler, Observer, Registration},
    object::ObjectKey,
};

/// Folds what it hears into a view, and refuses what contradicts it.
#[derive(Clone, Default)]
struct View(Arc<Mutex<BTreeMap<String, Arc<ConfigMap>>>>);

impl View {
    fn set(&self, object: &Arc<ConfigMap>) -> Option<Arc<ConfigMap>> {
        self.0.lock().unwrap().insert(ObjectKey::of(&**object).to_string(), object.clone())
    }

    fn unset(&self, deleted: &Deleted<ConfigMap>) -> Option<Arc<ConfigMap>> {
        self.0.lock().unwrap().remove(&deleted.key().to_string())
    }

    fn shown(&self) -> Vec<String> {
        self.0.lock().unwrap().values().map(|object| show(&**object)).collect()
    }
}

fn version(object: &ConfigMap) -> u64 {
    object.metadata.resource_version.as_ref().unwrap().parse().unwrap()
}

impl EventHandler<ConfigMap> for View {
    fn on_add(&self, object: Arc<ConfigMap>, _: AddOrigin) {
        assert!(self.set(&object).is_none(), "{} was added twice", show(&*object));
    }

    fn on_update(&self, old: Arc<ConfigMap>, new: Arc<ConfigMap>) {
        let held = self.set(&new).expect("updated, but never added");
        assert_eq!(show(&*held), show(&*old), "the old state is that of the last call");
        assert!(
            held.metadata.uid == new.metadata.uid && version(&held) <= version(&new),
            "time went backwards"
        );
    }

    fn on_delete(&self, deleted: Deleted<ConfigMap>) {
        if let Some(held) = self.unset(&deleted) {
            assert_eq!(held.metadata.uid.as_deref(), deleted.uid());
        }
    }
}

impl Observer for View {
    fn changed(&self, change: &CacheChange) {
        match change {
            CacheChange::Added { object, .. } => {
                EventHandler::on_add(self, object.object_as().unwrap(), AddOrigin::Watch);
            }
            CacheChange::Updated { old, new, .. } => {
                EventHandler::on_update(self, old.object_as().unwrap(), new.object_as().unwrap());
            }
            CacheChange::Deleted { gone, .. } => EventHandler::on_delete(self, gone.deleted()),
            CacheChange::Unchanged { .. } | CacheChange::Unreadable { .. } => {}
        }
    }
}

/// The server's state: name to uid and version.
#[derive(Default)]
struct Truth {
    objects: BTreeMap<u8, (u64, u64)>,
    version: u64,
}

impl Truth {
    fn shown(&self) -> Vec<String> {
        self.objects.iter().map(|(name, (uid, version))| format!("{name:02}:{uid}@{version}")).collect()
    }

    /// Changes one object; the watch tells of it only where it is heard.
    fn step(&mut self, rng: &mut SmallRng, fed: Option<&Fed>) {
        self.version += 1;
        let (name, now) = (rng.random_range(0..12), self.version);
        let gone = self.objects.get(&name).filter(|_| rng.random_bool(0.4)).copied();
        if let Some((uid, _)) = gone {
            self.objects.remove(&name);
            if let Some(fed) = fed {
                fed.delete(&format!("{name:02}:{uid}@{now}"));
            }
            return;
        }
        let (uid, _) =
            *self.objects.entry(name).and_modify(|(_, version)| *version = now).or_insert((now, now));
        let text = format!("{name:02}:{uid}@{now}");
        // Some states can't be read; a later list mends that.
        let state = if rng.random_bool(0.1) { broken(&text) } else { item(&text) };
        if let Some(fed) = fed {
            fed.upsert_with(state);
        }
    }

    fn relist(&self, fed: &Fed) {
        let texts = self.shown();
        fed.replace(&texts.iter().map(String::as_str).collect::<Vec<_>>(), &self.version.to_string());
    }
}

async fn run(seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let (fed, mut truth) = (Fed::new(), Truth::default());
    let observer = View::default();
    let mut views: Vec<(View, Registration)> = Vec::new();
    let watching = fed.informer.observe(Arc::new(observer.clone()));
    fed.informer.start();
    truth.relist(&fed);
    for _ in 0..300 {
        match rng.random_range(0..20) {
            0 => {
                let view = View::default();
                let period = Duration::from_millis(rng.random_range(0..50));
                let (add, update, delete) = (view.clone(), view.clone(), view.clone());
                let registration = fed
                    .informer
                    .handler()
                    .on_add(move |object, origin| EventHandler::on_add(&add, object, origin))
                    .on_update(move |old, new| EventHandler::on_update(&update, old, new))
                    .on_delete(move |deleted| EventHandler::on_delete(&delete, deleted))
                    .resync_every(period)
                    .register();
                views.push((view, registration));
            }
            1 if !views.is_empty() => drop(views.swap_remove(rng.random_range(0..views.len()))),
            2 => {
                (0..rng.random_range(0..10)).for_each(|_| truth.step(&mut rng, None));
                truth.relist(&fed);
            }
            3 => fed.source(0).resync(),
            4 => tokio::time::sleep(Duration::from_millis(rng.random_range(0..30))).await,
            5..8 => tokio::task::yield_now().await,
            _ => truth.step(&mut rng, Some(&fed)),
        }
    }
    truth.relist(&fed);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut cached: Vec<_> = fed.informer.lister().list().iter().map(|object| show(&**object)).collect();
    cached.sort();
    assert_eq!(cached, truth.shown(), "seed {seed}: the cache");
    assert_eq!(observer.shown(), truth.shown(), "seed {seed}: an observer");
    for (view, registration) in &views {
        assert!(registration.has_synced() && registration.panics() == 0, "seed {seed}: a handler objected");
        assert_eq!(view.shown(), truth.shown(), "seed {seed}: a handler");
    }
    assert_eq!(fed.informer.observer_panics(), 0, "seed {seed}: the observer objected");
    drop(watching);
    fed.informer.shutdown().await;
}

// I19, I21
#[tokio::test(start_paused = true)]
async fn whatever_happens_everybody_ends_up_with_the_servers_state() {
    for seed in 0..60 {
        run(seed).await;
    }
}
