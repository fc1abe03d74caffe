//! The rate holds on every path.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;
use crate::workqueue::clock::At;
use crate::workqueue::schedule::{Offer, Schedule};
use crate::workqueue::{Outcome, RateLimit};

/// The most starts in any window beyond what its length allows: never more than the burst.
fn worst_window(starts: &[u64], period: u64) -> u64 {
    let allowed = |first: usize, last: usize| (starts[last] - starts[first]) / period;
    (0..starts.len())
        .flat_map(|first| (first..starts.len()).map(move |last| (first, last)))
        .map(|(first, last)| ((last - first + 1) as u64).saturating_sub(allowed(first, last)))
        .max()
        .unwrap_or(0)
}

#[test]
fn a_rate_that_is_none_is_refused_by_name() {
    let config = WorkQueueConfig { retry_rate: Some(RateLimit::per_second(0)), ..WorkQueueConfig::default() };
    let error = WorkQueue::<u8>::with_config(config).unwrap_err();
    assert!(error.to_string().starts_with("retry rate: a rate of zero"), "{error}");
}

// C11
#[tokio::test(start_paused = true)]
async fn the_naive_loop_stays_within_its_rate_and_serves_every_key_in_turn() {
    const KEYS: usize = 1000;
    let queue = configured::<usize>(WorkQueueConfig {
        rate: Some(RateLimit::per_second(10).burst(10)),
        ..WorkQueueConfig::default()
    });
    let start = Instant::now();
    let log = Arc::new(Mutex::new(Vec::new()));
    (0..KEYS).for_each(|key| queue.add(key));
    let workers: Vec<_> = (0..20)
        .map(|_| {
            let (queue, log) = (queue.clone(), Arc::clone(&log));
            tokio::spawn(async move {
                while let Some(item) = queue.get().await {
                    log.lock().unwrap().push((start.elapsed(), *item.key()));
                    item.requeue_after(secs(5));
                }
            })
        })
        .collect();
    tokio::time::sleep(secs(500)).await;
    queue.discard();
    for worker in workers {
        worker.await.unwrap();
    }
    let log = log.lock().unwrap();
    let starts: Vec<u64> = log.iter().map(|(at, _)| at.as_nanos() as u64).collect();
    assert!(worst_window(&starts, 100_000_000) <= 10);
    assert!((5000..=5010).contains(&starts.len()), "no slower than allowed: {}", starts.len());
    for (place, (_, key)) in log.iter().enumerate() {
        assert_eq!(*key, place % KEYS, "each in its turn");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8),
    Touch(u8),
    AddAfter(u8, u64),
    AddRateLimited(u8),
    Take,
    Finish(Outcome),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        Just(Outcome::Done),
        Just(Outcome::Forget),
        Just(Outcome::Retry { at_least: Duration::ZERO }),
        Just(Outcome::RetryUncounted),
        Just(Outcome::Terminal),
        Just(Outcome::PutBack),
        (0..500u64).prop_map(|delay| Outcome::RequeueAfter(millis(delay))),
    ];
    prop_oneof![
        5 => (0..30u8).prop_map(Step::Add),
        2 => (0..30u8).prop_map(Step::Touch),
        2 => (0..30u8, 0..1000u64).prop_map(|(key, delay)| Step::AddAfter(key, delay)),
        1 => (0..30u8).prop_map(Step::AddRateLimited),
        8 => Just(Step::Take),
        6 => outcome.prop_map(Step::Finish),
        4 => (0..200_000_000u64).prop_map(Step::Advance),
    ]
}

