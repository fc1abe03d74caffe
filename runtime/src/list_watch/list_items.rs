//! Decodes the items of a list: as they come, or in batches on several threads.

use super::{
    decode::Decoder,
    decode_pool::{DecodePool, ROOM_FOR_A_TASK, WORTH_A_TASK},
    item::Item,
    places::Places,
};
use crate::object::Object;

/// The items of a list that is being read, in the server's order.
#[derive(Debug)]
pub(super) struct ListItems<K> {
    decoder: Decoder,
    items: Vec<Item<K>>,
    pool: Option<DecodePool<(Batch, Vec<Item<K>>)>>,
    waiting: Batch,
    /// Batches that are done, to be used again.
    spare: Vec<(Batch, Vec<Item<K>>)>,
}

/// Objects that wait to be decoded, one behind the other, and without what is not kept.
#[derive(Debug, Default)]
struct Batch {
    text: String,
    objects: Vec<Stripped>,
}

/// An object of a batch: where it ends, and what stands where in it.
#[derive(Debug)]
struct Stripped {
    end: usize,
    places: Places,
}

impl<K: Object> ListItems<K> {
    pub(super) fn new(decoder: Decoder) -> Self {
        Self {
            decoder,
            items: Vec::new(),
            pool: DecodePool::new(),
            waiting: Batch::default(),
            spare: Vec::new(),
        }
    }

    /// Takes one object; [`settle`](Self::settle) is to follow before more are read.
    pub(super) fn push(&mut self, object: &str, places: &Places) {
        let Some(pool) = &mut self.pool else {
            if self.decoder.is_stripped(places) {
                return self.items.push(self.decoder.list_item(object, places));
            }
            self.waiting.push(&self.decoder, object, places);
            self.waiting.decode(&self.decoder, &mut self.items);
            return self.waiting.clear();
        };
        if self.waiting.text.is_empty() {
            self.waiting.text.reserve(ROOM_FOR_A_TASK);
        }
        self.waiting.push(&self.decoder, object, places);
        if self.waiting.text.len() >= WORTH_A_TASK {
            let (empty, mut items) = self.spare.pop().unwrap_or_default();
            let (decoder, batch) = (self.decoder.clone(), std::mem::replace(&mut self.waiting, empty));
            pool.begin(move || {
                batch.decode(&decoder, &mut items);
                (batch, items)
            });
        }
    }

    /// Waits until no more is under way than there should be.
    pub(super) async fn settle(&mut self) {
        let Some(pool) = &mut self.pool else { return };
        while pool.is_busy() {
            let Some((mut batch, mut items)) = pool.next().await else { return };
            self.items.append(&mut items);
            batch.clear();
            self.spare.push((batch, items));
        }
    }

    /// Returns all items.
    pub(super) async fn finish(mut self) -> Vec<Item<K>> {
        if let Some(pool) = &mut self.pool {
            // The last batch is decoded here, beside the others.
            let mut last = Vec::new();
            self.waiting.decode(&self.decoder, &mut last);
            while let Some((_, items)) = pool.next().await {
                self.items.extend(items);
            }
            self.items.extend(last);
        }
        self.items
    }
}

impl Batch {
    fn push(&mut self, decoder: &Decoder, object: &str, places: &Places) {
        let places = decoder.push_stripped(object, places, &mut self.text);
        self.objects.push(Stripped { end: self.text.len(), places });
    }

    fn decode<K: Object>(&self, decoder: &Decoder, items: &mut Vec<Item<K>>) {
        let mut start = 0;
        items.extend(self.objects.iter().map(|Stripped { end, places }| {
            let object = &self.text[std::mem::replace(&mut start, *end)..*end];
            decoder.list_item(object, places)
        }));
    }

    fn clear(&mut self) {
        self.text.clear();
        self.objects.clear();
    }
}
