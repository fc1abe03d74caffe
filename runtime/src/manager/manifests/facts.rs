//! What a manager says of its program, and manifests are made of.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use crate::{
    error::Error,
    manager::{
        Rules,
        http::{Http, IN_A_POD},
    },
};

/// What a manager says of its program.
#[derive(Clone, Debug)]
pub(in crate::manager) struct ProgramFacts {
    pub(in crate::manager) namespace: String,
    /// The name of its webhooks and permissions.
    pub(in crate::manager) name: String,
    pub(in crate::manager) rules: Rules,
    pub(in crate::manager) api: GeneratedApi,
    /// `None`: it does not serve HTTP.
    pub(in crate::manager) http: Option<HttpPort>,
    pub(in crate::manager) is_elected: bool,
    /// How long a replica that shares the work looks on before it takes part.
    pub(in crate::manager) looks_on: Option<Duration>,
    pub(in crate::manager) has_controllers: bool,
    pub(in crate::manager) grace_period: Duration,
}

/// What an API server has of a program's own API, and where it finds the webhooks.
#[derive(Clone, Debug, Default)]
pub(in crate::manager) struct GeneratedApi {
    pub(in crate::manager) definitions: Vec<CustomResourceDefinition>,
    /// The webhook configurations, without the authority.
    pub(in crate::manager) configurations: Vec<Value>,
    /// The admission policies and their bindings.
    pub(in crate::manager) policies: Vec<Value>,
    pub(in crate::manager) port: Option<WebhookPort>,
}

/// The port of a program's webhooks.
#[derive(Clone, Debug)]
pub(in crate::manager) struct WebhookPort {
    pub(in crate::manager) port: u16,
    /// Namespace and name of the Service; `None`: the API server calls a URL.
    pub(in crate::manager) service: Option<(String, String)>,
    /// The folder of its certificate, and the Secret that is mounted there.
    pub(in crate::manager) files: Option<(PathBuf, String)>,
}

/// The port of probes, and the folder of its certificate under TLS.
#[derive(Clone, Debug)]
pub(in crate::manager) struct HttpPort {
    pub(super) port: u16,
    pub(super) certificate: Option<PathBuf>,
}

impl HttpPort {
    /// Reads where HTTP is served: in a pod it is, unless the program says otherwise.
    pub(in crate::manager) fn of(http: Option<&Http>) -> Result<Option<Self>, Error> {
        let Some(address) = http.map_or(Some(IN_A_POD), Http::address) else { return Ok(None) };
        let host = address.trim().rsplit_once(':').map_or("", |(host, _)| host.trim_matches(['[', ']']));
        let is_loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if is_loopback || host == "localhost" {
            return Err(Error::Manifests(format!(
                "probes can't reach the address {address:?} of a pod: write it as :8080 or 0.0.0.0:8080"
            )));
        }
        let certificate = http.and_then(Http::certificate).and_then(Path::parent).map(Path::to_owned);
        Ok(Some(Self { port: port_of(address)?, certificate }))
    }
}

/// Reads the port of an address.
pub(in crate::manager) fn port_of(address: &str) -> Result<u16, Error> {
    let port = address.trim().rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    port.filter(|port| *port > 0).ok_or_else(|| {
        Error::Manifests(format!(
            "the address {address:?} has no fixed port: write it as :8080 or 0.0.0.0:8080"
        ))
    })
}
