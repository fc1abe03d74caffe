//! Reads a server's Status; a member that can't be read does not take the rest with it.

use kube::core::{
    Status,
    response::{StatusCause, StatusDetails, StatusSummary},
};
use serde_json::Value;

use super::json;

/// Longest text of an answer that is repeated if the answer is not a Status.
const REPEATED: usize = 200;

/// Reads a text that says that it is a Status.
pub(super) fn status_of(text: &str) -> Option<Status> {
    let members: Value = json::object(text).ok()?;
    (members["kind"] == "Status").then(|| made_of(&members))
}

/// Reads the object of an ERROR event, which is to be a Status.
pub(super) fn status_of_error(text: &str) -> Status {
    let members: Value = json::object(text).unwrap_or_default();
    match members["kind"] == "Status" || members["code"].is_u64() {
        true => made_of(&members),
        false => {
            Status::failure("the server sent an error without saying which", "InternalError").with_code(500)
        }
    }
}

fn made_of(members: &Value) -> Status {
    let (details, text) = (&members["details"], |name| text_of(members, name));
    let detail = |name| text_of(details, name);
    Status {
        status: match members["status"].as_str() {
            Some("Success") => Some(StatusSummary::Success),
            Some("Failure") => Some(StatusSummary::Failure),
            _ => None,
        },
        code: number_of(members, "code"),
        message: text("message"),
        metadata: None,
        reason: text("reason"),
        details: details.is_object().then(|| StatusDetails {
            name: detail("name"),
            group: detail("group"),
            kind: detail("kind"),
            uid: detail("uid"),
            causes: details["causes"].as_array().into_iter().flatten().map(cause).collect(),
            retry_after_seconds: number_of(details, "retryAfterSeconds"),
        }),
    }
}

fn cause(of: &Value) -> StatusCause {
    let [reason, message, field] = ["reason", "message", "field"].map(|name| text_of(of, name));
    StatusCause { reason, message, field }
}

fn text_of(members: &Value, name: &str) -> String {
    members[name].as_str().unwrap_or_default().to_owned()
}

fn number_of<N: TryFrom<u64> + Default>(members: &Value, name: &str) -> N {
    members[name].as_u64().and_then(|number| number.try_into().ok()).unwrap_or_default()
}

/// Makes a Status of an HTTP answer that failed, whatever its body is.
pub(crate) fn status_of_answer(code: http::StatusCode, body: &[u8]) -> Status {
    let text = std::str::from_utf8(body).ok();
    if let Some(status) = text.and_then(status_of) {
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
        status_of(text).unwrap()
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
