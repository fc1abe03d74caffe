//! The operator's life: it is started, dies or ends, and is restarted.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::call::client;
use crate::harness::{Harness, panic_text};
use crate::life::{Life, Lives, Version};
use crate::plan::{Operator, Surroundings};

/// How long an operator that ended by itself waits for its next start, as the kubelet has it: at first, and at most.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
/// After a life of this length the wait is as at first.
const LONG_LIFE: Duration = Duration::from_secs(600);

/// Runs the operator for ever: what dies or ends is restarted.
pub(crate) async fn supervise(harness: Harness, version: Version, operator: Operator) {
    let mut wait = BACK_OFF.0;
    loop {
        deployed(&harness, version).await;
        let began = Instant::now();
        let life = {
            let mut state = harness.state();
            state.seen.clear();
            state.listed.clear();
            state.lives.start(version)
        };
        let actor = version.actor();
        harness.tell(actor, || if Lives::is_first(life) { "starts".into() } else { "restarts".into() });
        let around = Surroundings { harness: harness.clone(), life };
        // In the task: the function itself may panic.
        let (operator, client) = (operator.clone(), client(&harness, life));
        let mut running = tokio::task::spawn_local(async move { operator(client, around).await });
        tokio::select! {
            biased;
            () = dead(&harness, life) => {
                running.abort();
                drop(running.await);
            }
            ended = &mut running => {
                let how = match ended {
                    Ok(how) => format!("it ended: {how}"),
                    Err(error) if error.is_panic() => format!("it panicked: {}", panic_text(&*error.into_panic())),
                    Err(_) => "it was stopped".to_owned(),
                };
                if began.elapsed() >= LONG_LIFE {
                    wait = BACK_OFF.0;
                }
                harness.tell(actor, || format!("{how}; the kubelet starts it again after {wait:?}"));
                {
                    let mut state = harness.state();
                    state.lives.ended(life);
                    state.ended.push(how.clone());
                }
                harness.disturb(|| how);
                sleep(wait).await;
                wait = (wait * 2).min(BACK_OFF.1);
            }
        }
        let down_until = || harness.state().lives.down_until(version);
        while let Some(until) = down_until() {
            tokio::select! {
                () = sleep_until(until) => harness.state().lives.up(version),
                () = harness.moved.notified() => {}
            }
        }
    }
}

/// Waits until a version is to run.
async fn deployed(harness: &Harness, version: Version) {
    loop {
        let moved = harness.moved.notified();
        if harness.state().lives.is_wanted(version) {
            return;
        }
        moved.await;
    }
}

/// Waits until a life of the operator is over.
async fn dead(harness: &Harness, life: Life) {
    loop {
        let moved = harness.moved.notified();
        if harness.is_dead(life) {
            return;
        }
        moved.await;
    }
}
