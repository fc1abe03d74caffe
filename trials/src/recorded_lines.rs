//! Reads the lines of a recording, and makes those whole that refer to another one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use jiff::Timestamp;
use serde_json::Value;

/// Begins a reference to the last whole event of the watch: three digits say where it begins, and three how long it is.
const REFERENCE: u8 = 1;
/// Begins a reference whose length is two digits. It skips as many bytes as there are since the last reference.
const SAME_PLACE: u8 = 2;
/// The longest line that may have references. A recorder writes shorter ones.
const LONGEST: usize = 1 << 20;

/// A line of the file, with the time since the beginning.
pub(crate) struct RecordedLine {
    pub(crate) at: Duration,
    pub(crate) value: Value,
}

/// Reads the lines of a [recording](crate::Trials::replay), the oldest first, to look at it by hand.
///
/// In the file most events are written as what differs from another one; here each of them is whole. A line that can't be read is
/// one with `"missing":1`; the last line of a process that was killed may be left out. The times `t`, in milliseconds, begin at 0 with
/// each process. [The book][book] says what the lines are. It takes as much memory as the file.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// for line in watchkeeper_trials::read_recording("incidents/march.wkr")? {
///     println!("{}", line?);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The file can't be read. The iterator ends with an error if it is not a recording.
///
/// [book]: https://github.com/watchkeeper/watchkeeper/blob/main/book/src/how-to/recordings.md
pub fn read_recording(file: impl AsRef<Path>) -> io::Result<impl Iterator<Item = io::Result<Value>>> {
    let file = file.as_ref().to_owned();
    let text =
        read(&file).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
    let refused =
        move |error| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", file.display()));
    Ok(RecordedLines::new(text).map(move |line| line.map(|line| line.value).map_err(&refused)))
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

/// The lines of a recording, on one clock: a process that is started again begins at 0.
///
/// After an error nothing follows. An empty recording is an error.
pub(crate) struct RecordedLines<T> {
    text: T,
    /// How much has been read.
    read: usize,
    number: usize,
    is_over: bool,
    whole: WholeLines,
    /// When the first process began.
    first: Option<Timestamp>,
    /// When this process began, in milliseconds since then.
    base: u64,
    /// The time of the last line in this process.
    last: u64,
}

impl<T: AsRef<[u8]>> RecordedLines<T> {
    pub(crate) fn new(text: T) -> Self {
        let (whole, first) = (WholeLines::default(), None);
        Self { text, read: 0, number: 0, is_over: false, whole, first, base: 0, last: 0 }
    }

    /// Reads a line; `None`: it is left out.
    fn parse(&mut self, line: &[u8], is_last: bool) -> Option<Result<RecordedLine, String>> {
        let parsed = match self.whole.of(line) {
            Some(line) => {
                serde_json::from_str(&String::from_utf8_lossy(&line)).map_err(|error| error.to_string())
            }
            None => Err("it refers to what is not there".to_owned()),
        };
        let is_first = self.number == 1;
        let value = match parsed {
            Ok(value @ Value::Object(_)) if value["t"].is_u64() => value,
            // What the process was about to write when it was killed.
            _ if is_last && !is_first => return None,
            Ok(_) => return Some(Err(format!("line {} has no time `t`", self.number))),
            Err(error) if is_first => return Some(Err(format!("line 1: {error}"))),
            // An event was not JSON.
            Err(_) => serde_json::json!({ "t": self.last, "missing": 1 }),
        };
        if value["part"].is_u64() {
            self.whole = WholeLines::default();
        }
        if let Some(began) = value["began"].as_str().and_then(|began| began.parse::<Timestamp>().ok()) {
            let since = *self.first.get_or_insert(began);
            self.base = u64::try_from(began.as_millisecond() - since.as_millisecond()).unwrap_or_default();
        }
        self.last = value["t"].as_u64().unwrap_or_default();
        let at = Duration::from_millis(self.base.saturating_add(self.last));
        Some(Ok(RecordedLine { at, value }))
    }
}

impl<T: AsRef<[u8]>> Iterator for RecordedLines<T> {
    type Item = Result<RecordedLine, String>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            let rest = &self.text.as_ref()[self.read..];
            let end = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
            let (line, is_last) = (rest[..end].to_vec(), end == rest.len());
            self.read += end;
            self.is_over = is_last;
            if line.is_empty() {
                return (self.number == 0).then(|| Err("it is empty".to_owned()));
            }
            self.number += 1;
            if let Some(line) = self.parse(&line, is_last) {
                self.is_over |= line.is_err();
                return Some(line);
            }
        }
        None
    }
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

/// Puts what is referred to in the place of references; `None`: something is not there, or it gets too long.
fn expanded(json: &[u8], whole: &[u8]) -> Option<Vec<u8>> {
    let (mut text, mut rest, mut place) = (Vec::new(), json, 0);
    while let Some(end) = rest.iter().position(|byte| [REFERENCE, SAME_PLACE].contains(byte)) {
        text.extend_from_slice(&rest[..end]);
        let is_same_place = rest[end] == SAME_PLACE;
        rest = &rest[end + 1..];
        let (from, length) = match is_same_place {
            true => (place + end, number::<2>(&mut rest)?),
            false => (number::<3>(&mut rest)?, number::<3>(&mut rest)?),
        };
        place = from + length;
        text.extend_from_slice(whole.get(from..place)?);
        if text.len() > LONGEST {
            return None;
        }
    }
    text.extend_from_slice(rest);
    Some(text)
}

