//! Reads a server's Status; a member that can't be read does not take the rest with it.

use kube::core::{
    Status,
    response::{StatusCause, StatusDetails, StatusSummary},
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::json::{self, decoded, lenient};

/// Longest text of an answer that is repeated if the answer is not a Status.
const REPEATED: usize = 200;

/// The members of a Status that can be read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StatusParts {
    #[serde(deserialize_with = "lenient")]
    kind: Option<String>,
    #[serde(deserialize_with = "lenient")]
    status: Option<String>,
    #[serde(deserialize_with = "lenient")]
    code: Option<u16>,
    #[serde(deserialize_with = "lenient")]
    message: Option<String>,
    #[serde(deserialize_with = "lenient")]
    reason: Option<String>,
    #[serde(deserialize_with = "lenient")]
    details: Option<DetailsParts>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DetailsParts {
    #[serde(deserialize_with = "lenient")]
    name: Option<String>,
    #[serde(deserialize_with = "lenient")]
    group: Option<String>,
    #[serde(deserialize_with = "lenient")]
    kind: Option<String>,
    #[serde(deserialize_with = "lenient")]
    uid: Option<String>,
    #[serde(deserialize_with = "lenient")]
    causes: Option<Vec<Box<RawValue>>>,
    #[serde(deserialize_with = "lenient")]
    retry_after_seconds: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CauseParts {
    #[serde(deserialize_with = "lenient")]
    reason: Option<String>,
    #[serde(deserialize_with = "lenient")]
    message: Option<String>,
    #[serde(deserialize_with = "lenient")]
    field: Option<String>,
}

impl StatusParts {
    /// Reads an object; `None` if the text is not one.
    pub(super) fn of(text: &str) -> Option<Self> {
        json::object(text).ok()
    }

    /// Returns whether it says that it is a Status.
    pub(super) fn is_status(&self) -> bool {
        self.kind.as_deref() == Some("Status")
    }

    /// Returns whether it has a code.
    pub(super) fn has_code(&self) -> bool {
        self.code.is_some()
    }

    pub(super) fn into_status(self) -> Status {
        Status {
            status: match self.status.as_deref() {
                Some("Success") => Some(StatusSummary::Success),
                Some("Failure") => Some(StatusSummary::Failure),
                _ => None,
            },
            code: self.code.unwrap_or_default(),
            message: self.message.unwrap_or_default(),
            metadata: None,
            reason: self.reason.unwrap_or_default(),
            details: self.details.map(DetailsParts::into_details),
        }
    }
}

impl DetailsParts {
    fn into_details(self) -> StatusDetails {
        let causes = self.causes.unwrap_or_default();
        let cause = |raw: Box<RawValue>| {
            let CauseParts { reason, message, field } = decoded(Some(&raw)).unwrap_or_default();
            StatusCause {
                reason: reason.unwrap_or_default(),
                message: message.unwrap_or_default(),
                field: field.unwrap_or_default(),
            }
        };
        StatusDetails {
            name: self.name.unwrap_or_default(),
            group: self.group.unwrap_or_default(),
            kind: self.kind.unwrap_or_default(),
            uid: self.uid.unwrap_or_default(),
            causes: causes.into_iter().map(cause).collect(),
            retry_after_seconds: self.retry_after_seconds.unwrap_or_default(),
        }
    }
}

/// Makes a Status of an HTTP answer that failed, whatever its body is.
pub(super) fn status_of_answer(code: http::StatusCode, body: &[u8]) -> Status {
    let text = std::str::from_utf8(body).ok();
    if let Some(status) = text.and_then(StatusParts::of).filter(StatusParts::is_status) {
        let status = status.into_status();
        return Status { code: if status.code == 0 { code.as_u16() } else { status.code }, ..status };
    }
    let said = text.and_then(|text| text.trim().lines().next());
    let said = said.filter(|line| !line.starts_with(['<', '{']) && !line.is_empty());
    let message = match said {
        Some(line) => line.chars().take(REPEATED).collect(),
        None => code.canonical_reason().unwrap_or("no reason given").to_owned(),
    };
    Status::failure(&message, "").with_code(code.as_u16())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> Status {
        StatusParts::of(text).unwrap().into_status()
    }

    #[test]
    fn a_status_with_nulls_keeps_the_rest() {
        let status = status(
            r#"{"kind":"Status","status":"Failure","code":504,"reason":"Timeout","message":"m",
                 "details":{"name":null,"causes":[{"reason":"ResourceVersionTooLarge","message":null}],
                 "retryAfterSeconds":1}}"#,
        );
        let details = status.details.as_ref().unwrap();
        assert_eq!((status.code, status.reason.as_str(), details.retry_after_seconds), (504, "Timeout", 1));
        assert_eq!(details.causes[0].reason, "ResourceVersionTooLarge");
    }

    #[test]
    fn an_answer_that_is_not_a_status_becomes_one() {
        let made = |code, body: &str| {
            let status = status_of_answer(http::StatusCode::from_u16(code).unwrap(), body.as_bytes());
            (status.code, status.message)
        };
        assert_eq!(made(429, "Too many requests\nmore"), (429, "Too many requests".to_owned()));
        assert_eq!(made(502, "<html>x</html>"), (502, "Bad Gateway".to_owned()));
        assert_eq!(made(404, ""), (404, "Not Found".to_owned()));
        assert_eq!(made(500, r#"{"kind":"Secret","data":1}"#), (500, "Internal Server Error".to_owned()));
    }
}
