//! Work that is shared out among replicas: each works on the keys of its slots.
//!
//! A key belongs to a slot (of 64, unless set), by the hash of its namespace, or of its name if it has none. Each replica has a Lease of its own, and its term is
//! that of a [leader](crate::leader_election): no request starts after it. An annotation of the Lease says on which slots
//! the replica works. Nobody hands out slots: all replicas see the same Leases, and compute from them who should work on
//! which slot.
//!
//! # What it guarantees
//!
//! - **Two replicas never work on one key.** A replica works on a slot only after the server confirmed its claim, and a
//!   list of all Leases that was asked for after that shows no other claim. It gives a slot up only once the runs of its
//!   keys have ended, and no clone is left of their [`Context`](crate::Context).
//! - The claims of a replica that is gone last until its Lease was not renewed for its whole duration, by the monotonic
//!   clock of the replica that watches. A Lease that was deleted, or whose claims were edited away, counts for that time
//!   as well.
//! - A replica that has not watched all Leases for that long takes no slot, unless its holder hands it over. Handovers
//!   have numbers that grow, and count only if the replica saw them happen. So an older copy of a Lease hands over
//!   nothing.
//! - Before the first run of a slot's keys, the caches show at least what those of the replica showed that handed the slot
//!   over. If nobody handed it over, they show what the server held after the slot was taken.
//! - An object whose slot moves away is not `deleted`, and keeps its finalizer.
//! - The Lease of the whole program is held while replicas share the work. So replicas that are not sharded wait for those
//!   that are, and the other way round, as in a rolling update.
//!
//! # What it does not guarantee
//!
//! - Somebody who restores a Lease to what it was a few seconds ago, or forges what a replica writes, can have two replicas
//!   work on one slot. Older copies, deletions and other edits can't.
//! - Back-off, timers and unfinished deletions of a key do not move with it. The new replica runs each key of a slot
//!   that it took, at low priority. A `deleted` call that was due may be lost, as it may be at any restart.
//! - All that [`leader_election`](crate::leader_election) does not guarantee.

mod claims;
mod member;
mod settings;
mod slot;
mod slots;
#[cfg(test)]
mod claims_tests;
#[cfg(test)]
mod tests;

pub(crate) use claims::ShownVersions;
pub(crate) use member::Member;
pub use settings::Sharding;
pub(crate) use slot::Slot;
pub(crate) use slots::{SlotStage, SlotUser, Slots, Turn};
