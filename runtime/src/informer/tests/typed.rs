//! The suite on informers that keep decoded objects.

#[path = "../testing.rs"]
mod testing;

#[path = "backlog.rs"]
mod backlog;
#[path = "changes.rs"]
mod changes;
#[path = "factory.rs"]
mod factory;
#[path = "hammer.rs"]
mod hammer;
#[path = "handlers.rs"]
mod handlers;

use crate::list_watch::ItemForm;

const FORM: ItemForm = ItemForm::Typed;
