//! Versions of a kind: one of them is the hub, and conversions go through it.
//!
//! `#[informer(versions(v1beta1::Website, v1alpha1::Website))]` on the hub lists the others, the spokes. The hub is the
//! storage version. `From` converts between the hub and each spoke, in both directions; a missing one is a compile error.
//!
//! # What a conversion keeps
//!
//! - Metadata is copied as it is. Only labels and annotations are what the program's `From` makes of them.
//! - What the target version does not know goes into one annotation, [`LOST_ANNOTATION`]. On the way back it is restored,
//!   unless the field that it came from was changed meanwhile. Elements of lists are matched by the fields that identify
//!   them, as a patch of a status does it. Users who may write an object may edit the annotation as well: what is restored never
//!   changes what the object shows in the version that it is written in, but no schema checks it.
//! - Fields that neither version's schema knows stay where they are, and are in the annotation too: the API server removes
//!   fields that its definition does not have.
//!
//! An object that can't be converted is an error that names the object and the field. Panics of the program's `From` are
//! such errors as well.

mod schema;
mod spoke;
mod lost;
#[cfg_attr(not(any(feature = "webhooks", test)), expect(dead_code, reason = "only webhooks convert"))]
mod convert;
mod generate;
mod round_trip;
#[cfg(test)]
pub(crate) mod testing;

pub use lost::LOST_ANNOTATION;
pub use round_trip::{RoundTrip, conversions_round_trip};
pub use spoke::{Spoke, Versioned};

#[cfg(feature = "webhooks")]
pub(crate) use {
    convert::{Conversions, Convert},
    generate::object as generated_object,
    schema::of as schema_of,
};
