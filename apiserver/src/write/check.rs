//! Checks of metadata: names, labels, finalizers, and what a client may not change.

use serde_json::Value;

use super::Target;
use crate::limits;
use crate::object;
use crate::selector::{SUBDOMAIN, check_label_key, check_label_value};
use crate::status::{Cause, Status};

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
                     validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// Checks that namespace and name of a body fit the path, and fills in missing ones.
///
/// # Errors
/// 400, in the server's words.
pub(super) fn fit_path(target: &Target, object: &mut Value) -> Result<(), Status> {
    let given = object::namespace(object);
    if !given.is_empty() && given != target.namespace && !target.namespace.is_empty() {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(why));
    }
    if target.namespace.is_empty() {
        object::remove(object, "namespace");
    } else {
        object::set(object, "namespace", target.namespace.clone());
    }
    Ok(())
}

/// Checks that the name of an update's body is the path's.
///
/// # Errors
/// 400, in the server's words.
pub(super) fn same_name(target: &Target, object: &Value) -> Result<(), Status> {
    let given = object::name(object);
    if given == target.name {
        return Ok(());
    }
    Err(Status::bad_request(if given.is_empty() {
        format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        )
    } else {
        format!("the name of the object ({given}) does not match the name on the URL ({})", target.name)
    }))
}

/// Checks name, labels, annotations, finalizers and owners of a new object.
pub(super) fn metadata(target: &Target, object: &Value) -> Vec<Cause> {
    let mut causes = name_faults(target, object);
    causes.extend(changeable(object));
    causes.extend(finalizer_faults(object));
    causes.extend(unqualified_finalizers(target, object));
    causes.extend(owner_causes(object));
    causes
}

fn finalizer_faults(object: &Value) -> impl Iterator<Item = Cause> {
    object::finalizers(object).into_iter().filter_map(|finalizer| {
        let why = check_label_key(finalizer).err()?;
        Some(Cause::invalid("metadata.finalizers", &format!("{finalizer:?}"), &why))
    })
}

/// Checks what an update may change.
pub(super) fn changed_metadata(target: &Target, object: &Value) -> Vec<Cause> {
    let mut causes = changeable(object);
    causes.extend(finalizer_faults(object));
    // Leases are checked without the rule of the other built-in kinds.
    let is_lease = target.resource.built_in().is_some_and(|row| row.kind == "Lease");
    if !is_lease {
        causes.extend(unqualified_finalizers(target, object));
    }
    causes.extend(owner_causes(object));
    causes
}

fn name_faults(target: &Target, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = object::name(object);
    let prefix = object::text(object, "generateName");
    let form = NameForm::of(target);
    if !prefix.is_empty() {
        for why in form.faults(&format!("{prefix}a")) {
            causes.push(Cause::invalid("metadata.generateName", &format!("{prefix:?}"), &why));
        }
    }
    for why in form.faults(name) {
        causes.push(Cause::invalid("metadata.name", &format!("{name:?}"), &why));
    }
    causes
}

fn changeable(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, value) in object::meta(object, "labels").and_then(Value::as_object).into_iter().flatten() {
        if let Err(why) = check_label_key(key) {
            causes.push(Cause::invalid("metadata.labels", &format!("{key:?}"), &why));
        }
        let value = value.as_str().unwrap_or_default();
        if let Err(why) = check_label_value(value) {
            causes.push(Cause::invalid("metadata.labels", &format!("{value:?}"), &why));
        }
    }
    for key in
        object::meta(object, "annotations").and_then(Value::as_object).into_iter().flat_map(|m| m.keys())
    {
        if let Err(why) = check_label_key(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &format!("{key:?}"), &why));
        }
    }
    causes.extend(annotation_size(object));
    causes
}

/// Checks that finalizers of built-in kinds have a domain.
fn unqualified_finalizers(target: &Target, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (index, finalizer) in object::finalizers(object).into_iter().enumerate() {
        let is_named = finalizer.contains('/') || STANDARD.contains(&finalizer);
        if !is_named && !target.resource.is_custom() {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(
                format!("metadata.finalizers[{index}]"),
                &format!("{finalizer:?}"),
                why,
            ));
        }
    }
    causes
}

