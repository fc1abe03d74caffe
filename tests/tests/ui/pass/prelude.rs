//! What a program does with the prelude alone.

use std::{
    io,
    sync::atomic::{AtomicU32, Ordering},
};

use k8s_openapi::{
    api::core::v1::{ConfigMap, LocalObjectReference, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use watchkeeper::{
    prelude::*,
    store::{Indexer, Objects},
};

/// A type of the user's own for a built-in kind.
#[derive(kube::Resource, Clone, Debug, Serialize, Deserialize)]
#[resource(inherit = ConfigMap)]
struct Settings {
    metadata: ObjectMeta,
    data: Option<Data>,
}

/// What the settings are.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Data {
    colour: String,
}

/// A database that reads passwords from secrets.
#[derive(CustomResource, Informer, Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Database", namespaced)]
struct DatabaseSpec {
    #[informer(index = "by_secret", path = name)]
    passwords: Vec<LocalObjectReference>,
    #[informer(index = "by_volume", path = claim?.volume.names)]
    storage: Option<Storage>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct Storage {
    claim: Option<Claim>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct Claim {
    volume: Volume,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct Volume {
    names: Option<Vec<String>>,
}

fn databases() -> DatabaseLister {
    let indexer = Indexer::<Database>::with_indexes(Database::indexes()).expect("each index has its name");
    let passwords = ["admin", "reader"].map(|name| LocalObjectReference { name: name.to_owned() });
    let names = Some(vec!["fast".to_owned(), "slow".to_owned()]);
    let storage = Some(Storage { claim: Some(Claim { volume: Volume { names } }) });
    let one = Database::new("one", DatabaseSpec { passwords: passwords.to_vec(), storage });
    let two = Database::new("two", DatabaseSpec { passwords: passwords[..1].to_vec(), storage: None });
    indexer.replace([one, two].map(|mut database| {
        database.metadata.namespace = Some("shop".to_owned());
        Arc::new(database)
    }));
    indexer.lister().into()
}

fn names(databases: &Objects<Database>) -> Vec<&str> {
    let mut names: Vec<_> = databases.iter().map(|database| Object::name(&**database)).collect();
    names.sort_unstable();
    names
}

// M4
#[test]
fn a_derived_resource_knows_its_kind() {
    assert_eq!((Settings::kind(&()), ConfigMap::kind(&())), ("ConfigMap".into(), "ConfigMap".into()));
    assert_eq!(Database::kind(&()), "Database");
}

// M2
#[test]
fn a_path_indexes_what_lies_inside_a_struct() {
    let databases = databases();
    assert_eq!(names(&databases.by_secret("admin")), ["one", "two"]);
    assert_eq!(names(&databases.by_secret("reader")), ["one"]);
    assert_eq!(names(&databases.namespace("shop").by_volume("slow")), ["one"]);
    assert!(databases.by_volume("").is_empty() && databases.by_secret("nobody").is_empty());
}

#[test]
fn who_refers_to_an_object_is_found_by_an_index() {
    let databases = databases();
    let _ = Controller::new(Arc::new(Careful))
        .watches::<Secret>(move |secret| databases.by_secret(secret.name()).keys());
}

/// A reconciler whose error is watchkeeper's, and whose program keeps a hold of it.
struct Careful;

impl Reconciler<Database> for Careful {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, _: Arc<Database>, _: &Context<Database>) -> Result<Action, Self::Error> {
        let text = std::fs::read_to_string("/nowhere/at all")?;
        let number: serde_json::Value = serde_json::from_str(&text)?;
        Err(format!("{number} is not a password").into())
    }
}

#[test]
fn everyday_errors_become_watchkeepers() {
    let refused = || -> Result<(), watchkeeper::Error> { Err(io::Error::other("the disk is full"))? };
    assert_eq!(refused().unwrap_err().to_string(), "the disk is full");
    let parsed = || -> Result<i32, watchkeeper::Error> { "x".parse().map_err(watchkeeper::Error::other) };
    assert_eq!(parsed().unwrap_err().to_string(), "invalid digit found in string");
}

#[test]
fn closures_that_capture_reconcile() {
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let _ = Controller::from_fn(async move |database: Arc<Database>, cx: Context<Database>| {
        counted.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(name = database.name(), key = %cx.key());
        Ok::<_, watchkeeper::Error>(Action::await_change())
    });
    let _ = Controller::from_fn(move |_: Arc<ConfigMap>, _: Context<ConfigMap>| {
        let runs = runs.clone();
        async move {
            runs.fetch_add(1, Ordering::Relaxed);
            Ok::<_, watchkeeper::Error>(Action::await_change())
        }
    });
}
