//! Leader election over a Lease, and the gate for the requests of the leader.
//!
//! Several replicas of a program name one `coordination.k8s.io/v1` Lease. The replica that holds it leads. All replicas
//! run their caches, and only the leader runs workers. So another replica can take over without listing the cluster first.
//!
//! # What it guarantees
//!
//! - **No request of a replica starts after its term.** The client that controllers and the program get from the manager
//!   refuses it, and cancels requests under way. A term is counted from when the last renewal that the server confirmed
//!   was *sent*, by the monotonic or the wall clock, whichever shows more. So a machine that slept, or whose date was set
//!   forward, has no term left.
//! - Another replica takes a Lease only if it was not renewed for its whole duration, by its own monotonic clock. Times
//!   that others wrote are never trusted. With leases of 15 s and a renew deadline of 10 s, a term ends after 12.5 s, so
//!   clocks may run at rates that differ by a fifth. If all replicas have the same lease duration, no edit of the Lease
//!   lets another replica begin too soon; the source of the elector describes the other cases.
//! - An edit or deletion of the Lease does not end a term by itself. The leader repairs the Lease, and stops if another
//!   replica took it. A missing Lease may have been deleted a moment ago, so the replica that creates it holds it for a
//!   whole lease duration before it leads. The very first start of an operator takes that much longer.
//! - A leader that stops releases the Lease once its last run has ended and no clone is left of a run's
//!   [`Context`](crate::Context) or of a leader task's [`Stopping`](crate::manager::Stopping). Then another replica goes
//!   on at once. If clones are left after the grace period, the Lease is left to expire.
//! - If a term follows an earlier one of the same process, without another holder in between, its caches go on as they
//!   are.
//! - A leader that lost its term stands by again, in the same process. Runs that are left when the term is over are
//!   dropped. If a run does not yield to that, the process ends before another replica can lead: also if it blocks each thread of
//!   the runtime, or blocks past a stop. A thread of its own looks at that, once a second.
//!
//! # What it does not guarantee
//!
//! - A request that was sent within the term may take effect after it. A process that was frozen just before it sent a
//!   request may send it when it wakes: Kubernetes has no fencing. Writes with a version, like those of a
//!   [`Context`](crate::Context), are refused if the object was changed since.
//! - Requests through another client than the manager's are not gated. Neither is what a program does outside Kubernetes.
//!   A connection that was upgraded within the term (`exec`, `port-forward`) goes on after it, so end it in the run.
//! - Work that a run starts elsewhere, for example with `spawn_blocking`, and that holds no clone of its context, is not
//!   waited for.
//! - A virtual machine whose clocks all stopped does not notice it until they are set.

mod settings;
mod record;
mod elector;
mod gate;
mod lease;
mod note;
mod status;
mod overrun;
mod candidate;
#[cfg(test)]
mod tests;

pub(crate) use candidate::Candidate;
#[doc(hidden)]
pub use gate::NotLeading;
pub(crate) use gate::{TermGate, gated};
pub(crate) use note::{LeaseNote, NotedLease, NotedLeases};
pub(crate) use overrun::TermWatch;
pub use settings::{ElectionError, LeaderElection};
#[doc(hidden)]
pub use status::StaleLeader;
pub use status::{LeaderState, Leadership};
