//! The debug page: one template, escaped, and readable without a script.
//!
//! Names, errors and reasons may come from anyone who can write objects: all text goes through maud, which escapes it.

use std::time::Duration;

use maud::{DOCTYPE, Markup, PreEscaped, Render, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{
    clock::{Moment, readable},
    controller::{
        ControllerPhase, ControllerReport, KeyGroup, KeyLine, KeyPlace, LastError, QueueDepths, RunReport,
    },
    informer::{InformerReport, SyncPhase},
    manager::{DebugReport, debug_report::SearchReport},
};

/// The style: light or dark like the reader's system, for narrow and wide windows.
const STYLE: &str = include_str!("style.css");
/// A key that is queued for longer is shown as a problem, in seconds.
const LATE: f64 = 30.0;

/// Writes the page.
pub(super) fn render(report: &DebugReport) -> String {
    let verdict = if report.readiness.is_ok() { "ready" } else { "not ready" };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (report.program.name) " · " (verdict) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { (head(report, verdict)) }
                main {
                    (search(report.search.as_ref()))
                    (troubles(report))
                    @for controller in &report.controllers { (controller_section(controller)) }
                    (informers(&report.informers))
                }
                footer {
                    p { "As of " (report.at) ". The same as JSON: " a href="/debug?format=json" { "/debug?format=json" } }
                }
            }
        }
    };
    page.into_string()
}

fn head(report: &DebugReport, verdict: &str) -> Markup {
    let DebugReport { program, server, leadership, readiness, health, .. } = report;
    html! {
        h1 {
            (program.name) " "
            span class={ "badge " (if readiness.is_ok() { "good" } else { "bad" }) } { (verdict) }
            @if !health.is_ok() { " " span class="badge bad" { "not healthy" } }
        }
        dl.facts {
            (entry("Server", html! {
                (server.version.as_deref().unwrap_or("does not say its version"))
                @if let Some(url) = &server.url { " at " (url) }
            }))
            (entry("Namespace", server.namespace.as_deref().unwrap_or("not known")))
            @if let Some(leader) = leadership {
                @if let Some(shards) = &leader.shards { (entry("Shards", shards)) }
                (entry("Election", html! {
                    (leader.state) " for " (lasting(leader.since))
                    @match leader.leader.as_ref().filter(|name| **name != leader.identity) {
                        Some(name) => { "; " (name) " leads" }
                        None => {}
                    }
                }))
                (entry("Identity", html! { (leader.identity) " (Lease " (leader.lease) ")" }))
            } @else {
                (entry("Election", "none: this process works alone"))
            }
            (entry("Started", html! {
                @match program.started {
                    Some(started) => (ago(started)),
                    None => "not yet",
                }
                ", process " (program.process)
            }))
            (entry("watchkeeper", program.watchkeeper))
        }
    }
}

/// Shows a fact or a number under its name.
fn entry(name: &str, value: impl Render) -> Markup {
    marked(name, value, false)
}

/// Shows it in another colour if it alarms.
fn marked(name: &str, value: impl Render, alarms: bool) -> Markup {
    html! { div class=[alarms.then_some("bad")] { dt { (name) } dd { (value) } } }
}

fn search(found: Option<&SearchReport>) -> Markup {
    html! {
        form method="get" action="/debug" role="search" {
            label for="key" { "Why is this object not reconciled?" }
            div.ask {
                input #key name="key" type="text" placeholder="namespace/name" autocomplete="off" spellcheck="false"
                    value=[found.map(|found| &*found.key)];
                button type="submit" { "Ask" }
            }
        }
        @if let Some(found) = found {
            section #answers {
                h2 { (found.key) }
                @for answer in &found.answers { p.answer { (answer) } }
                p { a href="/debug" { "All keys" } }
            }
        }
    }
}

/// Shows the checks that fail.
fn troubles(report: &DebugReport) -> Markup {
    let checks = report.health.checks.iter().chain(&report.readiness.checks);
    let failing: Vec<_> = checks.filter(|check| !check.is_ok()).collect();
    if failing.is_empty() {
        return html! {};
    }
    html! {
        section #trouble {
            h2 { (plural(failing.len(), "check fails", "checks fail")) }
            ul {
                @for check in failing {
                    li {
                        strong { (check.name) }
                        @if let Some(since) = check.since { " since " (since) " (" (ago(since)) ")" }
                        @if let Some(why) = &check.failure { ": " (why) }
                    }
                }
            }
        }
    }
}

