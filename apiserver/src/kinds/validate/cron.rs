//! Schedules of CronJobs: `*/5 * * * *`, `@daily`, `@every 1h30m`.

/// One field of a schedule.
struct CronField {
    least: u64,
    most: u64,
    /// Names for its numbers, from the least on.
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [CronField; 5] = [
    CronField { least: 0, most: 59, names: &[] },
    CronField { least: 0, most: 23, names: &[] },
    CronField { least: 1, most: 31, names: &[] },
    CronField { least: 1, most: 12, names: &MONTHS },
    CronField { least: 0, most: 6, names: &DAYS },
];

/// Checks a schedule.
///
/// # Errors
/// Describes the error, in the words of the parser that the server uses.
pub(super) fn check(text: &str) -> Result<(), String> {
    // The text before the first blank names a time zone, which is refused elsewhere.
    let zoned = text.starts_with("TZ=") || text.starts_with("CRON_TZ=");
    let text = if zoned { text.split_once(' ').map_or("", |(_, rest)| rest.trim()) } else { text };
    if text.starts_with('@') {
        return named(text);
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    for (text, field) in fields.into_iter().zip(FIELDS) {
        for range in text.split(',').filter(|range| !range.is_empty()) {
            field.check(range)?;
        }
    }
    Ok(())
}

fn named(text: &str) -> Result<(), String> {
    const NAMES: [&str; 7] =
        ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
    if NAMES.contains(&text) {
        return Ok(());
    }
    let Some(lasts) = text.strip_prefix("@every ") else {
        return Err(format!("unrecognized descriptor: {text}"));
    };
    if is_duration(lasts) {
        Ok(())
    } else {
        Err(format!("failed to parse duration {text}: time: invalid duration {lasts:?}"))
    }
}

/// Returns whether a text is a duration as Go writes them, e.g. `1h30m`.
fn is_duration(text: &str) -> bool {
    const UNITS: [&str; 8] = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let next = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(next);
        let dots = number.matches('.').count();
        if number.len() == dots || dots > 1 || !UNITS.contains(&unit) {
            return false;
        }
        rest = after;
    }
    true
}

impl CronField {
    fn check(&self, text: &str) -> Result<(), String> {
        let parts: Vec<&str> = text.split('/').collect();
        let ends: Vec<&str> = parts[0].split('-').collect();
        let (start, mut end) = if matches!(ends[0], "*" | "?") {
            (self.least, self.most)
        } else {
            let start = self.number(ends[0])?;
            match ends.len() {
                1 => (start, start),
                2 => (start, self.number(ends[1])?),
                _ => return Err(format!("too many hyphens: {text}")),
            }
        };
        let step = match parts.as_slice() {
            [_] => 1,
            [_, step] => {
                if ends.len() == 1 {
                    end = self.most;
                }
                number(step)?
            }
            _ => return Err(format!("too many slashes: {text}")),
        };
        if start < self.least {
            return Err(format!("beginning of range ({start}) below minimum ({}): {text}", self.least));
        }
        if end > self.most {
            return Err(format!("end of range ({end}) above maximum ({}): {text}", self.most));
        }
        if start > end {
            return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
        }
        if step == 0 {
            return Err(format!("step of range should be a positive number: {text}"));
        }
        Ok(())
    }

    fn number(&self, text: &str) -> Result<u64, String> {
        let name = text.to_lowercase();
        match (self.least..).zip(self.names).find(|(_, known)| **known == name) {
            Some((number, _)) => Ok(number),
            None => number(text),
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    match digits.strip_prefix('-').map_or_else(|| digits.parse::<i64>(), |_| text.parse::<i64>()) {
        Ok(negative) if negative < 0 => Err(format!("negative number ({negative}) not allowed: {text}")),
        Ok(number) => Ok(number.unsigned_abs()),
        Err(_) => {
            let why = format!("strconv.Atoi: parsing {text:?}: invalid syntax");
            Err(format!("failed to parse int from {text}: {why}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A45
    #[test]
    fn schedules_are_read_as_cron_reads_them() {
        for fine in [
            "* * * * *",
            "*/5 0-23/2 1,15 JAN-dec Mon",
            "0 0 * * ?",
            "@daily",
            "@every 1h30m",
            "@every 1.5s",
            "  1 2 3 4 5 ",
            "59 23 31 12 6",
            "5/15 * * * *",
            ", * * * *",
            "TZ=UTC 0 0 * * *",
        ] {
            assert_eq!(check(fine), Ok(()), "{fine}");
        }
        for (bad, why) in [
            ("nonsense", "expected exactly 5 fields, found 1: [nonsense]"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("* * * * 7", "end of range (7) above maximum (6): 7"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
            ("@often", "unrecognized descriptor: @often"),
            ("@every day", "failed to parse duration @every day: time: invalid duration \"day\""),
        ] {
            assert_eq!(check(bad), Err(why.to_owned()), "{bad}");
        }
    }
}
