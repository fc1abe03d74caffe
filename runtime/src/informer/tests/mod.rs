//! Tests of informers, over feeds and clients that the tests play.

mod backlog;
mod changes;
mod factory;
mod hammer;
mod handlers;
