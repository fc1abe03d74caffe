//! Decodes the items of a list: as they come, or in batches on several threads.

use super::{
    decode::Decoder,
    decode_pool::{DecodePool, ROOM_FOR_A_TASK, WORTH_A_TASK},
    error::ListWatchError,
    item::FetchedItem,
    json::NotJson,
    list_body::not_json,
};
use crate::object::Object;

/// The items of a list that is being read, in the server's order.
#[derive(Debug)]
pub(super) struct ListItems<K> {
    decoder: Decoder,
    items: Vec<FetchedItem<K>>,
    pool: Option<DecodePool<Result<Vec<FetchedItem<K>>, NotJson>>>,
    waiting: ItemBatch,
}

/// Texts of items that wait to be decoded, one behind the other.
#[derive(Debug, Default)]
struct ItemBatch {
    text: String,
    /// Where each item ends.
    ends: Vec<usize>,
}

impl<K: Object> ListItems<K> {
    pub(super) fn new(decoder: Decoder) -> Self {
        Self { decoder, items: Vec::new(), pool: DecodePool::new(), waiting: ItemBatch::default() }
    }

    /// Takes one item; [`settle`](Self::settle) is to follow before more are read.
    ///
    /// # Errors
    /// It is not JSON. With several threads, that is found later.
    pub(super) fn push(&mut self, item: &str) -> Result<(), NotJson> {
        let Some(pool) = &mut self.pool else {
            self.items.push(self.decoder.list_item(item)?);
            return Ok(());
        };
        if self.waiting.text.is_empty() {
            self.waiting.text.reserve(ROOM_FOR_A_TASK);
        }
        self.waiting.text.push_str(item);
        self.waiting.ends.push(self.waiting.text.len());
        if self.waiting.text.len() >= WORTH_A_TASK {
            let (decoder, batch) = (self.decoder.clone(), std::mem::take(&mut self.waiting));
            pool.begin(move || batch.decode(&decoder));
        }
        Ok(())
    }

    /// Waits until no more is under way than there should be.
    ///
    /// # Errors
    /// An item is not JSON.
    pub(super) async fn settle(&mut self) -> Result<(), ListWatchError> {
        let Some(pool) = &mut self.pool else { return Ok(()) };
        while pool.is_busy() {
            let Some(items) = pool.next().await else { break };
            self.items.extend(items.map_err(|NotJson| not_json())?);
        }
        Ok(())
    }

    /// Returns all items.
    ///
    /// # Errors
    /// One of them is not JSON.
    pub(super) async fn finish(mut self) -> Result<Vec<FetchedItem<K>>, ListWatchError> {
        // The last batch is decoded here, while others may be decoded elsewhere.
        let last = self.waiting.decode(&self.decoder);
        if let Some(pool) = &mut self.pool {
            while let Some(items) = pool.next().await {
                self.items.extend(items.map_err(|NotJson| not_json())?);
            }
        }
        self.items.extend(last.map_err(|NotJson| not_json())?);
        Ok(self.items)
    }
}

impl ItemBatch {
    fn decode<K: Object>(&self, decoder: &Decoder) -> Result<Vec<FetchedItem<K>>, NotJson> {
        let mut start = 0;
        let items = self.ends.iter().map(|end| {
            let item = &self.text[std::mem::replace(&mut start, *end)..*end];
            decoder.list_item(item)
        });
        items.collect()
    }
}
