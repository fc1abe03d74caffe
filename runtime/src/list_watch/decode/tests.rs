//! Decoding of single objects.
