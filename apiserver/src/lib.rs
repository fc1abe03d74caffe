//! The embedded server.

mod status;

mod clock;

mod route;

mod watch;

mod core;
