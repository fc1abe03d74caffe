//! Update: PUT, and what every change of an existing object has in common.

use http::HeaderMap;
use serde_json::Value;

use super::body::decode;
use super::create::{Nulls, Tracking, fit_schema, insert};
use super::{Keep, Shown, Target, WriteOptions, Written, admit, check};
use crate::admission::Operation;
use crate::apply::{UpdateInput, track_update};
use crate::conversion::{note, unshown};
use crate::kinds::prepare::Hold;
use crate::kinds::{Generation, OnPut, Served, prepare};
use crate::limits;
use crate::object;
use crate::state::State;
use crate::status::{Cause, Status};

/// The source of a new state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A whole object by PUT.
    Put,
    /// A patch of the live object.
    Patch,
    /// An apply, which has tracked its fields itself.
    Apply,
}

/// Replaces an object from a request's body.
///
/// # Errors
/// The errors of the body, a stale version or a missing object.
pub(crate) fn put(
    state: &mut State,
    target: &Target,
    options: &WriteOptions,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Written, Status> {
    let mut decoded = decode(target, headers, body, options.validation)?;
    let mut object = decoded.object;
    decoded.complaints.extend(check::definition_warnings(target, &object));
    check::fit_path(target, &mut object)?;
    check::same_name(target, &object)?;
    let there = state.store.get(&target.resource.storage, &target.key()).is_some();
    let on_put = target.resource.built_in().map_or(OnPut::Lax, |row| row.on_put);
    let creates = matches!(on_put, OnPut::Creates | OnPut::CreatesAndWantsVersion);
    let written = if !there && creates && target.subresource.is_empty() {
        // A PUT that makes an object may say any version.
        object::remove(&mut object, "resourceVersion");
        insert(state, target, options, object, Tracking::Update)
    } else {
        replace(state, target, options, object, Source::Put)
    };
    match written {
        Ok(written) => Ok(Written { warnings: decoded.complaints, ..written }),
        Err(status) => Err(status.with_warnings(&decoded.complaints)),
    }
}

/// Makes `new` the object's state, as far as the rules allow; `new` is in the target's version.
pub(super) fn replace(
    state: &mut State,
    target: &Target,
    options: &WriteOptions,
    mut new: Value,
    source: Source,
) -> Result<Written, Status> {
    let (resource, served) = (&target.resource, &target.served);
    let live =
        state.store.get(&resource.storage, &target.key()).cloned().ok_or_else(|| target.not_found())?;
    let shown = served.show_stored(&live);
    check_version(target, &live.value(), &mut new, source)?;
    check_uid(target, &live.value(), &new, source)?;
    let given_deletion = object::text(&new, "deletionTimestamp").to_owned();
    let mut causes = check::keep_server_fields(&live.value(), &mut new, source != Source::Put);
    causes.retain(|cause| cause.field != "metadata.deletionTimestamp" || !given_deletion.is_empty());
    keep_other_parts(target, &shown, &mut new);
    if matches!(&*target.subresource, "" | "status") {
        prepare::for_update(resource, &shown, &mut new);
    }
    let nulls = if source == Source::Apply { Nulls::Refused } else { Nulls::Dropped };
    fit_schema(target, &mut new, nulls);
    let given = match &*target.subresource {
        "scale" => None,
        _ => admit::change(state, target, options, Operation::Update, Some(&shown), &mut new)?,
    };
    if given.is_some() {
        // A webhook changes no more than the endpoint does.
        check::keep_server_fields(&live.value(), &mut new, true);
        keep_other_parts(target, &shown, &mut new);
        fit_schema(target, &mut new, nulls);
    }
    if source != Source::Apply {
        check::keep_each_owner_once(&mut new);
    }
    options.check_escalation(state, Some(&shown), &new)?;
    causes.extend(faults(target, &shown, &new));
    check::rules(target, &new, Some(&shown), &mut causes);
    if !causes.is_empty() {
        return Err(target.invalid(&target.name, &causes));
    }
    prepare::fill_empty(resource, &mut new);
    count_generation(target, &live.value(), &shown, &mut new);
    if source != Source::Apply {
        let now = state.now_of_the_request();
        let status_is_apart = target.subresource.is_empty() && served.offers("status");
        admit::track_given(resource, given, &mut new, |new| {
            track_update(UpdateInput {
                live: Some(&shown),
                new,
                manager: &options.manager,
                subresource: target.managed_subresource(),
                api_version: &target.managed_version(),
                schema: &served.schema,
                ignored: if status_is_apart { &["status"] } else { &[] },
                now: &now,
            });
        });
    }
    settle_metadata(target, &shown, &mut new, &options.manager);
    if target.subresource != "scale" {
        admit::check(state, target, options, Operation::Update, Some(&shown), &new)?;
    }
    if same(&shown, &new) {
        return Ok(Written::ok(Shown::Stored(live)));
    }
    let goes = is_let_go(target, &live.value(), &new);
    let (mut new, again) = unshown(state, resource, served, new)?;
    limits::fit(&mut new)?;
    if options.keep == Keep::DryRun {
        return Ok(Written::ok(Shown::Unstored(again.unwrap_or(new))));
    }
    state.unsettled = true;
    if goes {
        state.store.delete(&resource.storage, &target.key());
        return Ok(Written::ok(Shown::Unstored(again.unwrap_or(new))));
    }
    let stored = state.store.put(&resource.storage, &target.key(), new);
    note(served, &stored, again);
    Ok(Written::ok(Shown::Stored(stored)))
}

/// Lists the errors of a new state, except those of CEL rules.
fn faults(target: &Target, shown: &Value, new: &Value) -> Vec<Cause> {
    let checked = ["annotations", "finalizers", "labels", "ownerReferences"];
    let is_same = checked.iter().all(|field| object::meta(new, field) == object::meta(shown, field));
    let mut causes = if is_same { Vec::new() } else { check::changed_metadata(target, new) };
    causes.extend(schema_causes(target, new, shown));
    causes.extend(prepare::update_faults(&target.resource, &target.subresource, shown, new));
    causes
}

/// Keeps the version, and takes the time of a write of a custom kind's scale away: the server writes none there.
fn settle_metadata(target: &Target, shown: &Value, new: &mut Value, manager: &str) {
    object::carry(shown, new, "resourceVersion");
    if target.subresource != "scale" || !target.resource.is_custom() {
        return;
    }
    let managed = object::meta_mut(new).get_mut("managedFields").and_then(Value::as_array_mut);
    for entry in managed.into_iter().flatten() {
        if entry["subresource"] == "scale" && entry["manager"] == manager {
            object::map_mut(entry).remove("time");
        }
    }
}

/// Refuses a PUT that was meant for another object of the name.
fn check_uid(target: &Target, live: &Value, new: &Value, source: Source) -> Result<(), Status> {
    match object::uid(new) {
        uid if source != Source::Put || uid.is_empty() || uid == object::uid(live) => Ok(()),
        uid => Err(other_uid(target, uid, object::uid(live))),
    }
}

/// Counts a change of the specification.
fn count_generation(target: &Target, live: &Value, shown: &Value, new: &mut Value) {
    let writes_spec = matches!(target.subresource.as_str(), "" | "scale");
    let kept = target.resource.built_in().map(|row| row.generation);
    if writes_spec && spec_changed(kept, &target.served, shown, new) {
        let generation = object::meta(live, "generation").and_then(Value::as_i64).unwrap_or(0);
        object::set(new, "generation", generation + 1);
    }
}

/// Returns whether an object that is being deleted has no finalizers left.
fn is_let_go(target: &Target, live: &Value, new: &Value) -> bool {
    if !object::is_deleting(new) || !object::finalizers(new).is_empty() {
        return false;
    }
    match prepare::holds_itself(&target.resource, new) {
        Hold::None => {
            let grace = object::meta(new, "deletionGracePeriodSeconds").and_then(Value::as_i64);
            !object::finalizers(live).is_empty() && grace.unwrap_or(0) == 0
        }
        Hold::Held => false,
        Hold::Released => true,
    }
}

/// Checks what this endpoint writes against the schema.
fn schema_causes(target: &Target, new: &Value, shown: &Value) -> Vec<Cause> {
    let schema = &target.served.schema;
    let errors = if target.subresource == "status" && target.resource.is_custom() {
        match new.get("status") {
            Some(status) => schema.validate_field("status", status, shown.get("status")),
            None => Vec::new(),
        }
    } else {
        schema.validate(new, Some(shown))
    };
    errors.into_iter().map(Cause::from).collect()
}

/// Checks the version a write was computed from.
fn check_version(target: &Target, live: &Value, new: &mut Value, source: Source) -> Result<(), Status> {
    let given = object::text(new, "resourceVersion").to_owned();
    if given.is_empty() || given == "0" {
        let wanted = match target.resource.built_in() {
            None => true,
            Some(row) => matches!(row.on_put, OnPut::WantsVersion | OnPut::CreatesAndWantsVersion),
        };
        if source == Source::Put && wanted {
            let cause = Cause::invalid("metadata.resourceVersion", "0", "must be specified for an update");
            let (group, plural) = (target.resource.group(), target.resource.plural());
            return Err(Status::invalid(group, plural, &target.name, &[cause]));
        }
        object::carry(live, new, "resourceVersion");
        return Ok(());
    }
    if !given.bytes().all(|c| c.is_ascii_digit()) {
        return Err(Status::internal(format!("strconv.ParseUint: parsing {given:?}: invalid syntax")));
    }
    if given != object::text(live, "resourceVersion") {
        return Err(target.stale());
    }
    Ok(())
}

/// 409: the object's uid differs from the request's.
pub(crate) fn other_uid(target: &Target, given: &str, there: &str) -> Status {
    failed_precondition(target, &format!("UID in precondition: {given}, UID in object meta: {there}"))
}

/// 409: the object's version differs from the request's, in the words for subresources that can only be created.
pub(crate) fn other_version(target: &Target, given: &str, there: u64) -> Status {
    let what = format!("ResourceVersion in precondition: {given}, ResourceVersion in object meta: {there}");
    failed_precondition(target, &what)
}

fn failed_precondition(target: &Target, what: &str) -> Status {
    let (group, plural) = (target.resource.group(), target.resource.plural());
    let path = if target.resource.is_custom() { format!("{group}/{plural}") } else { plural.to_owned() };
    let key = format!("/registry/{path}/{}", target.key());
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what}"
    );
    Status::conflict(group, plural, &target.name, &why)
}

