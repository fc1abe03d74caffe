//! Runs a manager without a write until it is at rest.

use std::{collections::BTreeMap, future::Future, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    dry_run::{DryRun, Rehearsal},
    inspector::Inspector,
    running::Running,
};
use crate::{
    controller::{ControllerPhase, ControllerReport, KeyPlace},
    error::Error,
};

/// How often it is asked whether all is at rest.
const LOOK: Duration = Duration::from_millis(250);
/// For how long nothing must move.
const QUIET: Duration = Duration::from_secs(2);
/// The most objects of a controller whose failures are reported.
const FAILURES: usize = 100;

/// Lets a manager run until nothing moves any more, for a time, or until it is interrupted, and stops it.
pub(super) async fn until_rest(
    mut running: Running,
    dry_run: &DryRun,
    at_most: Duration,
    interrupted: impl Future<Output = ()>,
) -> Result<Rehearsal, Error> {
    let (began, inspector) = (Instant::now(), running.inspector());
    let at_rest = async {
        tokio::select! {
            restless = rest(&inspector, at_most) => restless,
            () = interrupted => vec!["a signal stopped it".to_owned()],
        }
    };
    tokio::select! {
        biased;
        mut restless = at_rest => {
            let (failures, took) = (failures(&inspector), began.elapsed());
            match running.stop().await {
                // What it would have written is worth knowing.
                Err(error @ (Error::PastGracePeriod { .. } | Error::HandlerPastGracePeriod { .. })) => {
                    restless.push(error.to_string());
                }
                stopped => stopped?,
            }
            Ok(dry_run.rehearsed().ended(failures, restless, took))
        }
        ended = running.ended() => {
            ended?;
            Ok(dry_run.rehearsed().ended(BTreeMap::new(), Vec::new(), began.elapsed()))
        }
    }
}

/// Waits until nothing moves; returns what still does when the time is over.
async fn rest(inspector: &Inspector, at_most: Duration) -> Vec<String> {
    let began = Instant::now();
    let mut quiet_since = None;
    loop {
        let undecided = inspector.undecided().into_iter();
        let undecided = undecided.map(|name| format!("{name} does not know yet where it works"));
        let moving = inspector.overviews(0).iter().filter_map(moving).chain(undecided).collect::<Vec<_>>();
        let now = Instant::now();
        if moving.is_empty() {
            if now.duration_since(*quiet_since.get_or_insert(now)) >= QUIET {
                return moving;
            }
        } else {
            quiet_since = None;
        }
        if now.duration_since(began) >= at_most {
            return match moving.is_empty() {
                true => vec!["runs came until the end".to_owned()],
                false => moving,
            };
        }
        sleep(LOOK).await;
    }
}

/// Says what moves in a controller, if anything does. Retries and timers don't count: they may go on for ever.
fn moving(controller: &ControllerReport) -> Option<String> {
    let (name, queue) = (&controller.name, &controller.queue);
    let is_over = matches!(controller.phase, ControllerPhase::Stopped);
    if !controller.waits_for.is_empty() && !is_over {
        return Some(format!("{name} waits for caches: {}", controller.waits_for.join(", ")));
    }
    let busy = queue.ready + queue.held + queue.awaiting_retry_token + queue.in_flight;
    let works = matches!(controller.phase, ControllerPhase::Works) || is_over;
    match (works, busy) {
        (true, 0) => None,
        (true, busy) => Some(format!("{name} has {busy} objects to look at")),
        (false, _) => Some(format!("{name} has not begun")),
    }
}

/// Lists the objects whose last run failed.
fn failures(inspector: &Inspector) -> BTreeMap<String, Vec<String>> {
    let failed = |controller: &ControllerReport| {
        let failing = [KeyPlace::BackingOff, KeyPlace::FailedForGood];
        let groups = controller.keys.iter().filter(|group| failing.contains(&group.place));
        let lines = groups.flat_map(|group| &group.keys).map(|line| match &line.last_error {
            Some(error) => format!("{}: {error}", line.key),
            None => line.key.clone(),
        });
        lines.collect::<Vec<_>>()
    };
    let all = inspector.overviews(FAILURES);
    let all = all.iter().map(|controller| (controller.name.clone(), failed(controller)));
    all.filter(|(_, failed)| !failed.is_empty()).collect()
}
