//! What the page shows of a controller: its queue, its keys, its last runs.

use maud::{Markup, html};

use super::parts::{ago, due, grouped, key, plural, took};
use crate::controller::{
    ControllerPhase, ControllerReport, KeyGroup, KeyLine, KeyPlace, LastError, QueueDepths, RunReport,
};

/// How long a key may be queued until that looks like trouble, in seconds.
const LATE: f64 = 30.0;

pub(super) fn controller(report: &ControllerReport) -> Markup {
    let (class, phase) = phase(report.phase);
    html! {
        section.controller {
            h2 { (report.name) " " span class={ "badge " (class) } { (phase) } }
            @if report.name != report.kind { p.note { "reconciles " (report.kind) } }
            @for cache in &report.waits_for { p.answer { "waits for " (cache) } }
            (numbers(report))
            @if report.keys.is_empty() { p.note { "Nothing is queued, waits or fails." } }
            @for group in &report.keys { (keys(group)) }
            (runs(&report.recent_runs))
        }
    }
}

fn phase(phase: ControllerPhase) -> (&'static str, &'static str) {
    match phase {
        ControllerPhase::Works => ("good", "works"),
        ControllerPhase::WaitsForCaches => ("bad", "waits for caches"),
        ControllerPhase::StandsBy => ("calm", "stands by"),
        ControllerPhase::Stopped => ("calm", "stopped"),
    }
}

fn numbers(report: &ControllerReport) -> Markup {
    let QueueDepths { ready, oldest_seconds, waiting, held, awaiting_retry_token, failed_for_good, .. } =
        report.queue;
    let late = oldest_seconds.is_some_and(|seconds| seconds >= LATE);
    html! {
        dl.numbers {
            (number("workers busy", html! { (report.workers.busy) " of " (report.workers.total) }, false))
            (number("queued", html! { (grouped(ready)) }, false))
            (number("oldest queued", html! { (oldest_seconds.map_or_else(|| "–".to_owned(), took)) }, late))
            (number("waiting", html! { (grouped(waiting)) }, false))
            @if held > 0 { (number("held", html! { (grouped(held)) }, false)) }
            @if awaiting_retry_token > 0 {
                (number("retries in line", html! { (grouped(awaiting_retry_token)) }, true))
            }
            (number("failed for good", html! { (grouped(failed_for_good)) }, failed_for_good > 0))
        }
    }
}

fn number(name: &str, value: Markup, alarms: bool) -> Markup {
    html! { div class=[alarms.then_some("bad")] { dt { (name) } dd { (value) } } }
}

fn title(place: KeyPlace) -> &'static str {
    match place {
        KeyPlace::FailedForGood => "Failed for good",
        KeyPlace::BackingOff => "Backing off",
        KeyPlace::Held => "Held",
        KeyPlace::InFlight => "Running",
        KeyPlace::Queued => "Queued",
        KeyPlace::Waiting => "Waiting for their time",
    }
}

/// Which columns there is something in.
#[derive(Clone, Copy)]
struct Columns {
    due: bool,
    attempt: bool,
    reason: bool,
}

impl Columns {
    fn of(lines: &[KeyLine]) -> Self {
        Self {
            due: lines.iter().any(|line| line.due.is_some()),
            attempt: lines.iter().any(|line| line.attempt.is_some()),
            reason: lines.iter().any(|line| line.reason.is_some()),
        }
    }
}

fn keys(group: &KeyGroup) -> Markup {
    let more = group.total.saturating_sub(group.keys.len());
    let worth_a_look =
        matches!(group.place, KeyPlace::FailedForGood | KeyPlace::BackingOff | KeyPlace::InFlight);
    let columns = Columns::of(&group.keys);
    html! {
        details open[worth_a_look] {
            summary { (title(group.place)) " " span.count { (grouped(group.total)) } }
            table {
                thead {
                    tr {
                        th.wide { "Key" }
                        th { "Why" }
                        @if columns.due { th.some { "Due" } }
                        @if columns.attempt { th.few { "Attempt" } }
                        @if columns.reason { th.many { "Asked for by" } }
                    }
                }
                tbody { @for line in &group.keys { (key_row(line, columns)) } }
            }
            @if more > 0 { p.note { "and " (plural(more, "more", "more")) } }
        }
    }
}

fn key_row(line: &KeyLine, columns: Columns) -> Markup {
    html! {
        tr {
            td data-label="Key" { (key(&line.key)) }
            td data-label="Why" {
                (line.why)
                @if let Some(LastError { error, at, attempt, .. }) = &line.last_error {
                    div.error { "attempt " (attempt) " failed " (ago(*at)) ": " (error) }
                }
            }
            @if columns.due {
                td data-label="Due" { @if let Some(moment) = line.due { (due(moment)) } @else { "–" } }
            }
            @if columns.attempt {
                td data-label="Attempt" { @if let Some(attempt) = line.attempt { (attempt) } @else { "–" } }
            }
            @if columns.reason { td data-label="Asked for by" { (line.reason.as_deref().unwrap_or("–")) } }
        }
    }
}

fn runs(runs: &[RunReport]) -> Markup {
    html! {
        @if runs.is_empty() { p.note { "No run has ended yet." } } @else {
            details {
                summary { "Recent runs " span.count { (runs.len()) } }
                table {
                    thead {
                        tr {
                            th.wide { "Key" }
                            th { "Ended as" }
                            th.some { "Began" }
                            th.few { "Took" }
                            th.few { "Writes" }
                            th.few { "Attempt" }
                            th.many { "Asked for by" }
                        }
                    }
                    tbody { @for run in runs { (run_row(run)) } }
                }
            }
        }
    }
}

fn run_row(run: &RunReport) -> Markup {
    html! {
        tr {
            td data-label="Key" { (key(&run.key)) }
            td data-label="Ended as" {
                (run.result.replace('_', " "))
                @if let Some(error) = &run.error { div.error { (error) } }
            }
            td data-label="Began" { (ago(run.began)) }
            td data-label="Took" { (took(run.seconds)) }
            td data-label="Writes" { (run.writes) }
            td data-label="Attempt" { (run.attempt) }
            td data-label="Asked for by" { (run.reason) }
        }
    }
}
