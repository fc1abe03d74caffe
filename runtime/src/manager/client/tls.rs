//! TLS as cargo's features choose it: rustls with aws-lc or ring, OpenSSL, or none.

use kube::Config;

use super::io::Connector;

/// Speaks TLS to `https://` servers over another connector.
///
/// # Errors
/// The configuration's certificates can't be used, or TLS is wanted and no feature chooses one.
#[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
pub(super) fn connector(config: &Config, over: Connector) -> Result<Connector, kube::Error> {
    use kube::client::ConfigExt;

    choose_provider();
    Ok(super::io::connector(config.rustls_https_connector_with_connector(over)?))
}

/// Chooses how rustls computes, unless the program has: it refuses to choose where both ways are in the build.
#[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
fn choose_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_some() {
        return;
    }
    #[cfg(feature = "aws-lc-rs")]
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    #[cfg(not(feature = "aws-lc-rs"))]
    let provider = rustls::crypto::ring::default_provider();
    // Refused where another thread was faster, which does as well.
    let _ = provider.install_default();
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
