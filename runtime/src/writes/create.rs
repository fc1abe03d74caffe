//! Creation of a child whose name the server may choose.

use std::{future::IntoFuture, sync::Arc};

use futures::future::BoxFuture;

use super::{
    WriteError,
    child::{Child, OwnerRole, UniqueObject, decode},
    request::{ApiVerb, MediaType, ObjectRequest, Target},
    writer::Writer,
};
use crate::object::{Kind, Object, ObjectKey};

const VERB: &str = "create";

/// A creation that is sent when awaited; made by `Context::create`.
///
/// For children whose name the server chooses (`metadata.generateName`), and for those that are made once and left
/// alone; what has a name and is kept right is better applied. It carries an owner reference to the reconciled
/// object. The child's namespace defaults to the owner's. The result is the object as the server answered.
///
/// The key runs again only once its cache shows the child, so that a reconciler that creates a child whenever it
/// sees none creates one.
///
/// # Errors
/// [`WriteError::NotControlled`] if an object of that name exists that the reconciled one does not control.
/// [`WriteError::AlreadyExists`] if the reconciled object has that child already, and the cache did not show it.
/// [`WriteError::EarlierOwner`] if the child belongs to an earlier object of the reconciled one's name.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use watchkeeper::{WriteError, prelude::*};
///
/// async fn once(cx: &Context<ConfigMap>) -> Result<(), WriteError> {
///     if cx.owned::<ConfigMap>().is_empty() {
///         let mut child = ConfigMap::default();
///         child.metadata.generate_name = Some("run-".to_owned());
///         cx.create(child).await?;
///     }
///     Ok(())
/// }
/// ```
///
/// The book has more: [children and ownership](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/explain/ownership.md).
#[must_use = "a creation is sent when it is awaited"]
pub struct Create<C> {
    writer: Arc<Writer>,
    child: Child<C>,
}

impl<C: Object> Create<C> {
    pub(crate) fn new(writer: Arc<Writer>, owner: UniqueObject, kind: Kind, object: C) -> Self {
        Self { writer, child: Child::new(owner, kind, object) }
    }

    /// Creates it without an owner; see [`Apply::unowned`](super::Apply::unowned).
    pub fn unowned(mut self) -> Self {
        self.child.ownership = OwnerRole::None;
        self
    }

    /// Creates it with the reconciled object as an owner that does not control it.
    pub fn uncontrolled(mut self) -> Self {
        self.child.ownership = OwnerRole::Shares;
        self
    }

    async fn send(&self) -> Result<C, WriteError> {
        let (writer, key) = (&self.writer, &self.child.owner.key);
        let target = self.child.target(true)?;
        let body = self.child.intent(VERB, &target, None)?;
        let request = ObjectRequest::new(VERB, ApiVerb::Create, &target, MediaType::Json, body);
        let answer = match writer.write(key, request).await {
            Ok(answer) => answer,
            Err(error) if error.is_conflict() => return Err(self.whose(&target, error).await),
            Err(error) => return Err(error),
        };
        let name = answer.object["metadata"]["name"].as_str().unwrap_or_default();
        let namespace = target.key.namespace().unwrap_or_default();
        let created = Target { key: ObjectKey::new(namespace, name), ..target };
        writer.learn(key, &created, &answer, None, None);
        decode(VERB, &created, answer.object)
    }

    /// Finds out who owns the object that has the name already.
    async fn whose(&self, target: &Target, conflict: WriteError) -> WriteError {
        if target.key.name().is_empty() {
            return conflict;
        }
        let Ok(Some(found)) = self.writer.fetch_meta(target).await else { return conflict };
        let error = self.child.check(target, &found).err().unwrap_or(conflict);
        if let WriteError::EarlierOwner { .. } = &error {
            self.writer.refetch_owner(&self.child.owner).await;
        }
        error
    }
}

impl_debug!([C: Object] Create<C>, this => kind: this.child.kind);

impl<C: Object> IntoFuture for Create<C> {
    type Output = Result<C, WriteError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.send().await })
    }
}
