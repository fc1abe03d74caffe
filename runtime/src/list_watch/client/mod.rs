//! Lists and watches of a Kubernetes API server, over `kube::Client`.

mod request;
mod response;
#[cfg(test)]
mod tests;

use std::{marker::PhantomData, sync::Arc};

use futures::{StreamExt, TryStreamExt};
use kube::Client;
use tokio::time::timeout;

use super::{
    Deadlines, Identity, ListPage, ListWatchError, ListerWatcher, Unreadable, WatchEvent, WatchStream,
    decode::{Decoder, Representation},
    dictionary::Dictionary,
    frames::EventDecoder,
    item::{AnyItem, FetchedItem},
    json,
    keeps::Keeps,
    list_body::ListHead,
    members::ManagedFields,
    options::ListOptions,
    raw::ItemForm,
    read::ObjectType,
    source::{Answer, AnySource},
};
use crate::{
    api_request::ResourcePath,
    flight_recorder::LineRecorder,
    object::{AnyObject, Kind, Object, Scope, is_dns_label},
};

/// Lists and watches one kind of an API server: all of it, or one namespace, or what a selector selects.
///
/// Bodies are decoded in chunks, each object straight from its bytes; an object that does not decode is an
/// [`FetchedItem::Unreadable`](super::FetchedItem::Unreadable). Every request has a deadline ([`Deadlines`]), past which it
/// counts as lost.
///
/// What the client itself hides, nobody here can see: by default `kube::Client` answers 429, 503 and 504 with up
/// to 15 silent retries. Build it with `config.default_retry = false` for failures to be reported and timed
/// here.
#[must_use = "it asks for nothing until a reflector has it"]
pub struct ClientListWatch<K> {
    source: ClientSource,
    object: PhantomData<fn() -> K>,
}

/// A [`ClientListWatch`] whose type of object is forgotten.
#[derive(Clone)]
pub(crate) struct ClientSource {
    pub(crate) client: Client,
    pub(crate) object: ObjectType,
    pub(crate) kind: Kind,
    pub(crate) namespace: Option<String>,
    pub(crate) representation: Representation,
    pub(crate) managed_fields: ManagedFields,
    pub(crate) item_form: ItemForm,
    pub(crate) label_selector: Option<String>,
    pub(crate) field_selector: Option<String>,
    pub(crate) hook: Option<OptionsHook>,
    pub(crate) deadlines: Deadlines,
    pub(crate) largest_object: usize,
    /// What the cache keeps; `None`: everything.
    pub(crate) keeps: Option<Keeps>,
    /// One for all lists and watches: what is cached refers to it.
    pub(crate) dictionary: Arc<Dictionary>,
}

/// Most bytes of one object, unless another bound is set; etcd itself holds 1.5 MiB by default.
const LARGEST_OBJECT: usize = 32 << 20;

/// Changes the options of lists and watches.
pub(crate) type OptionsHook = Arc<dyn Fn(&mut ListOptions) + Send + Sync>;

impl<K: Object> ClientListWatch<K> {
    /// Lists and watches all objects of a kind.
    pub fn new(client: Client, kind: Kind) -> Self {
        Self { source: ClientSource::new(client, ObjectType::of::<K>(), kind), object: PhantomData }
    }

    /// Keeps to one namespace; an empty one means all, and a kind without namespaces is read as a whole.
    ///
    /// A name that Kubernetes does not allow fails the first list: [`ListWatchError::NoNamespace`].
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.source.namespace = Some(namespace.into()).filter(|namespace| !namespace.is_empty());
        self
    }

    /// Asks for metadata alone; `K` is then `PartialObjectMeta<_>`, or another type that needs no more.
    pub fn metadata_only(self) -> Self {
        self.representation(Representation::Metadata)
    }

    /// Says how much of each object is asked for.
    pub fn representation(mut self, representation: Representation) -> Self {
        self.source.representation = representation;
        self
    }

    /// Says what becomes of managedFields; they are dropped by default.
    pub fn managed_fields(mut self, managed_fields: ManagedFields) -> Self {
        self.source.managed_fields = managed_fields;
        self
    }

    /// Says whether objects are decoded on arrival, or travel as bytes.
    pub fn item_form(mut self, form: ItemForm) -> Self {
        self.source.item_form = form;
        self
    }

    /// Keeps to the objects whose labels match a selector in Kubernetes' syntax.
    pub fn label_selector(mut self, selector: impl Into<String>) -> Self {
        self.source.label_selector = Some(selector.into());
        self
    }

    /// Keeps to the objects whose fields match a selector in Kubernetes' syntax.
    pub fn field_selector(mut self, selector: impl Into<String>) -> Self {
        self.source.field_selector = Some(selector.into());
        self
    }

    /// Changes the options of every list and watch just before they are sent.
    pub fn options_hook(mut self, hook: impl Fn(&mut ListOptions) + Send + Sync + 'static) -> Self {
        self.source.hook = Some(Arc::new(hook));
        self
    }

    /// Says how long to wait before an answer counts as lost.
    pub fn deadlines(mut self, deadlines: Deadlines) -> Self {
        self.source.deadlines = deadlines;
        self
    }

    /// Bounds the JSON of one object, or of one event of a watch: 32 MiB unless set.
    ///
    /// What is larger fails the list or the watch ([`ListWatchError::TooLarge`]): memory stays bounded, whatever
    /// a server sends. More than 4 GiB count as 4 GiB.
    pub fn largest_object(mut self, bytes: usize) -> Self {
        self.source.largest_object = bytes.min(u32::MAX as usize);
        self
    }

    /// Returns the kind that is asked for.
    pub fn kind(&self) -> &Kind {
        &self.source.kind
    }
}

