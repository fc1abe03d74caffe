//! The webhooks of a program: which kinds they are for, and where they are served.

use std::{convert::Infallible, fmt, marker::PhantomData, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use tower::{service_fn, util::BoxCloneSyncService};

use super::{
    admit::{Admit, Defaulter, Defaults, Validates, Validator},
    calls::Calls,
    handle::{Handlers, WebhookResponse},
    hooks::{AdmissionHook, Purpose, STATUS},
    request::Operation,
};
use crate::{
    metrics::WebhookMetrics,
    object::{Kind, ObjectKey},
    versions::{Conversions, Convert, Versioned},
    writes::TypedObject,
};

/// How long the port of a Service goes on to answer after a stop.
const LINGER: Duration = Duration::from_secs(10);
/// The webhooks of an operator: defaults, validation, and conversion of versions, on one TLS port.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use watchkeeper::webhook::{Change, Review, Validator, Webhooks};
/// struct Rules;
///
/// impl Validator<ConfigMap> for Rules {
///     async fn validate(&self, change: Change<'_, ConfigMap>, review: &mut Review) {
///         if change.object().data.is_none() {
///             review.field("data").required();
///         }
///     }
/// }
///
/// let webhooks = Webhooks::new(":9443").validates::<ConfigMap>(Rules);
/// ```
///
/// Every replica serves them, leader or not. A request that panics, or that takes too long, gets an answer all the same:
/// the failure policy says whether it is allowed.
#[derive(Clone)]
#[must_use = "webhooks do nothing until a manager has them"]
pub struct Webhooks {
    pub(crate) address: String,
    /// What its configurations and its Secret are named after.
    pub(crate) name: Option<String>,
    pub(super) service: Option<ServiceName>,
    pub(super) url: Option<String>,
    pub(super) linger: Option<Duration>,
    /// A folder with `tls.crt` and `tls.key`, if certificates are not made by the program.
    pub(crate) files: Option<PathBuf>,
    /// The program's own Lease, which it must be able to write before its webhooks answer.
    pub(super) lease: Option<ObjectKey>,
    /// Whether each replica has a Lease as well, whose name begins with that of the program's.
    pub(super) has_lease_each: bool,
    /// Namespace and name of cert-manager's Certificate.
    pub(super) certificate: Option<String>,
    pub(super) handlers: Handlers,
}

/// The Service in front of the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceName {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.handlers.hooks.keys().collect();
        let converted: Vec<_> = self.handlers.conversions.keys().collect();
        f.debug_struct("Webhooks")
            .field("address", &self.address)
            .field("paths", &paths)
            .field("conversions", &converted)
            .finish_non_exhaustive()
    }
}

