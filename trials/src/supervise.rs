//! The operator's life: it is started, dies or ends, and is restarted.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::call::client;
use crate::harness::{Harness, panic_text};
use crate::plan::Operator;
use crate::timeline::Actor;
use crate::webhooks::Webhooks;

/// How long an operator that ended by itself waits for its next start, as the kubelet has it: at first, and at most.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
/// After a life of this length the wait is as at first.
const LONG_LIFE: Duration = Duration::from_secs(600);

/// Runs the operator for ever: what dies or ends is restarted.
pub(crate) async fn supervise(harness: Harness, operator: Operator) {
    let mut wait = BACK_OFF.0;
    loop {
        let began = Instant::now();
        let generation = {
            let mut state = harness.state();
            state.generation += 1;
            state.seen.clear();
            state.listed.clear();
            state.generation
        };
        harness.tell(Actor::Operator, || if generation == 1 { "starts".into() } else { "restarts".into() });
        let mut running = tokio::task::spawn_local(operator(
            client(&harness, generation),
            Webhooks::new(&harness, generation),
        ));
        tokio::select! {
            biased;
            () = dead(&harness, generation) => {
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
                harness.tell(Actor::Operator, || format!("{how}; the kubelet starts it again after {wait:?}"));
                {
                    let mut state = harness.state();
                    state.generation += 1;
                    state.ended_now = true;
                    state.ended.push(how.clone());
                }
                harness.disturb(|| how);
                sleep(wait).await;
                wait = (wait * 2).min(BACK_OFF.1);
                harness.state().ended_now = false;
            }
        }
        let down_until = || harness.state().down;
        while let Some(until) = down_until() {
            tokio::select! {
                () = sleep_until(until) => harness.state().down = None,
                () = harness.moved.notified() => {}
            }
        }
    }
}

/// Waits until a life of the operator is over.
async fn dead(harness: &Harness, generation: u64) {
    loop {
        let moved = harness.moved.notified();
        if harness.state().generation != generation {
            return;
        }
        moved.await;
    }
}
