//! Tests of informers, over feeds and clients that the tests play; most run once on each stored form.

mod typed;
#[expect(clippy::duplicate_mod, reason = "the same suite on the other form")]
mod compact;
