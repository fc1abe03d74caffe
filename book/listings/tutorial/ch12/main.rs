//! Keeps a Deployment for every Website.

mod children;
mod registrar;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trials;
mod website;

use std::process::ExitCode;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Secret, Service},
};
use watchkeeper::{WriteError, prelude::*};

use children::{deployment_for, service_for};
use registrar::{Registrar, RegistrarError, Remote};
use website::Website;

/// What a run can fail with.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Registrar(#[from] RegistrarError),
}

/// Keeps a Deployment and a Service for every website, and registers its domain.
struct Websites<R> {
    registrar: R,
}

impl<R: Registrar> Reconciler<Website> for Websites<R> {
    type Error = Error;

    async fn reconcile(
        &self,
        site: Arc<Website>,
        cx: &Context<Website>,
    ) -> Result<Action, Self::Error> {
        let mut status = site.status.clone().unwrap_or_default();
        let owner = cx.key().to_string();
        if let Err(error) = self.registrar.register(&site.spec.domain, &owner).await
        {
            let condition =
                Condition::not_ready("NotRegistered", error.to_string());
            status.conditions.set(condition.of(&site));
            cx.patch_status(&site, status).await?;
            return Err(error.into());
        }
        if let Some(condition) = missing_certificate(&site, cx) {
            status.conditions.set(condition.of(&site));
            cx.patch_status(&site, status).await?;
            return Ok(Action::await_change());
        }

        let mut service = cx.apply(service_for(&site));
        if site.annotations().contains_key("web.example.dev/adopt") {
            service = service.adopt();
        }
        service.await?;
        let deployment = cx.apply(deployment_for(&site)).await?;

        let ready = deployment.status.and_then(|status| status.ready_replicas);
        status.ready = ready.unwrap_or_default();
        let condition = readiness(&site, status.ready);
        let was_ready = status.conditions.is_true("Ready");
        status.conditions.set(condition.of(&site));
        if status.conditions.is_true("Ready") && !was_ready {
            cx.event(Event::normal("Serving", "every pod is ready"));
        }
        cx.patch_status(&site, status).await?;
        Ok(Action::await_change())
    }

    async fn cleanup(
        &self,
        site: Arc<Website>,
        cx: &Context<Website>,
    ) -> Result<Cleanup, Self::Error> {
        let owner = cx.key().to_string();
        match self.registrar.release(&site.spec.domain, &owner).await {
            // It never was this site's.
            Err(RegistrarError::Taken(_)) => Ok(Cleanup::Done),
            released => Ok(released.map(|()| Cleanup::Done)?),
        }
    }

    fn is_terminal(error: &Error) -> bool {
        matches!(error, Error::Registrar(RegistrarError::Taken(_)))
    }
}

/// Says whether a site is ready, and if not, what it waits for.
fn readiness(site: &Website, ready: i32) -> Condition {
    let wanted = site.spec.replicas;
    if ready >= wanted {
        Condition::ready("Serving", "every pod is ready")
    } else {
        Condition::not_ready(
            "Waiting",
            format!("{ready} of {wanted} pods are ready"),
        )
    }
}

/// Says what is missing of the certificate that a site asks for.
fn missing_certificate(site: &Website, cx: &Context<Website>) -> Option<Condition> {
    let name = site.spec.tls_secret.as_ref()?;
    let key = ObjectKey::new(site.namespace().unwrap_or_default(), name);
    let has_certificate = cx.lister::<Secret>().pick(&key, |secret| {
        secret.data.as_ref().is_some_and(|data| data.contains_key("tls.crt"))
    });
    let missing = match has_certificate {
        None => format!("the Secret {name} does not exist"),
        Some(false) => format!("the Secret {name} has no tls.crt"),
        Some(true) => return None,
    };
    Some(Condition::not_ready("NoCertificate", missing))
}

fn main() -> ExitCode {
    let url = std::env::var("REGISTRAR");
    let url = url.unwrap_or_else(|_| "http://127.0.0.1:7070".to_owned());
    watchkeeper::cli(("websites", env!("CARGO_PKG_VERSION")), |manager| {
        operator(manager, Remote::new(url))
    })
}

/// The whole operator, as the program runs it.
fn operator<R: Registrar>(manager: Manager, registrar: R) -> Manager {
    let rate = RateLimit::per_second(50).burst(100);
    manager
        .kind::<Website>()
        .leader_election("websites")
        .grace_period(Duration::from_secs(20))
        .controller(controller(registrar).workers(8).rate_limit(rate))
}

fn controller<R: Registrar>(registrar: R) -> Controller<Website, Websites<R>> {
    Controller::new(Websites { registrar })
        .owns::<Deployment>()
        .owns::<Service>()
        .reads::<Secret>()
        .records_events()
        .deadline(Duration::from_secs(30))
        .finalizer("web.example.dev/domain")
}
