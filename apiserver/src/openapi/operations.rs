//! Operations: the paths of a group version and what may be done on them.

use serde_json::{Map, Value, json};

use super::schemas::{DELETE_OPTIONS, Names, PATCH, SCALE, STATUS, reference};
use crate::kinds::{Reach, Resource, Served, Unstored};
use crate::schema::Schema;

/// The media types of patches; a strategic merge needs strategies that these schemas do not contain.
const PATCHES: [&str; 3] =
    ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];

/// The media types of answers; custom kinds have no binary form.
const ANSWERS: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// The operation on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OperationAction {
    Get,
    List,
    Post,
    Put,
    Patch,
    Delete,
    DeleteCollection,
}

impl OperationAction {
    fn method(self) -> &'static str {
        match self {
            Self::Get | Self::List => "get",
            Self::Post => "post",
            Self::Put => "put",
            Self::Patch => "patch",
            Self::Delete | Self::DeleteCollection => "delete",
        }
    }

    /// Returns the word of `x-kubernetes-action`.
    fn word(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::DeleteCollection => "deletecollection",
            _ => self.method(),
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Get => "read the specified",
            Self::List => "list or watch objects of kind",
            Self::Post => "create a",
            Self::Put => "replace the specified",
            Self::Patch => "change or apply the specified",
            Self::Delete => "delete a",
            Self::DeleteCollection => "delete the collection of",
        }
    }

    /// Returns the query parameters, with what each is for.
    fn parameters(self) -> &'static [(&'static str, &'static str, &'static str)] {
        const DRY_RUN: (&str, &str, &str) = ("dryRun", "string", "`All`: check everything, store nothing");
        const MANAGER: (&str, &str, &str) = ("fieldManager", "string", "who makes the change");
        const VALIDATION: (&str, &str, &str) =
            ("fieldValidation", "string", "what unknown and doubled fields get: Ignore, Warn or Strict");
        const FORCE: (&str, &str, &str) = ("force", "boolean", "take fields from their owners when applying");
        const GRACE: (&str, &str, &str) = ("gracePeriodSeconds", "integer", "seconds to go gracefully");
        const PROPAGATION: (&str, &str, &str) =
            ("propagationPolicy", "string", "what becomes of dependents: Orphan, Background or Foreground");
        const CONTINUE: (&str, &str, &str) = ("continue", "string", "where the last page ended");
        const FIELDS: (&str, &str, &str) = ("fieldSelector", "string", "which objects, by their fields");
        const LABELS: (&str, &str, &str) = ("labelSelector", "string", "which objects, by their labels");
        const LIMIT: (&str, &str, &str) = ("limit", "integer", "the most objects of a page");
        const VERSION: (&str, &str, &str) = ("resourceVersion", "string", "which state to read");
        const MATCH: (&str, &str, &str) =
            ("resourceVersionMatch", "string", "how to read it: Exact or NotOlderThan");
        match self {
            Self::Get => &[],
            Self::List => &[
                ("allowWatchBookmarks", "boolean", "whether a watch may tell of versions without changes"),
                CONTINUE,
                FIELDS,
                LABELS,
                LIMIT,
                VERSION,
                MATCH,
                ("sendInitialEvents", "boolean", "whether a watch starts with what is there"),
                ("timeoutSeconds", "integer", "how long a watch lasts"),
                ("watch", "boolean", "watch instead of listing"),
            ],
            Self::Post | Self::Put => &[DRY_RUN, MANAGER, VALIDATION],
            Self::Patch => &[DRY_RUN, MANAGER, VALIDATION, FORCE],
            Self::Delete => &[DRY_RUN, GRACE, PROPAGATION],
            Self::DeleteCollection => {
                &[CONTINUE, DRY_RUN, FIELDS, GRACE, LABELS, LIMIT, PROPAGATION, VERSION, MATCH]
            }
        }
    }
}

/// A kind as operations name it.
struct ShownParameters<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
    /// The component an operation takes and gives.
    component: &'a str,
    /// The component of the list.
    list: &'a str,
    /// The subresource, or an empty text.
    subresource: &'a str,
}

/// The paths of one document, gathered.
#[derive(Debug)]
pub(super) struct Paths {
    group: String,
    version: String,
    found: Map<String, Value>,
}

impl Paths {
    /// Starts without any.
    pub(super) fn new(group: &str, version: &str) -> Self {
        Self { group: group.to_owned(), version: version.to_owned(), found: Map::new() }
    }

