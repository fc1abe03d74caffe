//! Reads bytes as watchkeeper does, and judges what comes of them.

pub mod answer;
pub mod oracle;

use std::fmt::Debug;

use k8s_openapi::api::core::v1::Pod;
use watchkeeper::{
    list_watch::{ItemForm, ListWatchError},
    object::Kind,
};

use crate::answer::{Manner, Reader, kind};

/// Everything in one chunk, decoded at once.
pub const WHOLE: Manner = Manner { chunk: usize::MAX, form: ItemForm::Typed };

/// One server for all inputs of a process.
pub struct Bench {
    reader: Reader,
    pods: Kind,
}

impl Default for Bench {
    fn default() -> Self {
        Self { reader: Reader::start(), pods: kind("", "v1", "Pod") }
    }
}

thread_local! {
    static BENCH: Bench = Bench::default();
}

/// What was read, as text: equal answers read equal.
pub fn listed(code: u16, body: &[u8], manner: Manner) -> String {
    BENCH.with(|bench| shown(bench.reader.listed::<Pod>(&bench.pods, (code, body), manner)))
}

/// What was watched, as text.
pub fn watched(code: u16, body: &[u8], manner: Manner) -> String {
    BENCH.with(|bench| shown(bench.reader.watched::<Pod>(&bench.pods, (code, body), manner)))
}

fn shown<T: Debug>(read: Result<T, ListWatchError>) -> String {
    match read {
        Ok(read) => format!("{read:?}"),
        Err(error) => format!("{error}"),
    }
}

/// Reads a list, and panics where it is not what `serde_json` says it is; returns it as text.
pub fn judged_list(body: &[u8], manner: Manner) -> String {
    BENCH.with(|bench| {
        let found = bench.reader.listed::<Pod>(&bench.pods, (200, body), manner);
        if let Err(difference) = oracle::list(&bench.pods, manner.form, body, &found) {
            panic!("{manner:?}: {difference}");
        }
        shown(found)
    })
}

/// Reads a watch, and panics where it is not what `serde_json` says it is; returns it as text.
pub fn judged_watch(body: &[u8], manner: Manner) -> String {
    BENCH.with(|bench| {
        let found = bench.reader.watched::<Pod>(&bench.pods, (200, body), manner).expect("it opens");
        if let Err(difference) = oracle::watch(&bench.pods, manner.form, body, &found) {
            panic!("{manner:?}: {difference}");
        }
        format!("{found:?}")
    })
}
