//! The three patch formats that are not apply.

mod json;
mod merge;
mod strategic;

pub(crate) use self::json::{JsonPatchError, json_patch, unknown_patch_fields};
pub(crate) use self::merge::merge_patch;
pub(crate) use self::strategic::strategic_patch;
