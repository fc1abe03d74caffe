//! Plays a recording of an incident again, with this build of the operator.

use std::fmt;
use std::time::Duration;

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
    /// What it changed: `-` was there, `+` is there.
    pub change: Vec<String>,
}

impl fmt::Display for ReplayDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.made_now { "made now, and not recorded" } else { "recorded, and not made now" };
        write!(f, "{what}, at {:.3}s: {}", self.at.as_secs_f64(), self.request)?;
        self.change.iter().try_for_each(|line| write!(f, "\n    {line}"))
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
        differences: differences(recorded, &outcome.effects),
        faults: outcome.faults,
        took: *took,
        missing: *missing,
        story,
    }
}

/// Lists the writes that only one of the two made; what they changed counts, and how often, not when.
fn differences(recorded: &[Effect], now: &[Effect]) -> Vec<ReplayDifference> {
    let only = |these: &[Effect], those: &[Effect], made_now: bool| {
        let mut left: Vec<(&str, &[String])> =
            those.iter().map(|one| (one.request.as_str(), one.lines.as_slice())).collect();
        let mut only = Vec::new();
        for Effect { at, request, lines } in these {
            match left.iter().position(|other| *other == (request.as_str(), lines.as_slice())) {
                Some(found) => drop(left.swap_remove(found)),
                None => only.push(ReplayDifference {
                    made_now,
                    at: *at,
                    request: request.clone(),
                    change: lines.clone(),
                }),
            }
        }
        only
    };
    let mut all = only(recorded, now, false);
    all.extend(only(now, recorded, true));
    all.sort_by_key(|difference| difference.at);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let found = differences(&recorded, &now);
        let found: Vec<_> =
            found.iter().map(|one| (one.made_now, one.at.as_secs(), one.change[0].as_str())).collect();
        assert_eq!(found, [(false, 1, "+ x: 1"), (true, 10, "+ y: 1")]);
        assert_eq!(differences(&recorded, &recorded), []);
    }
}