proptest! {
    #![proptest_config(cases(256))]

    // C11
    #[test]
    fn over_any_window_starts_stay_within_burst_and_rate(
        steps in prop::collection::vec(step(), 1..300),
        rate in 1..100u32,
        burst in 1..20u32,
    ) {
        let limit = RateLimit::per_second(rate).burst(burst);
        let config = WorkQueueConfig { rate: Some(limit), ..WorkQueueConfig::default() };
        let mut schedule = Schedule::new(config).unwrap();
        let (mut now, mut starts, mut flying) = (At::START, Vec::new(), Vec::new());
        let (mut owed, mut served) = ([0usize; 30], vec![[0usize; 30]]);
        let mut take = |schedule: &mut Schedule<u8>, now: At, served: &mut Vec<[usize; 30]>| match schedule.take(&now, usize::MAX) {
            Offer::Run(grant) => {
                schedule.rate.as_mut().unwrap().pay(now);
                starts.push(now.nanos());
                served[0][grant.key as usize] = starts.len();
                Some(grant.id)
            }
            _ => None,
        };
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Add(key) => {
                    schedule.add(key, Priority::Normal, &now);
                    // owed is a run that starts after this many
                    owed[key as usize] = number + 1;
                    served[0][key as usize] = 0;
                }
                Step::Touch(key) => schedule.touch(key, Priority::Low, &now),
                Step::AddAfter(key, delay) => schedule.add_after(key, millis(delay), Priority::Normal, &now),
                Step::AddRateLimited(key) => schedule.add_rate_limited(key, Priority::Normal, &now),
                Step::Take => flying.extend(take(&mut schedule, now, &mut served)),
                Step::Finish(outcome) => {
                    if let Some(id) = flying.pop() {
                        schedule.finish(id, outcome, Priority::Normal, &now);
                    }
                }
                Step::Advance(by) => now = now.after(Duration::from_nanos(by)),
            }
        }
        // every change is served in the end
        flying.drain(..).for_each(|id| schedule.finish(id, Outcome::Forget, Priority::Normal, &now));
        while schedule.due() != At::NEVER {
            now = now.max(schedule.due());
            if let Some(id) = take(&mut schedule, now, &mut served) {
                schedule.finish(id, Outcome::Forget, Priority::Normal, &now);
            }
        }
        prop_assert!((0..30).all(|key| owed[key] == 0 || served[0][key] > 0));
        let period = 1_000_000_000u64.div_ceil(u64::from(rate));
        prop_assert!(worst_window(&starts, period) <= u64::from(burst));
    }
}

// C11
#[test]
fn mixed_paths_through_workers_stay_within_the_rate() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    proptest!(cases(40), |(
        callers in prop::collection::vec((0..4u8, 0..20u32, 0..3000u64), 1..100),
        endings in prop::collection::vec(0..5u8, 1..20),
    )| {
        let starts = runtime().block_on(mixed_load(callers, endings));
        prop_assert!(worst_window(&starts, 50_000_000) <= 5);
    });
}

/// Callers and five workers on a queue of 20 a second, burst 5; answers when runs started, in nanoseconds.
async fn mixed_load(callers: Vec<(u8, u32, u64)>, endings: Vec<u8>) -> Vec<u64> {
    let queue = configured::<u32>(WorkQueueConfig {
        rate: Some(RateLimit::per_second(20).burst(5)),
        retry_rate: Some(RateLimit::per_second(10).burst(3)),
        ..WorkQueueConfig::default()
    });
    let (start, log) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let workers: Vec<_> = (0..5)
        .map(|_| {
            let (queue, log, endings) = (queue.clone(), Arc::clone(&log), endings.clone());
            tokio::spawn(async move {
                while let Some(item) = queue.get().await {
                    let ending = {
                        let mut log = log.lock().unwrap();
                        log.push(start.elapsed().as_nanos() as u64);
                        endings[log.len() % endings.len()]
                    };
                    tokio::time::sleep(millis(u64::from(ending) * 30)).await;
                    match ending {
                        0 => item.forget(),
                        1 => item.retry(),
                        2 => item.requeue_after(millis(40)),
                        3 => item.put_back(),
                        _ => drop(item),
                    }
                }
            })
        })
        .collect();
    for (how, key, at) in callers {
        tokio::time::sleep(millis(at / 50)).await;
        match how {
            0 => queue.add(key),
            1 => queue.touch(key),
            2 => queue.add_after(key, millis(at)),
            _ => queue.add_rate_limited(key),
        }
    }
    tokio::time::sleep(secs(5)).await;
    queue.discard();
    for worker in workers {
        worker.await.unwrap();
    }
    std::mem::take(&mut *log.lock().unwrap())
}

// C11
#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_profits_from_a_larger_part_of_the_rate() {
    let queue = configured::<u8>(WorkQueueConfig {
        rate: Some(RateLimit::per_second(1).burst(1)),
        ..WorkQueueConfig::default()
    });
    queue.share_rates(1, 64);
    queue.claim().await.unwrap().0.pay();
    let (waiting, began) = (queue.clone(), Instant::now());
    let claim = tokio::spawn(async move { waiting.claim().await.map(drop) });
    tokio::time::sleep(secs(2)).await;
    queue.share_rates(64, 64);
    claim.await.unwrap().unwrap();
    assert!(began.elapsed() < secs(5), "{:?}", began.elapsed());
}
