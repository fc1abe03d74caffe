//! Reads how long a server asks to be left alone.

use std::time::Duration;

use http::{HeaderMap, HeaderName, header};
use jiff::{Timestamp, fmt::rfc2822};

use crate::clock::WallClock;

/// Returns what `Retry-After` asks for: seconds, or the time until a date, which is over at once if it has passed.
///
/// A date counts from the answer's own `Date`, so that clocks may differ, or else from this machine's clock. Only the form
/// of a date that senders must use is read (`Sun, 06 Nov 1994 08:49:37 GMT`).
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let asked = text(headers, &header::RETRY_AFTER)?;
    if !asked.is_empty() && asked.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(asked.parse().unwrap_or(u64::MAX)));
    }
    let until = date(asked)?;
    let said = text(headers, &header::DATE).and_then(date);
    let from = match said {
        Some(said) => said,
        None => Timestamp::try_from(WallClock::system().now()).ok()?,
    };
    Some(until.duration_since(from).try_into().unwrap_or_default())
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    Some(headers.get(name)?.to_str().ok()?.trim())
}

fn date(text: &str) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn asked(retry_after: &str, date: Option<&str>) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, HeaderValue::from_str(retry_after).unwrap());
        if let Some(date) = date {
            headers.insert(header::DATE, HeaderValue::from_str(date).unwrap());
        }
        super::retry_after(&headers).map(|asked| asked.as_secs())
    }

    // R60
    #[test]
    fn a_wait_is_asked_for_in_seconds_or_by_a_date_that_counts_from_the_answers_own() {
        let (said, until) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:51:07 GMT");
        for (retry_after, date, seconds) in [
            ("17", None, Some(17)),
            (" 17 ", Some(said), Some(17)),
            ("99999999999999999999", None, Some(u64::MAX)),
            (until, Some(said), Some(90)),
            (said, Some(until), Some(0)),
            (until, None, Some(0)),
            ("-1", None, None),
            ("+1", None, None),
            ("", None, None),
            ("soon", Some(said), None),
        ] {
            assert_eq!(asked(retry_after, date), seconds, "{retry_after} at {date:?}");
        }
    }

    // R60
    #[tokio::test(start_paused = true)]
    async fn a_date_counts_from_this_machines_clock_where_the_answer_has_none() {
        let hour = WallClock::system().now() + Duration::from_secs(3_600);
        let until = rfc2822::DateTimePrinter::new()
            .timestamp_to_rfc9110_string(&Timestamp::try_from(hour).unwrap())
            .unwrap();
        let asked = asked(&until, None).unwrap();
        assert!((3_590..=3_600).contains(&asked), "{asked}");
    }
}
