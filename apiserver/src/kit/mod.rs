//! The test kit: short verbs over any `kube::Client`, which panic with a reason.
//!
//! Keys are `"namespace/name"`, or `"name"`: of a cluster-scoped kind, or in the kit's own namespace.

mod observe;
mod show;

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use http::Request;
use kube::core::NamespaceResourceScope;
use kube::core::params::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) use observe::{ObservedScope, Observer, WaitError};
use show::{show, show_all};

/// The deadline of waits unless set, in tokio's time.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The objects that the kit can handle: any typed Kubernetes object.
pub trait Kind:
    kube::Resource<DynamicType = ()> + Clone + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Kind for K where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + fmt::Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// Verbs for tests, on any API server.
///
/// Every verb panics when it fails, naming the object, the reason and the caller's line. Waits go by watching
/// and end at a deadline of tokio's time, so that paused tests take no time at all.
#[derive(Clone)]
pub struct Kit {
    client: kube::Client,
    namespace: String,
    deadline: Duration,
}

impl fmt::Debug for Kit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kit").field("namespace", &self.namespace).field("deadline", &self.deadline).finish()
    }
}

impl Kit {
    /// Takes a client; objects that name no namespace go to the client's default one.
    #[must_use]
    pub fn new(client: kube::Client) -> Self {
        let namespace = client.default_namespace().to_owned();
        Self { client, namespace, deadline: DEADLINE }
    }

    /// Returns the same kit with another deadline for waits.
    #[must_use]
    pub fn within(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// Returns the same kit with another default namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), ..self.clone() }
    }

    /// Creates an object; returns the object that the server stored.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    #[track_caller]
    pub fn create<K: Kind>(&self, object: &K) -> impl Future<Output = K> {
        let call = self.call("create", object.meta().name.as_deref().unwrap_or_default());
        let request =
            self.api::<K>(object.meta().namespace.as_deref()).create(&PostParams::default(), body(object));
        async move { call.send(request).await }
    }

    /// Replaces an object; its resource version, if any, must be the current one.
    ///
    /// # Panics
    ///
    /// When the object has no name, or the server refuses.
    #[track_caller]
    pub fn update<K: Kind>(&self, object: &K) -> impl Future<Output = K> {
        let name = object.meta().name.clone().unwrap_or_default();
        let call = self.call("update", &name);
        let request = self.api::<K>(object.meta().namespace.as_deref()).replace(
            &name,
            &PostParams::default(),
            body(object),
        );
        async move { call.send(request).await }
    }

    /// Reads an object; `None` when it is not there.
    ///
    /// # Panics
    ///
    /// When the server refuses, or the object can't be decoded.
    #[track_caller]
    pub fn get<K: Kind>(&self, key: &str) -> impl Future<Output = Option<K>> {
        let (call, request) = (self.call("get", key), self.read_one::<K>(key));
        async move { call.send_optional(request).await }
    }

    /// Lists the objects of a namespace; `"*"` is all of them, and of cluster-scoped kinds the only choice.
    ///
    /// # Panics
    ///
    /// When the server refuses, or an object can't be decoded.
    #[track_caller]
    pub fn list<K: Kind>(&self, namespace: &str) -> impl Future<Output = Vec<K>> {
        let call = self.call("list", namespace);
        let request = kube::core::Request::new(collection::<K>(namespace)).list(&ListParams::default());
        async move { call.send::<kube::core::ObjectList<K>>(request).await.items }
    }

    /// Patches an object by a JSON merge patch.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    #[track_caller]
    pub fn patch_merge<K: Kind>(&self, key: &str, patch: Value) -> impl Future<Output = K> {
        let call = self.call("patch", key);
        let (namespace, name) = split(key);
        let request = self.api::<K>(namespace).patch(name, &PatchParams::default(), &Patch::Merge(patch));
        async move { call.send(request).await }
    }

    /// Patches an object's status by a JSON merge patch that contains the value of `status`.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    #[track_caller]
    pub fn patch_status<K: Kind>(&self, key: &str, status: Value) -> impl Future<Output = K> {
        let call = self.call("patch the status of", key);
        let (namespace, name) = split(key);
        let patch = Patch::Merge(serde_json::json!({ "status": status }));
        let request =
            self.api::<K>(namespace).patch_subresource("status", name, &PatchParams::default(), &patch);
        async move { call.send(request).await }
    }

