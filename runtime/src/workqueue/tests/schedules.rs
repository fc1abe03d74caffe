//! The queue under a model checker: every order of steps that chance finds, over virtual time.
//!
//! `SCHEDULES` says how many orders each claim is tried in, `SHUTTLE_RANDOM_SEED` which ones.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};

use futures::channel::oneshot;
use shuttle::future::{JoinHandle, block_on, spawn_local, yield_now};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

use super::*;
use crate::workqueue::{Drained, KeyState, Outcome, RateLimit};

/// Lets the model checker run somebody else, if it is at work.
pub(in crate::workqueue) fn switch_point() {
    if !std::thread::panicking() && shuttle::current::try_get_current_task().is_some() {
        // any access to one of its atomics is a point where it may switch
        shuttle::sync::atomic::AtomicBool::new(false).load(Ordering::SeqCst);
    }
}

thread_local! {
    /// Whether a bug is planted: wake-ups are lost now and then.
    static LOSES_WAKE_UPS: Cell<bool> = const { Cell::new(false) };
}

/// Wakes a task, at a moment that the model checker picks.
pub(in crate::workqueue) fn wake(waker: Waker) {
    switch_point();
    if !(LOSES_WAKE_UPS.get() && thread_rng().gen_range(0..10) == 0) {
        waker.wake();
    }
}

/// Returns how a planted bug is noticed; if it is not, nothing can be said for the claims of this file.
fn is_found(scenario: fn(&tokio::runtime::Runtime)) -> String {
    let found = catch_unwind(AssertUnwindSafe(|| in_many_orders(scenario))).expect_err("nobody noticed");
    let text = found.downcast_ref::<String>().cloned();
    text.unwrap_or_else(|| (*found.downcast_ref::<&str>().unwrap()).to_owned())
}

/// Tries a scenario in many orders: half by dice, half with few but telling changes of task.
fn in_many_orders(scenario: fn(&tokio::runtime::Runtime)) {
    let schedules = std::env::var("SCHEDULES").map_or(1000, |count| count.parse().unwrap());
    let seed = std::env::var("SHUTTLE_RANDOM_SEED").map_or(7, |seed| seed.parse().unwrap());
    try_orders(RandomScheduler::new_from_seed(seed, schedules / 2), scenario);
    try_orders(PctScheduler::new_from_seed(seed, 3, schedules / 2), scenario);
}

fn try_orders(scheduler: impl Scheduler + 'static, scenario: fn(&tokio::runtime::Runtime)) {
    let mut config = Config::new();
    config.stack_size = 0x4_0000;
    Runner::new(scheduler, config).run(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let _inside = runtime.enter();
        scenario(&runtime);
    });
}

/// Lets a millisecond pass, whatever the others do meanwhile.
async fn pass(runtime: &tokio::runtime::Runtime) {
    runtime.block_on(tokio::time::advance(millis(1)));
    yield_now().await;
}

/// What is owed and what runs, as an onlooker keeps the books.
#[derive(Default)]
struct Books {
    owed: Vec<u8>,
    held: Vec<u8>,
    running: Vec<u8>,
    settled: Option<oneshot::Sender<()>>,
}

impl Books {
    fn is_settled(&self) -> bool {
        self.owed.is_empty() && self.running.is_empty()
    }

    fn tell_if_settled(&mut self) {
        if self.is_settled()
            && let Some(settled) = self.settled.take()
        {
            settled.send(()).unwrap();
        }
    }
}

/// A run, entered in the books until it is dropped.
struct Run {
    key: u8,
    books: Rc<RefCell<Books>>,
}

impl Run {
    fn begin(books: &Rc<RefCell<Books>>, key: u8) -> Self {
        let mut open = books.borrow_mut();
        assert!(!open.running.contains(&key), "{key} is handed out twice");
        assert!(!open.held.contains(&key), "{key} is held");
        open.running.push(key);
        open.owed.retain(|owed| *owed != key);
        Self { key, books: Rc::clone(books) }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let mut open = self.books.borrow_mut();
        open.running.retain(|running| *running != self.key);
        open.tell_if_settled();
    }
}

/// A queue and its onlooker.
#[derive(Clone)]
struct Scene {
    queue: WorkQueue<u8>,
    books: Rc<RefCell<Books>>,
}

