//! Tests of informers.
