//! The embedded server.

mod status;

mod object;

mod clock;

mod selector;

mod schema;

mod apply;

mod patch;

mod table;

mod store;

mod kinds;

mod route;

mod negotiate;

mod state;

mod encode;

mod read;

mod watch;

mod write;

mod gc;

mod namespaces;

mod crd;

mod discovery;

mod core;
