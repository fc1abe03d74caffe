//! The entries of `managedFields`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::set::FieldSet;

/// The most update managers that are kept apart.
const MOST_UPDATERS: usize = 10;

/// The name that the oldest update managers share when there are too many.
const ANCIENT: &str = "ancient-changes";

/// How a manager writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ManagerOperation {
    /// By server-side apply.
    Apply,
    /// By any other request.
    Update,
}

/// Identifies a manager.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub(super) manager: String,
    pub(super) operation: ManagerOperation,
    /// Empty for appliers, who are the same manager in all versions.
    pub(super) api_version: String,
    /// Empty for the main endpoint.
    pub(super) subresource: String,
}

/// The fields of one manager.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    pub(super) fields: FieldSet,
    pub(super) api_version: String,
    pub(super) time: Option<String>,
}

/// All managers of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Managers {
    pub(super) entries: BTreeMap<Identity, Owned>,
}

impl Identity {
    /// Names the manager of a request.
    pub(super) fn new(
        manager: &str,
        operation: ManagerOperation,
        api_version: &str,
        subresource: Option<&str>,
    ) -> Identity {
        let api_version = match operation {
            ManagerOperation::Apply => "",
            ManagerOperation::Update => api_version,
        };
        Identity {
            manager: manager.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.unwrap_or_default().to_owned(),
        }
    }

    /// Shows a manager as conflicts do.
    pub(super) fn show(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == ManagerOperation::Update {
            // The scale subresource has its own group.
            let version = match self.subresource.as_str() {
                "scale" => "autoscaling/v1",
                _ => &self.api_version,
            };
            text.push_str(&format!(" using {version}"));
        }
        text
    }
}

impl Managers {
    /// Reads `managedFields`; `None` if an entry is malformed.
    pub(super) fn parse(list: &Value) -> Option<Managers> {
        let mut managers = Managers::default();
        for entry in list.as_array()? {
            let (identity, owned) = parse_entry(entry)?;
            let fields = match managers.entries.get(&identity) {
                Some(before) => before.fields.union(&owned.fields),
                None => owned.fields,
            };
            managers.entries.insert(identity, Owned { fields, ..owned });
        }
        Some(managers)
    }

    /// Writes `managedFields`: appliers first, then by time, name, version and subresource.
    pub(super) fn print(&self) -> Vec<Value> {
        let mut entries: Vec<(&Identity, &Owned)> = self.entries.iter().collect();
        entries.sort_by_key(|(identity, owned)| {
            (identity.operation, &owned.time, &identity.manager, &owned.api_version, &identity.subresource)
        });
        entries.into_iter().map(|(identity, owned)| print_entry(identity, owned)).collect()
    }

    /// Takes fields away from everybody but one manager.
    pub(super) fn take(&mut self, fields: &FieldSet, except: Option<&Identity>) {
        for (identity, owned) in &mut self.entries {
            if Some(identity) != except {
                owned.fields = owned.fields.difference(fields);
            }
        }
        self.drop_empty();
    }

    /// Removes managers that own nothing.
    pub(super) fn drop_empty(&mut self) {
        self.entries.retain(|_, owned| !owned.fields.is_empty());
    }

    /// Merges the oldest update managers until there are few enough.
    pub(super) fn cap(&mut self) {
        let mut updaters: Vec<(Option<String>, Identity)> = self
            .entries
            .iter()
            .filter(|(identity, _)| {
                identity.operation == ManagerOperation::Update && identity.subresource.is_empty()
            })
            .map(|(identity, owned)| (owned.time.clone(), identity.clone()))
            .collect();
        if updaters.len() <= MOST_UPDATERS {
            return;
        }
        updaters.sort();
        let surplus = updaters.len() - MOST_UPDATERS + 1;
        for (_, oldest) in updaters.into_iter().take(surplus) {
            let Some(owned) = self.entries.remove(&oldest) else { continue };
            let bucket = Identity { manager: ANCIENT.to_owned(), ..oldest };
            let fields = match self.entries.get(&bucket) {
                Some(before) => before.fields.union(&owned.fields),
                None => owned.fields,
            };
            self.entries.insert(bucket, Owned { fields, ..owned });
        }
    }
}

fn parse_entry(entry: &Value) -> Option<(Identity, Owned)> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => ManagerOperation::Apply,
        "Update" => ManagerOperation::Update,
        _ => return None,
    };
    let subresource = Some(text("subresource"));
    let identity = Identity::new(text("manager"), operation, text("apiVersion"), subresource);
    let fields = match entry.get("fieldsV1") {
        Some(fields) => FieldSet::parse(fields)?,
        None => FieldSet::default(),
    };
    let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
    Some((identity, Owned { fields, api_version: text("apiVersion").to_owned(), time }))
}

fn print_entry(identity: &Identity, owned: &Owned) -> Value {
    let operation = match identity.operation {
        ManagerOperation::Apply => "Apply",
        ManagerOperation::Update => "Update",
    };
    let mut entry = Map::new();
    entry.insert("manager".to_owned(), json!(identity.manager));
    entry.insert("operation".to_owned(), json!(operation));
    entry.insert("apiVersion".to_owned(), json!(owned.api_version));
    if let Some(time) = &owned.time {
        entry.insert("time".to_owned(), json!(time));
    }
    entry.insert("fieldsType".to_owned(), json!("FieldsV1"));
    entry.insert("fieldsV1".to_owned(), owned.fields.print());
    if !identity.subresource.is_empty() {
        entry.insert("subresource".to_owned(), json!(identity.subresource));
    }
    Value::Object(entry)
}