impl Scene {
    fn new(config: WorkQueueConfig) -> Self {
        Self { queue: configured(config), books: Rc::default() }
    }

    fn owe(&self, key: u8) {
        self.books.borrow_mut().owed.push(key);
    }

    /// Takes keys until there are no more; ends each run in one of these ways.
    fn worker(&self, endings: &'static [Outcome]) -> JoinHandle<()> {
        let Self { queue, books } = self.clone();
        spawn_local(async move {
            while let Some(item) = queue.get().await {
                // declared first: the books are closed before the key may run again
                let outcome = endings[thread_rng().gen_range(0..endings.len())];
                let run = Run::begin(&books, *item.key());
                yield_now().await;
                if outcome == Outcome::PutBack {
                    books.borrow_mut().owed.push(*item.key());
                }
                drop(run);
                item.finish(outcome);
            }
        })
    }

    /// Holds keys and lets them go.
    fn holder(&self, rounds: usize) -> JoinHandle<()> {
        let Self { queue, books } = self.clone();
        spawn_local(async move {
            for _ in 0..rounds {
                let key = thread_rng().gen_range(0..3);
                queue.hold(&key, secs(60));
                // one that was handed out just now still runs
                if matches!(queue.state_of(&key), KeyState::Held { .. }) {
                    books.borrow_mut().held.push(key);
                }
                yield_now().await;
                books.borrow_mut().held.retain(|held| *held != key);
                queue.release(&key);
            }
        })
    }

    /// Says all sorts of things of three keys, and owes what must follow.
    fn caller(&self, calls: usize) -> JoinHandle<()> {
        let scene = self.clone();
        spawn_local(async move {
            for _ in 0..calls {
                let key = thread_rng().gen_range(0..3);
                let delay = millis(thread_rng().gen_range(0..4));
                match thread_rng().gen_range(0..5) {
                    0 => scene.queue.touch(key),
                    1 => scene.queue.add_after(key, delay),
                    2 => scene.queue.add_rate_limited(key),
                    at => {
                        scene.owe(key);
                        scene.queue.add_at(key, if at == 3 { Priority::High } else { Priority::Low });
                    }
                }
                yield_now().await;
            }
        })
    }

    /// Waits for keys, but never for long; ends a run by dropping all of it.
    fn fickle(&self, tries: usize) -> JoinHandle<()> {
        let Self { queue, books } = self.clone();
        spawn_local(async move {
            for _ in 0..tries {
                let mut get = Box::pin(queue.get());
                for _ in 0..thread_rng().gen_range(0..4) {
                    if let Poll::Ready(item) = futures::poll!(&mut get) {
                        let Some(item) = item else { return };
                        let _run = Run::begin(&books, *item.key());
                        yield_now().await;
                        break;
                    }
                    yield_now().await;
                }
            }
        })
    }

    /// Waits until nothing is owed and nothing runs. It does not wake any worker.
    async fn settled(&self) {
        let (settled, wait) = oneshot::channel();
        self.books.borrow_mut().settled = Some(settled);
        self.books.borrow_mut().tell_if_settled();
        wait.await.unwrap();
    }

    /// Shuts down and sees everybody off.
    async fn close(self, workers: Vec<JoinHandle<()>>) {
        self.queue.shut_down();
        for worker in workers {
            worker.await.unwrap();
        }
        assert_eq!((self.queue.depth().in_flight, self.queue.depth().ready), (0, 0));
    }
}

// Q1 Q17
#[test]
fn every_change_is_followed_by_a_run_whoever_gives_up_waiting() {
    in_many_orders(|_| {
        let scene = Scene::new(WorkQueueConfig::default());
        let mut workers = vec![scene.worker(&[Outcome::Forget, Outcome::Done]), scene.fickle(3)];
        workers.push(scene.worker(&[Outcome::Forget, Outcome::PutBack]));
        let producers: Vec<_> = (0..2)
            .map(|_| {
                let scene = scene.clone();
                spawn_local(async move {
                    for key in [0, 1, 0] {
                        scene.owe(key);
                        scene.queue.add(key);
                    }
                })
            })
            .collect();
        block_on(async {
            for producer in producers {
                producer.await.unwrap();
            }
            scene.settled().await;
            scene.close(workers).await;
        });
    });
}

