//! What the pages of the repository say is so: generated parts are current, links lead somewhere, code is what is built.
//!
//! Run with `UPDATE_SNAPSHOTS=1`, these tests write the generated parts.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod agents;
mod central;
mod delays;
mod moves;
mod demo;
mod derive;
mod errors;
mod excerpts;
mod leader;
mod links;
mod marked;
mod settings;
mod story;
mod svg;
