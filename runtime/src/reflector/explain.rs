//! One clear line for each failure: which kind, what is wrong, what to do.

use std::error::Error;

use super::fault::Fault;
use crate::{chain::one_line, list_watch::ListWatchError, plain::said};

/// Returns what a failure means for a kind, and what to do about it where that is known.
///
/// One line, without any object's content.
pub fn explain(name: &str, error: &ListWatchError) -> String {
    let (said, fault) = (said(error.status().map_or("", |status| &status.message)), Fault::of(error));
    let text = match (error, fault) {
        (ListWatchError::Unexpected(_) | ListWatchError::Suspended(_), _) => format!(": {error}"),
        (ListWatchError::TooLarge { .. }, _) => format!(
            " can't be read: {error}: shrink it, leave it out by a selector, or raise `largest_object`"
        ),
        (_, Fault::Inconsistent) => format!(" is listed again: {error}"),
        (_, Fault::Blind) => {
            format!(" is seen late, by lists alone: {error}: does a proxy buffer answers?")
        }
        (_, Fault::Endless) => {
            format!(" can't be listed in pages: {error}: its continue tokens lead nowhere")
        }
        (_, Fault::NotFound) => " is not served: install its CRD".to_owned(),
        (_, Fault::Forbidden) => format!(
            " can't be read, a permission is missing: allow `list` and `watch` in a Role or ClusterRole ({said})"
        ),
        (_, Fault::Unauthorized) => format!(
            " can't be read, the server does not accept the credentials: renew the token or certificate ({said})"
        ),
        (_, Fault::Unreachable) if error.status().is_none() => {
            format!(" can't be read, {}", unreachable(error.source().unwrap_or(error)))
        }
        _ => format!(" can't be read: {}", one_line(error)),
    };
    format!("{name}{text}")
}

/// Explains why a request had no answer, and what to check if that is known.
pub(crate) fn unreachable(cause: &(dyn Error + 'static)) -> String {
    let said = one_line(cause);
    let says = |words: &str| said.contains(words);
    if says("invalid peer certificate") || says("certificate verify failed") {
        return format!(
            "the server's certificate is not trusted: {said}; is `certificate-authority` in the kubeconfig that of this \
             cluster?"
        );
    }
    if says("dns error") {
        return format!("the server's name can't be resolved: {said}");
    }
    if says("invalid HTTP version parsed") {
        return format!("the server is unreachable: {said}; if it speaks TLS, its URL begins with https://");
    }
    format!("the server is unreachable: {said}")
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn lines_say_which_kind_and_what_to_do() {
        let answer =
            |code, message: &str| ListWatchError::from_status(Status::failure(message, "").with_code(code));
        let name = "websites.web.example.dev";
        for (error, expected) in [
            (answer(404, "404 page not found"), "websites.web.example.dev is not served: install its CRD"),
            (
                answer(403, "User \"viewer\" cannot list resource \"websites\""),
                "websites.web.example.dev can't be read, a permission is missing: allow `list` and `watch` in a Role or \
                 ClusterRole (User \"viewer\" cannot list resource \"websites\")",
            ),
            (
                ListWatchError::Connection("connection refused".into()),
                "websites.web.example.dev can't be read, the server is unreachable: connection refused",
            ),
            (
                ListWatchError::TooLarge { what: "an event", limit: 32 },
                "websites.web.example.dev can't be read: an event is larger than 32 bytes: shrink it, leave it out \
                 by a selector, or raise `largest_object`",
            ),
            (
                ListWatchError::HeldBack,
                "websites.web.example.dev is seen late, by lists alone: open watches bring nothing, although lists show \
                 changes: does a proxy buffer answers?",
            ),
            (
                ListWatchError::Endless { pages: 3 },
                "websites.web.example.dev can't be listed in pages: the list did not end within 3 pages: its \
                 continue tokens lead nowhere",
            ),
            (
                ListWatchError::Inconsistent { count: 2, named: "n/a (shown: 1, listed: 2)".to_owned() },
                "websites.web.example.dev is listed again: the cache differs from a list at the same version, which is a \
                 defect: 2 objects, among them n/a (shown: 1, listed: 2)",
            ),
            (
                ListWatchError::Unexpected("an event of an unknown type".to_owned()),
                "websites.web.example.dev: skipped an event of an unknown type",
            ),
            (answer(500, "oh"), "websites.web.example.dev can't be read: the server answered 500: oh"),
        ] {
            assert_eq!(explain(name, &error), expected);
        }
    }
}
