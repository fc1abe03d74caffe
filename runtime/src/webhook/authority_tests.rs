//! The rotation step by step, and among several replicas.

use std::collections::VecDeque;

use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;

fn names() -> Vec<String> {
    vec!["hooks.shop.svc".to_owned()]
}

fn generation(number: usize, made: i64) -> Generation {
    let text = |what: &str| format!("{what}{number}\n");
    Generation {
        authority: text("ca"),
        certificate: text("ca"),
        key: text("key"),
        names: names(),
        made,
        expires: made + LIFE,
    }
}

fn stored(current: i64) -> StoredGenerations {
    StoredGenerations { current: generation(1, current), next: None, old: None }
}

/// Decides once, with a replica that begins.
fn step(stored: Option<&StoredGenerations>, published: &[Option<&str>], now: i64) -> NextStep {
    let published: Vec<_> = published.iter().map(|bundle| bundle.map(str::to_owned)).collect();
    let seen = Seen { stored, served: None, published: &published, now };
    Rotation::default().step(seen, &names(), |_| Ok::<_, ()>(generation(9, now))).unwrap()
}

#[test]
fn each_state_has_one_next_step() {
    let now = 1_000_000_000;
    let fresh = stored(now);
    assert_eq!(step(None, &[None], now).store.unwrap().current, generation(9, now));
    let publish = step(Some(&fresh), &[Some("ca1\n"), Some("other")], now);
    assert_eq!(publish, NextStep { publish: Some("ca1\n".into()), look_again: LOOK_SOON, store: None });
    let rest = NextStep { look_again: LOOK_EVERY, ..NextStep::default() };
    assert_eq!(step(Some(&fresh), &[Some("ca1\n")], now), rest);
    // Two thirds of its life are over.
    let aged = step(Some(&stored(now - LIFE / 3 * 2)), &[Some("ca1\n")], now).store.unwrap();
    assert_eq!((aged.current.authority.as_str(), aged.bundle().as_str()), ("ca1\n", "ca1\nca9\n"));
    // It is published, but not for long enough.
    let waits = step(Some(&aged), &[Some("ca1\nca9\n")], now);
    assert_eq!(waits, NextStep { look_again: LOOK_SOON, ..NextStep::default() });
    // An expired one can't be waited for.
    let late = step(Some(&aged), &[Some("ca1\n")], now + LIFE / 2).store.unwrap();
    assert_eq!((late.current.authority.as_str(), late.next), ("ca9\n", None));
    // The Service has another name.
    let mut renamed = fresh.clone();
    renamed.current.names = vec!["old.shop.svc".to_owned()];
    assert_eq!(step(Some(&renamed), &[Some("ca1\n")], now).store.unwrap().next, Some(generation(9, now)));
    // The old authority goes in the end, also if the clock was set back by much.
    let old = |replaced| OldAuthority { authority: "ca0\n".to_owned(), replaced };
    for (replaced, goes) in
        [(now - KEPT, true), (now - KEPT + 1, false), (now + 1, false), (now + 2 * KEPT, true)]
    {
        let kept = StoredGenerations { old: Some(old(replaced)), ..fresh.clone() };
        assert_eq!(step(Some(&kept), &[Some("ca0\nca1\n")], now).store.is_some(), goes, "{replaced}");
    }
}

#[test]
fn replicas_that_need_different_names_do_not_take_them_from_each_other() {
    let now = 1_000_000_000;
    let [one, other] = ["one", "other"].map(|name| vec![format!("{name}.shop.svc")]);
    let step = |stored: &StoredGenerations, names: &[String], now| {
        let published = [Some(stored.bundle())];
        let seen = Seen { stored: Some(stored), served: None, published: &published, now };
        let make = |names: &[String]| Ok::<_, ()>(Generation { names: names.to_vec(), ..generation(9, now) });
        Rotation::default().step(seen, names, make).unwrap().store
    };
    let current = Generation { names: one.clone(), ..generation(1, now) };
    let stored = StoredGenerations { current, next: None, old: None };
    let renewed = step(&stored, &other, now).unwrap();
    let both = [other.clone(), one.clone()].concat();
    assert_eq!(renewed.next.as_ref().unwrap().names, both);
    assert_eq!((step(&renewed, &one, now), step(&renewed, &other, now)), (None, None));
    // With its age, names go that nobody needs any more.
    let aged = StoredGenerations { current: renewed.next.unwrap(), next: None, old: None };
    assert_eq!(step(&aged, &other, now + LIFE / 3 * 2).unwrap().next.unwrap().names, other);
}

