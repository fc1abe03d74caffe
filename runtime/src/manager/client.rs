//! The client of a process: found by environment, without hidden retries.

use kube::{Client, Config};

use crate::error::Error;

/// Builds a client for the cluster that the environment names.
///
/// kube's own retry of 429, 503 and 504 is off: it would hide them from the back-off of each informer.
pub(super) async fn infer() -> Result<Client, Error> {
    let mut config = Config::infer().await.map_err(|error| Error::Configuration(error.into()))?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}