// Q16 Q17
#[test]
fn a_worker_aborted_anywhere_leaves_its_key_and_its_wake_up_to_the_others() {
    in_many_orders(|_| {
        let scene = Scene::new(WorkQueueConfig::default());
        let (stays, goes) = (scene.worker(&[Outcome::Forget]), scene.worker(&[Outcome::Forget]));
        let aborts = spawn_local(async move {
            goes.abort();
            drop(goes.await);
        });
        block_on(async {
            for key in [0, 1, 0, 2] {
                scene.owe(key);
                scene.queue.add(key);
            }
            scene.settled().await;
            aborts.await.unwrap();
            scene.close(vec![stays]).await;
        });
    });
}

// Q7 Q17
#[test]
fn a_timer_is_kept_whoever_gives_up_waiting() {
    in_many_orders(|runtime| {
        let scene = Scene::new(WorkQueueConfig {
            rate: Some(RateLimit::per_period(millis(1)).burst(2)),
            retry_rate: Some(RateLimit::per_period(millis(2)).burst(1)),
            ..WorkQueueConfig::default()
        });
        let workers =
            vec![scene.worker(&[Outcome::Forget]), scene.fickle(3), scene.worker(&[Outcome::Forget])];
        let producer = spawn_local({
            let scene = scene.clone();
            async move {
                for (key, delay) in [(0, 3), (1, 2), (2, 1)] {
                    scene.owe(key);
                    scene.queue.add_after(key, millis(delay));
                }
                scene.owe(3);
                scene.queue.add_rate_limited(3);
                scene.owe(4);
                scene.queue.add(4);
            }
        });
        block_on(async {
            for _ in 0..thread_rng().gen_range(0..6) {
                pass(runtime).await;
            }
            producer.await.unwrap();
            // from here on, only time goes on; it enqueues no key but who keeps it
            for _ in 0..200 {
                pass(runtime).await;
                if scene.books.borrow().is_settled() {
                    return scene.close(workers).await;
                }
            }
            panic!("somebody keeps the time");
        });
    });
}

// Q1 Q17
#[test]
fn keys_that_fall_due_at_once_run_side_by_side() {
    in_many_orders(|runtime| {
        let queue = failing_for::<u8>(millis(9));
        let (side_by_side, all) = (Rc::new(Cell::new(0)), 3);
        let workers: Vec<_> = (0..all)
            .map(|_| {
                let (queue, side_by_side) = (queue.clone(), Rc::clone(&side_by_side));
                spawn_local(async move {
                    let _item = queue.get().await.unwrap();
                    side_by_side.set(side_by_side.get() + 1);
                    // the run goes on as long as its test
                    std::future::pending::<()>().await;
                })
            })
            .collect();
        let adds = spawn_local(async move {
            queue.add_after(0, millis(20));
            for key in 1..all {
                queue.add_after(key, millis(2));
            }
            queue.add_after(0, millis(2));
        });
        block_on(async {
            adds.await.unwrap();
            for _ in 0..5 {
                pass(runtime).await;
            }
            for _ in 0..200 {
                yield_now().await;
            }
            assert_eq!(side_by_side.get(), all, "somebody sleeps on");
            workers.iter().for_each(JoinHandle::abort);
            for worker in workers {
                drop(worker.await);
            }
        });
    });
}

// Q4 Q5 Q17
#[test]
fn a_drain_ends_with_the_last_run_whatever_the_order() {
    in_many_orders(|_| {
        let scene = Scene::new(WorkQueueConfig::default());
        let workers = vec![scene.worker(&[Outcome::Forget, Outcome::Done]), scene.worker(&[Outcome::Forget])];
        (0..3).for_each(|key| scene.queue.add(key));
        block_on(async {
            assert_eq!(scene.queue.drain().await, Drained::Clean);
            assert_eq!(scene.queue.depth().in_flight, 0);
            scene.close(workers).await;
        });
    });
}

