//! What trials came to.

use std::fmt;
use std::time::Duration;

use crate::oracle::Violation;
use crate::replay::replay_line;

/// What was tried, and what failed.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The requests that the baseline run sends.
    pub requests: usize,
    /// The trials with one trouble.
    pub singles: usize,
    /// The trials with two.
    pub pairs: usize,
    /// How many of these had nothing to act on, such as an object that was not there.
    pub inert: usize,
    /// The trials that were left out for lack of time.
    pub left_out: usize,
    /// The first of these; all that come after it, and all pairs, were left out as well.
    pub left_out_from: Option<String>,
    /// The line that goes on from there.
    pub go_on: Option<String>,
    /// Which of all trials these were, where only some were asked for: `part 2/5`.
    pub share: Option<String>,
    /// How long it took.
    pub elapsed: Duration,
    /// What failed: the first trial, in the order of requests.
    pub failures: Vec<Failure>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, singles, pairs, inert, left_out, left_out_from, elapsed, failures, .. } = self;
        let share = self.share.as_ref().map_or(String::new(), |share| format!(" ({share})"));
        write!(
            f,
            "trials{share}: {singles} single, {pairs} pairs over {requests} requests ({inert} with nothing to act on), \
             {:.1} s, {} failed",
            elapsed.as_secs_f64(),
            failures.len()
        )?;
        if *left_out > 0 {
            let from = left_out_from.as_deref().unwrap_or("the first");
            write!(f, "; {left_out} left out for lack of time, from `{from}` on")?;
        }
        if let Some(line) = &self.go_on {
            write!(f, "\nto go on there: {line}")?;
        }
        Ok(())
    }
}

/// A trial that failed, after it was made as short as it goes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// Names the trial, for a replay; empty for a run without trouble.
    pub trial: String,
    /// The test that tried, if its thread has its name.
    pub test: Option<String>,
    /// What is wrong.
    pub faults: Vec<Violation>,
    /// How many trials it took to find.
    pub tried: usize,
    /// What happened, in numbered steps.
    pub story: String,
    /// How many steps the story has; what repeats itself counts once.
    pub steps: usize,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.trial.as_str() {
            "" => writeln!(f, "the operator fails without any trouble")?,
            trial => writeln!(f, "a trial fails: {trial}")?,
        }
        for fault in &self.faults {
            writeln!(f, "\n{fault}")?;
        }
        writeln!(f, "\nwhat happened (- was there, + is there):\n{}", self.story)?;
        if !self.trial.is_empty() {
            writeln!(f, "{}", replay_line(&self.trial, self.test.as_deref()))?;
        }
        Ok(())
    }
}
