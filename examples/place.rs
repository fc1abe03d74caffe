//! The place where an example runs: an API server inside the process, or the cluster of `KUBECONFIG`.

#[cfg(feature = "embedded")]
use std::io;
use std::{fmt, path::PathBuf};

use anyhow::Context as _;
use kube::{Client, Config, client::ClientBuilder};
#[cfg(feature = "embedded")]
use watchkeeper_apiserver::{ApiServer, OverHttp};

use crate::{CutLayer, Cuts};

/// An API server to run against, and a client whose watches can be cut.
pub struct Place {
    /// Talks to the server.
    pub client: Client,
    /// Cuts the client's watches.
    pub cuts: Cuts,
    /// The commands to join in, if the server is the embedded one.
    pub kubeconfig: Option<PathBuf>,
    /// The server inside the process, which ends with it.
    #[cfg(feature = "embedded")]
    _server: Option<ApiServer<OverHttp>>,
}

impl Place {
    /// Starts an embedded API server on a free port of the loopback interface.
    ///
    /// # Errors
    /// The port can't be bound, or the kubeconfig can't be written.
    #[cfg(feature = "embedded")]
    pub async fn embedded() -> anyhow::Result<Self> {
        let server = ApiServer::http().start().await?;
        let kubeconfig = std::env::temp_dir().join(format!("watchkeeper-{}.kubeconfig", std::process::id()));
        write_private(&kubeconfig, &server.kubeconfig_yaml())?;
        let config = Config::from_custom_kubeconfig(server.kubeconfig(), &Default::default()).await?;
        let (client, cuts) = client(config)?;
        Ok(Self { client, cuts, kubeconfig: Some(kubeconfig), _server: Some(server) })
    }

    /// Says that this program was built without the embedded server.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(feature = "embedded"))]
    pub async fn embedded() -> anyhow::Result<Self> {
        anyhow::bail!("built without the feature `embedded`, which has the API server: run it with --cluster")
    }

    /// Takes the current context of `KUBECONFIG`.
    ///
    /// # Errors
    /// It is missing, or can't be used.
    pub async fn cluster() -> anyhow::Result<Self> {
        let config = Config::infer()
            .await
            .context("no cluster: set KUBECONFIG, or run in a pod with a service account")?;
        let (client, cuts) = client(config)?;
        Ok(Self {
            client,
            cuts,
            kubeconfig: None,
            #[cfg(feature = "embedded")]
            _server: None,
        })
    }

    /// Returns whether the server is inside this process.
    pub fn is_embedded(&self) -> bool {
        self.kubeconfig.is_some()
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("kubeconfig", &self.kubeconfig).finish_non_exhaustive()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(kubeconfig) = &self.kubeconfig {
            // Another process has removed it before.
            let _ = std::fs::remove_file(kubeconfig);
        }
    }
}

/// Builds a client without hidden retries, and with watches that can be cut.
fn client(mut config: Config) -> anyhow::Result<(Client, Cuts)> {
    config.default_retry = false;
    let cuts = Cuts::default();
    let client = ClientBuilder::try_from(config)?.with_layer(&CutLayer::new(cuts.clone())).build();
    Ok((client, cuts))
}

/// Writes a file that only this user may read: it contains a token.
#[cfg(feature = "embedded")]
fn write_private(path: &std::path::Path, text: &str) -> io::Result<()> {
    use std::{io::Write, os::unix::fs::OpenOptionsExt};
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).open(path)?.write_all(text.as_bytes())
}