/// Keeps what this endpoint does not write: the status, or all but the status.
fn keep_other_parts(target: &Target, shown: &Value, new: &mut Value) {
    match target.subresource.as_str() {
        "" if target.served.offers("status") => object::carry_top(shown, new, "status"),
        "status" | "approval" => {
            let status = new.get("status").cloned();
            let managed = object::meta(new, "managedFields").cloned();
            let version = object::meta(new, "resourceVersion").cloned();
            let described: Vec<_> = described_with_status(target)
                .iter()
                .map(|field| (*field, object::meta(new, field).cloned()))
                .collect();
            *new = shown.clone();
            for (field, value) in described {
                match value {
                    Some(value) => object::set(new, field, value),
                    None => drop(object::remove(new, field)),
                }
            }
            match status {
                Some(status) => drop(object::map_mut(new).insert("status".into(), status)),
                None => drop(object::map_mut(new).remove("status")),
            }
            if let Some(managed) = managed {
                object::set(new, "managedFields", managed);
            }
            if let Some(version) = version {
                object::set(new, "resourceVersion", version);
            }
        }
        "ephemeralcontainers" | "resize" => {
            let mut spec = new.get("spec").cloned().unwrap_or_default();
            if target.subresource == "ephemeralcontainers" {
                let added = spec.get("ephemeralContainers").cloned().unwrap_or_default();
                spec = shown["spec"].clone();
                object::map_mut(&mut spec).insert("ephemeralContainers".into(), added);
            }
            let metadata = new.get("metadata").cloned().unwrap_or_default();
            *new = shown.clone();
            object::map_mut(new).insert("spec".into(), spec);
            for field in ["managedFields", "resourceVersion"] {
                if let Some(value) = metadata.get(field) {
                    object::set(new, field, value.clone());
                }
            }
        }
        "finalize" => {
            let finalizers = object::at(new, "spec.finalizers").cloned();
            let managed = object::meta(new, "managedFields").cloned();
            *new = shown.clone();
            let spec = object::child_mut(object::map_mut(new), "spec");
            match finalizers.filter(|list| list.as_array().is_some_and(|list| !list.is_empty())) {
                Some(list) => drop(spec.insert("finalizers".into(), list)),
                None => drop(spec.remove("finalizers")),
            }
            if let Some(managed) = managed {
                object::set(new, "managedFields", managed);
            }
        }
        _ => {}
    }
}

