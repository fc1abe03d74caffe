//! Decodes the items of a list: as they come, or in batches on several threads.

use super::{
    crew::{Crew, ROOM_FOR_A_TASK, WORTH_A_TASK},
    decode::Decoder,
    item::Item,
};
use crate::object::Object;

/// The items of a list that is being read, in the server's order.
#[derive(Debug)]
pub(super) struct ListItems<K> {
    decoder: Decoder,
    items: Vec<Item<K>>,
    crew: Option<Crew<Item<K>>>,
    waiting: Batch,
}

/// Objects that wait to be decoded, one behind the other.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl<K: Object> ListItems<K> {
    pub(super) fn new(decoder: Decoder) -> Self {
        Self { decoder, items: Vec::new(), crew: Crew::gather(), waiting: Batch::default() }
    }

    /// Takes one object; [`settle`](Self::settle) is to follow before more are read.
    pub(super) fn push(&mut self, object: &[u8]) {
        let Some(crew) = &mut self.crew else {
            return self.items.push(self.decoder.list_item(object));
        };
        if self.waiting.bytes.is_empty() {
            self.waiting.bytes.reserve(ROOM_FOR_A_TASK);
        }
        self.waiting.bytes.extend_from_slice(object);
        self.waiting.ends.push(self.waiting.bytes.len());
        if self.waiting.bytes.len() >= WORTH_A_TASK {
            let (decoder, batch) = (self.decoder.clone(), std::mem::take(&mut self.waiting));
            crew.begin(move || batch.decode(&decoder));
        }
    }

    /// Waits until no more is under way than there should be.
    pub(super) async fn settle(&mut self) {
        let Some(crew) = &mut self.crew else { return };
        while crew.is_busy() {
            self.items.extend(crew.next().await.unwrap_or_default());
        }
    }

    /// Returns all items.
    pub(super) async fn finish(mut self) -> Vec<Item<K>> {
        if let Some(crew) = &mut self.crew {
            // The last batch is decoded here, beside the others.
            let last = self.waiting.decode(&self.decoder);
            while let Some(items) = crew.next().await {
                self.items.extend(items);
            }
            self.items.extend(last);
        }
        self.items
    }
}

impl Batch {
    fn decode<K: Object>(&self, decoder: &Decoder) -> Vec<Item<K>> {
        let mut start = 0;
        let object = |end: &usize| decoder.list_item(&self.bytes[std::mem::replace(&mut start, *end)..*end]);
        self.ends.iter().map(object).collect()
    }
}
