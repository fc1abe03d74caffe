//! The suite on informers that keep decoded objects.

#[path = "testing.rs"]
mod testing;

#[path = "backlog.rs"]
mod backlog;
#[path = "blocking.rs"]
mod blocking;
#[path = "changes.rs"]
mod changes;
#[path = "errors.rs"]
mod errors;
#[path = "factory.rs"]
mod factory;
#[path = "hammer.rs"]
mod hammer;
#[path = "handlers.rs"]
mod handlers;
#[path = "hidden.rs"]
mod hidden;
#[path = "logs.rs"]
mod logs;
#[path = "panics.rs"]
mod panics;
#[path = "relists.rs"]
mod relists;

use crate::list_watch::ItemForm;

const FORM: ItemForm = ItemForm::Typed;
