//! Nobody sleeps on, nobody is woken for nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use proptest::prelude::*;

use super::*;
use crate::workqueue::RateLimit;
use crate::workqueue::clock::At;
use crate::workqueue::dispatcher::{Dispatcher, WaiterId};
use crate::workqueue::entries::Id;
use crate::workqueue::schedule::{Offer, Schedule};
use crate::workqueue::{ItemExponentialFailure, Outcome};

#[derive(Default)]
struct Count(AtomicUsize);

impl Count {
    fn so_far(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

type Waiting<'a> = Pin<Box<dyn Future<Output = Option<Item<u32>>> + 'a>>;

/// So many workers, all waiting, and the count of their wake-ups.
fn waiting(queue: &WorkQueue<u32>, workers: usize) -> (Vec<Waiting<'_>>, Arc<Count>) {
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let gets = (0..workers)
        .map(|_| {
            let mut get: Waiting<'_> = Box::pin(tokio::task::coop::unconstrained(queue.get()));
            assert!(get.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            get
        })
        .collect();
    (gets, count)
}

// Q17
#[tokio::test(start_paused = true)]
async fn wakes_one_worker_for_each_ready_key() {
    let queue = queue();
    let (_workers, wakes) = waiting(&queue, 1000);
    for key in 0..10 {
        queue.add(key);
        queue.add(key);
        assert_eq!(wakes.so_far(), key as usize + 1);
    }
}

// Q17
#[tokio::test(start_paused = true)]
async fn wakes_one_worker_for_a_timer() {
    let queue = queue();
    queue.add_after(1, secs(1));
    let (_workers, wakes) = waiting(&queue, 1000);
    for key in 2..500 {
        queue.add_after(key, secs(u64::from(key)));
    }
    assert_eq!(wakes.so_far(), 0, "later timers concern nobody");
    queue.add_after(0, millis(500));
    assert_eq!(wakes.so_far(), 1, "an earlier one concerns who keeps the time");
}

// Q17
#[tokio::test(start_paused = true)]
async fn wakes_nobody_for_keys_that_no_token_is_left_for() {
    let queue = configured(WorkQueueConfig {
        rate: Some(RateLimit::per_second(1).burst(1)),
        ..WorkQueueConfig::default()
    });
    queue.add(0);
    next(&queue).await.forget();
    queue.add(1);
    let (_workers, wakes) = waiting(&queue, 1000);
    (2..500).for_each(|key| queue.add(key));
    assert_eq!(wakes.so_far(), 0);
    tokio::time::advance(secs(1)).await;
    tokio::task::yield_now().await;
    assert_eq!(wakes.so_far(), 1);
}

// Q17
#[tokio::test(start_paused = true)]
async fn a_dropped_get_passes_its_wake_up_on() {
    let queue = queue();
    let (mut workers, wakes) = waiting(&queue, 3);
    queue.add(7);
    for dropped in 1..=2 {
        // the one that came last was woken
        workers.pop();
        assert_eq!(wakes.so_far(), 1 + dropped);
    }
    let mut last = workers.pop().unwrap();
    let polled = last.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Some(item)) if *item.key() == 7));
}

// Q17
#[tokio::test(start_paused = true)]
async fn a_dropped_timekeeper_is_replaced() {
    let queue = queue();
    queue.add_after(7, secs(5));
    let mut keeper = Box::pin(queue.get());
    assert!((&mut keeper).now_or_never().is_none());
    let other = tokio::spawn({
        let queue = queue.clone();
        async move { timed(&queue).await.1 }
    });
    tokio::task::yield_now().await;
    drop(keeper);
    let other = tokio::time::timeout(secs(60), other).await.expect("somebody else keeps the time");
    assert_eq!(other.unwrap(), secs(5));
}

// Q17
#[tokio::test(start_paused = true)]
async fn a_cancelled_get_takes_no_token_with_it() {
    let queue = configured(WorkQueueConfig {
        rate: Some(RateLimit::per_second(1).burst(1)),
        ..WorkQueueConfig::default()
    });
    queue.add(0);
    next(&queue).await.forget();
    queue.add(1);
    for _ in 0..5 {
        assert!(tokio::time::timeout(millis(100), queue.get()).await.is_err());
    }
    let (item, took) = timed(&queue).await;
    assert_eq!((*item.key(), took), (1, millis(500)));
}

