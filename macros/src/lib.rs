//! The `Informer` derive.
