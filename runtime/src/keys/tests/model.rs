//! The table against a naive model: what a key waits for is what each input said last.

use std::{collections::BTreeMap, time::Duration};

use futures::FutureExt;
use proptest::prelude::*;
use tokio::task::coop::unconstrained;

use super::*;
use crate::workqueue::Item;

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Input {
    Add {
        name: usize,
    },
    Hold {
        name: usize,
        reason: usize,
        millis: u64,
    },
    Release {
        name: usize,
        reason: usize,
    },
    /// The next key starts, if one may.
    Start,
    /// A run of a key ends.
    End {
        name: usize,
    },
    /// A write of a key is answered, and a source will show it after some progress.
    Wrote {
        name: usize,
        ahead: u64,
    },
    /// An event shows a version that may be a key's own.
    Event {
        name: usize,
        ahead: u64,
    },
    Progressed {
        ahead: u64,
    },
    Passed {
        millis: u64,
    },
    Swept,
}

fn input() -> impl Strategy<Value = Input> {
    let name = 0..NAMES.len();
    prop_oneof![
        4 => name.clone().prop_map(|name| Input::Add { name }),
        2 => (name.clone(), 0..2usize, 1..3_000u64)
            .prop_map(|(name, reason, millis)| Input::Hold { name, reason, millis }),
        2 => (name.clone(), 0..2usize).prop_map(|(name, reason)| Input::Release { name, reason }),
        4 => Just(Input::Start),
        4 => name.clone().prop_map(|name| Input::End { name }),
        2 => (name.clone(), 1..4u64).prop_map(|(name, ahead)| Input::Wrote { name, ahead }),
        2 => (name, 1..4u64).prop_map(|(name, ahead)| Input::Event { name, ahead }),
        3 => (1..3u64).prop_map(|ahead| Input::Progressed { ahead }),
        3 => (0..2_000u64).prop_map(|millis| Input::Passed { millis }),
        1 => Just(Input::Swept),
    ]
}

/// One key, as each input leaves it.
#[derive(Debug, Default)]
struct NaiveKey {
    is_asked: bool,
    /// The reasons that hold it back, and until when. Those for stale caches and for pace are set by inputs.
    holds: BTreeMap<HoldReason, Instant>,
    /// The version that it waits for after its writes.
    awaits: Option<u64>,
    /// Versions that its writes made.
    own: Vec<u64>,
    run: Option<NaiveRun>,
}

/// A run: the events that it may have made itself, and whether anything else changed.
#[derive(Debug, Default)]
struct NaiveRun {
    deferred: Vec<u64>,
    is_changed: bool,
}

impl NaiveKey {
    /// Returns the reason that counts most.
    fn held(&self, now: Instant) -> Option<HoldReason> {
        self.holds.iter().find(|(_, until)| **until > now).map(|(reason, _)| *reason)
    }
}

fn reason(at: usize) -> HoldReason {
    [HoldReason::StaleCache, HoldReason::Pace][at]
}

