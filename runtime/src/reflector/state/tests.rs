//! What the state decides.
