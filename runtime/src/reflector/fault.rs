//! What a failure means for what comes next.

use std::time::Duration;

use crate::list_watch::ListWatchError;

/// Longest wait that a server may ask for; what [`ReflectorConfig::backoff`](super::ReflectorConfig) says.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(300);

/// What a failure means, whichever way it was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The version is too old: 410, or the reasons Expired and Gone.
    Expired,
    /// The version is newer than what the server has.
    TooLarge,
    /// 429.
    Overloaded,
    /// 502, 503, 504; refused, reset or lost connections.
    Unreachable,
    /// 401: credentials may be renewed by the next attempt.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 405.
    NotAllowed,
    /// 400, 422: the server understands the request and does not want it.
    Rejected,
    /// 500 and what else starts with a five.
    Internal,
    /// The stream ended in the middle of a frame, or as soon as it was open.
    CutShort,
    /// An open watch was silent for too long.
    Idle,
    /// The machine was suspended meanwhile.
    Suspended,
    /// A list without an end.
    Endless,
    /// What is shown is not what was there.
    Inconsistent,
    /// Watches bring nothing, although lists show changes.
    Blind,
    /// Code panicked.
    Panicked,
    /// Any other failure.
    Other,
}

impl Fault {
    pub(crate) fn of(error: &ListWatchError) -> Self {
        let status = match error {
            ListWatchError::Connection(_) | ListWatchError::Deadline(_) => return Self::Unreachable,
            ListWatchError::CutShort | ListWatchError::ClosedAtOnce => return Self::CutShort,
            ListWatchError::Idle(_) => return Self::Idle,
            ListWatchError::Suspended(_) => return Self::Suspended,
            ListWatchError::Endless { .. } => return Self::Endless,
            ListWatchError::Inconsistent { .. } => return Self::Inconsistent,
            ListWatchError::Panicked => return Self::Panicked,
            ListWatchError::HeldBack => return Self::Blind,
            ListWatchError::Unreadable(_)
            | ListWatchError::Unexpected(_)
            | ListWatchError::TooLarge { .. }
            | ListWatchError::NoNamespace(_)
            | ListWatchError::Other(_) => return Self::Other,
            ListWatchError::Status { status, .. } => status,
        };
        if is_too_large(status) {
            return Self::TooLarge;
        }
        match (status.code, status.reason.as_str()) {
            (410, _) | (_, "Expired" | "Gone") => Self::Expired,
            (429, _) | (_, "TooManyRequests") => Self::Overloaded,
            (502..=504, _) | (_, "ServiceUnavailable" | "Timeout" | "ServerTimeout") => Self::Unreachable,
            (401, _) | (_, "Unauthorized") => Self::Unauthorized,
            (403, _) | (_, "Forbidden") => Self::Forbidden,
            (404, _) | (_, "NotFound") => Self::NotFound,
            (405, _) | (_, "MethodNotAllowed") => Self::NotAllowed,
            (400 | 422, _) | (_, "BadRequest" | "Invalid") => Self::Rejected,
            (500.., _) | (_, "InternalError") => Self::Internal,
            _ => Self::Other,
        }
    }

    /// Returns whether it comes about where nothing is wrong: versions expire, streams are cut, machines sleep.
    pub(super) fn is_routine(self) -> bool {
        matches!(self, Self::Expired | Self::TooLarge | Self::CutShort | Self::Suspended)
    }

    /// Returns whether the connection failed, and so takes the watch with it.
    pub(super) fn is_of_the_connection(self) -> bool {
        matches!(self, Self::Unreachable | Self::CutShort)
    }

    /// Returns whether it is the server's: another attempt may succeed at any moment, whatever was asked for.
    pub(super) fn may_be_chance(self) -> bool {
        self.is_of_an_outage() || matches!(self, Self::Overloaded | Self::Unauthorized | Self::Idle)
    }

    /// Returns whether it is likely to end for all kinds of a server at once.
    pub(super) fn is_of_an_outage(self) -> bool {
        self.is_of_the_connection() || self == Self::Internal
    }

