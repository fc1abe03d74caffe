//! Tests of the store; all run once on each stored form.

mod differences;
mod typed;
#[expect(clippy::duplicate_mod, reason = "the same suite on the other form")]
mod compact;