// Q17 Q21
#[test]
fn a_drain_ends_though_workers_leave_whatever_the_order() {
    in_many_orders(|_| {
        let scene = Scene::new(WorkQueueConfig::default());
        // takes one key, gives it back, and is seen no more
        let leaver = |scene: &Scene| {
            let Scene { queue, books } = scene.clone();
            spawn_local(async move {
                let Some(item) = queue.get().await else { return };
                let run = Run::begin(&books, *item.key());
                yield_now().await;
                drop(run);
                item.put_back();
            })
        };
        let leavers = [leaver(&scene), leaver(&scene)];
        let stays = scene.worker(&[Outcome::Forget, Outcome::Done]);
        let changes = spawn_local({
            let queue = scene.queue.clone();
            async move {
                queue.add(1);
                yield_now().await;
                queue.add(0);
            }
        });
        (0..3).for_each(|key| scene.queue.add(key));
        block_on(async {
            yield_now().await;
            assert_eq!(scene.queue.drain().await, Drained::Clean);
            assert_eq!((scene.queue.depth().in_flight, scene.queue.depth().ready), (0, 0));
            changes.await.unwrap();
            for leaver in leavers {
                leaver.await.unwrap();
            }
            scene.close(vec![stays]).await;
        });
    });
}

// Q1 Q17 W3
#[test]
fn whatever_is_held_waits_and_runs_when_it_is_let_go() {
    in_many_orders(|_| {
        let scene = Scene::new(WorkQueueConfig::default());
        let mut workers = vec![scene.worker(&[Outcome::Forget, Outcome::Done]), scene.fickle(2)];
        workers.push(scene.worker(&[Outcome::Forget, Outcome::PutBack]));
        let holder = scene.holder(3);
        block_on(async {
            for key in [0, 1, 0, 2] {
                scene.owe(key);
                scene.queue.add(key);
                yield_now().await;
            }
            holder.await.unwrap();
            scene.settled().await;
            scene.close(workers).await;
        });
    });
}

const ANY: &[Outcome] = &[
    Outcome::Forget,
    Outcome::Retry { at_least: Duration::ZERO },
    Outcome::RetryUncounted,
    Outcome::RequeueAfter(millis(2)),
    Outcome::PutBack,
    Outcome::Done,
];

// Q1 Q2 Q5 Q7 Q17 Q20 W3
#[test]
fn adds_delays_retries_holds_and_a_drain_go_together_in_any_order() {
    in_many_orders(|runtime| {
        let scene = Scene::new(WorkQueueConfig {
            retry_rate: Some(RateLimit::per_period(millis(2)).burst(1)),
            floor: millis(1),
            ..WorkQueueConfig::default()
        });
        let workers = vec![scene.worker(ANY), scene.worker(ANY), scene.fickle(2)];
        let others = [scene.caller(4), scene.caller(3), scene.holder(2)];
        block_on(async {
            for _ in 0..thread_rng().gen_range(0..8) {
                pass(runtime).await;
            }
            assert_eq!(scene.queue.drain().await, Drained::Clean);
            assert_eq!((scene.queue.depth().in_flight, scene.queue.depth().ready), (0, 0));
            for other in others {
                other.await.unwrap();
            }
            scene.close(workers).await;
        });
    });
}

// Q17
#[test]
fn a_planted_loss_of_wake_ups_is_found() {
    LOSES_WAKE_UPS.set(true);
    let noticed = is_found(|_| {
        let scene = Scene::new(WorkQueueConfig::default());
        let workers = vec![scene.worker(&[Outcome::Forget]), scene.worker(&[Outcome::Forget])];
        block_on(async {
            for key in [0, 1, 2] {
                scene.owe(key);
                scene.queue.add(key);
                yield_now().await;
            }
            scene.settled().await;
            scene.close(workers).await;
        });
    });
    LOSES_WAKE_UPS.set(false);
    assert!(noticed.contains("deadlock"), "{noticed}");
}

// Q17
#[test]
fn a_planted_double_hand_out_is_found() {
    let noticed = is_found(|_| {
        let scene = Scene::new(WorkQueueConfig::default());
        // ends the key's run before the work: a change meanwhile hands the key out once more
        let hasty = |scene: &Scene| {
            let Scene { queue, books } = scene.clone();
            spawn_local(async move {
                while let Some(item) = queue.get().await {
                    let key = *item.key();
                    item.forget();
                    let _run = Run::begin(&books, key);
                    yield_now().await;
                }
            })
        };
        let workers = vec![hasty(&scene), hasty(&scene)];
        block_on(async {
            for _ in 0..2 {
                scene.owe(0);
                scene.queue.add(0);
                yield_now().await;
            }
            scene.settled().await;
            scene.close(workers).await;
        });
    });
    assert!(noticed.contains("handed out twice"), "{noticed}");
}