/// A key as real threads see it: its latest change, the latest that was served, and whether it runs.
#[derive(Default)]
struct Seen {
    changed: AtomicUsize,
    served: AtomicUsize,
    running: AtomicBool,
}

impl Seen {
    async fn run(&self) {
        assert!(!self.running.swap(true, Ordering::SeqCst), "handed out twice");
        let changed = self.changed.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.served.fetch_max(changed, Ordering::SeqCst);
        self.running.store(false, Ordering::SeqCst);
    }

    fn is_served(&self) -> bool {
        self.served.load(Ordering::SeqCst) == self.changed.load(Ordering::SeqCst)
    }
}

// Q1 Q2 Q17
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_workers_that_come_and_go_serve_every_change_once_at_a_time() {
    let queue = queue::<usize>();
    let seen: Arc<Vec<Seen>> = Arc::new((0..50).map(|_| Seen::default()).collect());
    let worker = |patience: usize| {
        let (queue, seen) = (queue.clone(), Arc::clone(&seen));
        async move {
            let impatience = || async {
                for _ in 0..patience {
                    tokio::task::yield_now().await;
                }
                if patience == 0 {
                    std::future::pending().await
                }
            };
            loop {
                tokio::select! {
                    item = queue.get() => {
                        let Some(item) = item else { return };
                        seen[*item.key()].run().await;
                        item.forget();
                    }
                    () = impatience() => {}
                }
            }
        }
    };
    // a few give up again and again, most wait for good
    let workers: Vec<_> = (0..1000)
        .map(|number| tokio::spawn(worker(if number % 100 == 0 { 1 + number / 100 } else { 0 })))
        .collect();
    let producers: Vec<_> = (0..4)
        .map(|producer| {
            let (queue, seen) = (queue.clone(), Arc::clone(&seen));
            tokio::spawn(async move {
                for change in 0..5000 {
                    let key = (change * 7 + producer) % seen.len();
                    seen[key].changed.fetch_add(1, Ordering::SeqCst);
                    queue.add(key);
                    if change % 16 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            })
        })
        .collect();
    let all = async {
        for producer in producers {
            producer.await.unwrap();
        }
        while !seen.iter().all(Seen::is_served) {
            tokio::task::yield_now().await;
        }
        queue.shut_down();
        for worker in workers {
            worker.await.unwrap();
        }
    };
    tokio::time::timeout(secs(60), all).await.expect("nobody sleeps on");
}

#[derive(Clone, Debug)]
enum Step {
    Add(u32),
    AddAfter(u32, u64),
    Poll(usize),
    Cancel(usize),
    Finish(usize, Outcome),
    Advance(u64),
    PassTimers,
    ShutDown,
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        Just(Outcome::Forget),
        Just(Outcome::Retry { at_least: Duration::ZERO }),
        Just(Outcome::PutBack),
        (0..20u64).prop_map(|delay| Outcome::RequeueAfter(millis(delay))),
    ];
    prop_oneof![
        8 => (0..6u32).prop_map(Step::Add),
        4 => (0..6u32, 0..30u64).prop_map(|(key, delay)| Step::AddAfter(key, delay)),
        12 => (0..4usize).prop_map(Step::Poll),
        3 => (0..4usize).prop_map(Step::Cancel),
        8 => (0..4usize, outcome).prop_map(|(worker, outcome)| Step::Finish(worker, outcome)),
        4 => (0..20u64).prop_map(Step::Advance),
        4 => Just(Step::PassTimers),
        1 => Just(Step::ShutDown),
    ]
}

#[derive(Default)]
struct Worker {
    wakes: Arc<Count>,
    waiter: Option<WaiterId>,
    seen: usize,
    timer: Option<At>,
    in_flight: Option<Id>,
}

