//! Create: what a client gives and what the server fills in.

use http::HeaderMap;
use serde_json::{Value, json};

use super::body::decode;
use super::{Keep, Shown, Target, WriteOptions, Written, admit, check};
use crate::admission::Operation;
use crate::apply::{UpdateInput, track_update};
use crate::conversion::{note, unshown};
use crate::kinds::{Generation, Reach, Resource, prepare};
use crate::limits;
use crate::object;
use crate::state::State;
use crate::status::{Cause, Status};

/// Creates an object from a request's body.
///
/// # Errors
/// The errors of the body, the namespace, or an existing object of the same name.
pub(crate) fn create(
    state: &mut State,
    target: &Target,
    options: &WriteOptions,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Written, Status> {
    let decoded = decode(target, headers, body, options.validation)?;
    let mut object = decoded.object;
    check::fit_path(target, &mut object)?;
    if object::name(&object).is_empty() {
        let prefix = object::text(&object, "generateName");
        if prefix.is_empty() {
            let why = "name or generateName is required";
            return Err(target.invalid("", &[Cause::required("metadata.name", why)]));
        }
        let prefix: String = prefix.chars().take(58).collect();
        let name = format!("{prefix}{}", state.suffix_of_the_request());
        object::set(&mut object, "name", name);
    }
    let name = object::name(&object).to_owned();
    let target = &Target { name, ..target.clone() };
    let mut warnings = decoded.complaints;
    warnings.extend(check::finalizer_warnings(target, &object));
    warnings.extend(check::definition_warnings(target, &object));
    match insert(state, target, options, object, Tracking::Update) {
        Ok(written) => Ok(Written { warnings, ..written }),
        Err(status) => Err(status.with_warnings(&warnings)),
    }
}

/// The metadata that a client can't give.
const OF_THE_SERVER: [&str; 6] = [
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "resourceVersion",
    "uid",
];

/// What to do with nulls that the schema does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nulls {
    /// They go.
    Dropped,
    /// They stay in objects of custom kinds, to be refused.
    Refused,
}

/// Removes what the schema does not know, and fills in the defaults.
pub(super) fn fit_schema(target: &Target, object: &mut Value, nulls: Nulls) {
    let (resource, schema) = (&target.resource, &target.served.schema);
    if nulls == Nulls::Refused && resource.is_custom() {
        schema.prune_unknown(object);
    } else {
        schema.prune(object);
    }
    schema.default(object);
    prepare::defaults(resource, object);
    object::tidy(object);
}

/// The manager of the fields of a new object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tracking {
    /// An update by the manager.
    Update,
    /// The apply that made the object has tracked them.
    Done,
}

/// Fills in, checks and stores a new object; its name and namespace are decided.
pub(super) fn insert(
    state: &mut State,
    target: &Target,
    options: &WriteOptions,
    mut object: Value,
    tracking: Tracking,
) -> Result<Written, Status> {
    let (resource, served) = (&target.resource, &target.served);
    if resource.reach == Reach::Namespaced {
        namespace_takes(state, target)?;
    }
    let version = given_version(&object, tracking);
    begin_anew(target, &mut object, tracking);
    prepare::for_create(resource, &mut object);
    let nulls = if tracking == Tracking::Done { Nulls::Refused } else { Nulls::Dropped };
    fit_schema(target, &mut object, nulls);
    let given = admit::change(state, target, options, Operation::Create, None, &mut object)?;
    if let Some(given) = &given {
        // A webhook that sends the whole object back does not write the status by that.
        if drops_status(target) {
            object::carry_top(given, &mut object, "status");
        }
        fit_schema(target, &mut object, nulls);
    }
    options.check_escalation(state, None, &object)?;
    let mut causes = check::metadata(target, &object);
    causes.extend(served.schema.validate(&object, None).into_iter().map(Cause::from));
    causes.extend(prepare::faults(resource, &object, None));
    check::rules(target, &object, None, &mut causes);
    if !causes.is_empty() {
        return Err(target.invalid(&target.name, &causes));
    }
    prepare::fill_empty(resource, &mut object);
    let now = state.now_of_the_request();
    if tracking == Tracking::Update {
        admit::track_given(resource, given, &mut object, |new| {
            track_update(UpdateInput {
                live: None,
                new,
                manager: &options.manager,
                subresource: None,
                api_version: &served.api_version(),
                schema: &served.schema,
                ignored: if served.offers("status") { &["status"] } else { &[] },
                now: &now,
            });
        });
    }
    let uid = state.uid_of_the_request();
    prepare::admit(resource, &mut object, &uid);
    sign(options, resource, &mut object);
    object::set(&mut object, "uid", uid);
    object::set(&mut object, "creationTimestamp", now);
    admit::check(state, target, options, Operation::Create, None, &object)?;
    if version.is_some() && options.keep == Keep::Yes {
        return Err(Status::internal("resourceVersion should not be set on objects to be created"));
    }
    let key = target.key();
    if let Some(there) = state.store.get(&resource.storage, &key) {
        let mut status = Status::already_exists(resource.group(), resource.plural(), &target.name);
        if object::is_deleting(&there.value()) {
            status.message = format!("object is being deleted: {}", status.message);
        }
        return Err(status);
    }
    let (mut object, again) = unshown(state, resource, served, object)?;
    limits::fit(&mut object)?;
    if options.keep == Keep::DryRun {
        let mut shown = again.unwrap_or(object);
        if let Some(version) = version {
            object::set(&mut shown, "resourceVersion", version.to_string());
        }
        return Ok(Written::created(Shown::Unstored(shown)));
    }
    let stored = state.store.put(&resource.storage, &key, object);
    note(served, &stored, again);
    state.unsettled = true;
    Ok(Written::created(Shown::Stored(stored)))
}