    /// Deletes an object; returns it if it is still there, waiting for its finalizers.
    ///
    /// # Panics
    ///
    /// When there is no such object, or the server refuses.
    #[track_caller]
    pub fn delete<K: Kind>(&self, key: &str) -> impl Future<Output = Option<K>> {
        let call = self.call("delete", key);
        let (namespace, name) = split(key);
        let request = self.api::<K>(namespace).delete(name, &DeleteParams::default());
        async move {
            let answer: Value = call.send(request).await;
            if answer["kind"] == "Status" { None } else { Some(call.decode(answer)) }
        }
    }

    /// Deletes an object, finalizers or not, and creates its like under the same name, with another uid.
    ///
    /// Existing fields stay, except its status and the fields that the server writes.
    ///
    /// # Panics
    ///
    /// When there is no such object, it doesn't go, or the server refuses.
    #[track_caller]
    pub fn recreate<K: Kind>(&self, key: &str) -> impl Future<Output = K> {
        let call = self.call("recreate", key);
        let (namespace, name) = split(key);
        let (read, path) = (self.read_one::<K>(key), self.path::<K>(namespace));
        let (api, name) = (kube::core::Request::new(path), name.to_owned());
        async move {
            let mut object: Value = call.send(read).await;
            if !object["metadata"]["finalizers"].is_null() {
                let patch = Patch::Merge(serde_json::json!({ "metadata": { "finalizers": null } }));
                call.send::<Value>(api.patch(&name, &PatchParams::default(), &patch)).await;
            }
            let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            call.send::<Value>(api.delete(&name, &at_once)).await;
            reset(&mut object);
            call.send(api.create(&PostParams::default(), object.to_string().into_bytes())).await
        }
    }

    /// Waits until an object passes a check; returns it.
    ///
    /// The check runs on the present object (`None`: it is not there), then after every change of it.
    ///
    /// # Panics
    ///
    /// At the deadline, showing the object last seen.
    #[track_caller]
    pub fn eventually<K: Kind>(
        &self,
        key: &str,
        mut wanted: impl FnMut(Option<&K>) -> bool,
    ) -> impl Future<Output = Option<K>> {
        let call = self.call("see", key);
        let mut observer = self.observer::<K>(key);
        async move {
            let seen = observer.until(call.kit.deadline, |objects| {
                let object = objects.first().and_then(|value| decode::<K>(value).ok());
                wanted(object.as_ref()).then_some(object)
            });
            match seen.await {
                Ok(object) => object,
                Err(error) => call.missed::<K>(&error, &observer.objects()),
            }
        }
    }

    /// Waits until the objects of a namespace (`"*"`: of all) pass a check; returns them.
    ///
    /// # Panics
    ///
    /// At the deadline; shows the last state.
    #[track_caller]
    pub fn eventually_list<K: Kind>(
        &self,
        namespace: &str,
        mut wanted: impl FnMut(&[K]) -> bool,
    ) -> impl Future<Output = Vec<K>> {
        let call = self.call("see in", namespace);
        let mut observer = Observer::new(self.client.clone(), ObservedScope::all(collection::<K>(namespace)));
        async move {
            let seen = observer.until(call.kit.deadline, |values| {
                let objects: Vec<K> = values.iter().filter_map(|value| decode(value).ok()).collect();
                wanted(&objects).then_some(objects)
            });
            match seen.await {
                Ok(objects) => objects,
                Err(error) => call.missed::<K>(&error, &observer.objects()),
            }
        }
    }

    /// Watches an object for some time, in which it must never match.
    ///
    /// # Panics
    ///
    /// As soon as it matches, with the object; also when it can't be watched for all that time.
    #[track_caller]
    pub fn never<K: Kind>(
        &self,
        key: &str,
        time: Duration,
        mut unwanted: impl FnMut(Option<&K>) -> bool,
    ) -> impl Future<Output = ()> {
        let call = self.call("never see", key);
        let mut observer = self.observer::<K>(key);
        async move {
            let seen = observer.until(time, |objects| {
                let object = objects.first().and_then(|value| decode::<K>(value).ok());
                unwanted(object.as_ref()).then(|| objects.first().map(|object| show(&K::kind(&()), object)))
            });
            match seen.await {
                Ok(object) => {
                    let object = object.unwrap_or_else(|| "  it is not there\n".to_owned());
                    call.fail::<K>(&format!("came to what it never should be:\n{object}"))
                }
                Err(WaitError { failure: Some(failure), .. }) => call.fail::<K>(&failure),
                Err(WaitError { failure: None, .. }) => {}
            }
        }
    }

