//! The embedded server.

mod schema;

mod patch;

mod apply;

mod table;
