//! Running a scenario, step by step.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use watchkeeper_apiserver::ApiServer;

use crate::bind::{Bound, short};
use crate::compare::Comparison;
use crate::exchange::{Lines, Next, Opened, after, send};
use crate::format::{Call, Events, Request, Scenario, Step, Until, Watch};
use crate::path::{dig, drop_paths};

/// How long an answer may take to show what a step waits for.
const UNTIL: Duration = Duration::from_secs(30);

/// The time between two looks at it.
const AGAIN: Duration = Duration::from_millis(100);

/// How long an event, or a stream's end, may take.
const EVENT: Duration = Duration::from_secs(8);

/// The mark in a bookmark that no initial event is missing.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Replays a scenario; gives a line for each difference, empty when the server answers as the real one did.
pub(crate) async fn replay<T>(
    server: &ApiServer<T>,
    client: kube::Client,
    scenario: &Scenario,
) -> Vec<String> {
    let namespace = format!("w{}-kpqrs", &scenario.name[..3]);
    let mut run = Run { server, client, bound: Bound::new(&namespace), watches: HashMap::new() };
    let mut report = Vec::new();
    for (at, step) in scenario.steps.iter().enumerate() {
        let differences = run.step(step).await.unwrap_or_else(|error| vec![format!("{error:#}")]);
        let place = format!("{} step {} {}", scenario.name, at + 1, step.title());
        report.extend(differences.iter().map(|difference| format!("{place}: {difference}")));
    }
    report
}

/// A scenario under way.
struct Run<'a, T> {
    server: &'a ApiServer<T>,
    client: kube::Client,
    bound: Bound,
    watches: HashMap<String, Opened>,
}

impl<T> Run<'_, T> {
    async fn step(&mut self, step: &Step) -> anyhow::Result<Vec<String>> {
        match step {
            Step::Request(step) => self.request(step).await,
            Step::Watch(step) => self.watch(step).await,
            Step::Events(step) => self.events(step).await,
            Step::Close(step) => {
                self.watches.remove(&step.watch).context("no such stream")?;
                Ok(Vec::new())
            }
            Step::Compact => {
                self.server.compact();
                Ok(Vec::new())
            }
        }
    }

    async fn request(&mut self, step: &Request) -> anyhow::Result<Vec<String>> {
        let end = after(UNTIL);
        let (opened, raw, body) = loop {
            let (opened, raw) = self.call(&step.request).await?;
            let body = decode(&raw);
            match &step.until {
                Some(until) if !self.reached(until, opened.0, &body)? => {
                    if Instant::now() > end {
                        return Err(anyhow!("never {until:?}; last answer {} {}", opened.0, short(&raw)));
                    }
                    sleep(AGAIN).await;
                }
                _ => break (opened, raw, body),
            }
        };
        let (status, headers) = opened;
        let want = &step.response;
        if status != want.status {
            return Err(anyhow!("status: got {status}, want {}: {}", want.status, short(&raw)));
        }
        let recorded = want.body.clone().unwrap_or_default();
        let mut pairs = Vec::new();
        if let Some(extract) = &want.extract {
            for (path, value) in extract {
                pairs.push((path.clone(), value.clone(), dig(&body, &self.bound.fill(path)?)));
            }
        } else if let Some(check) = &step.check {
            for path in check {
                pairs.push((path.clone(), dig(&recorded, path), dig(&body, &self.bound.fill(path)?)));
            }
        } else if want.body.is_some() || !raw.is_empty() {
            let body = if raw.is_empty() { Value::Null } else { body };
            pairs.push((
                "body".to_owned(),
                drop_paths(recorded, &step.ignore),
                drop_paths(body, &step.ignore),
            ));
        }
        let mut comparison = Comparison::new(&mut self.bound);
        comparison.headers(&want.headers, &headers);
        for (path, want, got) in &pairs {
            comparison.values(want, got, path);
        }
        Ok(comparison.differences)
    }

    /// Sends a call and reads the whole answer.
    async fn call(&self, call: &Call) -> anyhow::Result<((u16, http::HeaderMap), String)> {
        let Opened { status, headers, lines } = send(&self.client, call, &self.bound).await?;
        Ok(((status, headers), lines.rest().await?))
    }

    fn reached(&self, until: &Until, status: u16, body: &Value) -> anyhow::Result<bool> {
        Ok(match until {
            Until::Status { status: wanted } => status == *wanted,
            Until::Value { path, equals: Value::String(text) } => {
                dig(body, &self.bound.fill(path)?) == self.bound.fill(text)?
            }
            Until::Value { path, equals } => dig(body, &self.bound.fill(path)?) == *equals,
        })
    }

    async fn watch(&mut self, step: &Watch) -> anyhow::Result<Vec<String>> {
        let mut opened = send(&self.client, &step.request, &self.bound).await?;
        let want = &step.response;
        if opened.status != want.status {
            let raw = opened.lines.next(after(EVENT)).await;
            return Err(anyhow!("status: got {}, want {}: {raw:?}", opened.status, want.status));
        }
        let mut comparison = Comparison::new(&mut self.bound);
        comparison.headers(&want.headers, &opened.headers);
        match &want.body {
            Some(body) => comparison.values(body, &decode(&opened.lines.rest().await?), "body"),
            None => drop(self.watches.insert(step.watch.clone(), opened)),
        }
        Ok(comparison.differences)
    }

    async fn events(&mut self, step: &Events) -> anyhow::Result<Vec<String>> {
        let opened = self.watches.get_mut(&step.watch).context("the stream did not open")?;
        let mut comparison = Comparison::new(&mut self.bound);
        for (at, want) in step.events.iter().enumerate() {
            let path = format!("event {at}");
            let got = match event(&mut opened.lines, Some(want), after(EVENT)).await? {
                Next::Line(line) => decode(&line),
                Next::End => {
                    comparison.note(&path, &format!("the stream ended, want {}", short(&want.to_string())));
                    return Ok(comparison.differences);
                }
                Next::Silence => {
                    comparison.note(&path, &format!("nothing came, want {}", short(&want.to_string())));
                    return Ok(comparison.differences);
                }
            };
            match &step.check {
                Some(check) => {
                    for part in check {
                        comparison.values(&dig(want, part), &dig(&got, part), &format!("{path} {part}"));
                    }
                }
                None => comparison.values(want, &got, &path),
            }
        }
        if step.eof {
            match event(&mut opened.lines, None, after(EVENT)).await? {
                Next::End => {}
                other => comparison.note("end", &format!("got {other:?}, want the end of the stream")),
            }
        } else if let Some(seconds) = step.quiet {
            match event(&mut opened.lines, None, after(Duration::from_secs_f64(seconds))).await? {
                Next::Silence => {}
                other => comparison.note("end", &format!("got {other:?}, want silence")),
            }
        }
        Ok(comparison.differences)
    }
}

/// Waits for the next event; passes over bookmarks where none is wanted, but for the end of the initial events.
async fn event(lines: &mut Lines, want: Option<&Value>, until: Instant) -> anyhow::Result<Next> {
    loop {
        let next = lines.next(until).await?;
        let Next::Line(line) = &next else { return Ok(next) };
        let is_bookmark = decode(line)["type"] == "BOOKMARK";
        let wanted = want.is_some_and(|want| want["type"] == "BOOKMARK");
        if !is_bookmark || wanted || line.contains(INITIAL_EVENTS_END) {
            return Ok(next);
        }
    }
}

/// Reads JSON; what is none stays text.
fn decode(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}
