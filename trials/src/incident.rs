//! Plays a recording of an incident again, with this build of the operator.

use std::fmt;
use std::time::Duration;

use crate::diff;
use crate::life::Version;
use crate::oracle::{Violation, run_schedule};
use crate::plan::Plan;
use crate::recording::{Effect, Recording};
use crate::schedule::Schedule;
use crate::timeline::{self, Length};

/// What came of a [replay](crate::Trials::replay).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Replayed {
    /// How many writes of the operator changed something in the recording.
    pub recorded: usize,
    /// How many do now.
    pub replayed: usize,
    /// Where they differ, in the order of their times.
    pub differences: Vec<ReplayDifference>,
    /// What is wrong with this build in the replay, whatever was recorded.
    pub faults: Vec<Violation>,
    /// How long the recording is.
    pub took: Duration,
    /// How many lines the recorder left out: where there are any, differences may be due to them.
    pub missing: u64,
    /// What happened, in numbered steps.
    pub story: String,
}

/// A write that only the recording has, or only this build makes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayDifference {
    /// Whether this build makes it; else only the recorded one did.
    pub made_now: bool,
    /// When, after the beginning.
    pub at: Duration,
    /// The request in words, e.g. `patch websites/status shop/a`.
    pub request: String,
    /// What it changed: `-` was there, `+` is there. Where the other build made the same request and changed something else
    /// by it, only the lines that differ.
    pub change: Vec<String>,
}

impl fmt::Display for ReplayDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.made_now { "made now, and not recorded" } else { "recorded, and not made now" };
        write!(f, "{what}, at {:.3}s: {}", self.at.as_secs_f64(), self.request)?;
        diff::cut(self.change.clone()).iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

/// The most differences that a text shows.
const SHOWN: usize = 40;

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { recorded, replayed, differences, faults, took, missing, .. } = self;
        writeln!(
            f,
            "{:.0} s of a recording: {recorded} writes of the operator changed something then, {replayed} do now; {} \
             differ",
            took.as_secs_f64(),
            differences.len()
        )?;
        if *missing > 0 {
            writeln!(f, "the recorder left out {missing} lines or objects: differences may be due to that")?;
        }
        faults.iter().try_for_each(|fault| writeln!(f, "this build: {fault}"))?;
        for difference in differences.iter().take(SHOWN) {
            writeln!(f, "{difference}")?;
        }
        match differences.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => writeln!(f, "… and {more} more"),
        }
    }
}

/// Plays a recording with a build of the operator, and compares what that writes.
pub(crate) fn replay(plan: &Plan, recording: &Recording) -> Replayed {
    let outcome = run_schedule(plan, &Schedule::calm(Version::Only), None, true);
    let (story, _) = timeline::steps(&outcome.lines, Length::Whole);
    let Recording { effects: recorded, took, missing, .. } = recording;
    Replayed {
        recorded: recorded.len(),
        replayed: outcome.effects.len(),
        differences: differences(recorded, &outcome.effects, *took),
        faults: outcome.faults,
        took: *took,
        missing: *missing,
        story,
    }
}

/// Lists the writes that only one of the two made; what they changed counts, and how often, not when. What was made after the end of
/// the recording can't be missing there.
fn differences(recorded: &[Effect], now: &[Effect], took: Duration) -> Vec<ReplayDifference> {
    let mut all = only(recorded, now, false);
    all.extend(only(now, recorded, true).into_iter().filter(|difference| difference.at <= took));
    all.sort_by_key(|difference| difference.at);
    all
}

/// Lists the writes that only these made.
fn only(these: &[Effect], those: &[Effect], made_now: bool) -> Vec<ReplayDifference> {
    let mut left: Vec<&Effect> = those.iter().collect();
    let is_same = |one: &Effect, other: &Effect| one.request == other.request && one.lines == other.lines;
    let alone: Vec<_> = these
        .iter()
        .filter(|one| match left.iter().position(|other| is_same(one, other)) {
            Some(found) => {
                left.swap_remove(found);
                false
            }
            None => true,
        })
        .collect();
    let alone = alone.into_iter().map(|Effect { at, request, lines }| {
        let mut change = lines.clone();
        if let Some(other) = left.iter().find(|other| other.request == *request) {
            change.retain(|line| !other.lines.contains(line));
        }
        let change = if change.is_empty() { lines.clone() } else { change };
        ReplayDifference { made_now, at: *at, request: request.clone(), change }
    });
    alone.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::ForeignEvent;

    // T31
    #[test]
    fn writes_are_compared_by_what_they_change() {
        let effect = |at: u64, request: &str, line: &str| Effect {
            at: Duration::from_secs(at),
            request: request.to_owned(),
            lines: vec![line.to_owned()],
        };
        let recorded = [
            effect(1, "patch maps a", "+ x: 1"),
            effect(2, "patch maps a", "+ y: 1"),
            effect(3, "patch maps b", "+ x: 1"),
        ];
        let now = [
            effect(9, "patch maps a", "+ y: 1"),
            effect(10, "patch maps a", "+ y: 1"),
            effect(11, "patch maps b", "+ x: 1"),
        ];
        let long = Duration::from_secs(60);
        let found = differences(&recorded, &now, long);
        let found: Vec<_> =
            found.iter().map(|one| (one.made_now, one.at.as_secs(), one.change[0].as_str())).collect();
        assert_eq!(found, [(false, 1, "+ x: 1"), (true, 10, "+ y: 1")]);
        assert_eq!(differences(&recorded, &recorded, long), []);
        // What comes after the end of the recording may match what was recorded, and can't be missing there.
        assert_eq!(differences(&recorded, &now, Duration::from_secs(9)).len(), 1);
    }

    // T31
    #[test]
    fn a_difference_far_below_counts_and_is_what_is_shown() {
        let effect = |image: &str| {
            let mut data: serde_json::Map<_, _> =
                (0..40).map(|line| (format!("line-{line}"), "x".into())).collect();
            data.insert("the-image".to_owned(), image.into());
            let lines = crate::recording::effect(None, &serde_json::json!({ "data": data }));
            Effect { at: Duration::ZERO, request: "create maps a".to_owned(), lines }
        };
        let found = differences(&[effect("web:1")], &[effect("web:2")], Duration::from_secs(1));
        let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "recorded, and not made now, at 0.000s: create maps a\n    +   the-image: web:1",
                "made now, and not recorded, at 0.000s: create maps a\n    +   the-image: web:2"
            ]
        );
    }

    // T31
    #[test]
    fn what_others_changed_is_not_made_where_this_build_has_not_made_it() {
        let map = |data: &str| {
            serde_json::json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a", "namespace": "shop"}, "data": {"of": data},
            })
        };
        let event = |name: &str, before: Option<&str>| ForeignEvent {
            at: Duration::from_secs(5),
            path: format!("/api/v1/namespaces/shop/configmaps/{name}"),
            before: before.map(map),
            after: Some(map("others")),
        };
        let others = vec![event("a", Some("the operator")), event("b", None)];
        let recording = Recording { others, took: Duration::from_secs(60), ..Recording::default() };
        let idle = crate::Trials::of(|_| std::future::pending::<()>());
        let story = crate::Replay::of(recording, idle).run().story;
        assert!(story.contains("creates configmaps") && !story.contains("changes configmaps"), "{story}");
    }
}
