//! The functions of the authorizer in expressions: they note what is asked, and give the answers that are there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{Context, ExecutionError, Value as Cel};

use super::types::Asking;
use crate::schema::access::{AccessAnswer, AccessQuestion};

/// The name of the variable that asks for everything.
pub(super) const AUTHORIZER: &str = "authorizer";

/// The name of the variable that asks for the request's own resource.
pub(super) const REQUEST_RESOURCE: &str = "authorizer.requestResource";

/// The error for a cost that is too high.
pub(super) const EXCEEDED: &str = "operation cancelled: actual cost limit exceeded";

/// The checks of a request's expressions.
#[derive(Debug, Default)]
pub(super) struct Checks {
    pub(super) answers: BTreeMap<AccessQuestion, AccessAnswer>,
    /// The first question without an answer.
    pub(super) open: Option<AccessQuestion>,
    /// How many checks the current evaluation has made, and may make.
    pub(super) made: u64,
    pub(super) most: u64,
}

pub(super) fn locked(checks: &Mutex<Checks>) -> std::sync::MutexGuard<'_, Checks> {
    checks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The checks that a value belongs to: they are not a part of what the value is.
#[derive(Clone, Debug)]
pub(super) struct Ask(pub(super) Arc<Mutex<Checks>>);

impl PartialEq for Ask {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Ask {}

/// A value that the authorizer's functions are called on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AskingValue {
    pub(super) asking: Asking,
    pub(super) question: AccessQuestion,
    /// The answer, for a decision.
    pub(super) answer: Option<AccessAnswer>,
    pub(super) checks: Ask,
}

impl Opaque for AskingValue {
    fn runtime_type_name(&self) -> &str {
        self.asking.name()
    }
}

type Called = Result<Cel, ExecutionError>;

/// Adds the functions to a library.
pub(super) fn add_functions(library: &mut Context<'static>) {
    for (name, from, to) in [
        ("path", Asking::Authorizer, Asking::Path),
        ("group", Asking::Authorizer, Asking::Group),
        ("resource", Asking::Group, Asking::Resource),
        ("subresource", Asking::Resource, Asking::Resource),
        ("namespace", Asking::Resource, Asking::Resource),
        ("name", Asking::Resource, Asking::Resource),
        // Permissions do not depend on selectors.
        ("fieldSelector", Asking::Resource, Asking::Resource),
        ("labelSelector", Asking::Resource, Asking::Resource),
    ] {
        let add = move |This(this): This<Arc<dyn Opaque>>, text: Arc<String>| -> Called {
            let mut value = called(&this, &[from])?;
            let text = text.as_str().to_owned();
            if matches!(name, "path" | "resource") && text.trim().is_empty() {
                return Err(ExecutionError::function_error(name, format!("{name} must not be empty")));
            }
            match name {
                "path" => value.question.path = Some(text),
                "group" => value.question.group = text,
                "resource" => value.question.resource = text,
                "subresource" => value.question.subresource = text,
                "namespace" => value.question.namespace = text,
                "name" => value.question.name = text,
                _ => {}
            }
            Ok(Cel::Opaque(Arc::new(AskingValue { asking: to, ..value })))
        };
        library.add_function(name, add);
    }
    library.add_function("serviceAccount", service_account);
    library.add_function("check", check);
    let text = |text: String| Cel::String(Arc::new(text));
    library.add_function("allowed", |This(this): This<Arc<dyn Opaque>>| -> Called {
        Ok(Cel::Bool(decided(&this)?.allowed))
    });
    library.add_function("reason", move |This(this): This<Arc<dyn Opaque>>| -> Called {
        Ok(text(decided(&this)?.reason))
    });
    // This server's authorizer does not fail.
    library.add_function("errored", |This(this): This<Arc<dyn Opaque>>| -> Called {
        decided(&this).map(|_| Cel::Bool(false))
    });
    library.add_function("error", move |This(this): This<Arc<dyn Opaque>>| -> Called {
        decided(&this).map(|_| text(String::new()))
    });
}

/// Returns the value that a function is called on, which must be of one of these types.
fn called(this: &Arc<dyn Opaque>, types: &[Asking]) -> Result<AskingValue, ExecutionError> {
    let value = this.downcast_ref::<AskingValue>().filter(|value| types.contains(&value.asking));
    value.cloned().ok_or(ExecutionError::NoSuchOverload)
}

fn decided(this: &Arc<dyn Opaque>) -> Result<AccessAnswer, ExecutionError> {
    called(this, &[Asking::Decision])?.answer.ok_or(ExecutionError::NoSuchOverload)
}

fn service_account(This(this): This<Arc<dyn Opaque>>, namespace: Arc<String>, name: Arc<String>) -> Called {
    let mut value = called(&this, &[Asking::Authorizer])?;
    let wrong = |what: &str| {
        Err(ExecutionError::function_error("serviceAccount", format!("Invalid service account {what}")))
    };
    if name.len() > 253 || !name.split('.').all(is_label) {
        return wrong("name");
    }
    if namespace.len() > 63 || !is_label(&namespace) {
        return wrong("namespace");
    }
    value.question.account = Some((namespace.as_str().to_owned(), name.as_str().to_owned()));
    Ok(Cel::Opaque(Arc::new(value)))
}

fn is_label(text: &str) -> bool {
    let is_end = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let ends = [text.bytes().next(), text.bytes().last()];
    ends.into_iter().all(|letter| letter.is_some_and(is_end))
        && text.bytes().all(|letter| is_end(letter) || letter == b'-')
}

fn check(This(this): This<Arc<dyn Opaque>>, verb: Arc<String>) -> Called {
    let value = called(&this, &[Asking::Path, Asking::Resource])?;
    let question = AccessQuestion { verb: verb.as_str().to_owned(), ..value.question };
    let mut checks = locked(&value.checks.0);
    // What an operator makes of a check without an answer is evaluated again.
    let ended = || Err(ExecutionError::function_error("check", "the authorizer has not been asked yet"));
    if checks.open.is_some() {
        return ended();
    }
    checks.made += 1;
    if checks.made > checks.most {
        return Err(ExecutionError::function_error("check", EXCEEDED));
    }
    let answer = checks.answers.get(&question).cloned();
    if answer.is_none() {
        checks.open = Some(question);
        return ended();
    }
    drop(checks);
    let question = AccessQuestion::default();
    Ok(Cel::Opaque(Arc::new(AskingValue { asking: Asking::Decision, question, answer, ..value })))
}