    /// Adds the paths of a kind and its subresources.
    pub(super) fn add_kind(&mut self, resource: &Resource, served: &Served, names: &Names) {
        let (group, version) = (self.group.clone(), self.version.clone());
        let root = root_of(&group, &version);
        let everywhere = format!("{root}/{}", resource.plural());
        let (collection, place) = collection_of(&root, resource.plural(), resource.reach);
        let object = format!("{collection}/{{name}}");
        let shown = ShownParameters {
            group: &group,
            version: &version,
            kind: &served.kind,
            component: &names.kind,
            list: &names.list,
            subresource: "",
        };
        let mut on_collection = vec![OperationAction::List, OperationAction::Post];
        if served.kind != "Namespace" || resource.is_custom() {
            on_collection.push(OperationAction::DeleteCollection);
        }
        self.add(&collection, place, &on_collection, &shown);
        if collection != everywhere {
            self.add(&everywhere, &[], &[OperationAction::List], &shown);
        }
        let place = [&["name"], place].concat();
        self.add(
            &object,
            &place,
            &[OperationAction::Get, OperationAction::Put, OperationAction::Patch, OperationAction::Delete],
            &shown,
        );
        for subresource in &served.subresources {
            let shown = match subresource.as_str() {
                "scale" => ShownParameters {
                    group: "autoscaling",
                    version: "v1",
                    kind: "Scale",
                    component: SCALE,
                    subresource,
                    ..shown
                },
                _ => ShownParameters { subresource, ..shown },
            };
            let actions: &[OperationAction] = if subresource == "finalize" {
                &[OperationAction::Put]
            } else {
                &[OperationAction::Get, OperationAction::Put, OperationAction::Patch]
            };
            self.add(&format!("{object}/{subresource}"), &place, actions, &shown);
        }
    }

    /// Adds the paths of a kind that is answered and never stored.
    pub(super) fn add_unstored(&mut self, unstored: &Unstored, names: &Names) {
        let (group, version) = (self.group.clone(), self.version.clone());
        let root = root_of(&group, &version);
        let (collection, place) = collection_of(&root, unstored.plural, unstored.reach);
        let shown = ShownParameters {
            group: &group,
            version: &version,
            kind: unstored.kind,
            component: &names.kind,
            list: &names.list,
            subresource: "",
        };
        let on_collection = match unstored.verbs.contains(&"list") {
            true => OperationAction::List,
            false => OperationAction::Post,
        };
        self.add(&collection, place, &[on_collection], &shown);
        if unstored.verbs.contains(&"get") {
            self.add(
                &format!("{collection}/{{name}}"),
                &[&["name"], place].concat(),
                &[OperationAction::Get],
                &shown,
            );
        }
    }

    /// Returns the paths by name.
    pub(super) fn into_map(self) -> Map<String, Value> {
        self.found
    }

    fn add(&mut self, path: &str, place: &[&str], actions: &[OperationAction], shown: &ShownParameters<'_>) {
        let mut item: Map<String, Value> =
            actions.iter().map(|action| (action.method().to_owned(), operation(*action, shown))).collect();
        let mut parameters: Vec<Value> = place.iter().map(|name| in_path(name)).collect();
        parameters.push(in_query("pretty", "string", "whether to indent the answer"));
        item.insert("parameters".into(), parameters.into());
        self.found.insert(path.to_owned(), Value::Object(item));
    }
}

fn root_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// Returns the path of a collection, with the parameters in it.
fn collection_of(root: &str, plural: &str, reach: Reach) -> (String, &'static [&'static str]) {
    match reach {
        Reach::Cluster => (format!("{root}/{plural}"), &[]),
        Reach::Namespaced => (format!("{root}/namespaces/{{namespace}}/{plural}"), &["namespace"]),
    }
}

fn in_path(name: &str) -> Value {
    let what = if name == "name" { "the object's name" } else { "the object's namespace" };
    json!({
        "name": name, "in": "path", "description": what, "required": true,
        "schema": {"type": "string", "uniqueItems": true},
    })
}

fn in_query(name: &str, kind: &str, what: &str) -> Value {
    json!({
        "name": name, "in": "query", "description": what, "schema": {"type": kind, "uniqueItems": true},
    })
}

fn operation(action: OperationAction, shown: &ShownParameters<'_>) -> Value {
    let of =
        if shown.subresource.is_empty() { String::new() } else { format!("{} of the ", shown.subresource) };
    let parameters: Vec<Value> =
        action.parameters().iter().map(|(name, kind, what)| in_query(name, kind, what)).collect();
    let given = match action {
        OperationAction::List => shown.list,
        OperationAction::Delete | OperationAction::DeleteCollection => STATUS,
        _ => shown.component,
    };
    let code = if action == OperationAction::Post { "201" } else { "200" };
    let mut responses = Map::new();
    let is_custom = Schema::definition_name(shown.group, shown.version, shown.kind).is_none();
    let media = if is_custom { &ANSWERS[..2] } else { &ANSWERS[..] };
    responses.insert(code.into(), json!({"description": "OK", "content": content(media, given)}));
    responses.insert("401".into(), json!({"description": "Unauthorized"}));
    let mut operation = json!({
        "description": format!("{} {of}{}", action.describe(), shown.kind),
        "parameters": parameters,
        "responses": responses,
        "x-kubernetes-action": action.word(),
        "x-kubernetes-group-version-kind": {
            "group": shown.group, "version": shown.version, "kind": shown.kind,
        },
    });
    let body = match action {
        OperationAction::Get | OperationAction::List => return operation,
        OperationAction::Post | OperationAction::Put => content(&["*/*"], shown.component),
        OperationAction::Patch => content(&PATCHES, PATCH),
        OperationAction::Delete | OperationAction::DeleteCollection => content(&["*/*"], DELETE_OPTIONS),
    };
    operation["requestBody"] = json!({"content": body});
    operation
}

fn content(media: &[&str], component: &str) -> Value {
    let all = media.iter().map(|media| ((*media).to_owned(), json!({"schema": reference(component)})));
    Value::Object(all.collect())
}