/// A cluster with several replicas, whose API server sees configurations late.
struct Cluster {
    secret: Option<StoredGenerations>,
    version: u64,
    configurations: [Option<String>; 2],
    /// What the API server knew of the first configuration, a second each.
    seen: VecDeque<Option<String>>,
    made: usize,
    now: i64,
}

struct Replica {
    rotation: Rotation,
    /// The version and content that it read last.
    read: (u64, Option<StoredGenerations>),
    serves: Option<Generation>,
    looks: i64,
}

impl Replica {
    fn begin(now: i64) -> Self {
        Self { rotation: Rotation::default(), read: (0, None), serves: None, looks: now }
    }

    /// Acts on what it read a moment ago, and reads again.
    fn look(&mut self, cluster: &mut Cluster) {
        let (version, stored) = std::mem::replace(&mut self.read, (cluster.version, cluster.secret.clone()));
        if let Some(stored) = &stored {
            self.serves = Some(stored.current.clone());
        }
        let (served, published) = (self.serves.as_ref(), &cluster.configurations);
        let seen = Seen { stored: stored.as_ref(), served, published, now: cluster.now };
        let (number, now) = (cluster.made, cluster.now);
        let step = self.rotation.step(seen, &names(), |_| Ok::<_, ()>(generation(number, now))).unwrap();
        if let Some(bundle) = step.publish {
            cluster.configurations = [Some(bundle.clone()), Some(bundle)];
        }
        if let Some(store) = step.store
            && version == cluster.version
        {
            (cluster.secret, cluster.version) = (Some(store), version + 1);
            cluster.made += 1;
        }
        self.looks = cluster.now + step.look_again.max(1);
    }
}

#[test]
fn an_api_server_always_trusts_what_any_replica_serves() {
    for seed in 0..20 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut cluster = Cluster {
            secret: None,
            version: 0,
            configurations: [None, None],
            seen: VecDeque::new(),
            made: 1,
            now: 1_000_000,
        };
        let mut replicas: Vec<_> = (0..3).map(|_| Replica::begin(cluster.now)).collect();
        let (lag, mut rotated, mut calls, mut deleted) = (rng.random_range(0..60), 0, 0, 0);
        let end = cluster.now + LIFE * 3;
        while cluster.now < end {
            // Hours in which nothing is due pass at once.
            let quiet = cluster.secret.as_ref().is_some_and(|all| all.next.is_none() && all.old.is_none())
                && replicas.iter().all(|replica| replica.read.0 == cluster.version)
                && cluster.seen.iter().all(|seen| *seen == cluster.configurations[0]);
            cluster.now += if quiet { 3_600 } else { 1 };
            cluster.seen.push_back(cluster.configurations[0].clone());
            if cluster.seen.len() > lag + 1 {
                cluster.seen.pop_front();
            }
            for replica in &mut replicas {
                // One that begins while nothing is stored knows of no other authority.
                if cluster.secret.is_some() && rng.random_ratio(1, 5_000) {
                    *replica = Replica::begin(cluster.now);
                }
                if replica.looks <= cluster.now {
                    replica.look(&mut cluster);
                }
            }
            if quiet && rng.random_ratio(1, 500) {
                (cluster.secret, cluster.version) = (None, cluster.version + 1);
                deleted += 1;
            }
            if rng.random_ratio(1, 10_000) {
                cluster.configurations[1] = Some("somebody else's".to_owned());
            }
            let Some(trusted) = cluster.seen.front().and_then(Option::as_ref) else { continue };
            for replica in replicas.iter().filter_map(|replica| replica.serves.as_ref()) {
                assert!(trusted.contains(&replica.certificate), "seed {seed}, {}: {trusted:?}", cluster.now);
                assert!(replica.expires > cluster.now, "seed {seed}: expired");
                calls += 1;
            }
            rotated = cluster.made;
        }
        assert!(rotated >= 4 && calls > 10_000, "seed {seed}: {rotated} generations, {calls} calls");
        assert!(deleted > 5, "seed {seed}: the Secret was deleted {deleted} times");
    }
}
