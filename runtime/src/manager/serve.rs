//! What of a manager is served over HTTP, where that is built in.

#[cfg(feature = "http")]
pub(super) use built_in::{Serve, Served};
#[cfg(not(feature = "http"))]
pub(super) use left_out::{Serve, Served};

/// What answers are made of: a client that does not depend on leadership is the last.
type Sources<'a> = (
    &'a super::Inspector,
    &'a crate::metrics::Metrics,
    &'a kube::Client,
    &'a crate::flight_recorder::RecordingSlot,
);

#[cfg(feature = "http")]
mod built_in {
    use super::Sources;
    use crate::{
        error::Error,
        manager::{
            Http, HttpService,
            http::{Bound, IN_A_POD, Serving},
        },
    };

    /// What is to be served, and where.
    #[derive(Clone, Default)]
    pub(crate) struct Serve {
        /// `None`: nothing was said.
        pub(crate) http: Option<Http>,
    }

    /// What is served.
    #[derive(Default)]
    pub(crate) struct Served {
        pub(crate) service: Option<HttpService>,
        pub(crate) serving: Option<Serving>,
    }

    impl Serve {
        pub(crate) fn reviews(&self) -> bool {
            self.http.as_ref().is_some_and(Http::reviews)
        }

        /// Takes the port, if there is to be one.
        pub(crate) fn bind(&self, in_a_pod: bool) -> Result<Option<Bound>, Error> {
            match &self.http {
                Some(http) => Bound::take(http),
                None if in_a_pod => Bound::take(&Http::on(IN_A_POD)),
                None => Ok(None),
            }
        }

        pub(crate) fn service(&self, (inspector, metrics, client, recorder): Sources<'_>) -> HttpService {
            let settings = self.http.clone().unwrap_or_else(Http::off);
            HttpService::new(&settings, inspector.clone(), metrics.clone(), client, recorder.clone())
        }

        /// Answers from now on.
        pub(crate) fn start(&self, bound: Option<Bound>, sources: Sources<'_>) -> Served {
            let service = self.service(sources);
            let serving = bound.map(|bound| bound.serve(service.clone()));
            Served { service: Some(service), serving }
        }
    }

    impl Served {
        /// Gives the port up.
        pub(crate) async fn stop(&mut self) {
            if let Some(serving) = self.serving.take() {
                serving.stop().await;
            }
        }
    }
}

#[cfg(not(feature = "http"))]
mod left_out {
    use super::Sources;
    use crate::error::Error;

    #[derive(Clone, Default)]
    pub(crate) struct Serve;

    #[derive(Default)]
    pub(crate) struct Served;

    impl Serve {
        pub(crate) fn reviews(&self) -> bool {
            false
        }

        pub(crate) fn bind(&self, _: bool) -> Result<(), Error> {
            Ok(())
        }

        pub(crate) fn start(&self, (): (), _: Sources<'_>) -> Served {
            Served
        }
    }

    impl Served {
        pub(crate) async fn stop(&mut self) {}
    }
}
