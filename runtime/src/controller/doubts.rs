//! Attends to caches that can't be relied on for now: says so, and lets keys go on afterwards.

use std::{collections::BTreeSet, convert::Infallible};

use tokio::time::{Instant, sleep_until};

use crate::{keys::Keys, reflector::DoubtCause};

/// Lets keys go on once their caches are in no doubt any more; logs for which they wait.
pub(crate) async fn follow(controller: &str, keys: &Keys) -> Infallible {
    let gate = &keys.gate;
    let mut changes = gate.changes();
    let mut reported = Vec::new();
    loop {
        keys.release_stale();
        let doubts = gate.doubts();
        let until = doubts.iter().map(|(_, doubt)| doubt.until).min();
        let now: Vec<_> = doubts.iter().map(|(kind, doubt)| (kind.to_string(), *doubt)).collect();
        reported = report(controller, reported, now);
        tokio::select! {
            biased;
            changed = changes.changed() => changed.expect("the gate holds the server"),
            () = until_then(until) => {}
        }
    }
}

type Doubts = Vec<(String, crate::reflector::Doubt)>;

/// Says what is new among doubts, and what ended only because its time was over.
fn report(controller: &str, before: Doubts, now: Doubts) -> Doubts {
    let names = |doubts: &Doubts, cause| -> BTreeSet<String> {
        let of = doubts.iter().filter(|(_, doubt)| doubt.cause == cause);
        of.map(|(kind, _)| kind.clone()).collect()
    };
    for cause in [DoubtCause::HistoryLost, DoubtCause::WatchCut] {
        let (had, has) = (names(&before, cause), names(&now, cause));
        let waits_for = listed(has.difference(&had));
        match cause {
            _ if waits_for.is_empty() => {}
            DoubtCause::HistoryLost => {
                tracing::warn!(
                    %controller,
                    "the server lost its history: no key runs until {waits_for} is compared"
                );
            }
            DoubtCause::WatchCut => {
                tracing::debug!(%controller, "keys wait a moment for the watch of {waits_for}");
            }
        }
        let over = before.iter().filter(|(_, doubt)| doubt.cause == cause && doubt.until <= Instant::now());
        let over: BTreeSet<String> = over.map(|(kind, _)| kind.clone()).collect();
        let given_up = listed(over.difference(&has));
        match cause {
            _ if given_up.is_empty() => {}
            DoubtCause::HistoryLost => {
                tracing::warn!(
                    %controller,
                    "keys go on although {given_up} could not be compared with the server"
                );
            }
            DoubtCause::WatchCut => {
                tracing::debug!(%controller, "keys go on although the watch of {given_up} is not open");
            }
        }
    }
    now
}

fn listed<'a>(kinds: impl Iterator<Item = &'a String>) -> String {
    kinds.map(String::as_str).collect::<Vec<_>>().join(", ")
}

async fn until_then(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}
