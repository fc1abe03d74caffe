//! TLS on the port, where it is built in.

#[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
pub(super) use built_in::{Reloader, Tls, load};
#[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
pub(super) use left_out::{NoReloader as Reloader, Tls, load};

#[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
mod built_in {
    use std::{fmt, io, sync::Arc};

    use rustls::ServerConfig;
    use tokio::io::{AsyncRead, AsyncWrite};
    use tokio_rustls::{TlsAcceptor, server::TlsStream};

    pub(in crate::manager::http) use super::super::certificates::Reloader;
    use super::super::{
        certificates,
        settings::{TlsFiles, UnusableCertificate},
    };
    use crate::manager::crypto_provider;

    /// Speaks TLS with clients; clones are the same.
    #[derive(Clone)]
    pub(in crate::manager::http) struct Tls(TlsAcceptor);

    impl Tls {
        /// Takes a client's handshake, however long that takes.
        pub(in crate::manager::http) async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
        where
            S: AsyncRead + AsyncWrite + Unpin,
        {
            self.0.accept(stream).await
        }
    }

    /// Reads the files for the first time; what else is returned reads them again and again.
    pub(in crate::manager::http) fn load(files: &TlsFiles) -> Result<(Tls, Reloader), UnusableCertificate> {
        let provider = crypto_provider::chosen();
        let (current, reloader) = certificates::load(files.clone(), provider.clone())?;
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config =
            config.map_err(|error| UnusableCertificate { problem: error.to_string(), source: None })?;
        let mut config = config.with_no_client_auth().with_cert_resolver(Arc::new(current));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok((Tls(Arc::new(config).into()), reloader))
    }

    impl fmt::Debug for Tls {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Tls")
        }
    }
}

#[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
mod left_out {
    use std::io;

    use super::super::settings::{TlsFiles, UnusableCertificate};

    #[derive(Clone, Debug)]
    pub(in crate::manager::http) enum Tls {}

    #[derive(Debug)]
    pub(in crate::manager::http) enum NoReloader {}

    impl Tls {
        pub(in crate::manager::http) async fn accept<S>(&self, _: S) -> io::Result<S> {
            match *self {}
        }
    }

    impl NoReloader {
        pub(in crate::manager::http) async fn run(self) {
            match self {}
        }
    }

    pub(in crate::manager::http) fn load(_: &TlsFiles) -> Result<(Tls, NoReloader), UnusableCertificate> {
        let problem =
            "TLS is not built in: give watchkeeper the cargo feature `ring` or `aws-lc-rs`".to_owned();
        Err(UnusableCertificate { problem, source: None })
    }
}
