//! A context for one call of a reconciler, with neither manager nor controller: for unit tests.

use std::sync::{Arc, atomic::AtomicBool};

use prometheus_client::metrics::counter::Counter;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    Context, Reason,
    context::{ContextBase, RunInfo},
};
use crate::{
    backoff::random_seed,
    clock::WallClock,
    informer::Watched,
    keys::Keys,
    object::{AsObject, Kind, ObjectKey},
    writes::{Author, Counters, Recorder, Rights, Sender, WaitForOwn, Writer},
};

impl<K: Watched<DynamicType = ()>> Context<K> {
    /// Makes a context by hand, to call a reconciler from a unit test without a manager.
    ///
    /// It is that of a first run: attempt 1, reason [`Reason::Changed`], id 1. Reads and writes go through `client`,
    /// which may be the embedded API server's or a mock's. Children are owned by `object`: without the UID that a
    /// server gives it, an apply is [`OwnerGone`](crate::WriteError::OwnerGone). A status is patched only where
    /// the object has a resource version.
    ///
    /// No cache is known. An apply asks for the object with a GET and is sent, also where nothing would change. Nobody
    /// tells own writes from those of others, and no key waits for them: the next call may come at once. What a
    /// controller does around its reconciler is not done either: finalizers, deadlines, retries, containing of panics,
    /// and the limits of rates and storms. To test these, run a [`Manager`](crate::Manager).
    ///
    /// The field manager is the kind's name, as for a controller without a name. Events are sent too, in the background,
    /// and for a second at most once the last clone of the context is dropped.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// use kube::client::Body;
    /// use watchkeeper::prelude::*;
    ///
    /// struct WaitsForSecret;
    ///
    /// impl Reconciler<ConfigMap> for WaitsForSecret {
    ///     type Error = watchkeeper::Error;
    ///
    ///     async fn reconcile(&self, map: Arc<ConfigMap>, cx: &Context<ConfigMap>) -> Result<Action, Self::Error> {
    ///         let key = ObjectKey::new("shop", map.name_any());
    ///         Ok(match cx.get_opt::<Secret>(&key).await? {
    ///             Some(_) => Action::await_change(),
    ///             None => Action::requeue_after(Duration::from_secs(60)),
    ///         })
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), watchkeeper::Error> {
    /// let nothing_found = tower::service_fn(|_: http::Request<Body>| async {
    ///     let status = r#"{"kind":"Status","status":"Failure","reason":"NotFound","message":"not found","code":404}"#;
    ///     let mut answer = http::Response::new(Body::from(status.as_bytes().to_vec()));
    ///     *answer.status_mut() = http::StatusCode::NOT_FOUND;
    ///     Ok::<_, Infallible>(answer)
    /// });
    /// let client = kube::Client::new(nothing_found, "shop");
    /// let mut map = ConfigMap::default();
    /// map.metadata.name = Some("a".into());
    ///
    /// let cx = Context::without_manager(client, &map);
    /// let action = WaitsForSecret.reconcile(map.into(), &cx).await?;
    /// assert_eq!(action, Action::requeue_after(Duration::from_secs(60)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn without_manager<Form>(
        client: kube::Client,
        object: &impl AsObject<Form, Object = K::Object>,
    ) -> Self {
        let object = object.as_object();
        made(client, K::kind_of(&()), ObjectKey::of(object), Some(object))
    }

    /// Makes the context of an object that is gone, for [`Reconciler::deleted`](super::Reconciler::deleted).
    ///
    /// Otherwise as [`without_manager`](Self::without_manager), panic included. No object is there that could own children.
    pub fn without_manager_deleted(client: kube::Client, key: &ObjectKey) -> Self {
        made(client, K::kind_of(&()), key.clone(), None)
    }
}

impl<K: Watched> Context<K> {
    /// Makes a context by hand for what a marker asks for: `Context::without_manager_for(Dynamic::new(kind), ..)`.
    ///
    /// Otherwise as [`without_manager`](Self::without_manager), panic included.
    pub fn without_manager_for<Form>(
        marker: K,
        client: kube::Client,
        object: &impl AsObject<Form, Object = K::Object>,
    ) -> Self {
        let object = object.as_object();
        made(client, K::kind_of(&marker.dynamic_type()), ObjectKey::of(object), Some(object))
    }
}

fn made<K: Watched>(
    client: kube::Client,
    kind: Kind,
    key: ObjectKey,
    object: Option<&K::Object>,
) -> Context<K> {
    let name: Arc<str> = kind.to_string().into();
    let author = Author { controller: name.clone(), field_manager: name, declared: Rights::default() };
    let sender = Sender::new(client);
    let recorder =
        Recorder::new(sender.clone(), &author, WallClock::system(), random_seed(), Counter::default());
    let events = send_events(recorder.clone());
    let keys = Keys::alone();
    keys.table().begin(&key, 1);
    let counters = Counters { overdue: Counter::default(), contradicted: Counter::default() };
    let writer = Writer::new(sender, author, Vec::new(), keys, WaitForOwn::Never, counters);
    let run_info = RunInfo {
        key,
        attempt: 1,
        reason: Reason::Changed,
        id: 1,
        trace_id: None,
        took_client: AtomicBool::default(),
    };
    let base = ContextBase::by_hand(kind, writer, recorder, events);
    Context::new(base, Arc::new(run_info), object.cloned().map(Arc::new))
}

/// Sends events until the guard is dropped, and then what waits, as a controller that ends.
fn send_events(recorder: Arc<Recorder>) -> DropGuard {
    let over = CancellationToken::new();
    let guard = over.clone().drop_guard();
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = over.cancelled() => {}
            never = recorder.run() => match never {},
        }
        recorder.flush().await;
    });
    guard
}
