//! Writes: create, update, patch, apply and delete, under the rules of metadata.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::authz::{Attributes, check_escalation};
use crate::identity::User;
use crate::kinds::{Resource, Served};
use crate::object;
use crate::route::Query;
use crate::state::State;
use crate::status::{Cause, Status};
use crate::store::Stored;

mod admit;
mod body;
mod check;
mod create;
mod delete;
mod patching;
mod repeats;
mod scale;
mod typed;
mod update;

pub(crate) use admit::admit_sent;
pub(crate) use body::media_type;
pub(crate) use create::create;
pub(crate) use delete::{
    CRD_CLEANUP, DeleteOptions, FOREGROUND, ORPHAN, Propagation, delete, delete_collection, remove_or_mark,
};
pub(crate) use patching::patch;
pub(crate) use scale::{get_scale, patch_scale, put_scale};
pub(crate) use update::{other_uid, other_version, put};

/// The target of a write.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The resource.
    pub(crate) resource: Arc<Resource>,
    /// The version in the path.
    pub(crate) served: Arc<Served>,
    /// The namespace in the path; empty for cluster-scoped kinds.
    pub(crate) namespace: String,
    /// The name in the path; empty for creates.
    pub(crate) name: String,
    /// The subresource; empty for the object itself.
    pub(crate) subresource: String,
}

impl Target {
    /// Returns the storage key.
    pub(crate) fn key(&self) -> String {
        object::key(&self.namespace, &self.name)
    }

    /// Returns the managed-fields name of the subresource.
    pub(crate) fn managed_subresource(&self) -> Option<&str> {
        (!self.subresource.is_empty()).then_some(self.subresource.as_str())
    }

    /// Returns the version managed fields are noted under.
    pub(crate) fn managed_version(&self) -> String {
        if self.subresource == "scale" && !self.resource.is_custom() {
            "autoscaling/v1".to_owned()
        } else {
            self.served.api_version()
        }
    }

    /// 404 for this object.
    pub(crate) fn not_found(&self) -> Status {
        Status::not_found(self.resource.group(), self.resource.plural(), &self.name)
    }

    /// 409: a stale version.
    pub(crate) fn stale(&self) -> Status {
        Status::stale(self.resource.group(), self.resource.plural(), &self.name)
    }

    /// 422 for fields of this object.
    pub(crate) fn invalid(&self, name: &str, causes: &[Cause]) -> Status {
        let group = if &*self.resource.storage.plural == "events" { "" } else { self.resource.group() };
        Status::invalid(group, &self.resource.kind, name, causes)
    }
}

/// Whether a write is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Stored.
    Yes,
    /// Only tried: `dryRun=All`.
    DryRun,
}

/// What to do about unknown fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Drop them silently.
    Ignore,
    /// Drop them with a warning.
    Warn,
    /// Refuse the write.
    Strict,
}

/// Whether an apply takes fields from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taking {
    /// Conflicts refuse the write.
    Asks,
    /// Conflicts are won.
    Forces,
}

/// The options of a write.
#[derive(Clone, Debug)]
pub(crate) struct WriteOptions {
    /// Whether it is kept.
    pub(crate) keep: Keep,
    /// The field manager.
    pub(crate) manager: String,
    /// Whether the manager was named in the request.
    pub(crate) named_manager: bool,
    /// What to do about unknown fields.
    pub(crate) validation: FieldValidation,
    /// Whether an apply forces.
    pub(crate) taking: Taking,
    /// The user; the server itself if absent.
    pub(crate) author: Option<Author>,
}

/// The user, and the options of the request.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    /// The user.
    pub(crate) user: User,
    /// The request.
    pub(crate) asked: Attributes,
    /// The field manager, if the request names one.
    pub(crate) manager: Option<String>,
}

impl WriteOptions {
    /// Sets the user who writes.
    pub(crate) fn by(self, author: Author) -> Self {
        Self { author: Some(author), ..self }
    }

    /// Refuses to give rights away that the author has not.
    ///
    /// # Errors
    /// 403, naming the rights; 404 for a role that is bound and not there.
    fn check_escalation(&self, state: &State, before: Option<&Value>, new: &Value) -> Result<(), Status> {
        let Some(Author { user, asked, .. }) = &self.author else { return Ok(()) };
        check_escalation(state, user, asked, before, new)
    }

    /// Reads the options from the query; `kind` is e.g. `CreateOptions`.
    ///
    /// # Errors
    /// 422 for unknown values.
    pub(crate) fn read(query: &Query, user_agent: &str, kind: &str) -> Result<Self, Status> {
        let mut causes = Vec::new();
        let mut keep = Keep::Yes;
        for value in query.all("dryRun") {
            keep = Keep::DryRun;
            causes.extend(dry_run_fault(value));
        }
        let manager = query.text("fieldManager");
        if manager.len() > 128 {
            causes.push(Cause::new(
                "FieldValueTooLong",
                "fieldManager",
                "Too long: may not be more than 128 bytes",
            ));
        }
        if let Some((at, odd)) = manager.char_indices().find(|(_, c)| c.is_control()) {
            let why = format!("invalid character U+{:04X} (at position {at})", u32::from(odd));
            causes.push(Cause::invalid("fieldManager", &format!("{manager:?}"), &why));
        }
        let validation = match query.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let known = "supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"";
                let message = format!("Unsupported value: {other:?}: {known}");
                causes.push(Cause::new("FieldValueNotSupported", "fieldValidation", message));
                FieldValidation::Warn
            }
        };
        if !causes.is_empty() {
            return Err(Status::invalid("meta.k8s.io", kind, "", &causes));
        }
        let agent = user_agent.split('/').next().unwrap_or_default();
        let default_manager = if agent.is_empty() { "unknown" } else { agent };
        Ok(Self {
            keep,
            manager: if manager.is_empty() { default_manager.to_owned() } else { manager.to_owned() },
            named_manager: !manager.is_empty(),
            validation,
            taking: if query.flag("force") { Taking::Forces } else { Taking::Asks },
            author: None,
        })
    }
}

/// Reports an invalid `dryRun`, whose only value is `All`.
fn dry_run_fault(value: &str) -> Option<Cause> {
    let message = format!("Unsupported value: [{value:?}]: supported values: \"All\"");
    (value != "All").then(|| Cause::new("FieldValueNotSupported", "dryRun", message))
}

/// The object a write answers with.
#[derive(Debug)]
pub(crate) enum Shown {
    /// In the stored form.
    Stored(Arc<Stored>),
    /// Never stored: dry runs and last states; in the stored form.
    Unstored(Value),
    /// Not the kind's own object: a `Status`, a `Scale`.
    Other(Value),
}

/// A write's answer.
#[derive(Debug)]
pub(crate) struct Written {
    /// 200 or 201.
    pub(crate) code: u16,
    /// The object.
    pub(crate) shown: Shown,
    /// Texts for `Warning` headers.
    pub(crate) warnings: Vec<String>,
}

impl Written {
    /// 200 with an object.
    pub(crate) fn ok(shown: Shown) -> Self {
        Self { code: 200, shown, warnings: Vec::new() }
    }

    /// 201 with an object.
    pub(crate) fn created(shown: Shown) -> Self {
        Self { code: 201, shown, warnings: Vec::new() }
    }

    /// 200 with the `Status` of a deletion.
    pub(crate) fn deleted(target: &Target, uid: &str) -> Self {
        let mut details =
            crate::status::named(target.resource.group(), target.resource.plural(), &target.name);
        details["uid"] = uid.into();
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
        Self::ok(Shown::Other(status))
    }
}
