//! How durations are written in the lines that replay a rule.

use std::time::Duration;

/// Writes a time as code for a test.
pub(super) fn duration(time: Duration) -> String {
    format!("Duration::from_millis({})", time.as_millis())
}
