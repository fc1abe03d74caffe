//! Visits an expression and all its parts.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedEntryExpr, MapExpr};

/// Visits an expression and all its parts, the parts first.
pub(super) fn visit(expression: &mut IdedExpr, look: &mut dyn FnMut(&mut IdedExpr)) {
    let mut all = |parts: &mut dyn Iterator<Item = &mut IdedExpr>| parts.for_each(|part| visit(part, look));
    match &mut expression.expr {
        Expr::Call(call) => all(&mut call.target.as_deref_mut().into_iter().chain(&mut call.args)),
        Expr::Select(select) => visit(&mut select.operand, look),
        Expr::List(list) => all(&mut list.elements.iter_mut()),
        Expr::Map(MapExpr { entries }) => entries.iter_mut().for_each(|entry| visit_entry(entry, look)),
        Expr::Struct(made) => made.entries.iter_mut().for_each(|entry| visit_entry(entry, look)),
        Expr::Comprehension(comprehension) => all(&mut [
            &mut comprehension.iter_range,
            &mut comprehension.accu_init,
            &mut comprehension.loop_cond,
            &mut comprehension.loop_step,
            &mut comprehension.result,
        ]
        .into_iter()),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
    look(expression);
}

fn visit_entry(entry: &mut IdedEntryExpr, look: &mut dyn FnMut(&mut IdedExpr)) {
    match &mut entry.expr {
        EntryExpr::MapEntry(entry) => {
            visit(&mut entry.key, look);
            visit(&mut entry.value, look);
        }
        EntryExpr::StructField(field) => visit(&mut field.value, look),
    }
}