/// Plays inputs to the table and to the model, and compares them after each.
async fn play(inputs: Vec<Input>) -> Result<(), TestCaseError> {
    let (keys, caches) = (Keys::alone(), FakeCaches::default());
    let mut model: BTreeMap<&str, NaiveKey> = NAMES.map(|name| (name, NaiveKey::default())).into();
    let mut running: BTreeMap<&str, Item<ObjectKey>> = BTreeMap::new();
    let mut delivered = 0;
    for input in inputs {
        let now = Instant::now();
        match input {
            Input::Add { name } => {
                let name = NAMES[name];
                keys.table().take(key(name), None, Reason::Changed);
                let known = model.get_mut(name).unwrap();
                match &mut known.run {
                    Some(run) => run.is_changed = true,
                    None => known.is_asked = true,
                }
            }
            Input::Hold { name, reason: at, millis } => {
                let (name, until) = (NAMES[name], now + Duration::from_millis(millis));
                keys.table().hold(&key(name), reason(at), until, now);
                model.get_mut(name).unwrap().holds.insert(reason(at), until);
            }
            Input::Release { name, reason: at } => {
                keys.table().release(&key(NAMES[name]), reason(at), now);
                model.get_mut(NAMES[name]).unwrap().holds.remove(&reason(at));
            }
            Input::Start => {
                let may_run =
                    |known: &NaiveKey| known.is_asked && known.run.is_none() && known.held(now).is_none();
                match unconstrained(keys.queue.get()).now_or_never().flatten() {
                    None => prop_assert!(model.values().all(|known| !may_run(known)), "{model:?}"),
                    Some(item) => {
                        let name = *NAMES.iter().find(|name| key(name) == *item.key()).unwrap();
                        let known = model.get_mut(name).unwrap();
                        prop_assert!(may_run(known), "{name} {known:?}");
                        prop_assert_eq!(
                            keys.table().begin(item.key(), item.attempt()).unwrap().0,
                            Reason::Changed
                        );
                        (known.is_asked, known.run) = (false, Some(NaiveRun::default()));
                        known.holds.clear();
                        running.insert(name, item);
                    }
                }
            }
            Input::End { name } => {
                let name = NAMES[name];
                let Some(item) = running.remove(name) else { continue };
                let (mut table, known) = (keys.table(), model.get_mut(name).unwrap());
                let run = known.run.take().unwrap();
                let done = table.end(&key(name));
                prop_assert_eq!(done.changed, run.is_changed || !run.deferred.is_empty());
                if done.changed {
                    table.add(key(name), Reason::Changed);
                    known.is_asked = true;
                }
                drop(table);
                item.forget();
            }
            Input::Wrote { name, ahead } => {
                let (name, version) = (NAMES[name], delivered + ahead);
                let (mut table, known) = (keys.table(), model.get_mut(name).unwrap());
                let place = (SITES, &key("site"));
                table.expect(&key(name), place, Expectation::Reached(Version(version)), &caches, now);
                table.wrote(&key(name), SITES, Version(version));
                if known.awaits.replace(version).is_none() {
                    known.holds.insert(HoldReason::OwnWrites, now + super::super::writes::AT_MOST);
                }
                known.own.push(version);
                if let Some(run) = &mut known.run {
                    run.deferred.retain(|deferred| *deferred != version);
                }
            }
            Input::Event { name, ahead } => {
                let (name, version) = (NAMES[name], delivered + ahead);
                keys.table().take(key(name), Some((SITES, Version(version))), Reason::Changed);
                let known = model.get_mut(name).unwrap();
                match &mut known.run {
                    _ if known.own.contains(&version) => {}
                    None => known.is_asked = true,
                    Some(run) if run.deferred.len() < 16 => run.deferred.push(version),
                    Some(run) => run.is_changed = true,
                }
            }
            Input::Progressed { ahead } => {
                delivered += ahead;
                let progress = Progress { version: Some(Version(delivered)), via: ProgressVia::Watch };
                keys.table().progressed(SITES, progress, &caches, now);
                for known in model.values_mut() {
                    known.own.retain(|version| *version > delivered);
                    if known.awaits.is_some_and(|version| version <= delivered) {
                        known.awaits = None;
                        known.holds.remove(&HoldReason::OwnWrites);
                    }
                }
            }
            Input::Passed { millis } => tokio::time::advance(Duration::from_millis(millis)).await,
            Input::Swept => keys.table().sweep(now, |_| false),
        }
        let now = Instant::now();
        for (name, known) in &model {
            let table = keys.table();
            prop_assert_eq!(table.asked(&key(name)).is_some(), known.is_asked, "{} {:?}", name, known);
            prop_assert_eq!(table.is_running(&key(name)), known.run.is_some());
            prop_assert_eq!(table.has_pending(&key(name)), known.awaits.is_some());
            drop(table);
            let expected = match (&known.run, known.held(now)) {
                (Some(_), _) => "running",
                (None, Some(HoldReason::OwnWrites)) => "own writes",
                (None, Some(HoldReason::Pace)) => "pace",
                // The gate, which is open, says how long: the key is about to go on.
                (None, Some(HoldReason::StaleCache) | None) if known.is_asked => "queued",
                (None, _) => "idle",
            };
            let why = match keys.why(&key(name)) {
                None => "idle",
                Some(Why::Queued) => "queued",
                Some(Why::InFlight { .. }) => "running",
                Some(Why::AwaitsOwnWrites { .. }) => "own writes",
                Some(Why::Paced { .. }) => "pace",
                Some(why) => panic!("{why:?}"),
            };
            prop_assert_eq!(why, expected, "{} {:?}", name, known);
        }
    }
    // All that can end ends, and then nothing is left.
    for (name, item) in running {
        keys.table().end(&key(name));
        item.forget();
    }
    let progress = Progress { version: Some(Version(delivered + 10)), via: ProgressVia::Watch };
    keys.table().progressed(SITES, progress, &caches, Instant::now());
    tokio::time::advance(Duration::from_secs(10)).await;
    while let Some(item) = unconstrained(keys.queue.get()).now_or_never().flatten() {
        keys.table().begin(item.key(), item.attempt());
        keys.table().end(item.key());
        item.forget();
    }
    keys.table().sweep(Instant::now(), |_| true);
    prop_assert_eq!(keys.table().remembered(), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // W3
    #[test]
    fn the_table_agrees_with_a_naive_model_about_every_key(inputs in prop::collection::vec(input(), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(play(inputs))?;
    }
}