/// Returns the version that a client sets on a new object; a text that is not a number does not count.
fn given_version(object: &Value, tracking: Tracking) -> Option<u64> {
    let version = object::text(object, "resourceVersion").parse().ok();
    version.filter(|version| *version > 0 && tracking == Tracking::Update)
}

/// Records the creator in a certificate request.
fn sign(options: &WriteOptions, resource: &Resource, object: &mut Value) {
    let Some(user) = options.author.as_ref().map(|author| &author.user) else { return };
    if resource.kind != "CertificateSigningRequest" || resource.is_custom() {
        return;
    }
    let spec = object::child_mut(object::map_mut(object), "spec");
    spec.retain(|key, _| !matches!(key.as_str(), "username" | "uid" | "groups" | "extra"));
    spec.insert("username".into(), user.name().into());
    spec.insert("groups".into(), json!(user.groups()));
    if !user.uid().is_empty() {
        spec.insert("uid".into(), user.uid().into());
    }
    if let Some(extra) = user.extra() {
        spec.insert("extra".into(), json!(extra));
    }
}

/// Takes away what a new object can't have yet, and gives it its place.
fn begin_anew(target: &Target, object: &mut Value, tracking: Tracking) {
    let resource = &target.resource;
    if !target.namespace.is_empty() {
        object::set(object, "namespace", target.namespace.clone());
    }
    for field in OF_THE_SERVER {
        object::remove(object, field);
    }
    if tracking == Tracking::Update {
        object::remove(object, "managedFields");
        check::keep_each_owner_once(object);
    }
    if drops_status(target) {
        object::map_mut(object).remove("status");
    }
    let generation = resource.built_in().map(|row| row.generation);
    if generation != Some(Generation::None) {
        object::set(object, "generation", 1);
    }
}

/// Returns whether a creation writes no status. That of a Node does, as kubelets need it.
fn drops_status(target: &Target) -> bool {
    target.served.offers("status") && target.resource.built_in().is_none_or(|row| row.kind != "Node")
}

fn namespace_takes(state: &State, target: &Target) -> Result<(), Status> {
    let namespaces = crate::store::ResourceId::new("", "namespaces");
    let Some(namespace) = state.store.get(&namespaces, &target.namespace) else {
        return Err(Status::not_found("", "namespaces", &target.namespace));
    };
    if !object::is_deleting(namespace.pinned()) {
        return Ok(());
    }
    let why = format!(
        "unable to create new content in namespace {} because it is being terminated",
        target.namespace
    );
    let mut status = Status::forbidden(target.resource.group(), target.resource.plural(), &target.name, &why);
    if let Some(details) = &mut status.details {
        let message = format!("namespace {} is being terminated", target.namespace);
        details["causes"] =
            json!([{"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}]);
    }
    Err(status)
}