impl Webhooks {
    /// Serves webhooks at an address, such as `:9443`.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            name: None,
            service: None,
            url: None,
            linger: None,
            lease: None,
            has_lease_each: false,
            files: None,
            certificate: None,
            handlers: Handlers::default(),
        }
    }

    /// Has a defaulter complete objects of a kind.
    pub fn defaults<K: TypedObject>(self, defaulter: impl Defaulter<K>) -> Self {
        self.defaults_with(Calls::new(), defaulter)
    }

    /// Has a defaulter complete objects of a kind, with settings.
    ///
    /// Of several defaulters of one kind, each sees what those before it made. The first one's settings count.
    ///
    /// If a validator of the kind follows, a defaulter is not called for an object that its type can't read: the API
    /// server then names all fields that do not fit the schema, and the validator refuses what is left.
    pub fn defaults_with<K: TypedObject>(self, mut calls: Calls, defaulter: impl Defaulter<K>) -> Self {
        calls.operations.retain(|operation| matches!(operation, Operation::Create | Operation::Update));
        self.add::<K>(Purpose::Defaults, calls, Arc::new(Defaults(defaulter, PhantomData)))
    }

    /// Has a validator decide about creations and updates of a kind.
    pub fn validates<K: TypedObject>(self, validator: impl Validator<K>) -> Self {
        self.validates_with(Calls::new(), validator)
    }

    /// Has a validator decide about operations on a kind, with settings.
    ///
    /// Of several validators of one kind, all must allow an operation, and the user sees what all of them found. The first
    /// one's settings count.
    ///
    /// Each version of a kind may have its own: `.validates::<v2::Stall>(rules)`. Those of the version that the user wrote
    /// come first, so that they name its fields. Only if they allow it, those of the other versions see it converted.
    pub fn validates_with<K: TypedObject>(self, calls: Calls, validator: impl Validator<K>) -> Self {
        self.add::<K>(Purpose::Validates, calls, Arc::new(Validates(validator, PhantomData)))
    }

    /// Converts between the versions of a kind. A manager calls this for each kind with several versions.
    pub fn converts<K: Versioned + TypedObject + kube::CustomResourceExt>(self) -> Self {
        self.converting(&Conversions::<K>::shared())
    }

    pub(crate) fn converting(mut self, conversion: &Arc<dyn Convert>) -> Self {
        if let Ok(definition) = conversion.definition() {
            let key = (definition.spec.group, definition.spec.names.kind);
            self.handlers.conversions.insert(key, conversion.clone());
        }
        self
    }

    /// Sets where the API server finds the webhooks, if that was not said.
    pub(crate) fn served_by(self, namespace: &str, name: &str) -> Self {
        match self.service.is_none() && self.url.is_none() {
            true => self.service(namespace, name),
            false => self,
        }
    }

    /// Counts the calls in a manager's metrics.
    pub(crate) fn counted_in(self, metrics: WebhookMetrics) -> Self {
        let handlers = Handlers { metrics: Some(metrics), ..self.handlers };
        Self { handlers, ..self }
    }

    /// Says by which Lease the program leads, and whether its replicas have one each, with names that begin so.
    pub(crate) fn led_by(self, lease: Option<ObjectKey>, has_lease_each: bool) -> Self {
        Self { lease, has_lease_each, ..self }
    }

    /// Names what the configurations, the Secret and the Service are named after. Default: the program's first controller.
    ///
    /// With `named("stalls")` all three are `stalls-webhooks`. Objects of an earlier name stay: delete these configurations
    /// when you change it, since they call a Service that nobody serves.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Names the Service in front of the webhooks, through which the API server calls them on port 443.
    pub fn service(self, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { service: Some(ServiceName { namespace: namespace.into(), name: name.into() }), ..self }
    }

    /// Has the API server call the webhooks at a URL, such as `https://127.0.0.1:9443`, in place of a Service.
    pub fn url(self, url: impl Into<String>) -> Self {
        Self { url: Some(url.into().trim_end_matches('/').to_owned()), ..self }
    }

    /// Serves the certificate in a folder's `tls.crt` and `tls.key`, in place of one that the program makes.
    ///
    /// The files are read again when they change. Nothing writes the authority into configurations then, unless
    /// [`injected_from`](Self::injected_from) has cert-manager do it.
    pub fn files(self, folder: impl Into<PathBuf>) -> Self {
        Self { files: Some(folder.into()), ..self }
    }

    /// Has cert-manager write the authority of a Certificate into the configurations.
    pub fn injected_from(self, namespace: &str, certificate: &str) -> Self {
        Self { certificate: Some(format!("{namespace}/{certificate}")), ..self }
    }

    fn add<K: TypedObject>(mut self, purpose: Purpose, calls: Calls, handler: Arc<dyn Admit>) -> Self {
        let hook = AdmissionHook { purpose, kind: Kind::of::<K>(), calls, handlers: Vec::new() };
        let hook = self.handlers.hooks.entry(hook.path()).or_insert_with(|| Arc::new(hook));
        let mut handlers = hook.handlers.clone();
        handlers.push(handler);
        let (kind, calls) = (hook.kind.clone(), hook.calls.clone());
        *hook = Arc::new(AdmissionHook { purpose, kind, calls, handlers });
        self
    }

    /// Sets how long the port goes on to answer after a stop: ten seconds behind a Service, not at all at a URL.
    ///
    /// In this time an API server learns that the replica goes. After that, the port goes on to answer on connections that are
    /// open until the API server closes them, which it does after 90 s without a call, or until the
    /// [grace period](crate::Manager::grace_period) is over. So no call at all is lost with a grace period of 110 s, in the
    /// pod's `terminationGracePeriodSeconds` as well.
    pub fn linger_for(self, linger: Duration) -> Self {
        Self { linger: Some(linger), ..self }
    }

    pub(crate) fn linger(&self) -> Duration {
        self.linger.unwrap_or(if self.url.is_some() { Duration::ZERO } else { LINGER })
    }

    /// Returns the namespace of the Service, if one is named.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.service.as_ref().map(|service| service.namespace.as_str())
    }

    /// Says which calls can be answered: conversions with their versions, then the paths of webhooks and their subresources.
    pub(crate) fn answers(&self) -> String {
        let conversion = |((group, kind), conversion): (&(String, String), &Arc<dyn Convert>)| {
            format!("{kind}.{group}={}", conversion.versions().join(","))
        };
        let conversions = self.handlers.conversions.iter().map(conversion);
        let paths = self.handlers.hooks.iter().map(|(path, hook)| match hook.calls.status {
            true => format!("{path} {path}/{STATUS}"),
            false => path.clone(),
        });
        conversions.chain(paths).collect::<Vec<_>>().join(" ")
    }

    /// Returns the names of the definitions whose objects are converted.
    pub(crate) fn converted(&self) -> Vec<String> {
        let definitions =
            self.handlers.conversions.values().filter_map(|conversion| conversion.definition().ok());
        definitions.filter_map(|definition| definition.metadata.name).collect()
    }

    /// Returns the namespace and the name of the Service, if the API server calls one.
    pub(crate) fn service_in(&self) -> Option<(&str, &str)> {
        let service = self.service.as_ref().filter(|_| self.url.is_none())?;
        Some((&service.namespace, &service.name))
    }

    /// Returns the name of cert-manager's Certificate, if one is named.
    pub(crate) fn certificate_name(&self) -> Option<&str> {
        self.certificate.as_deref()?.split('/').next_back()
    }

    /// Lets handlers run that read caches.
    pub(crate) fn caches_have_synced(&self) {
        self.handlers.synced.send_replace(true);
    }

    /// Answers a `POST` of a review, as an API server sends it; tests may call it without a socket.
    ///
    /// It never panics, and never allows what it can't read. Only `admission.k8s.io/v1` and `apiextensions.k8s.io/v1`
    /// are answered.
    pub async fn handle(&self, path: &str, query: &str, body: &[u8]) -> WebhookResponse {
        self.handlers.handle(path, query, body).await
    }
}

/// Serves the webhooks in the process: a `POST` of a review in, its answer out. A test hands it to its API server.
impl From<&Webhooks> for BoxCloneSyncService<Request<Bytes>, Response<Bytes>, Infallible> {
    fn from(webhooks: &Webhooks) -> Self {
        let webhooks = webhooks.clone();
        Self::new(service_fn(move |request: Request<Bytes>| {
            let webhooks = webhooks.clone();
            async move {
                let uri = request.uri();
                let answer =
                    webhooks.handle(uri.path(), uri.query().unwrap_or_default(), request.body()).await;
                Ok(answer.into_http())
            }
        }))
    }
}
