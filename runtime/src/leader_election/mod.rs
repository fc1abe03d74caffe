//! Which replica works: an election over a Lease, and the gate before everything that the elected one sends.
//!
//! Several replicas of a program name one `coordination.k8s.io/v1` Lease; the one that holds it leads. All run their
//! caches, the leader alone runs workers, so that another takes over without listing the cluster first.
//!
//! # What it keeps
//!
//! - **No request of a replica starts after its term**: the client that controllers and the program get from the
//!   manager refuses it, and gives up what is under way. A term is counted from when the last renewal that the server
//!   confirmed was *sent*, by the monotonic or the wall clock, whichever says more: a machine that slept, or was set
//!   forward, has no term left.
//! - Another replica takes a Lease that was not renewed for its whole duration, by its own monotonic clock. Times
//!   that others wrote are never believed. With leases of 15 s and a renew deadline of 10 s a term ends after 12.5 s, so
//!   that clocks may run at rates that differ by a fifth. How long a hold lasts that is edited: see the elector's text in
//!   the source; where all replicas are set to one lease, no edit of the record lets another begin too soon.
//! - A Lease that is edited or deleted ends no term by itself: the leader puts it right, and stops where another took
//!   it. A Lease that is not there may have been deleted a moment ago. So who makes it holds it for a whole lease before
//!   it leads: the very first start of an operator takes so much longer.
//! - A leader that stops releases the Lease, once its last run has ended, and nobody holds a clone of a run's
//!   [`Context`](crate::Context) or of a leader task's [`Stopping`](crate::manager::Stopping): another goes on at once.
//!   Where somebody still does after the grace period, the Lease is left to run out.
//! - A term that follows the process's own, with no holder in between, goes on with what its caches showed.
//! - A leader that lost its term stands by again, in the same process. What still runs when its term is over is
//!   dropped; what does not yield to that ends the process, before another can lead.
//!
//! # What it does not promise
//!
//! - A request that was sent within the term may still take effect after it, and one that a process was about to send
//!   when it was frozen may leave it when it wakes: Kubernetes knows no fencing. Writes that carry a version, as those of
//!   a [`Context`](crate::Context) do, are refused if somebody wrote since.
//! - Requests through another client than the manager's are not gated, and neither is what a program does elsewhere. A
//!   connection that was upgraded within the term (`exec`, `port-forward`) goes on after it: end it in the run.
//! - Work that a run began elsewhere, as `spawn_blocking` does, and that holds no clone of its context, can't be known of.
//! - A virtual machine whose clocks all stood still knows of nothing until they are set.

mod settings;
mod record;
mod elector;
mod gate;
mod lease;
mod status;
mod candidate;
#[cfg(test)]
mod tests;

pub(crate) use candidate::{Candidate, Follows};
#[doc(hidden)]
pub use gate::NotLeading;
pub(crate) use gate::gated;
pub use settings::{ElectionError, LeaderElection};
#[doc(hidden)]
pub use status::StaleLeader;
pub use status::{LeaderState, Leadership};
