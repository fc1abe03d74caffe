//! TLS as cargo's features choose it: rustls with aws-lc or ring, OpenSSL, or none.

use kube::Config;

use super::io::Connector;
#[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
use crate::manager::crypto_provider;

/// Speaks TLS to `https://` servers over another connector.
///
/// # Errors
/// The configuration's certificates can't be used, or TLS is wanted and no feature chooses one.
#[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
pub(super) fn connector(config: &Config, over: Connector) -> Result<Connector, kube::Error> {
    use kube::client::ConfigExt;

    // It refuses to choose where both ways are in the build; refused where another thread was faster, which does as well.
    let _ = crypto_provider::chosen().as_ref().clone().install_default();
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
