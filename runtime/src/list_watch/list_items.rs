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
    crew: Option<Crew<(Batch, Vec<Item<K>>)>>,
    waiting: Batch,
    /// Batches that are done, to be used again.
    spare: Vec<(Batch, Vec<Item<K>>)>,
}

/// Objects that wait to be decoded, one behind the other.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl<K: Object> ListItems<K> {
    pub(super) fn new(decoder: Decoder) -> Self {
        Self {
            decoder,
            items: Vec::new(),
            crew: Crew::gather(),
            waiting: Batch::default(),
            spare: Vec::new(),
        }
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
            let (empty, mut items) = self.spare.pop().unwrap_or_default();
            let (decoder, batch) = (self.decoder.clone(), std::mem::replace(&mut self.waiting, empty));
            crew.begin(move || {
                batch.decode(&decoder, &mut items);
                (batch, items)
            });
        }
    }

    /// Waits until no more is under way than there should be.
    pub(super) async fn settle(&mut self) {
        let Some(crew) = &mut self.crew else { return };
        while crew.is_busy() {
            let Some((mut batch, mut items)) = crew.next().await else { return };
            self.items.append(&mut items);
            batch.clear();
            self.spare.push((batch, items));
        }
    }

    /// Returns all items.
    pub(super) async fn finish(mut self) -> Vec<Item<K>> {
        if let Some(crew) = &mut self.crew {
            // The last batch is decoded here, beside the others.
            let mut last = Vec::new();
            self.waiting.decode(&self.decoder, &mut last);
            while let Some((_, items)) = crew.next().await {
                self.items.extend(items);
            }
            self.items.extend(last);
        }
        self.items
    }
}

impl Batch {
    fn decode<K: Object>(&self, decoder: &Decoder, items: &mut Vec<Item<K>>) {
        let mut start = 0;
        let object = |end: &usize| decoder.list_item(&self.bytes[std::mem::replace(&mut start, *end)..*end]);
        items.extend(self.ends.iter().map(object));
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}
