//! The suite on informers that keep bytes.

#[path = "testing.rs"]
mod testing;

#[path = "backlog.rs"]
mod backlog;
#[path = "changes.rs"]
mod changes;
#[path = "hammer.rs"]
mod hammer;
#[path = "handlers.rs"]
mod handlers;
#[path = "hidden.rs"]
mod hidden;
#[path = "panics.rs"]
mod panics;
#[path = "relists.rs"]
mod relists;
#[path = "unreadable.rs"]
mod unreadable;

use crate::list_watch::ItemForm;

const FORM: ItemForm = ItemForm::Bytes;
