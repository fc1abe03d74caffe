//! Schedules as in a crontab: what is wrong with one, and when it is due.

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use k8s_openapi::jiff::{Timestamp, Zoned, tz::TimeZone};

/// The parts of a schedule: their names in v2, and what they may be.
const PARTS: [(&str, &str); 5] = [
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("dayOfMonth", "1-31"),
    ("month", "1-12 or JAN-DEC"),
    ("dayOfWeek", "0-7 or SUN-SAT"),
];

/// A schedule that is due at some time.
#[derive(Debug)]
pub(crate) struct Schedule(Cron);

/// What is wrong with a schedule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    /// The part that is wrong; `None` if it is the whole.
    pub(crate) part: Option<&'static str>,
    /// The text of the part.
    pub(crate) text: String,
    pub(crate) why: String,
}

impl Schedule {
    /// Reads five fields, or a word such as `@hourly`.
    ///
    /// # Errors
    /// All mistakes.
    pub(crate) fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        let whole = |why: &str| vec![Mistake { part: None, text: text.to_owned(), why: why.to_owned() }];
        let parts: Vec<_> = text.split_whitespace().collect();
        if let [word] = *parts
            && word.starts_with('@')
        {
            let why = "must be @yearly, @monthly, @weekly, @daily or @hourly, or have five fields";
            return read(word).map(Self).map_err(|_| whole(why));
        }
        if parts.len() != PARTS.len() {
            let why = format!("has {} fields; it needs five: minute, hour, day, month, weekday", parts.len());
            return Err(whole(&why));
        }
        let mistakes: Vec<_> = (0..PARTS.len()).filter_map(|at| mistake_in(at, parts[at])).collect();
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let schedule = Self(read(text).map_err(|why| whole(&why))?);
        schedule.next_after(Timestamp::UNIX_EPOCH).ok_or_else(|| whole("is never due")).map(|_| schedule)
    }

    /// Returns the last time that it was due, which may be now.
    pub(crate) fn last_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.0.find_previous_occurrence(&utc(now), true).ok().map(|due| due.timestamp())
    }

    /// Returns the next time that it is due.
    pub(crate) fn next_after(&self, now: Timestamp) -> Option<Timestamp> {
        self.0.find_next_occurrence(&utc(now), false).ok().map(|due| due.timestamp())
    }
}

fn utc(time: Timestamp) -> Zoned {
    time.to_zoned(TimeZone::UTC)
}

fn read(text: &str) -> Result<Cron, String> {
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(text).map_err(|error| error.to_string())
}

/// Reads one part, with `*` for all others.
fn mistake_in(at: usize, text: &str) -> Option<Mistake> {
    let (part, allowed) = PARTS[at];
    let mut parts = ["*"; PARTS.len()];
    parts[at] = text;
    let has_names = allowed.contains(char::is_alphabetic);
    let is_text = text.contains(char::is_alphabetic) && !has_names;
    let is_wrong = is_text || read(&parts.join(" ")).is_err();
    let why = format!("must be {allowed}, or a list, a range or steps of these");
    is_wrong.then(|| Mistake { part: Some(part), text: text.to_owned(), why })
}
