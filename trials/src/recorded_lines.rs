//! Reads the lines of a recording, and makes those whole that refer to another one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use jiff::Timestamp;
use serde_json::Value;

/// Begins a reference: three digits say where it begins in the last whole event of the watch, and three how long it is.
const REFERENCE: u8 = 1;

/// A line of the file, with the time since the beginning.
pub(crate) struct RecordedLine {
    pub(crate) at: Duration,
    pub(crate) value: Value,
}

/// Reads the lines of a [recording](crate::Trials::replay), the oldest first, to look at it by hand.
///
/// In the file most events are written as what differs from another one; here each of them is whole. A line that can't be read is
/// `{"missing":1}`. The times `t`, in milliseconds, begin at 0 with each process. [The book][book] says what the lines are.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// for line in watchkeeper_trials::read_recording("incidents/march.wkr")? {
///     println!("{line}");
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The file can't be read, or is not a recording.
///
/// [book]: https://github.com/watchkeeper/watchkeeper/blob/main/book/src/how-to/recordings.md
pub fn read_recording(file: impl AsRef<Path>) -> io::Result<Vec<Value>> {
    let file = file.as_ref();
    let refused = |error| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", file.display()));
    let lines = parse(&read(file)?).map_err(refused)?;
    Ok(lines.into_iter().map(|line| line.value).collect())
}

/// Reads all parts of a recording, the oldest first.
///
/// # Errors
///
/// The newest part can't be read.
pub(crate) fn read(file: &Path) -> io::Result<Vec<u8>> {
    let older = [".oldest", ".old"].map(|suffix| format!("{}{suffix}", file.display()));
    let older = older.map(|file| part(Path::new(&file)).unwrap_or_default()).concat();
    Ok([older, part(file)?].concat())
}

/// Reads a part of a recording: as far as its first NUL byte, where there is one, as a process leaves it that was killed.
fn part(file: &Path) -> io::Result<Vec<u8>> {
    let mut text = fs::read(file)?;
    text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
    Ok(text)
}

/// Reads lines, on one clock: a process that is started again begins at 0.
///
/// # Errors
///
/// It is not a recording.
pub(crate) fn parse(text: &[u8]) -> Result<Vec<RecordedLine>, String> {
    let mut lines: Vec<RecordedLine> = Vec::new();
    let (mut first, mut base): (Option<Timestamp>, u64) = (None, 0);
    let mut whole = WholeLines::default();
    let texts: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').collect();
    for (number, line) in texts.iter().enumerate() {
        let parsed = match whole.of(line) {
            Some(line) => {
                serde_json::from_str(&String::from_utf8_lossy(&line)).map_err(|error| error.to_string())
            }
            None => Err("it refers to what is not there".to_owned()),
        };
        let value = match parsed {
            Ok(value @ Value::Object(_)) if value["t"].is_u64() => value,
            // What the process was about to write when it was killed.
            _ if number > 0 && number + 1 == texts.len() => continue,
            Ok(_) => return Err(format!("line {} has no time `t`", number + 1)),
            Err(error) if number == 0 => return Err(format!("line 1: {error}")),
            // An event was no JSON.
            Err(_) => {
                serde_json::json!({"t": lines.last().map_or(0, |line| millis(line.at) - base), "missing": 1})
            }
        };
        if value["part"].is_u64() {
            whole = WholeLines::default();
        }
        if let Some(began) = value["began"].as_str().and_then(|began| began.parse::<Timestamp>().ok()) {
            let since = *first.get_or_insert(began);
            base = u64::try_from(began.as_millisecond() - since.as_millisecond()).unwrap_or_default();
        }
        let at = Duration::from_millis(base + value["t"].as_u64().unwrap_or_default());
        lines.push(RecordedLine { at, value });
    }
    if lines.is_empty() { Err("it is empty".to_owned()) } else { Ok(lines) }
}

fn millis(at: Duration) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(u64::MAX)
}

/// The last whole event of each watch, by its number, and the last whole object.
#[derive(Default)]
struct WholeLines(HashMap<Option<u64>, Vec<u8>>);

impl WholeLines {
    /// Returns a line without references; `None`: what it refers to is not there.
    fn of<'l>(&mut self, line: &'l [u8]) -> Option<Cow<'l, [u8]>> {
        let Some((watch, head, body)) = split(line) else { return Some(Cow::Borrowed(line)) };
        let (name, json) = body.split_at(body.iter().position(|byte| *byte == b':')? + 1);
        let json = json.trim_ascii_end().strip_suffix(b"}")?;
        if name != b"\"like\":" {
            self.0.insert(watch, json.to_vec());
            return Some(Cow::Borrowed(line));
        }
        let name: &[u8] = if watch.is_some() { b"\"line\":" } else { b"\"object\":" };
        let json = expanded(json, self.0.get(&watch)?)?;
        Some(Cow::Owned([head, name, &json, b"}"].concat()))
    }
}

