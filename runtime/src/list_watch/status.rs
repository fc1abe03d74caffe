//! Reads a server's Status, however little of it is in order.

use kube::core::{
    Status,
    response::{StatusCause, StatusDetails, StatusSummary},
};

use serde_json::value::RawValue;

use super::json::Json;

/// Longest text of an answer that is no Status which is worth repeating.
const REPEATED: usize = 200;

/// Reads a Status object member by member: one that is null or of another type doesn't take the rest with it.
pub(super) fn read_status(object: Json<'_>) -> Status {
    Status {
        status: match object.text_member("status").as_deref() {
            Some("Success") => Some(StatusSummary::Success),
            Some("Failure") => Some(StatusSummary::Failure),
            _ => None,
        },
        code: object.member("code").and_then(Json::decode).unwrap_or_default(),
        message: object.text_member("message").unwrap_or_default(),
        metadata: None,
        reason: object.text_member("reason").unwrap_or_default(),
        details: object.member("details").map(read_details),
    }
}

fn read_details(details: Json<'_>) -> StatusDetails {
    let text = |name| details.text_member(name).unwrap_or_default();
    let causes: Option<Vec<&RawValue>> = details.member("causes").and_then(Json::decode);
    StatusDetails {
        name: text("name"),
        group: text("group"),
        kind: text("kind"),
        uid: text("uid"),
        causes: causes
            .unwrap_or_default()
            .into_iter()
            .map(|cause| read_cause(Json::part(cause.get())))
            .collect(),
        retry_after_seconds: details.member("retryAfterSeconds").and_then(Json::decode).unwrap_or_default(),
    }
}

fn read_cause(cause: Json<'_>) -> StatusCause {
    let text = |name| cause.text_member(name).unwrap_or_default();
    StatusCause { reason: text("reason"), message: text("message"), field: text("field") }
}

/// Returns whether an object says that it is a Status.
pub(super) fn is_status(object: Json<'_>) -> bool {
    object.text_member("kind").as_deref() == Some("Status")
}

/// Makes a Status of an HTTP answer that failed, whatever its body is.
pub(super) fn status_of_answer(code: http::StatusCode, body: &[u8]) -> Status {
    if let Some(status) = Json::read(body).ok().filter(|object| is_status(*object)).map(read_status) {
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
        let status = read_status(Json::part(
            r#"{"kind":"Status","status":"Failure","code":504,"reason":"Timeout","message":"m",
                 "details":{"name":null,"causes":[{"reason":"ResourceVersionTooLarge","message":null}],
                 "retryAfterSeconds":1}}"#,
        ));
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