/// Takes a number of as many digits from the beginning.
fn number<const DIGITS: usize>(rest: &mut &[u8]) -> Option<usize> {
    let (digits, behind) = rest.split_first_chunk::<DIGITS>()?;
    *rest = behind;
    digits.iter().try_fold(0, |sum, digit| {
        let digit = digit.checked_sub(b'@').filter(|digit| *digit < 64)?;
        Some(sum * 64 + usize::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(lines: &[&str]) -> Vec<Value> {
        read_all(lines.join("\n").as_bytes()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn read_all(text: &[u8]) -> Result<Vec<Value>, String> {
        RecordedLines::new(text).map(|line| Ok(line?.value)).collect()
    }

    /// Refers to a part of what is whole.
    fn reference(from: u32, length: u32) -> String {
        let digits = |number: u32| {
            [number / 4_096, number / 64 % 64, number % 64].map(|digit| char::from(b'@' + digit as u8))
        };
        ['\u{1}'].into_iter().chain(digits(from)).chain(digits(length)).collect()
    }

    // T32
    #[test]
    fn what_is_behind_the_end_of_a_part_is_not_read() {
        let file = std::env::temp_dir().join(format!("watchkeeper-part-{}.wkr", std::process::id()));
        let line = r#"{"t":0,"watchkeeper":"0.1.0","began":"2026-01-01T00:00:00Z"}"#;
        let runs = || {
            let lines = read_recording(&file).unwrap();
            lines.filter(|line| line.as_ref().is_ok_and(|line| line["run"].is_object())).count()
        };
        fs::write(&file, [line.as_bytes(), b"\n\0\xff\"}\n{\"t\":9,\"run\":{}}\n"].concat()).unwrap();
        let old = format!("{}.old", file.display());
        fs::write(&old, [line, "\n{\"t\":1,\"run\":{}}\n\0{\"t\":2,\"ru"].concat()).unwrap();
        assert_eq!(runs(), 1);
        fs::remove_file(old).unwrap();
        assert_eq!(runs(), 0);
        fs::remove_file(&file).unwrap();
        let error = read_recording(&file).err().unwrap().to_string();
        assert!(error.contains("watchkeeper-part-"), "{error}");
    }

    // T32
    #[test]
    fn references_go_far_back_and_may_split_a_character() {
        let numbers: String = (0..3_000).map(|number| format!("{number},")).collect();
        let whole = format!(r#"{{"ä":[{numbers}0]}}"#);
        // `ö` has the first byte of `ä`, and another second one.
        let [first, last] = [reference(0, 3), reference(9_000, whole.len() as u32 - 9_000)];
        let head = r#"{"t":0,"watchkeeper":"0.1.0","part":1}"#;
        let line = format!(
            "{head}\n{{\"t\":1,\"event\":7,\"line\":{whole}}}\n{{\"t\":1,\"event\":7,\"like\":{first}"
        );
        let text = [line.as_bytes(), b"\xb6\":[", last.as_bytes(), b"}\n"].concat();
        let values = read_all(&text).unwrap();
        let numbers = values[2]["line"]["ö"].as_array().unwrap();
        assert_eq!((numbers.len() > 500, numbers.last()), (true, Some(&0.into())));
    }

    // T32
    #[test]
    fn neither_many_references_nor_a_late_time_are_too_much() {
        let head = r#"{"t":0,"watchkeeper":"0.1.0","began":"2026-01-01T00:00:00Z","part":1}"#;
        let whole = format!(r#"{{"t":1,"event":7,"line":"{}"}}"#, "x".repeat(200_000));
        let like = format!(r#"{{"t":1,"event":7,"like":{}}}"#, reference(0, 200_000).repeat(100_000));
        let late =
            r#"{"t":18446744073709551615,"watchkeeper":"0.1.0","began":"2026-01-02T00:00:00Z","part":1}"#;
        let values = values(&[head, &whole, &like, late, "rubbish", r#"{"t":2}"#]);
        assert_eq!((&values[2]["missing"], &values[4]["missing"]), (&1.into(), &1.into()));
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
            // What differs has as many bytes in both.
            &format!("{{\"t\":6,\"event\":7,\"like\":{}f\u{2}@Hh\u{2}@B}}", reference(0, 2)),
            "{\"t\":7,\"event\":7,\"like\":\u{2}@Bf\u{2}@Hh\u{2}@B}",
        ];
        let values = values(&lines);
        let of = |at: usize| values[at].to_string();
        assert_eq!(of(4), r#"{"event":7,"line":{"seven":"d"},"t":3}"#);
        assert_eq!(of(5), r#"{"event":8,"line":{"eight":"e"},"t":3}"#);
        assert_eq!(of(6), r#"{"object":{"other":"f"},"path":"/api/v1/b","t":3}"#);
        assert_eq!(of(8), r#"{"event":7,"line":{"eleven":"g"},"t":5}"#);
        assert_eq!(of(9), r#"{"event":7,"line":{"fleven":"h"},"t":6}"#);
        assert_eq!(of(10), r#"{"event":7,"line":{"fleven":"h"},"t":7}"#);
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
