//! Tests that cross the stages, against the embedded API server under paused time.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod attack;
mod children;
mod compact;
mod consistency;
mod controller;
mod coverage;
mod deletion;
mod dry_run;
mod elections;
mod events;
mod extremes;
mod first_list;
mod interleavings;
mod late_server;
mod leaders;
mod logs;
mod no_op;
mod outages;
mod owed;
mod overload;
mod own_writes;
mod panics;
mod pending_writes;
mod rate;
mod refusals;
mod restored;
mod roles;
mod runs;
mod selection;
mod settings;
mod stale_caches;
mod stopping;
mod statuses;
mod storms;
mod strict;
mod tasks;
mod trace;
mod unhealthy;
mod usage;
mod users_code;
mod verbs;
mod watches;
mod why;
mod window;
