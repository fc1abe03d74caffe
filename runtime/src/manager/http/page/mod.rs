//! The debug page: compiled, escaped, and readable without a script.
//!
//! Names, errors and reasons come from strangers: all text goes through maud, which escapes it.

mod parts;
mod keys;
mod caches;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::manager::{DebugReport, HealthReport, debug_report::SearchReport};

use parts::{ago, lasting, plural};

/// What it looks like: light or dark as the reader's system is, narrow or wide.
const STYLE: &str = include_str!("style.css");

/// Writes the page.
pub(super) fn render(report: &DebugReport) -> String {
    let title = title(report);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { (head(report)) }
                main {
                    (search(report.search.as_ref()))
                    (troubles(report))
                    @for controller in &report.controllers { (keys::controller(controller)) }
                    (caches::informers(&report.informers))
                }
                footer {
                    p { "As of " (report.at) ". The same as JSON: " a href="/debug?format=json" { "/debug?format=json" } }
                }
            }
        }
    };
    page.into_string()
}

fn title(report: &DebugReport) -> String {
    let verdict = if report.readiness.is_ok() { "ready" } else { "not ready" };
    format!("{} · {verdict}", report.program.name)
}

fn head(report: &DebugReport) -> Markup {
    let DebugReport { program, server, leadership, readiness, health, .. } = report;
    html! {
        h1 {
            (program.name) " "
            (badge(readiness, "ready", "not ready"))
            @if !health.is_ok() { " " span class="badge bad" { "not healthy" } }
        }
        dl.facts {
            (fact("Server", html! {
                (server.version.as_deref().unwrap_or("does not say its version"))
                @if let Some(url) = &server.url { " at " (url) }
            }))
            (fact("Namespace", html! { (server.namespace.as_deref().unwrap_or("not known")) }))
            @if let Some(leader) = leadership {
                (fact("Election", html! {
                    (leader.state) " for " (lasting(leader.since))
                    @match leader.leader.as_ref().filter(|name| **name != leader.identity) {
                        Some(name) => { "; " (name) " leads" }
                        None => {}
                    }
                }))
                (fact("Identity", html! { (leader.identity) " (Lease " (leader.lease) ")" }))
            } @else {
                (fact("Election", html! { "none: this process works alone" }))
            }
            (fact("Started", html! {
                @match program.started {
                    Some(started) => (ago(started)),
                    None => "not yet",
                }
                ", process " (program.process)
            }))
            (fact("watchkeeper", html! { (program.watchkeeper) }))
        }
    }
}

fn fact(name: &str, value: Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

fn badge(report: &HealthReport, passes: &str, fails: &str) -> Markup {
    match report.is_ok() {
        true => html! { span class="badge good" { (passes) } },
        false => html! { span class="badge bad" { (fails) } },
    }
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

/// Checks that fail, and those that pass although something is wrong.
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
