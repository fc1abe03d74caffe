//! The authorizer of expressions: its functions, and how its answers get into an evaluation.
//!
//! The interpreter's functions live as long as the thread, and the server's state does not. So an evaluation that asks
//! something new ends, the question is answered, and the expression is evaluated again with the answer. A check costs so
//! much that an expression has two at most, as on the real server.

use std::sync::{Arc, Mutex};

use kube_cel::cel::common::ast::Expr;
use kube_cel::cel::{IdedExpr, Value as Cel};

use super::authorizer::{AUTHORIZER, Ask, AskingValue, Checks, EXCEEDED, REQUEST_RESOURCE, locked};
use super::library::evaluate;
use super::types::Asking;
use super::visit::visit;
use crate::limits;
use crate::schema::access::{AccessQuestion, Authorizer};

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

    /// Evaluates an expression whose rest has a cost; returns also the cost of all.
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