impl Worker {
    fn is_coming(&self, now: At) -> bool {
        self.wakes.so_far() > self.seen || self.timer.is_some_and(|until| until <= now)
    }

    fn poll(&mut self, dispatcher: &mut Dispatcher<u32>, now: At) {
        self.seen = self.wakes.so_far();
        self.timer = None;
        let waker = Waker::from(Arc::clone(&self.wakes));
        dispatcher.leave(self.waiter.take());
        let offer = dispatcher.take(&mut self.waiter, &waker, &now);
        dispatcher.wakes().into_iter().for_each(Waker::wake);
        match offer {
            Offer::Run(grant) => {
                dispatcher.schedule.rate.iter_mut().for_each(|rate| rate.pay(now));
                self.in_flight = Some(grant.id);
            }
            Offer::Wait(until) => self.timer = Some(until).filter(|until| *until != At::NEVER),
            Offer::Ended => {}
        }
    }
}

/// What is due is looked after: by someone woken for it, or by a timer that fires in time.
fn nobody_sleeps_on(dispatcher: &Dispatcher<u32>, workers: &[Worker], now: At) -> Result<(), TestCaseError> {
    let waiting: Vec<_> = workers.iter().filter(|worker| worker.waiter.is_some()).collect();
    let coming = waiting.iter().filter(|worker| worker.is_coming(now)).count();
    let due = dispatcher.schedule.due();
    if dispatcher.schedule.has_ended() || due == At::START {
        // the first to come wakes the next
        prop_assert!(coming > 0 || waiting.is_empty());
    } else if due != At::NEVER && !waiting.is_empty() {
        prop_assert!(
            coming > 0 || waiting.iter().any(|worker| worker.timer.is_some_and(|until| until <= due))
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(512))]

    // Q17
    #[test]
    fn no_wake_up_is_lost_and_no_key_handed_out_twice(
        steps in prop::collection::vec(step(), 1..120),
        limited in any::<bool>(),
    ) {
        let config = WorkQueueConfig {
            backoff: Arc::new(ItemExponentialFailure::default()),
            rate: limited.then(|| RateLimit::per_second(100).burst(2)),
            retry_rate: limited.then(|| RateLimit::per_second(50).burst(1)),
            ..WorkQueueConfig::default()
        };
        let mut dispatcher = Dispatcher::new(Schedule::new(config).unwrap());
        let mut workers: Vec<Worker> = (0..4).map(|_| Worker::default()).collect();
        let mut now = At::START;
        for step in steps {
            match step {
                Step::Add(key) => dispatcher.schedule.add(key, Priority::Normal, &now),
                Step::AddAfter(key, delay) => {
                    dispatcher.schedule.add_after(key, millis(delay), Priority::Normal, &now);
                }
                Step::Poll(worker) if workers[worker].in_flight.is_none() => {
                    workers[worker].poll(&mut dispatcher, now);
                }
                Step::Poll(_) => {}
                Step::Cancel(worker) => {
                    let waiter = workers[worker].waiter.take();
                    workers[worker].timer = None;
                    dispatcher.leave(waiter);
                }
                Step::Finish(worker, outcome) => {
                    if let Some(id) = workers[worker].in_flight.take() {
                        dispatcher.schedule.finish(id, outcome, Priority::Normal, &now);
                    }
                }
                Step::Advance(by) => now = now.after(millis(by)),
                Step::PassTimers => {
                    for worker in &mut workers {
                        if worker.waiter.is_some() && worker.is_coming(now) {
                            worker.poll(&mut dispatcher, now);
                        }
                    }
                }
                Step::ShutDown => dispatcher.schedule.shut_down(&now),
            }
            dispatcher.wakes().into_iter().for_each(Waker::wake);
            nobody_sleeps_on(&dispatcher, &workers, now)?;
            let mut flying: Vec<Id> = workers.iter().filter_map(|worker| worker.in_flight).collect();
            let count = flying.len();
            flying.sort_unstable();
            flying.dedup();
            prop_assert_eq!((flying.len(), count), (count, dispatcher.schedule.depth().in_flight));
        }
    }
}