impl ClientSource {
    pub(crate) fn new(client: Client, object: ObjectType, kind: Kind) -> Self {
        Self {
            client,
            object,
            kind,
            namespace: None,
            representation: Representation::Whole,
            managed_fields: ManagedFields::Drop,
            item_form: ItemForm::Typed,
            label_selector: None,
            field_selector: None,
            hook: None,
            deadlines: Deadlines::default(),
            largest_object: LARGEST_OBJECT,
            keeps: None,
            dictionary: Arc::default(),
        }
    }

    fn completed(&self, options: &ListOptions) -> ListOptions {
        let mut options = options.clone();
        options.label_selector = self.label_selector.clone().or(options.label_selector);
        options.field_selector = self.field_selector.clone().or(options.field_selector);
        if let Some(hook) = &self.hook {
            hook(&mut options);
        }
        options
    }

    /// An invalid namespace could address another resource, or silently list nothing.
    fn path(&self) -> Result<String, ListWatchError> {
        let namespace = self.namespace.as_deref().filter(|_| self.kind.scope == Scope::Namespaced);
        match namespace.filter(|namespace| !is_dns_label(namespace)) {
            Some(odd) => Err(ListWatchError::NoNamespace(odd.to_owned())),
            None => Ok(ResourcePath::of(&self.kind, namespace).url()),
        }
    }

    fn decoder(&self) -> Decoder {
        let decoder = Decoder::new(self.object, &self.kind, self.representation, self.managed_fields);
        decoder.with_form(self.item_form, &self.dictionary).with_keeps(self.keeps.clone())
    }

    async fn read_list(
        &self,
        options: &ListOptions,
        representation: Representation,
        decode: response::DecodeItem,
    ) -> Result<(ListHead, Vec<AnyItem>), ListWatchError> {
        let body = self.open(request::list(&self.path()?, options, representation)?).await?;
        response::list(body, self.largest_object, self.deadlines.list_silence, decode).await
    }

    /// Sends a request and waits for the headers of an answer that is a success.
    async fn open(
        &self,
        request: http::Request<kube::client::Body>,
    ) -> Result<kube::client::Body, ListWatchError> {
        let limit = self.deadlines.headers;
        let answer = timeout(limit, self.client.send(request)).await;
        let answer = answer.map_err(|_| ListWatchError::Deadline(limit))?.map_err(response::connection)?;
        match answer.status().is_success() {
            true => Ok(answer.into_body()),
            false => Err(response::refusal(answer, limit).await),
        }
    }
}

impl AnySource for ClientSource {
    fn list<'a>(&'a self, options: &'a ListOptions) -> Answer<'a, ListPage<dyn AnyObject>> {
        Box::pin(async move {
            let (options, decoder) = (self.completed(options), self.decoder());
            let decode: response::DecodeItem = Arc::new(move |item| decoder.list_item(item));
            let (head, items) = self.read_list(&options, self.representation, decode).await?;
            let ListHead { resource_version, continue_token } = head;
            Ok(ListPage { items, resource_version, continue_token })
        })
    }

    fn watch<'a>(&'a self, options: &'a ListOptions) -> Answer<'a, WatchStream<dyn AnyObject>> {
        Box::pin(async move {
            let options = self.completed(options);
            let mut request = request::watch(&self.path()?, &options, self.representation)?;
            let recorder = LineRecorder::default();
            request.extensions_mut().insert(recorder.clone());
            let body = self.open(request).await?;
            let decoder = EventDecoder { decoder: self.decoder(), largest: self.largest_object };
            Ok(response::events(body, decoder, &options, self.deadlines, recorder))
        })
    }

    fn latest_version(&self) -> Answer<'_, Option<String>> {
        Box::pin(async move {
            let options = ListOptions { limit: Some(1), ..ListOptions::default() };
            let nothing = || Unreadable { identity: Identity::default(), error: String::new() };
            let unread =
                move |item: &str| json::check(item).map(|()| Some(FetchedItem::Unreadable(nothing().into())));
            let (head, _) = self.read_list(&options, Representation::Metadata, Arc::new(unread)).await?;
            Ok(Some(head.resource_version).filter(|version| !version.is_empty()))
        })
    }
}

impl<K: Object> ListerWatcher<K> for ClientListWatch<K> {
    async fn list(&self, options: &ListOptions) -> Result<ListPage<K>, ListWatchError> {
        Ok(AnySource::list(&self.source, options).await?.map(FetchedItem::typed))
    }

    async fn watch(&self, options: &ListOptions) -> Result<WatchStream<K>, ListWatchError> {
        let typed = |event: WatchEvent<dyn AnyObject>| event.map(FetchedItem::typed);
        Ok(self.source.watch(options).await?.map_ok(typed).boxed())
    }

    async fn latest_version(&self) -> Result<Option<String>, ListWatchError> {
        AnySource::latest_version(&self.source).await
    }
}

impl_clone!([K] ClientListWatch<K>, source, object);

impl_debug!([K] ClientListWatch<K>, this =>
    kind: this.source.kind, namespace: this.source.namespace, representation: this.source.representation,
    label_selector: this.source.label_selector, field_selector: this.source.field_selector
);
