//! An operator that keeps one Deployment for every Website.

mod domains;
mod reconciler;
mod website;

use watchkeeper::prelude::*;

use domains::Domains;
use website::Website;

fn main() -> std::process::ExitCode {
    watchkeeper::cli(("{{project-name}}", env!("CARGO_PKG_VERSION")), |manager| {
        manager.kind::<Website>().controller(reconciler::controller(Arc::new(Domains::default())))
    })
}
