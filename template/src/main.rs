//! An operator that keeps one Deployment for every Website.

mod domains;
mod reconciler;
mod website;

use tracing_subscriber::EnvFilter;
use watchkeeper::prelude::*;

use domains::Domains;
use website::Website;

#[tokio::main]
async fn main() -> Result<(), watchkeeper::Error> {
    // RUST_LOG says otherwise: RUST_LOG=watchkeeper=debug
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).init();

    let manager = Manager::infer().await?.controller(reconciler::controller(Arc::new(Domains::default())));
    manager.install_crd::<Website>().await?;
    manager.run().await
}
