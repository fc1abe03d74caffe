//! Tests of informers, over feeds and clients that the tests play.

mod backlog;
mod changes;
mod errors;
mod factory;
mod hammer;
mod hidden;
mod logs;
mod handlers;
