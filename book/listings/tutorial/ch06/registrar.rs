//! The registrar, with which domains are registered.

use http::{Method, Request, StatusCode};
use http_body_util::Empty;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

/// What the registrar can fail with.
#[derive(Debug, thiserror::Error)]
pub enum RegistrarError {
    /// Somebody else has the domain.
    #[error("the domain {0} is taken")]
    Taken(String),
    /// It answered something unexpected.
    #[error("the registrar answered {0}")]
    Answered(StatusCode),
    /// It did not answer.
    #[error("the registrar can't be reached")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Where domains are registered.
pub trait Registrar: Send + Sync + 'static {
    /// Registers a domain for an owner, who may have it already.
    fn register(
        &self,
        domain: &str,
        owner: &str,
    ) -> impl Future<Output = Result<(), RegistrarError>> + Send;
}

/// A registrar that is asked over HTTP.
pub struct Remote {
    url: String,
    client: Client<HttpConnector, Empty<&'static [u8]>>,
}

impl Remote {
    /// Asks at a URL, such as `http://127.0.0.1:7070`.
    pub fn new(url: impl Into<String>) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { url: url.into(), client }
    }

    async fn send(
        &self,
        method: Method,
        domain: &str,
        owner: &str,
    ) -> Result<StatusCode, RegistrarError> {
        let uri = format!("{}/domains/{domain}?owner={owner}", self.url);
        let request = Request::builder().method(method).uri(uri).body(Empty::new());
        let request =
            request.map_err(|error| RegistrarError::Unreachable(error.into()))?;
        let response = self.client.request(request).await;
        let response =
            response.map_err(|error| RegistrarError::Unreachable(error.into()))?;
        Ok(response.status())
    }
}

impl Registrar for Remote {
    async fn register(
        &self,
        domain: &str,
        owner: &str,
    ) -> Result<(), RegistrarError> {
        match self.send(Method::PUT, domain, owner).await? {
            StatusCode::OK => Ok(()),
            StatusCode::CONFLICT => Err(RegistrarError::Taken(domain.to_owned())),
            other => Err(RegistrarError::Answered(other)),
        }
    }
}
