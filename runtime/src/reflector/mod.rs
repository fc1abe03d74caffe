//! Keeps a store equal to what a source holds, by list and watch.

mod sink;

pub use sink::{Epoch, FetchReport, ReflectorStore, StoreChange};
