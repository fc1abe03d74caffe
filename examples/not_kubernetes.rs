//! An informer over something that is not Kubernetes: a table in memory, with listers, indexes and handlers.
//!
//! ```text
//! cargo run --example not_kubernetes
//! ```

#![expect(clippy::print_stdout, reason = "an example says what it does")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use futures::{StreamExt, stream};
use tokio::sync::watch;
use watchkeeper::{
    informer::Assembly,
    list_watch::{
        FetchedItem, ListOptions, ListPage, ListWatchError, ListerWatcher, WatchEvent, WatchStream,
    },
    prelude::*,
    reflector::{FirstList, ReflectorConfig},
};

/// A row: any type that looks like an object can be used, derived or built in.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "rows.example.dev", version = "v1", kind = "Row")]
pub struct RowSpec {
    /// `RowLister::by_colour` finds it.
    #[informer(index)]
    pub colour: String,
}

/// A table that numbers every change, which is all that an informer requires of a source.
///
/// Its promise is that of the trait: a list has a version, and a watch from there brings every later change, in
/// order.
#[derive(Clone)]
struct Table {
    changes: Arc<Mutex<Vec<Change>>>,
    version: watch::Sender<usize>,
}

#[derive(Clone)]
struct Change {
    name: String,
    /// `None`: the row was deleted.
    colour: Option<String>,
}

impl Table {
    fn new() -> Self {
        Self { changes: Arc::default(), version: watch::Sender::new(0) }
    }

    fn set(&self, name: &str, colour: Option<&str>) {
        let mut changes = self.changes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        changes.push(Change { name: name.to_owned(), colour: colour.map(str::to_owned) });
        self.version.send_replace(changes.len());
    }

    /// The changes after a version.
    fn since(&self, version: usize) -> Vec<Change> {
        let changes = self.changes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        changes.get(version..).unwrap_or_default().to_vec()
    }
}

impl ListerWatcher<Row> for Table {
    async fn list(&self, _: &ListOptions) -> Result<ListPage<Row>, ListWatchError> {
        let changes = self.since(0);
        let mut rows = BTreeMap::new();
        for (at, change) in changes.iter().enumerate() {
            match change.colour {
                Some(_) => drop(rows.insert(&change.name, row(change, at + 1))),
                None => drop(rows.remove(&change.name)),
            }
        }
        let items = rows.into_values().map(|row| FetchedItem::Object(Arc::new(row))).collect();
        Ok(ListPage { items, resource_version: changes.len().to_string(), continue_token: None })
    }

    async fn watch(&self, options: &ListOptions) -> Result<WatchStream<Row>, ListWatchError> {
        let from: usize = options.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
        let state = (self.clone(), self.version.subscribe(), from);
        let events = stream::unfold(state, |(table, mut moved, seen)| async move {
            moved.wait_for(|version| *version > seen).await.ok()?;
            let changes = table.since(seen);
            let told: Vec<_> =
                changes.iter().zip(seen + 1..).map(|(change, at)| Ok(event(change, at))).collect();
            let seen = seen + told.len();
            Some((stream::iter(told), (table, moved, seen)))
        });
        Ok(events.flatten().boxed())
    }
}

/// Whether a row is new is worked out by the cache: a source may call every change a modification.
fn event(change: &Change, version: usize) -> WatchEvent<Row> {
    let item = FetchedItem::Object(Arc::new(row(change, version)));
    match change.colour {
        Some(_) => WatchEvent::Modified(item),
        None => WatchEvent::Deleted(item),
    }
}

fn row(change: &Change, version: usize) -> Row {
    let mut row = Row::new(&change.name, RowSpec { colour: change.colour.clone().unwrap_or_default() });
    row.metadata.resource_version = Some(version.to_string());
    row
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let table = Table::new();
    table.set("apple", Some("red"));
    table.set("lemon", Some("yellow"));

    let informer = Assembly::<Row>::new(&())
        .everywhere(table.clone())
        .config(ReflectorConfig { first_list: FirstList::Paged, ..ReflectorConfig::default() })
        .build()?;
    let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let (added, updated, deleted) = (told.clone(), told.clone(), told);
    let registration = informer
        .handler()
        .on_add(move |row, origin| {
            drop(added.send(format!("+ {} {} ({origin})", row.name_any(), row.spec.colour)))
        })
        .on_update(move |old, new| {
            drop(updated.send(format!("~ {} {} -> {}", new.name_any(), old.spec.colour, new.spec.colour)));
        })
        .on_delete(move |gone| drop(deleted.send(format!("- {}", gone.key()))))
        .register();
    informer.start();
    informer.wait_for_sync(Duration::from_secs(5)).await?;
    registration.synced().await?;

    table.set("cherry", Some("red"));
    let lister = informer.lister();
    lister.wait_for_version("3".parse()?, Duration::from_secs(5)).await?;
    println!("red: {:?}", lister.by_colour("red").iter().map(|row| row.name_any()).collect::<Vec<_>>());
    table.set("apple", Some("green"));
    table.set("lemon", None);
    while let Some(line) = hears.recv().await {
        println!("{line}");
        if line.starts_with('-') {
            break;
        }
    }
    informer.shutdown().await;
    Ok(())
}