/// Checks the size of all annotations together.
fn annotation_size(object: &Value) -> Option<Cause> {
    let annotations = object::meta(object, "annotations").and_then(Value::as_object);
    let sizes = annotations.into_iter().flatten();
    let size: usize = sizes.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    (size > limits::ANNOTATIONS).then(|| Cause::too_long("metadata.annotations", limits::ANNOTATIONS))
}

/// Checks the rules of a custom kind, unless other errors make that impossible.
pub(super) fn rules(target: &Target, new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    const BLOCKING: [&str; 5] = [
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    ];
    let schema = &target.served.schema;
    if !schema.has_rules() {
        return;
    }
    if causes.iter().any(|cause| BLOCKING.contains(&cause.reason)) {
        let why = "some validation rules were not checked because the object was invalid; correct the existing errors to \
                   complete validation";
        causes.push(Cause::invalid("<nil>", "null", why));
        return;
    }
    causes.extend(schema.rule_errors(new, old).into_iter().map(Cause::from));
}

/// Leaves out owner references that are there twice.
pub(super) fn keep_each_owner_once(object: &mut Value) {
    let owners = object::meta_mut(object).get_mut("ownerReferences").and_then(Value::as_array_mut);
    let mut seen = Vec::new();
    owners.into_iter().for_each(|owners| {
        owners.retain(|owner| {
            let is_new = !seen.contains(owner);
            seen.push(owner.clone());
            is_new
        });
    });
}

/// Finalizers that need no domain.
const STANDARD: [&str; 4] =
    ["kubernetes", "orphan", "foregroundDeletion", "customresourcecleanup.apiextensions.k8s.io"];

fn owner_causes(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let list = object::meta(object, "ownerReferences").and_then(Value::as_array);
    for entry in list.into_iter().flatten() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if entry[field].as_str().unwrap_or_default().is_empty() {
                causes.push(Cause::invalid(
                    format!("metadata.ownerReferences.{field}"),
                    "\"\"",
                    "must not be empty",
                ));
            }
        }
    }
    let controllers: Vec<&Value> =
        list.into_iter().flatten().filter(|entry| entry["controller"] == true).collect();
    if let [first, second, ..] = controllers.as_slice() {
        let told = |entry: &Value| {
            let word = |field: &str| entry[field].as_str().unwrap_or_default();
            format!("{}/{}", word("kind"), word("name"))
        };
        let why = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
            told(first),
            told(second)
        );
        let shown: Vec<String> = list.into_iter().flatten().map(shown_owner).collect();
        let shown = format!("[{}]", shown.join(","));
        causes.push(Cause::invalid("metadata.ownerReferences", &shown, &why));
    }
    causes
}

/// Shows an owner reference with its fields in the server's order.
fn shown_owner(owner: &Value) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let pairs: Vec<String> =
        fields.into_iter().filter_map(|field| Some(format!("\"{field}\":{}", owner.get(field)?))).collect();
    format!("{{{}}}", pairs.join(","))
}

/// Warns of formats in a definition's schemas that the server passes over.
pub(super) fn definition_warnings(target: &Target, object: &Value) -> Vec<String> {
    match target.resource.built_in() {
        Some(row) if row.kind == "CustomResourceDefinition" => crate::kinds::format_warnings(object),
        _ => Vec::new(),
    }
}

/// Warns of finalizers without a domain on custom resources.
pub(super) fn finalizer_warnings(target: &Target, object: &Value) -> Vec<String> {
    if !target.resource.is_custom() {
        return Vec::new();
    }
    let odd = object::finalizers(object).into_iter().filter(|f| !f.contains('/') && !STANDARD.contains(f));
    odd.map(|finalizer| {
        format!(
            "metadata.finalizers: {finalizer:?}: prefer a domain-qualified finalizer name to avoid accidental conflicts \
             with other finalizer writers"
        )
    })
    .collect()
}

/// The rules for names of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameForm {
    PathSegment,
    DnsLabel,
    DnsSubdomain,
}

