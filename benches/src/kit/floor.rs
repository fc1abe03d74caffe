//! The floor: the same bytes through socket, decoder and map, and nothing else.

use std::{
    collections::{BTreeMap, HashMap},
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    sync::Arc,
    thread,
};

use anyhow::Context as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::gadget::{Gadget, GadgetSpec, GadgetStatus, PATH};

type Map = HashMap<(String, String), Arc<Gadget>, foldhash::fast::RandomState>;

/// A gadget as it is decoded: without managedFields.
#[derive(Deserialize)]
struct Lean {
    metadata: LeanMeta,
    spec: GadgetSpec,
    status: Option<GadgetStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeanMeta {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    generation: i64,
    creation_timestamp: Time,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    owner_references: Vec<OwnerReference>,
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Event {
    object: Lean,
}

impl From<Lean> for Gadget {
    fn from(lean: Lean) -> Self {
        let meta = lean.metadata;
        let metadata = ObjectMeta {
            name: Some(meta.name),
            namespace: Some(meta.namespace),
            uid: Some(meta.uid),
            resource_version: Some(meta.resource_version),
            generation: Some(meta.generation),
            creation_timestamp: Some(meta.creation_timestamp),
            labels: Some(meta.labels),
            annotations: Some(meta.annotations),
            owner_references: Some(meta.owner_references),
            ..ObjectMeta::default()
        };
        Self { metadata, spec: lean.spec, status: lean.status }
    }
}

/// A connection that reads, and the map that it fills.
pub(crate) struct Floor {
    reader: BufReader<TcpStream>,
    map: Map,
}

impl Floor {
    /// Connects to the load generator.
    pub(crate) fn connect(port: u16) -> anyhow::Result<Self> {
        let connection = TcpStream::connect(("127.0.0.1", port))?;
        Ok(Self { reader: BufReader::with_capacity(1 << 16, connection), map: Map::default() })
    }

    /// Reads the whole list at once, and decodes it on as many threads as there are cores.
    pub(crate) fn list(&mut self) -> anyhow::Result<usize> {
        self.ask("?resourceVersion=0")?;
        let mut body = Vec::new();
        while self.chunk(&mut body)? {}
        let List { items } = serde_json::from_slice(&body)?;
        let share = items.len().div_ceil(thread::available_parallelism()?.get()).max(1);
        let parts: Vec<anyhow::Result<Vec<Gadget>>> = thread::scope(|scope| {
            let decode =
                |items: &[&RawValue]| items.iter().map(|item| decode(item.get().as_bytes())).collect();
            let threads: Vec<_> = items.chunks(share).map(|part| scope.spawn(move || decode(part))).collect();
            threads.into_iter().map(|thread| thread.join().expect("decoding does not panic")).collect()
        });
        for gadget in parts.into_iter().collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten() {
            self.put(gadget);
        }
        Ok(self.map.len())
    }

    /// Opens a watch.
    pub(crate) fn watch(&mut self) -> anyhow::Result<()> {
        self.ask("?watch=true&resourceVersion=1000000000")
    }

    /// Reads this many events, decoding each in the reading task.
    pub(crate) fn events(&mut self, count: usize, mut handler: impl FnMut(&Gadget)) -> anyhow::Result<()> {
        let mut line = Vec::new();
        for _ in 0..count {
            line.clear();
            anyhow::ensure!(self.chunk(&mut line)?, "the watch ended early");
            let event: Event = serde_json::from_slice(&line)?;
            let gadget = Gadget::from(event.object);
            handler(&gadget);
            self.put(gadget);
        }
        Ok(())
    }

    fn put(&mut self, gadget: Gadget) {
        let key = (gadget.metadata.namespace.clone(), gadget.metadata.name.clone());
        self.map.insert((key.0.unwrap_or_default(), key.1.unwrap_or_default()), Arc::new(gadget));
    }

    fn ask(&mut self, query: &str) -> anyhow::Result<()> {
        write!(self.reader.get_mut(), "GET {PATH}{query} HTTP/1.1\r\nHost: bench\r\n\r\n")?;
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            anyhow::ensure!(self.reader.read_line(&mut line)? > 0, "no answer");
        }
        Ok(())
    }

    /// Appends the next chunk; `false` at the end of the body.
    fn chunk(&mut self, to: &mut Vec<u8>) -> anyhow::Result<bool> {
        let mut size = String::new();
        self.reader.read_line(&mut size)?;
        let size = usize::from_str_radix(size.trim(), 16).context(size)?;
        let read = self.reader.by_ref().take(size as u64).read_to_end(to)?;
        anyhow::ensure!(read == size, "a chunk was cut");
        self.reader.read_exact(&mut [0; 2])?;
        Ok(size > 0)
    }
}

fn decode(bytes: &[u8]) -> anyhow::Result<Gadget> {
    Ok(serde_json::from_slice::<Lean>(bytes)?.into())
}