/// Splits the line of an event behind the number of its watch, and that of an object behind its path.
fn split(line: &[u8]) -> Option<(Option<u64>, &[u8], &[u8])> {
    let rest = line.strip_prefix(b"{\"t\":")?;
    let rest = &rest[rest.iter().position(|byte| *byte == b',')?..];
    let (watch, rest) = match rest.strip_prefix(b",\"event\":") {
        Some(rest) => {
            let (number, rest) = rest.split_at(rest.iter().position(|byte| *byte == b',')?);
            (Some(std::str::from_utf8(number).ok()?.parse().ok()?), &rest[1..])
        }
        None => {
            let rest = rest.strip_prefix(b",\"path\":\"")?;
            (None, &rest[rest.windows(2).position(|bytes| bytes == b"\",")? + 2..])
        }
    };
    let (head, body) = line.split_at(line.len() - rest.len());
    Some((watch, head, body))
}

/// Puts what is referred to in the place of references.
fn expanded(json: &[u8], whole: &[u8]) -> Option<Vec<u8>> {
    let mut pieces = json.split(|byte| *byte == REFERENCE);
    let mut text = pieces.next()?.to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(6)?;
        let number = |digits: &[u8]| {
            digits.iter().try_fold(0, |sum, digit| Some(sum * 64 + usize::from(digit.checked_sub(b'@')?)))
        };
        let (from, length) = (number(&digits[..3])?, number(&digits[3..])?);
        text.extend_from_slice(whole.get(from..from + length)?);
        text.extend_from_slice(rest);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(lines: &[&str]) -> Vec<Value> {
        let lines = parse(lines.join("\n").as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        lines.into_iter().map(|line| line.value).collect()
    }

    /// Refers to a part of what is whole.
    fn reference(from: u8, length: u8) -> String {
        let digits = |number: u8| ['@', char::from(b'@' + number / 64), char::from(b'@' + number % 64)];
        ['\u{1}'].into_iter().chain(digits(from)).chain(digits(length)).collect()
    }

    // T32
    #[test]
    fn what_is_behind_the_end_of_a_part_is_not_read() {
        let file = std::env::temp_dir().join(format!("watchkeeper-part-{}.wkr", std::process::id()));
        let line = r#"{"t":0,"watchkeeper":"0.1.0","began":"2026-01-01T00:00:00Z"}"#;
        let runs = || {
            let lines = parse(&read(&file).unwrap()).unwrap();
            lines.iter().filter(|line| line.value["run"].is_object()).count()
        };
        fs::write(&file, [line.as_bytes(), b"\n\0\xff\"}\n{\"t\":9,\"run\":{}}\n"].concat()).unwrap();
        let old = format!("{}.old", file.display());
        fs::write(&old, [line, "\n{\"t\":1,\"run\":{}}\n\0{\"t\":2,\"ru"].concat()).unwrap();
        assert_eq!(runs(), 1);
        fs::remove_file(old).unwrap();
        assert_eq!(runs(), 0);
        fs::remove_file(&file).unwrap();
        assert!(read(&file).is_err());
    }

    // T32
    #[test]
    fn an_event_refers_to_the_last_whole_one_of_its_watch_and_an_object_to_the_last_whole_object() {
        let like = |text: &str| text.replace("R", &reference(0, 9));
        let lines = [
            r#"{"t":0,"watchkeeper":"0.1.0","part":1}"#,
            r#"{"t":1,"event":7,"line":{"seven":"a, event"}}"#,
            r#"{"t":1,"event":8,"line":{"eight":"b"}}"#,
            r#"{"t":2,"path":"/api/v1/a,b","object":{"other":"c"}}"#,
            &like(r#"{"t":3,"event":7,"like":R"d"}}"#),
            &like(r#"{"t":3,"event":8,"like":R"e"}}"#),
            &like(r#"{"t":3,"path":"/api/v1/b","like":R"f"}}"#),
            r#"{"t":4,"event":7,"line":{"eleven":"g"}}"#,
            &format!(r#"{{"t":5,"event":7,"like":{}{}}}"#, reference(0, 8), reference(8, 6)),
        ];
        let values = values(&lines);
        let of = |at: usize| values[at].to_string();
        assert_eq!(of(4), r#"{"event":7,"line":{"seven":"d"},"t":3}"#);
        assert_eq!(of(5), r#"{"event":8,"line":{"eight":"e"},"t":3}"#);
        assert_eq!(of(6), r#"{"object":{"other":"f"},"path":"/api/v1/b","t":3}"#);
        assert_eq!(of(8), r#"{"event":7,"line":{"eleven":"g"},"t":5}"#);
    }

    // T32
    #[test]
    fn a_line_that_refers_to_what_is_not_there_is_missing() {
        let whole = r#"{"t":1,"event":7,"line":{"seven":"a"}}"#;
        let like = |what: &str| format!(r#"{{"t":2,"event":7,"like":{what}}}"#);
        let (far, good) = (reference(20, 9), reference(0, 13));
        let lines = [
            r#"{"t":0,"watchkeeper":"0.1.0","part":1}"#,
            &like(&good),
            whole,
            &like(&far),
            &like(&good[..5]),
            &like(&good.replace('@', " ")),
            &like(&good),
            r#"{"t":0,"watchkeeper":"0.1.0","part":2}"#,
            // It was in another part.
            &like(&good),
            r#"{"t":9,"missing":0}"#,
        ];
        let missing: Vec<_> = values(&lines).iter().map(|value| value["missing"].as_u64()).collect();
        assert_eq!(missing.iter().filter(|missing| **missing == Some(1)).count(), 5, "{missing:?}");
        assert_eq!(missing[6], None);
    }
}
