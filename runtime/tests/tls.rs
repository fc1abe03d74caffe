//! The choice of how rustls computes; alone in its process, for which it is made.

use watchkeeper::{kube::Config, manager::client};

// Where both of rustls' providers are in the build, it panics unless one has been chosen before it is used.
#[test]
fn a_provider_is_chosen_before_anything_of_tls_is_built() {
    assert!(rustls::crypto::CryptoProvider::get_default().is_none(), "this process is not fresh");
    let mut config = Config::new("https://api.example".parse().unwrap());
    // Refused before rustls is asked for anything.
    config.auth_info.client_certificate_data = Some("not base64".to_owned());
    assert!(client(config).is_err());
    assert!(rustls::crypto::CryptoProvider::get_default().is_some());
}