fn controller_section(report: &ControllerReport) -> Markup {
    let (class, phase) = controller_phase(report.phase);
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

fn controller_phase(phase: ControllerPhase) -> (&'static str, &'static str) {
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
            (entry("workers busy", html! { (report.workers.busy) " of " (report.workers.total) }))
            (entry("queued", grouped(ready)))
            (marked("oldest queued", oldest_seconds.map_or_else(|| "–".to_owned(), took), late))
            (entry("waiting", grouped(waiting)))
            @if held > 0 { (entry("held", grouped(held))) }
            @if awaiting_retry_token > 0 { (marked("retries in line", grouped(awaiting_retry_token), true)) }
            (marked("failed for good", grouped(failed_for_good), failed_for_good > 0))
        }
    }
}

fn group_title(place: KeyPlace) -> &'static str {
    match place {
        KeyPlace::FailedForGood => "Failed for good",
        KeyPlace::BackingOff => "Backing off",
        KeyPlace::Held => "Held",
        KeyPlace::InFlight => "Running",
        KeyPlace::Queued => "Queued",
        KeyPlace::Waiting => "Waiting for their time",
    }
}

fn keys(group: &KeyGroup) -> Markup {
    let more = group.total.saturating_sub(group.keys.len());
    let worth_a_look =
        matches!(group.place, KeyPlace::FailedForGood | KeyPlace::BackingOff | KeyPlace::InFlight);
    let columns =
        [("wide", "Key"), ("", "Why"), ("some", "Due"), ("few", "Attempt"), ("many", "Asked for by")];
    html! {
        details open[worth_a_look] {
            summary { (group_title(group.place)) " " span.count { (grouped(group.total)) } }
            (table(columns, group.keys.iter().map(key_row)))
            @if more > 0 { p.note { "and " (plural(more, "more", "more")) } }
        }
    }
}

fn key_row(line: &KeyLine) -> [Markup; 5] {
    let why = html! {
        (line.why)
        @if let Some(LastError { error, at, attempt, .. }) = &line.last_error {
            div.error { "attempt " (attempt) " failed " (ago(*at)) ": " (error) }
        }
    };
    [key(&line.key), why, or_dash(line.due.map(due)), or_dash(line.attempt), or_dash(line.reason.as_deref())]
}

fn runs(runs: &[RunReport]) -> Markup {
    let columns = [
        ("wide", "Key"),
        ("", "Ended as"),
        ("some", "Began"),
        ("few", "Took"),
        ("few", "Writes"),
        ("few", "Attempt"),
        ("many", "Asked for by"),
    ];
    html! {
        @if runs.is_empty() { p.note { "No run has ended yet." } } @else {
            details {
                summary { "Recent runs " span.count { (runs.len()) } }
                (table(columns, runs.iter().map(run_row)))
            }
        }
    }
}

fn run_row(run: &RunReport) -> [Markup; 7] {
    let ended = html! {
        (run.result.replace('_', " "))
        @if let Some(error) = &run.error { div.error { (error) } }
    };
    [
        key(&run.key.to_string()),
        ended,
        ago(run.began),
        took(run.seconds).render(),
        run.writes.render(),
        run.attempt.render(),
        run.reason.to_string().render(),
    ]
}

fn informers(reports: &[InformerReport]) -> Markup {
    let columns =
        [("wide", "Kind"), ("", "State"), ("some", "Objects"), ("some", "Version"), ("some", "Last event")];
    html! {
        section.informers {
            h2 { "Informers" }
            @if reports.is_empty() { p.note { "Nothing is watched." } } @else {
                (table(columns, reports.iter().map(informer_row)))
            }
        }
    }
}