    /// Returns the default namespace.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn client_ref(&self) -> &kube::Client {
        &self.client
    }

    fn observer<K: Kind>(&self, key: &str) -> Observer {
        let (namespace, name) = split(key);
        Observer::new(self.client.clone(), ObservedScope::one(self.path::<K>(namespace), name))
    }

    fn read_one<K: Kind>(&self, key: &str) -> Built {
        let (namespace, name) = split(key);
        self.api::<K>(namespace).get(name, &GetParams::default())
    }

    fn api<K: Kind>(&self, namespace: Option<&str>) -> kube::core::Request {
        kube::core::Request::new(self.path::<K>(namespace))
    }

    pub(crate) fn path<K: Kind>(&self, namespace: Option<&str>) -> String {
        let namespace = namespace.unwrap_or(&self.namespace);
        K::url_path(&(), namespaced::<K>().then_some(namespace))
    }

    #[track_caller]
    fn call(&self, verb: &'static str, key: &str) -> KitCall {
        KitCall { kit: self.clone(), verb, key: key.to_owned(), at: Location::caller() }
    }
}

type Built = Result<Request<Vec<u8>>, kube::core::request::Error>;

/// One call of a verb, with what its failure will say.
struct KitCall {
    kit: Kit,
    verb: &'static str,
    key: String,
    at: &'static Location<'static>,
}

impl KitCall {
    async fn send<T: DeserializeOwned>(&self, request: Built) -> T {
        match self.kit.client.request(self.built(request)).await {
            Ok(answer) => answer,
            Err(error) => self.refused(&error),
        }
    }

    async fn send_optional<T: DeserializeOwned>(&self, request: Built) -> Option<T> {
        match self.kit.client.request(self.built(request)).await {
            Ok(answer) => Some(answer),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => self.refused(&error),
        }
    }

    fn built(&self, request: Built) -> Request<Vec<u8>> {
        match request {
            Ok(request) => request,
            Err(error) => self.refused(&error),
        }
    }

    fn decode<K: Kind>(&self, value: Value) -> K {
        match serde_json::from_value(value) {
            Ok(object) => object,
            Err(error) => self.refused(&error),
        }
    }

    fn refused(&self, error: &dyn std::error::Error) -> ! {
        panic!("cannot {} {:?}: {error}\n  called at {}", self.verb, self.key, self.at)
    }

    fn fail<K: Kind>(&self, what: &str) -> ! {
        panic!("{} {}: {what}\n  called at {}", K::kind(&()), self.key, self.at)
    }

    fn missed<K: Kind>(&self, error: &WaitError, objects: &[Value]) -> ! {
        let undecodable = objects.iter().filter_map(|value| decode::<K>(value).err());
        let mut what = format!("not as wanted within {:?}", self.kit.deadline);
        for failure in error.failure.iter().cloned().chain(undecodable) {
            what += &format!("; {failure}");
        }
        self.fail::<K>(&format!("{what}\n{}", show_all(&K::kind(&()), objects)))
    }
}

/// Returns a collection's path; `"*"` is all namespaces.
fn collection<K: Kind>(namespace: &str) -> String {
    K::url_path(&(), (namespaced::<K>() && namespace != "*").then_some(namespace))
}

fn namespaced<K: Kind>() -> bool {
    std::any::TypeId::of::<K::Scope>() == std::any::TypeId::of::<NamespaceResourceScope>()
}

/// Splits a key into its namespace, if any, and its name.
#[doc(hidden)]
#[must_use]
pub fn split(key: &str) -> (Option<&str>, &str) {
    match key.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, key),
    }
}

/// Encodes an object with its kind and version.
#[doc(hidden)]
#[must_use]
pub fn body<K: Kind>(object: &K) -> Vec<u8> {
    let mut value = serde_json::to_value(object).expect("an object of a Kubernetes type is JSON");
    // Types that leave these out are still answered to by name.
    value["apiVersion"] = K::api_version(&()).into();
    value["kind"] = K::kind(&()).into();
    value.to_string().into_bytes()
}

/// Takes off an object what the server writes.
#[doc(hidden)]
pub fn reset(object: &mut Value) {
    const OURS: [&str; 6] = ["name", "namespace", "labels", "annotations", "ownerReferences", "finalizers"];
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| OURS.contains(&key.as_str()));
    }
}

fn decode<K: Kind>(value: &Value) -> Result<K, String> {
    serde_json::from_value(value.clone()).map_err(|error| format!("it can't be decoded: {error}"))
}

#[cfg(test)]
mod tests;
