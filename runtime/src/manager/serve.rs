//! What of a manager is served over HTTP, where that is built in.

#[cfg(feature = "http")]
pub(super) use built_in::{Serve, Served};
#[cfg(not(feature = "http"))]
pub(super) use left_out::{Serve, Served};

#[cfg(feature = "http")]
mod built_in {
    use crate::{
        error::Error,
        manager::{
            Http, HttpService, Inspector,
            http::{Bound, IN_A_POD, Serving},
            process::{ClientOrigin, Surroundings},
        },
        metrics::Metrics,
    };

    /// What is to be served, and where.
    #[derive(Clone, Default)]
    pub(in crate::manager) struct Serve {
        /// `None`: nothing was said.
        pub(in crate::manager) http: Option<Http>,
    }

    /// What is served.
    #[derive(Default)]
    pub(in crate::manager) struct Served {
        pub(in crate::manager) service: Option<HttpService>,
        pub(in crate::manager) serving: Option<Serving>,
    }

    impl Serve {
        pub(in crate::manager) fn reviews(&self) -> bool {
            self.http.as_ref().is_some_and(Http::reviews)
        }

        /// Takes the port, if there is to be one.
        pub(in crate::manager) fn bind(&self, cluster: &ClientOrigin) -> Result<Option<Bound>, Error> {
            match (&self.http, cluster.surroundings) {
                (Some(http), _) => Bound::take(http),
                (None, Surroundings::Pod) => Bound::take(&Http::on(IN_A_POD)),
                (None, Surroundings::Elsewhere) => Ok(None),
            }
        }

        pub(in crate::manager) fn service(
            &self,
            inspector: &Inspector,
            metrics: &Metrics,
            client: &kube::Client,
        ) -> HttpService {
            let settings = self.http.clone().unwrap_or_else(Http::off);
            HttpService::new(&settings, inspector.clone(), metrics.clone(), client)
        }

        /// Answers from now on.
        pub(in crate::manager) fn start(
            &self,
            bound: Option<Bound>,
            inspector: &Inspector,
            metrics: &Metrics,
            client: &kube::Client,
        ) -> Served {
            let service = self.service(inspector, metrics, client);
            let serving = bound.map(|bound| bound.serve(service.clone()));
            Served { service: Some(service), serving }
        }
    }

    impl Served {
        /// Gives the port up.
        pub(in crate::manager) async fn stop(&mut self) {
            if let Some(serving) = self.serving.take() {
                serving.stop().await;
            }
        }
    }
}

#[cfg(not(feature = "http"))]
mod left_out {
    use crate::{
        error::Error,
        manager::{Inspector, process::ClientOrigin},
        metrics::Metrics,
    };

    #[derive(Clone, Default)]
    pub(in crate::manager) struct Serve;

    #[derive(Default)]
    pub(in crate::manager) struct Served;

    impl Serve {
        pub(in crate::manager) fn reviews(&self) -> bool {
            false
        }

        pub(in crate::manager) fn bind(&self, _: &ClientOrigin) -> Result<(), Error> {
            Ok(())
        }

        pub(in crate::manager) fn start(
            &self,
            (): (),
            _: &Inspector,
            _: &Metrics,
            _: &kube::Client,
        ) -> Served {
            Served
        }
    }

    impl Served {
        pub(in crate::manager) async fn stop(&mut self) {}
    }
}
