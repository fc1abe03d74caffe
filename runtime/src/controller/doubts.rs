//! Attends to caches that can't be relied on for now: logs it, and lets keys go on afterwards.

use std::{collections::BTreeSet, convert::Infallible};

use tokio::time::{Instant, sleep_until};

use crate::{
    keys::Keys,
    reflector::{Doubt, DoubtCause},
};

/// Lets keys go on once their caches are in no doubt any more; logs for which they wait.
pub(super) async fn follow(controller: &str, keys: &Keys) -> Infallible {
    let mut changes = keys.gate.changes();
    let mut before = Vec::new();
    loop {
        keys.release_stale();
        let doubts = keys.gate.doubts().into_iter();
        let now: Vec<_> = doubts.map(|(kind, doubt)| (kind.to_string(), doubt)).collect();
        report_lost_history(controller, &before, &now);
        report_cut_watches(controller, &before, &now);
        let until = now.iter().map(|(_, doubt)| doubt.until).min();
        before = now;
        tokio::select! {
            biased;
            changed = changes.changed() => changed.expect("the gate holds the server"),
            () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {}
        }
    }
}

fn report_lost_history(controller: &str, before: &[KindInDoubt], now: &[KindInDoubt]) {
    let (begun, given_up) = news(DoubtCause::HistoryLost, before, now);
    if let Some(kinds) = begun {
        tracing::warn!(%controller, "the server lost its history: no key runs until {kinds} is compared");
    }
    if let Some(kinds) = given_up {
        tracing::warn!(%controller, "keys go on although {kinds} could not be compared with the server");
    }
}

fn report_cut_watches(controller: &str, before: &[KindInDoubt], now: &[KindInDoubt]) {
    let (begun, given_up) = news(DoubtCause::WatchCut, before, now);
    if let Some(kinds) = begun {
        tracing::debug!(%controller, "keys wait a moment for the watch of {kinds}");
    }
    if let Some(kinds) = given_up {
        tracing::debug!(%controller, "keys go on although the watch of {kinds} is not open");
    }
}

type KindInDoubt = (String, Doubt);

/// Lists the kinds that are newly in doubt for a cause, and those whose doubt ended only because its time was over.
fn news(cause: DoubtCause, before: &[KindInDoubt], now: &[KindInDoubt]) -> (Option<String>, Option<String>) {
    let of_cause = |doubts: &[KindInDoubt], since: Option<Instant>| -> BTreeSet<String> {
        let is_over = |doubt: &Doubt| since.is_none_or(|since| doubt.until <= since);
        let kinds = doubts.iter().filter(|(_, doubt)| doubt.cause == cause && is_over(doubt));
        kinds.map(|(kind, _)| kind.clone()).collect()
    };
    let (had, has, over) =
        (of_cause(before, None), of_cause(now, None), of_cause(before, Some(Instant::now())));
    (listed(&has - &had), listed(&over - &has))
}

fn listed(kinds: BTreeSet<String>) -> Option<String> {
    let kinds: Vec<_> = kinds.into_iter().collect();
    (!kinds.is_empty()).then(|| kinds.join(", "))
}
