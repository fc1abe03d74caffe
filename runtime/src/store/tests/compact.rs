//! The suite on stores that keep bytes.

#[path = "labels.rs"]
mod labels;
#[path = "suite.rs"]
mod suite;

use crate::list_watch::ItemForm;

const FORM: ItemForm = ItemForm::Bytes;
