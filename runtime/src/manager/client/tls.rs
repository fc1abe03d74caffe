//! TLS as cargo's features choose it: rustls with aws-lc or ring, OpenSSL, or none.

#[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
use std::sync::Arc;

use kube::Config;
#[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
use rustls::crypto::CryptoProvider;

use super::io::Connector;

/// Speaks TLS to `https://` servers over another connector.
///
/// # Errors
/// The configuration's certificates can't be used, or TLS is wanted and no feature chooses one.
#[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
pub(super) fn connector(config: &Config, over: Connector) -> Result<Connector, kube::Error> {
    use kube::client::ConfigExt;

    // It refuses to choose where both ways are in the build; refused where another thread was faster, which does as well.
    let _ = crypto_provider().as_ref().clone().install_default();
    Ok(super::io::connector(config.rustls_https_connector_with_connector(over)?))
}

/// Speaks TLS to `https://` servers over another connector.
///
/// # Errors
/// The configuration's certificates can't be used.
#[cfg(all(feature = "openssl", not(any(feature = "ring", feature = "aws-lc-rs"))))]
pub(super) fn connector(config: &Config, over: Connector) -> Result<Connector, kube::Error> {
    use kube::client::ConfigExt;

    Ok(super::io::connector(config.openssl_https_connector_with_connector(over)?))
}

/// Speaks to `http://` servers alone.
///
/// # Errors
/// TLS is wanted, and no feature chooses one.
#[cfg(not(any(feature = "ring", feature = "aws-lc-rs", feature = "openssl")))]
pub(super) fn connector(config: &Config, over: Connector) -> Result<Connector, kube::Error> {
    match config.cluster_url.scheme_str() {
        Some("https") => Err(kube::Error::TlsRequired),
        _ => Ok(over),
    }
}

/// Returns how rustls computes: as the program chose for its process, else as cargo's features say.
#[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
pub(in crate::manager) fn crypto_provider() -> Arc<CryptoProvider> {
    #[cfg(feature = "aws-lc-rs")]
    let built_in = rustls::crypto::aws_lc_rs::default_provider;
    #[cfg(not(feature = "aws-lc-rs"))]
    let built_in = rustls::crypto::ring::default_provider;
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(built_in()))
}
