//! What the page shows of informers.

use maud::{Markup, html};

use super::parts::{ago, bytes, due, grouped, plural};
use crate::informer::{FailureReport, InformerReport, SyncPhase};

pub(super) fn informers(reports: &[InformerReport]) -> Markup {
    html! {
        section.informers {
            h2 { "Informers" }
            @if reports.is_empty() { p.note { "Nothing is watched." } } @else {
                table {
                    thead {
                        tr {
                            th.wide { "Kind" }
                            th { "State" }
                            th.some { "Objects" }
                            th.some { "Version" }
                            th.some { "Last event" }
                        }
                    }
                    tbody { @for report in reports { (row(report)) } }
                }
            }
        }
    }
}

fn row(report: &InformerReport) -> Markup {
    let (class, phase) = phase(report);
    html! {
        tr {
            td data-label="Kind" {
                strong { (report.kind) } " " (report.version)
                @if let Some(cluster) = &report.cluster { div.note { "of cluster " (cluster) } }
                @if !report.namespaces.is_empty() { div.note { "in " (report.namespaces.join(", ")) } }
                @if !report.selector.is_empty() { div.note { (report.selector) } }
            }
            td data-label="State" {
                span class={ "badge " (class) } { (phase) }
                @if let Some(failure) = &report.failure { (failing(failure)) }
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
            }
            td data-label="Objects" {
                (grouped(report.objects))
                @if let Some(count) = report.bytes { div.note { (bytes(count)) } }
            }
            td data-label="Version" {
                @if let Some(version) = report.resource_version { (version) } @else { "–" }
            }
            td data-label="Last event" { @if let Some(moment) = report.last_event { (ago(moment)) } @else { "–" } }
        }
    }
}

fn phase(report: &InformerReport) -> (&'static str, &'static str) {
    match report.phase {
        SyncPhase::Synced if report.failure.is_some() => ("bad", "synced, failing"),
        SyncPhase::Synced => ("good", "synced"),
        SyncPhase::Syncing => ("bad", "not synced"),
        SyncPhase::NotStarted => ("calm", "not started"),
        SyncPhase::Stopped => ("calm", "stopped"),
    }
}

fn failing(failure: &FailureReport) -> Markup {
    html! { div.error { (failure.message) "; again " (due(failure.retry_at)) } }
}
