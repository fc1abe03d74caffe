//! Runs seeds: many on all cores, or the one that the environment names.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use tokio::time::{Duration, Instant};

/// What one run found wrong, and how to follow it.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// What was wrong; nothing if all is well.
    pub(crate) wrongs: Vec<String>,
    /// What the run was to do.
    pub(crate) script: String,
    /// What happened, a line each.
    pub(crate) trace: Vec<String>,
}

/// Runs a scenario on a clock of its own that stands still while there is work.
pub(crate) fn paused<T>(scenario: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(scenario)
}

/// Runs seeds from 0 up, or the one that `CHAOS_SEED` names, and fails at the lowest that goes wrong.
///
/// `CHAOS_SEEDS` says how many instead of `usual`.
pub(crate) fn each(what: &str, usual: u64, run: impl Fn(u64) -> Verdict + Sync) {
    let number = |name| std::env::var(name).ok().map(|text: String| text.parse::<u64>().unwrap());
    let one = number("CHAOS_SEED");
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..number("CHAOS_SEEDS").unwrap_or(usual),
    };
    let (failure, took) = first_failure(&seeds, &run);
    println!("{what}: {} seeds in {:.1} s", seeds.end - seeds.start, took.as_secs_f64());
    let shown = failure.or_else(|| one.map(|seed| (seed, run(seed))));
    let Some((seed, Verdict { wrongs, script, trace })) = shown else { return };
    println!("seed {seed} was to do:\n{script}");
    if one.is_some() {
        println!("what happened:\n{}", trace.join("\n"));
    }
    let wrongs: Vec<_> = wrongs.iter().take(20).map(|wrong| format!("  {wrong}")).collect();
    assert!(
        wrongs.is_empty(),
        "{what}, seed {seed} (CHAOS_SEED={seed} shows its trace):\n{}",
        wrongs.join("\n")
    );
}

/// Finds the lowest seed that fails, and tells how long all took; later seeds are skipped.
fn first_failure(
    seeds: &Range<u64>,
    run: &(impl Fn(u64) -> Verdict + Sync),
) -> (Option<(u64, Verdict)>, Duration) {
    let (next, worst) = (AtomicU64::new(seeds.start), AtomicU64::new(seeds.end));
    let failures = Mutex::new(Vec::new());
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= worst.load(Ordering::SeqCst) {
                        return;
                    }
                    let verdict = contained(|| run(seed));
                    if !verdict.wrongs.is_empty() {
                        worst.fetch_min(seed, Ordering::SeqCst);
                        failures.lock().unwrap().push((seed, verdict));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    (failures.into_iter().min_by_key(|(seed, _)| *seed), started.elapsed())
}

/// Turns a panic into something wrong.
fn contained(run: impl FnOnce() -> Verdict) -> Verdict {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Verdict { wrongs: vec![format!("panicked: {}", text.unwrap_or_default())], ..Verdict::default() }
    })
}