    /// Returns whether the server will go on to refuse, until somebody changes rights or definitions.
    pub(super) fn is_refused_for_good(self) -> bool {
        matches!(self, Self::Forbidden | Self::NotFound | Self::NotAllowed)
    }

    /// Returns whether the server answered that it does not answer.
    pub(crate) fn refuses(self) -> bool {
        self.is_refused_for_good() || self == Self::Rejected
    }

    /// Returns whether a question has no answer for this kind, and will have none soon.
    pub(super) fn leaves_unknown(self) -> bool {
        self.refuses() || self == Self::Other
    }

    /// Names the sort of failure, for metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::TooLarge => "version_too_large",
            Self::Overloaded => "overloaded",
            Self::Unreachable => "unreachable",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::NotAllowed => "not_allowed",
            Self::Rejected => "rejected",
            Self::Internal => "internal",
            Self::CutShort => "cut_short",
            Self::Idle => "idle",
            Self::Suspended => "suspended",
            Self::Inconsistent => "inconsistent",
            Self::Blind => "held_back",
            Self::Endless => "endless_list",
            Self::Panicked => "panicked",
            Self::Other => "other",
        }
    }
}

/// R17: a cause by its name; a Timeout whose cause, or whose message, says it.
fn is_too_large(status: &kube::core::Status) -> bool {
    let says_it = |message: &str| message.contains("Too large resource version");
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
    let timeout = status.code == 504 || status.reason == "Timeout";
    causes
        .iter()
        .any(|cause| cause.reason == "ResourceVersionTooLarge" || (timeout && says_it(&cause.message)))
        || (timeout && says_it(&status.message))
}

/// Returns how long the server asked to be left alone.
pub(super) fn asked_to_wait(error: &ListWatchError) -> Duration {
    match error {
        ListWatchError::Status { retry_after: Some(wait), .. } => (*wait).min(LONGEST_RETRY_AFTER),
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{
        Status,
        response::{StatusCause, StatusDetails},
    };

    use super::*;

    fn caused(code: u16, reason: &str, cause: (&str, &str)) -> Fault {
        let cause = StatusCause { reason: cause.0.into(), message: cause.1.into(), field: String::new() };
        let details = StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: vec![cause],
            retry_after_seconds: 0,
        };
        let status = Status::failure("no", reason).with_code(code).with_details(details);
        Fault::of(&ListWatchError::from_status(status))
    }

    fn plain(code: u16, reason: &str, message: &str) -> Fault {
        Fault::of(&ListWatchError::from_status(Status::failure(message, reason).with_code(code)))
    }

    // R17
    #[test]
    fn every_form_of_too_large_is_recognised() {
        let text = "Too large resource version";
        assert_eq!(caused(504, "Timeout", ("ResourceVersionTooLarge", "")), Fault::TooLarge);
        assert_eq!(caused(504, "Timeout", ("", text)), Fault::TooLarge);
        assert_eq!(
            plain(504, "Timeout", "Timeout: Too large resource version: 9, current: 5"),
            Fault::TooLarge
        );
        assert_eq!(plain(0, "Timeout", text), Fault::TooLarge);
        assert_eq!(plain(500, "InternalError", text), Fault::Internal);
        assert_eq!(plain(504, "Timeout", "context deadline exceeded"), Fault::Unreachable);
    }

    #[test]
    fn faults_are_told_by_code_or_reason() {
        for (code, reason, fault) in [
            (410, "Expired", Fault::Expired),
            (410, "", Fault::Expired),
            (0, "Gone", Fault::Expired),
            (429, "", Fault::Overloaded),
            (503, "", Fault::Unreachable),
            (403, "Forbidden", Fault::Forbidden),
            (404, "", Fault::NotFound),
            (422, "Invalid", Fault::Rejected),
            (500, "", Fault::Internal),
            (0, "", Fault::Other),
        ] {
            assert_eq!(plain(code, reason, ""), fault, "{code} {reason}");
        }
    }
}
