//! The three patch formats that are not apply.

mod json;
mod merge;
mod strategic;

pub(crate) use self::json::{
    JsonPatchError, go_type, json_patch, json_patch_of_webhook, unknown_patch_fields,
};
pub(crate) use self::merge::merge_patch;
pub(crate) use self::strategic::strategic_patch;