/// Lists the metadata that a write of the status writes as well: for most built-in kinds what users give.
fn described_with_status(target: &Target) -> &'static [&'static str] {
    const ALL: [&str; 4] = ["annotations", "finalizers", "labels", "ownerReferences"];
    match target.resource.built_in().map(|row| (row.group, row.kind)) {
        _ if target.subresource != "status" => &[],
        Some((_, "Deployment")) => &["annotations", "finalizers", "ownerReferences"],
        Some((_, "Pod")) => &["annotations", "finalizers", "labels"],
        Some(("" | "apps" | "batch" | "autoscaling" | "policy" | "apiextensions.k8s.io", _))
        | Some((_, "Ingress")) => &ALL,
        _ => &[],
    }
}

fn spec_changed(rule: Option<Generation>, served: &Served, before: &Value, after: &Value) -> bool {
    match rule {
        Some(Generation::None | Generation::One) => false,
        Some(Generation::Spec) => before.get("spec") != after.get("spec"),
        Some(Generation::SpecAndAnnotations) => {
            before.get("spec") != after.get("spec")
                || object::meta(before, "annotations") != object::meta(after, "annotations")
        }
        Some(Generation::Body) | None => {
            let counts = |key: &str| {
                let apart = key == "status" && served.offers("status");
                !(apart || matches!(key, "metadata" | "apiVersion" | "kind"))
            };
            let keys = |value: &Value| -> Vec<String> {
                value
                    .as_object()
                    .into_iter()
                    .flat_map(|map| map.keys())
                    .filter(|key| counts(key))
                    .cloned()
                    .collect()
            };
            let mut all = keys(before);
            all.extend(keys(after));
            all.iter().any(|key| before.get(key) != after.get(key))
        }
    }
}

/// Returns whether two states are equal but for the times of managed fields.
fn same(before: &Value, after: &Value) -> bool {
    let times_apart = |one: &Value, other: &Value| equal_but(one, other, "time", &|_, _| true);
    let managed = |before: &Value, after: &Value| match (before.as_array(), after.as_array()) {
        (Some(before), Some(after)) => {
            before.len() == after.len()
                && before.iter().zip(after).all(|(one, other)| times_apart(one, other))
        }
        _ => before == after,
    };
    let metadata = |before: &Value, after: &Value| equal_but(before, after, "managedFields", &managed);
    equal_but(before, after, "metadata", &metadata)
}

/// Compares two values, one field of theirs by other means; where it is absent it counts as null.
fn equal_but(before: &Value, after: &Value, field: &str, compare: &dyn Fn(&Value, &Value) -> bool) -> bool {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else { return before == after };
    let rest = |(name, _): &(&String, &Value)| *name != field;
    old.iter().filter(rest).eq(new.iter().filter(rest)) && compare(&before[field], &after[field])
}
