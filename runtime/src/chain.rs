//! Writes an error and its causes for people.

use std::error::Error;

use http::StatusCode;
use kube::{client::AuthError, core::Status};

use crate::plain::said;

/// Prefixes that libraries add to a cause, and that say nothing to the reader.
const NOISE: [&str; 4] =
    ["ServiceError: ", "ApiError: ", "auth error: ", "Failed to infer provided configuration: "];

/// Returns an error and its causes.
pub(crate) fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let cause = next?;
        next = cause.source();
        Some(cause)
    })
}

/// Returns an error and its causes in one line, each cause once.
pub(crate) fn one_line(error: &(dyn Error + 'static)) -> String {
    let mut line = String::new();
    let plugin = chain(error).find_map(|cause| {
        let cause = cause.downcast_ref::<AuthError>()?;
        Some((cause.to_string(), format!("the credentials plugin {}", of_plugin(cause)?)))
    });
    for cause in chain(error) {
        let mut text = text_of(cause);
        let is_plugins = plugin.as_ref().is_some_and(|(said, _)| text == *said);
        if let Some((said, shown)) = &plugin {
            // The errors above it repeat what it says.
            text = text.replace(said, shown);
        }
        // A log entry is one line.
        let text = text.lines().collect::<Vec<_>>().join(" ");
        let text = said(&text).to_string();
        let text = without_noise(&text);
        // hyper names only its part that failed; its cause says why.
        let says_nothing = text.starts_with("client error (") && cause.source().is_some();
        if !(says_nothing || line.contains(text)) {
            let separator = if line.is_empty() { "" } else { ": " };
            line = format!("{line}{separator}{text}");
        }
        if is_plugins {
            break;
        }
    }
    line
}

/// Says how a plugin for credentials failed, without its environment, and what it printed for us: that may be credentials. `None`:
/// the error has nothing of these.
pub(crate) fn of_plugin(cause: &AuthError) -> Option<String> {
    match cause {
        AuthError::AuthExecRun { out, .. } => {
            let said = String::from_utf8_lossy(&out.stderr).trim().replace('\n', " ");
            Some(format!("failed ({}): {said}", out.status))
        }
        AuthError::AuthExecParse(_) | AuthError::AuthExecSerialize(_) => {
            Some("printed something that is not an ExecCredential".to_owned())
        }
        _ => None,
    }
}

/// Returns what an error says without its causes; of a server's refusal the code and the message.
fn text_of(error: &(dyn Error + 'static)) -> String {
    // kube adds the whole status in its debug form, and has it as a cause as well.
    if let Some(status) = error.downcast_ref::<Box<Status>>() {
        return status.message.clone();
    }
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) => {
            let code = StatusCode::from_u16(status.code).map(|code| format!("{code}: "));
            format!("{}{}", code.unwrap_or_default(), status.message)
        }
        _ => error.to_string(),
    }
}

/// Removes the prefixes of libraries, however many there are.
fn without_noise(mut text: &str) -> &str {
    while let Some(rest) = NOISE.iter().find_map(|noise| text.strip_prefix(noise)) {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct ChainLink {
        text: &'static str,
        #[source]
        source: Option<Box<ChainLink>>,
    }

    fn steps(texts: &[&'static str]) -> ChainLink {
        let (text, rest) = texts.split_first().expect("one at least");
        ChainLink { text, source: (!rest.is_empty()).then(|| Box::new(steps(rest))) }
    }

    #[test]
    fn a_line_has_each_cause_once_and_no_names_of_a_librarys_types() {
        for (texts, line) in [
            (&["apply ConfigMap shop/a", "quota"][..], "apply ConfigMap shop/a: quota"),
            (&["no: quota is used up", "quota is used up"], "no: quota is used up"),
            (
                &["ServiceError: no answer", "no answer", "client error (Connect)", "refused"],
                "no answer: refused",
            ),
            (&["ServiceError: ServiceError: reset", "ServiceError: reset", "reset"], "reset"),
            (&["client error (Connect)"], "client error (Connect)"),
            (&["two\r\nlines"], "two lines"),
            (&["\u{1b}[31mred\rover"], "\\u{1b}[31mred\\rover"),
        ] {
            assert_eq!(one_line(&steps(texts)), line);
        }
    }

    #[test]
    fn of_a_servers_refusal_a_line_has_the_code_and_the_message() {
        let status = Status::failure("leases is forbidden", "Forbidden").with_code(403).boxed();
        let error = crate::Error::Client(kube::Error::Api(status.clone()));
        assert_eq!(one_line(&error), "403 Forbidden: leases is forbidden");
        let error = kube::Error::Api(Status { code: 0, ..*status }.boxed());
        assert_eq!(one_line(&error), "leases is forbidden");
    }

    #[cfg(unix)]
    #[test]
    fn a_line_has_nothing_of_what_a_credentials_plugin_printed_and_was_given() {
        use std::{os::unix::process::ExitStatusExt, process::ExitStatus};
        let out = std::process::Output {
            status: ExitStatus::from_raw(256),
            stdout: b"{\"token\": \"hunter2\"}".to_vec(),
            stderr: b"no session\n".to_vec(),
        };
        let failed = AuthError::AuthExecRun { cmd: "KEY=hunter2 plugin".to_owned(), out: Box::new(out) };
        let line = one_line(&crate::Error::Client(kube::Error::Service(Box::new(failed))));
        assert_eq!(line, "the credentials plugin failed (exit status: 1): no session");
    }
}
