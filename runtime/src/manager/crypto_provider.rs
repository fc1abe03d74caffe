//! How rustls computes: as the program chose, else as cargo's features say.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// Returns what the program chose for its process, else what is built in.
pub(super) fn chosen() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(built_in()))
}

fn built_in() -> CryptoProvider {
    #[cfg(feature = "aws-lc-rs")]
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    #[cfg(not(feature = "aws-lc-rs"))]
    let provider = rustls::crypto::ring::default_provider();
    provider
}
