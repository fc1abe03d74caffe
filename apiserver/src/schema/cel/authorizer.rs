//! The authorizer of expressions: its functions, and how its answers get into an evaluation.
//!
//! The interpreter's functions live as long as the thread, and the server's state does not. So an evaluation that asks
//! something new ends, the question is answered, and the expression is evaluated again with the answer. A check costs so
//! much that an expression has two at most, as on the real server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use kube_cel::cel::common::ast::Expr;
use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{Context, ExecutionError, IdedExpr, Value as Cel};

use super::formula::visit;
use super::library::evaluate;
use super::types::Type;
use crate::limits;
use crate::schema::access::{AccessAnswer, AccessQuestion, Authorizer};

/// The name of the variable that asks for everything.
pub(super) const AUTHORIZER: &str = "authorizer";

/// The name of the variable that asks for the request's own resource.
pub(super) const REQUEST_RESOURCE: &str = "authorizer.requestResource";

/// The error for a cost that is too high.
const EXCEEDED: &str = "operation cancelled: actual cost limit exceeded";

/// What the functions of the authorizer are called on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    Authorizer,
    Path,
    Group,
    Resource,
    Decision,
}

impl Asking {
    /// Returns the name of the type.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Authorizer => "kubernetes.authorization.Authorizer",
            Self::Path => "kubernetes.authorization.PathCheck",
            Self::Group => "kubernetes.authorization.GroupCheck",
            Self::Resource => "kubernetes.authorization.ResourceCheck",
            Self::Decision => "kubernetes.authorization.Decision",
        }
    }

    /// Returns the type that a function gives, and how many texts it takes; `None` if it has no such function.
    pub(super) fn function(self, name: &str) -> Option<(usize, Type<'static>)> {
        let asking = |count, given| Some((count, Type::Asking(given)));
        match (self, name) {
            (Self::Authorizer, "path") => asking(1, Self::Path),
            (Self::Authorizer, "group") => asking(1, Self::Group),
            (Self::Authorizer, "serviceAccount") => asking(2, Self::Authorizer),
            (Self::Group, "resource") => asking(1, Self::Resource),
            (Self::Resource, "subresource" | "namespace" | "name" | "fieldSelector" | "labelSelector") => {
                asking(1, Self::Resource)
            }
            (Self::Path | Self::Resource, "check") => asking(1, Self::Decision),
            (Self::Decision, "allowed" | "errored") => Some((0, Type::Bool)),
            (Self::Decision, "reason" | "error") => Some((0, Type::Text)),
            _ => None,
        }
    }

    /// Returns the first type that has a function.
    pub(super) fn with_function(name: &str) -> Option<Self> {
        let all = [Self::Authorizer, Self::Path, Self::Group, Self::Resource, Self::Decision];
        all.into_iter().find(|asking| asking.function(name).is_some())
    }
}

/// Turns `authorizer.requestResource` into the variable that it is: the authorizer itself has no fields.
pub(super) fn name_variables(expression: &mut IdedExpr) {
    visit(expression, &mut |part| {
        if let Expr::Select(select) = &part.expr
            && !select.test
            && select.field == "requestResource"
            && matches!(&select.operand.expr, Expr::Ident(name) if name == AUTHORIZER)
        {
            part.expr = Expr::Ident(REQUEST_RESOURCE.to_owned());
        }
    });
}

/// The checks of a request's expressions.
#[derive(Debug, Default)]
struct Checks {
    answers: BTreeMap<AccessQuestion, AccessAnswer>,
    /// The first question without an answer.
    open: Option<AccessQuestion>,
    /// How many checks the current evaluation has made, and may make.
    made: u64,
    most: u64,
}

/// Evaluates expressions that may ask the authorizer.
#[derive(Debug)]
pub(super) struct Asker<'v> {
    authorizer: Authorizer<'v>,
    checks: Arc<Mutex<Checks>>,
}

impl<'v> Asker<'v> {
    pub(super) fn new(authorizer: Authorizer<'v>) -> Self {
        Self { authorizer, checks: Arc::default() }
    }

    /// Evaluates an expression, of which the rest has a cost; returns also the cost of all.
    pub(super) fn evaluate(
        &self,
        expression: &IdedExpr,
        scope: &[(&'static str, Cel)],
        cost: u64,
    ) -> (Result<Cel, String>, u64) {
        let most = limits::CEL_CALL.saturating_sub(cost) / limits::CEL_CHECK;
        let asks = |asking: Asking, question: AccessQuestion| {
            Cel::Opaque(Arc::new(AskingValue {
                asking,
                question,
                answer: None,
                checks: Ask(self.checks.clone()),
            }))
        };
        let own = [
            (AUTHORIZER, asks(Asking::Authorizer, AccessQuestion::default())),
            (REQUEST_RESOURCE, asks(Asking::Resource, self.authorizer.request.clone())),
        ];
        // Each round but the last one asks a question.
        for _ in 0..=most {
            let mut checks = locked(&self.checks);
            (checks.made, checks.most, checks.open) = (0, most, None);
            drop(checks);
            let result = evaluate(expression, scope.iter().chain(&own).cloned());
            let mut checks = locked(&self.checks);
            if checks.made > most {
                break;
            }
            let Some(question) = checks.open.take() else {
                return (result, cost.saturating_add(checks.made * limits::CEL_CHECK));
            };
            let answer = (self.authorizer.decide)(&question);
            checks.answers.insert(question, answer);
        }
        (Err(EXCEEDED.to_owned()), limits::CEL_CALL)
    }
}

fn locked(checks: &Mutex<Checks>) -> std::sync::MutexGuard<'_, Checks> {
    checks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The checks that a value belongs to: they are not a part of what the value is.
#[derive(Clone, Debug)]
struct Ask(Arc<Mutex<Checks>>);

impl PartialEq for Ask {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Ask {}

/// A value that the authorizer's functions are called on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AskingValue {
    asking: Asking,
    question: AccessQuestion,
    /// The answer, for a decision.
    answer: Option<AccessAnswer>,
    checks: Ask,
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
