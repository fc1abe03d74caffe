//! The reflector over a scripted source.
