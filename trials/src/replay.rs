//! The lines for a shell that play trials again, or go on with them.

/// The variable that names one trial to replay, as a failure prints it.
pub const REPLAY: &str = "WATCHKEEPER_TRIAL";
/// The variable that says which trials are tried: `part 2/5`, `from TRIAL`, or both.
pub const SHARE: &str = "WATCHKEEPER_TRIALS";

/// Says how a trial is played again.
pub(crate) fn replay_line(trial: &str, test: Option<&str>) -> String {
    format!("to see it again: {}", line(REPLAY, trial, test))
}

/// A line for a shell.
pub(crate) fn line(variable: &str, value: &str, test: Option<&str>) -> String {
    format!("{variable}='{value}' cargo test {} -- --nocapture", test.unwrap_or("…"))
}
