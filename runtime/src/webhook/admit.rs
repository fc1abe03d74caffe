//! Validators and defaulters, and what they make of a request.

use std::{fmt, future::Future, marker::PhantomData};

use futures::{FutureExt, future::BoxFuture};
use serde_json::{Value, json};

use super::{
    request::{Change, Operation, Request},
    review::{Review, status},
};
use crate::{
    object::Kind,
    users_code::{contained, contained_in},
    writes::{
        TypedObject,
        merge::{difference, merged},
    },
};

/// Decides whether an operation on an object is allowed.
///
/// It may read caches: a call waits until they have synced. It must not change anything, since other webhooks, or the API
/// server itself, may still refuse the request.
pub trait Validator<K>: Send + Sync + 'static {
    /// Validates one operation.
    fn validate(&self, change: Change<'_, K>, review: &mut Review) -> impl Future<Output = ()> + Send;
}

/// Sets fields of an object that a user left out.
///
/// It is called for creations and updates, and may be called again for an object that it has seen.
pub trait Defaulter<K>: Send + Sync + 'static {
    /// Completes the object. Name, namespace and UID can't be changed.
    fn default(&self, object: &mut K, request: &Request);
}

/// What a handler makes of a request.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// The status of the refusal; `None` if it is allowed.
    pub(super) refusal: Option<Value>,
    pub(super) warnings: Vec<String>,
    /// The object as a defaulter completes it.
    pub(super) defaulted: Option<Value>,
    /// How the object of the request changes.
    pub(super) patch: Vec<Value>,
}

/// Why a handler has no verdict; the failure policy decides.
#[derive(Debug)]
pub(super) struct HandlerFailure {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) why: String,
}

/// A validator or defaulter of any kind.
pub(super) trait Admit: Send + Sync {
    fn admit<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Verdict, HandlerFailure>>;
}

/// A validator whose kind is erased.
pub(super) struct Validates<K, V>(pub(super) V, pub(super) PhantomData<fn(K)>);

/// A defaulter whose kind is erased.
pub(super) struct Defaults<K, D>(pub(super) D, pub(super) PhantomData<fn(K)>);

impl<K: TypedObject, V: Validator<K>> Admit for Validates<K, V> {
    fn admit<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Verdict, HandlerFailure>> {
        async move {
            let new = decoded::<K>(request, "object", request.object.as_ref());
            let old = decoded::<K>(request, "oldObject", request.old_object.as_ref());
            let mut review = Review::new(request.clone());
            let (new, old) = match request.operation {
                Operation::Create => (Some(new?), None),
                Operation::Update => (Some(new?), Some(old?)),
                Operation::Delete => (None, Some(old?)),
                Operation::Connect => return Err(unsupported(request)),
            };
            let change = match (&new, &old) {
                (Some(new), Some(old)) => Change::Update { old, new },
                (Some(new), None) => Change::Create { new },
                (None, Some(old)) => Change::Delete { old },
                (None, None) => return Err(unsupported(request)),
            };
            contained_in(self.0.validate(change, &mut review)).await.ok_or_else(|| panicked("validator"))?;
            let refusal = review.status(&Kind::of::<K>());
            Ok(Verdict { refusal, warnings: review.take_warnings(), ..Verdict::default() })
        }
        .boxed()
    }
}

impl<K: TypedObject, D: Defaulter<K>> Admit for Defaults<K, D> {
    fn admit<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Verdict, HandlerFailure>> {
        let defaulted = || {
            if !matches!(request.operation, Operation::Create | Operation::Update) {
                return Err(unsupported(request));
            }
            let raw = request.object.as_ref().unwrap_or(&Value::Null);
            let mut object = decoded::<K>(request, "object", Some(raw))?;
            let before = encoded(&object)?;
            contained(|| self.0.default(&mut object, request)).ok_or_else(|| panicked("defaulter"))?;
            // Merged into the raw object, so that fields that the type does not know survive.
            let changes = difference(&before, &encoded(&object)?, raw);
            let defaulted = changes.map(|changes| merged(raw.clone(), &changes));
            Ok(Verdict { defaulted, ..Verdict::default() })
        };
        let verdict = defaulted();
        async move { verdict }.boxed()
    }
}

fn decoded<K: TypedObject>(
    request: &Request,
    member: &str,
    object: Option<&Value>,
) -> Result<K, HandlerFailure> {
    let failure = |why: String| HandlerFailure { code: 400, reason: "BadRequest", why };
    let Some(object) = object.filter(|object| !object.is_null()) else {
        return Err(failure(format!("the review has no {member} for {}", request.operation)));
    };
    serde_path_to_error::deserialize(object)
        .map_err(|error| failure(format!("{member} can't be read: {}: {}", error.path(), error.inner())))
}

fn encoded<K: TypedObject>(object: &K) -> Result<Value, HandlerFailure> {
    serde_json::to_value(object).map_err(|error| HandlerFailure {
        code: 500,
        reason: "InternalError",
        why: format!("the object can't be written: {error}"),
    })
}

fn unsupported(request: &Request) -> HandlerFailure {
    let why = format!("this webhook does not decide about {}", request.operation);
    HandlerFailure { code: 400, reason: "BadRequest", why }
}

fn panicked(what: &str) -> HandlerFailure {
    HandlerFailure { code: 500, reason: "InternalError", why: format!("the {what} panicked") }
}

impl HandlerFailure {
    pub(super) fn status(&self, hook: &str) -> Value {
        status(self.code, self.reason, &format!("{hook}: {}", self.why), json!(null))
    }
}

impl fmt::Display for HandlerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}
