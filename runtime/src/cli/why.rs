//! Asks a running operator, over HTTP, why it does not reconcile an object.

use std::{collections::BTreeSet, sync::Arc};

use form_urlencoded::Serializer;
use http::Request;
use serde_json::Value;

use crate::{chain::one_line, error::Error, manager, object::Kind};

/// Finds the controllers of a kind, which is written as kubectl reads it.
///
/// # Errors
/// No controller is of this kind; the text lists the kinds.
pub(super) fn controllers_of(kind: &str, all: &[(Kind, Arc<str>)]) -> Result<Vec<Arc<str>>, String> {
    let is_meant = |known: &Kind| {
        let names = [&*known.kind, &*known.plural, &known.to_string()];
        names.iter().any(|name| name.eq_ignore_ascii_case(kind))
    };
    let found: Vec<_> = all.iter().filter(|(kind, _)| is_meant(kind)).map(|(_, name)| name.clone()).collect();
    let kinds: BTreeSet<&str> = all.iter().map(|(kind, _)| &*kind.kind).collect();
    match found.is_empty() {
        true => Err(format!(
            "no controller reconciles {kind:?}: the kinds are {}",
            kinds.into_iter().collect::<Vec<_>>().join(", ")
        )),
        false => Ok(found),
    }
}

/// Asks at an address; returns what the controllers of the kind answer, a line each.
///
/// # Errors
/// The operator does not answer there, or does not show it.
pub(super) async fn ask(
    program: &str,
    address: &str,
    key: &str,
    controllers: &[Arc<str>],
) -> Result<String, Error> {
    // As it is written for `run`: all interfaces.
    let host = if address.starts_with(':') { "127.0.0.1" } else { "" };
    let url = match address.contains("://") {
        true => address.to_owned(),
        false => format!("http://{host}{address}"),
    };
    let wrong = |why: String| {
        Error::other(format!(
            "the operator can't be asked at {url}: {why}; say where it serves HTTP by --http, run this command in its pod \
             (`kubectl exec deploy/{program} -- PROGRAM why ..`), or forward its port (`kubectl port-forward \
             deploy/{program} 8080`)"
        ))
    };
    let server = url.parse().map_err(|_| wrong("it is not an address such as 127.0.0.1:8080".to_owned()))?;
    let client = manager::client(kube::Config::new(server))?;
    let query = Serializer::new(String::new()).append_pair("format", "json").append_pair("key", key).finish();
    let request = Request::get(format!("/debug?{query}")).body(Vec::new()).map_err(Error::other)?;
    let report = match client.request_text(request).await {
        Ok(report) => report,
        Err(kube::Error::Api(status)) => return Err(wrong(status.message.trim().to_owned())),
        Err(error) => return Err(wrong(one_line(&error))),
    };
    let report: Value = serde_json::from_str(&report)
        .map_err(|_| wrong("what answers there is not an operator of watchkeeper".to_owned()))?;
    let lines = answers_of(&report, controllers);
    match lines.is_empty() {
        true => Err(wrong(
            "no controller of this kind runs there: if replicas share namespaces, ask another one, or another program answers"
                .to_owned(),
        )),
        false => Ok(lines),
    }
}

/// Finds the answers of some controllers in a debug report, a line each. The name of a fleet's controller begins with `/`.
fn answers_of(report: &Value, controllers: &[Arc<str>]) -> String {
    let answers = report["search"]["answers"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let is_of = |answer: &&str| {
        let name = answer.split_once(" is ").map_or(*answer, |(name, _)| name);
        // The controller of a namespace has that behind its name, and that of a fleet's cluster before it.
        controllers.iter().any(|controller| match controller.strip_prefix('/') {
            Some(of_fleet) => name.split_once('/').is_some_and(|(_, name)| name == of_fleet),
            None => {
                name.strip_prefix(&**controller).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        })
    };
    answers.filter(is_of).map(|answer| format!("{answer}\n")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_controllers_of_the_kind_are_heard() {
        let report = json!({"search": {"answers": ["sites is not reconciling a: idle", "sites.old is reconciling a", "other is idle", "kept/gold is reconciling a"]}});
        assert_eq!(answers_of(&report, &["sites".into()]), "sites is not reconciling a: idle\n");
        assert_eq!(answers_of(&report, &["kept".into()]), "kept/gold is reconciling a\n");
        assert_eq!(answers_of(&report, &["gold".into()]), "");
        assert_eq!(answers_of(&report, &["/gold".into()]), "kept/gold is reconciling a\n");
        assert_eq!(
            answers_of(&report, &["sites.old".into(), "third".into()]),
            "sites.old is reconciling a\n"
        );
        assert_eq!(answers_of(&json!({}), &["sites".into()]), "");
    }
}
