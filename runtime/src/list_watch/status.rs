//! Reads a server's Status, however little of it is in order.

use kube::core::{
    Status,
    response::{StatusCause, StatusDetails, StatusSummary},
};

use super::json;

/// Longest text of an answer that is no Status which is worth repeating.
const REPEATED: usize = 200;

/// Reads a Status object member by member: one that is null or of another type doesn't take the rest with it.
pub(super) fn read_status(object: &[u8]) -> Status {
    let code = json::member(object, "code").and_then(|code| serde_json::from_slice(code).ok());
    Status {
        status: match json::text_member(object, "status").as_deref() {
            Some("Success") => Some(StatusSummary::Success),
            Some("Failure") => Some(StatusSummary::Failure),
            _ => None,
        },
        code: code.unwrap_or_default(),
        message: json::text_member(object, "message").unwrap_or_default(),
        metadata: None,
        reason: json::text_member(object, "reason").unwrap_or_default(),
        details: json::member(object, "details").map(read_details),
    }
}

fn read_details(details: &[u8]) -> StatusDetails {
    let text = |name| json::text_member(details, name).unwrap_or_default();
    let causes = json::member(details, "causes");
    let causes: Vec<&serde_json::value::RawValue> =
        causes.and_then(|causes| serde_json::from_slice(causes).ok()).unwrap_or_default();
    let retry = json::member(details, "retryAfterSeconds");
    StatusDetails {
        name: text("name"),
        group: text("group"),
        kind: text("kind"),
        uid: text("uid"),
        causes: causes.into_iter().map(|cause| read_cause(cause.get().as_bytes())).collect(),
        retry_after_seconds: retry.and_then(|retry| serde_json::from_slice(retry).ok()).unwrap_or_default(),
    }
}

fn read_cause(cause: &[u8]) -> StatusCause {
    let text = |name| json::text_member(cause, name).unwrap_or_default();
    StatusCause { reason: text("reason"), message: text("message"), field: text("field") }
}

/// Tells whether an object says that it is a Status.
pub(super) fn is_status(object: &[u8]) -> bool {
    json::text_member(object, "kind").as_deref() == Some("Status")
}

/// Makes a Status of an HTTP answer that failed, whatever its body is.
pub(super) fn status_of_answer(code: http::StatusCode, body: &[u8]) -> Status {
    if is_status(body) {
        let status = read_status(body);
        return Status { code: if status.code == 0 { code.as_u16() } else { status.code }, ..status };
    }
    let said = std::str::from_utf8(body).ok().and_then(|text| text.trim().lines().next());
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

    #[test]
    fn a_status_with_nulls_keeps_the_rest() {
        let status = read_status(
            br#"{"kind":"Status","status":"Failure","code":504,"reason":"Timeout","message":"m",
                 "details":{"name":null,"causes":[{"reason":"ResourceVersionTooLarge","message":null}],
                 "retryAfterSeconds":1}}"#,
        );
        let details = status.details.as_ref().unwrap();
        assert_eq!((status.code, status.reason.as_str(), details.retry_after_seconds), (504, "Timeout", 1));
        assert_eq!(details.causes[0].reason, "ResourceVersionTooLarge");
    }

    #[test]
    fn an_answer_that_is_no_status_becomes_one() {
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