impl NameForm {
    fn of(target: &Target) -> Self {
        match target.resource.built_in() {
            Some(row) if row.group == "rbac.authorization.k8s.io" => Self::PathSegment,
            Some(row) if matches!(row.kind, "Namespace" | "Service" | "StatefulSet") => Self::DnsLabel,
            _ => Self::DnsSubdomain,
        }
    }

    /// Lists all errors of a name.
    fn faults(self, name: &str) -> Vec<String> {
        let mut faults = Vec::new();
        let is_subdomain = name.split('.').all(is_dns_label);
        match self {
            Self::PathSegment if matches!(name, "." | "..") => faults.push(format!("may not be '{name}'")),
            Self::PathSegment => {
                let odd = ['/', '%'].into_iter().filter(|odd| name.contains(*odd));
                faults.extend(odd.map(|odd| format!("may not contain '{odd}'")));
            }
            Self::DnsLabel => {
                faults.extend(too_long(name, 63));
                match is_dns_label(name) {
                    true => {}
                    false if is_subdomain => faults.push("must not contain dots".to_owned()),
                    false => faults.push(LABEL.to_owned()),
                }
            }
            Self::DnsSubdomain => {
                faults.extend(too_long(name, 253));
                faults.extend((!is_subdomain).then(|| SUBDOMAIN.to_owned()));
            }
        }
        faults
    }
}

fn too_long(name: &str, most: usize) -> Option<String> {
    (name.len() > most).then(|| format!("must be no more than {most} characters"))
}

fn is_dns_label(text: &str) -> bool {
    let inner = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(inner)
        && bytes.last().is_some_and(inner)
        && bytes.iter().all(|c| inner(c) || *c == b'-')
}

/// Copies the server's fields from the live object, and reports changes of immutable fields.
pub(super) fn keep_server_fields(live: &Value, new: &mut Value, from_patch: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    let given = object::text(new, "deletionTimestamp").to_owned();
    if !given.is_empty() && given != object::text(live, "deletionTimestamp") {
        let cause = Cause::invalid("metadata.deletionTimestamp", &format!("{given:?}"), "field is immutable");
        causes.push(cause);
    }
    let uid = object::uid(new).to_owned();
    if from_patch && !uid.is_empty() && uid != object::uid(live) {
        causes.push(Cause::invalid("metadata.uid", &format!("{uid:?}"), "field is immutable"));
    }
    if object::is_deleting(live) {
        let held = object::finalizers(live);
        let added: Vec<String> = object::finalizers(new)
            .into_iter()
            .filter(|f| !held.contains(f))
            .map(|f| format!("{f:?}"))
            .collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &why));
        }
    }
    causes.extend(causes.clone());
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "selfLink",
        "generateName",
    ] {
        object::carry(live, new, field);
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    // wire 206
    #[test]
    fn dns_labels_are_lower_case_and_bounded_by_letters() {
        assert!(is_dns_label("a-1"));
        for bad in ["", "-a", "a-", "A", "a_b"] {
            assert!(!is_dns_label(bad), "{bad}");
        }
    }

    #[test]
    fn everything_that_is_wrong_with_a_name_is_said() {
        let long = |part: &str| part.repeat(70);
        for (form, name, faults) in [
            (NameForm::DnsLabel, long("a"), vec!["must be no more than 63 characters"]),
            (NameForm::DnsLabel, long("A"), vec!["must be no more than 63 characters", LABEL]),
            (NameForm::DnsLabel, "a.b".to_owned(), vec!["must not contain dots"]),
            (NameForm::DnsLabel, "A.b".to_owned(), vec![LABEL]),
            (NameForm::DnsLabel, "1a".to_owned(), vec![]),
            (NameForm::DnsSubdomain, "a".repeat(254), vec!["must be no more than 253 characters"]),
            (NameForm::DnsSubdomain, "A.b".to_owned(), vec![SUBDOMAIN]),
            (
                NameForm::PathSegment,
                "system:a/%".to_owned(),
                vec!["may not contain '/'", "may not contain '%'"],
            ),
            (NameForm::PathSegment, "..".to_owned(), vec!["may not be '..'"]),
        ] {
            assert_eq!(form.faults(&name), faults, "{name}");
        }
    }
}
