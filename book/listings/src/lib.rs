//! Listings.
