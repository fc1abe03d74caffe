//! Webhooks: defaults, validation, and conversion between versions, with certificates of their own.
//!
//! [`Webhooks`] lists what a program decides about. [`Webhooks::handle`] is the whole answer to a request, as a function of
//! path, query and body: the manager puts a TLS port in front of it, and tests call it without one.
//!
//! | Path | Answers |
//! |---|---|
//! | `/defaults/GROUP/PLURAL` | what the [`Defaulter`]s of a kind set |
//! | `/validates/GROUP/PLURAL` | what the [`Validator`]s of a kind say |
//! | `/convert` | objects in another version, for all kinds with several versions |
//!
//! # Guarantees
//!
//! - Every admission review that can be read gets an answer with its UID within the API server's time-out, also after a
//!   panic. The failure policy says whether it is allowed. Conversions have no time limit.
//! - A mistake is named in the version that the user wrote, if that version has validators. Those of the other versions must
//!   allow the object as well.
//! - What can't be read is refused: other versions of reviews, other kinds, objects that are missing. So are subresources,
//!   but for the status if [`Calls::status`] asks for it.
//! - Fields that a type does not know survive defaults and conversions.
//! - Conversions are answered before caches have synced. Validators and defaulters wait for all caches of the
//!   manager, unless [`Calls::without_caches`] is set.

#[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
compile_error!("the feature `webhooks` needs a provider of TLS: `ring` or `aws-lc-rs`");

mod request;
mod review;
mod json_patch;
mod admit;
mod calls;
mod hooks;
mod bench;
mod params;
mod policy;
mod conversion_review;
mod handle;
mod webhooks;
pub(crate) mod configuration;
mod authority;
mod issue;

pub(crate) use authority::{Generation, LOOK_SOON, Rotation, Seen, StoredGenerations};
pub(crate) use handle::most_bytes;
pub(crate) use hooks::CONVERSION_PATH;
pub(crate) use issue::issue;
pub(crate) use policy::GeneratedPolicy;

pub use admit::{Defaulter, Validator};
pub use calls::{Calls, FailurePolicy};
pub use handle::WebhookResponse;
pub use params::Params;
pub use policy::{Agreement, Policy};
pub use request::{Change, Operation, Request};
pub use review::{FieldReview, Review};
pub use webhooks::Webhooks;
