//! Validators and defaulters, and what they make of a request.

use std::{fmt, future::Future, marker::PhantomData};

use futures::{FutureExt, future::BoxFuture};
use serde_json::{Value, json};

use super::{
    request::{Change, Operation, Request},
    review::{FieldError, Findings, Review, status},
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
///
/// It is not asked about an update that only takes finalizers off an object that is being deleted: to refuse that would keep the
/// object for ever. If the type can't read what is stored, an update is shown as [`Change::Create`], and the user is
/// warned: otherwise nobody could put the object right.
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
    pub(super) findings: Findings,
    /// The object as a defaulter completes it.
    pub(super) defaulted: Option<Value>,
    /// How the object of the request changes.
    pub(super) patch: Vec<Value>,
}

/// Why a handler has no verdict; from code 500 on, the failure policy decides.
#[derive(Debug)]
pub(super) struct HandlerFailure {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) why: String,
    /// The field of the object that can't be read, if that is the reason.
    pub(super) unreadable: Option<Box<FieldError>>,
}

/// A validator or defaulter of any kind.
pub(super) trait Admit: Send + Sync {
    /// Returns the version whose objects it takes, with the group.
    fn api_version(&self) -> String;

    fn admit<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Verdict, HandlerFailure>>;
}

/// A validator whose kind is erased.
pub(super) struct Validates<K, V>(pub(super) V, pub(super) PhantomData<fn(K)>);

/// A defaulter whose kind is erased.
pub(super) struct Defaults<K, D>(pub(super) D, pub(super) PhantomData<fn(K)>);

impl<K: TypedObject, V: Validator<K>> Admit for Validates<K, V> {
    fn api_version(&self) -> String {
        Kind::of::<K>().api_version()
    }

    fn admit<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Verdict, HandlerFailure>> {
        async move {
            let new = decoded::<K>(request, "object", request.object.as_ref());
            let old = decoded::<K>(request, "oldObject", request.old_object.as_ref());
            let mut review = Review::new(request.clone());
            let (new, old) = match request.operation {
                Operation::Create => (Some(new?), None),
                // Otherwise nobody could put it right.
                Operation::Update if old.is_err() && request.old_object.is_some() => {
                    review.warn("what is stored can't be read, so this is validated as if it were created");
                    (Some(new?), None)
                }
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
            Ok(Verdict { findings: review.into_findings(), ..Verdict::default() })
        }
        .boxed()
    }
}

impl<K: TypedObject, D: Defaulter<K>> Admit for Defaults<K, D> {
    fn api_version(&self) -> String {
        Kind::of::<K>().api_version()
    }

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
    let Some(object) = object.filter(|object| !object.is_null()) else {
        return Err(HandlerFailure::bad(format!("the review has no {member} for {}", request.operation)));
    };
    serde_path_to_error::deserialize(object).map_err(|error| {
        let (field, why) = (error.path().to_string(), error.inner().to_string());
        let failure = HandlerFailure::bad(format!("{member} can't be read: {field}: {why}"));
        // Only the new object is what the user wrote.
        if member == "object" { failure.at(&field, object, &why) } else { failure }
    })
}

fn encoded<K: TypedObject>(object: &K) -> Result<Value, HandlerFailure> {
    serde_json::to_value(object).map_err(|error| HandlerFailure {
        code: 500,
        reason: "InternalError",
        why: format!("the object can't be written: {error}"),
        unreadable: None,
    })
}

fn unsupported(request: &Request) -> HandlerFailure {
    HandlerFailure::bad(format!("this webhook does not decide about {}", request.operation))
}

fn panicked(what: &str) -> HandlerFailure {
    let why = format!("the {what} panicked");
    HandlerFailure { code: 500, reason: "InternalError", why, unreadable: None }
}

impl HandlerFailure {
    pub(super) fn bad(why: String) -> Self {
        Self { code: 400, reason: "BadRequest", why, unreadable: None }
    }

    /// Says which field of an object can't be read.
    pub(super) fn at(self, field: &str, object: &Value, why: &str) -> Self {
        Self { unreadable: FieldError::unreadable(field, object, why).map(Box::new), ..self }
    }

    /// Returns the status that a named object is refused with.
    pub(super) fn status(&self, hook: &str, name: &str, kind: &Kind) -> Value {
        let findings = self.unreadable.as_deref().map(|error| Findings::from(error.clone()));
        let invalid = findings.and_then(|findings| findings.status(name, kind));
        invalid
            .unwrap_or_else(|| status(self.code, self.reason, &format!("{hook}: {}", self.why), json!(null)))
    }
}

impl fmt::Display for HandlerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}