fn informer_row(report: &InformerReport) -> [Markup; 5] {
    let (class, phase) = informer_phase(report);
    let kind = html! {
        strong { (report.kind) } " " (report.version)
        @if let Some(cluster) = &report.cluster { div.note { "of cluster " (cluster) } }
        @if !report.namespaces.is_empty() { div.note { "in " (report.namespaces.join(", ")) } }
        @if !report.selector.is_empty() { div.note { (report.selector) } }
    };
    let state = html! {
        span class={ "badge " (class) } { (phase) }
        @if let Some(failure) = &report.failure {
            div.error { (failure.message) "; again " (due(failure.retry_at)) }
        }
        @if report.unreadable > 0 {
            div.error { (plural(report.unreadable, "object can't be read", "objects can't be read")) }
            @for object in &report.unreadable_objects { div.error { (object) } }
        }
        @if report.handler_backlog > 0 {
            div.note {
                (plural(report.handler_backlog, "notification waits", "notifications wait")) " for "
                (plural(report.handlers, "handler", "handlers"))
            }
        }
    };
    let objects = html! {
        (grouped(report.objects))
        @if let Some(count) = report.bytes { div.note { (bytes(count)) } }
    };
    let version = or_dash(report.resource_version.as_ref().map(|version| html! { (version) }));
    [kind, state, objects, version, or_dash(report.last_event.map(ago))]
}

fn or_dash(value: Option<impl Render>) -> Markup {
    html! { @if let Some(value) = value { (value) } @else { "–" } }
}

fn informer_phase(report: &InformerReport) -> (&'static str, &'static str) {
    match report.phase {
        SyncPhase::Synced if report.failure.is_some() => ("bad", "synced, failing"),
        SyncPhase::Synced => ("good", "synced"),
        SyncPhase::Syncing => ("bad", "not synced"),
        SyncPhase::NotStarted => ("calm", "not started"),
        SyncPhase::Stopped => ("calm", "stopped"),
    }
}

/// Shows a table; each column has a class, for its width, and a title.
fn table<const N: usize>(columns: [(&str, &str); N], rows: impl Iterator<Item = [Markup; N]>) -> Markup {
    html! {
        table {
            thead {
                tr {
                    @for (class, title) in columns {
                        th class=[(!class.is_empty()).then_some(class)] { (title) }
                    }
                }
            }
            tbody {
                @for row in rows {
                    tr { @for ((_, title), cell) in columns.iter().zip(row) { td data-label=(title) { (cell) } } }
                }
            }
        }
    }
}

/// Shows how long ago a moment was, with the date as a tooltip.
fn ago(moment: Moment) -> Markup {
    html! { time datetime=(moment) title=(moment) { (readable(moment.elapsed())) " ago" } }
}

/// Shows how long a state has lasted.
fn lasting(since: Moment) -> Markup {
    html! { time datetime=(since) title=(since) { (readable(since.elapsed())) } }
}

/// Shows how far in the future a moment is.
fn due(moment: Moment) -> Markup {
    let left = moment.left();
    html! {
        time datetime=(moment) title=(moment) {
            @if left.is_zero() { "now" } @else { "in " (readable(left)) }
        }
    }
}

/// Shows how long something took.
fn took(seconds: f64) -> String {
    readable(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// Counts things.
fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { many })
}

/// Writes a number with spaces between thousands.
fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Writes a number of bytes.
fn bytes(count: usize) -> String {
    format!("{:.1} MiB", count as f64 / f64::from(1 << 20))
}

/// Links a key to the answers about it.
fn key(key: &str) -> Markup {
    html! { a.key href={ "/debug?key=" (encoded(key)) } { (key) } }
}

/// Encodes a text for a query.
fn encoded(text: &str) -> String {
    const OTHERS: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');
    utf8_percent_encode(text, OTHERS).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_people_read_them() {
        for (count, text) in
            [(0, "0"), (999, "999"), (1_000, "1\u{202f}000"), (1_234_567, "1\u{202f}234\u{202f}567")]
        {
            assert_eq!(grouped(count), text);
        }
        assert_eq!((bytes(0), bytes(1_572_864)), ("0.0 MiB".to_owned(), "1.5 MiB".to_owned()));
        assert_eq!((took(0.25), took(f64::NAN)), ("250ms".to_owned(), readable(Duration::MAX)));
    }

    // P4
    #[test]
    fn a_link_to_a_key_holds_nothing_but_the_key() {
        assert_eq!(encoded("shop/a b&c=\"<ü>"), "shop/a%20b%26c%3D%22%3C%C3%BC%3E");
        let link = key("a\"><script>").into_string();
        assert!(!link.contains("<script>"), "{link}");
    }
}
