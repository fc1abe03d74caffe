//! Decodes the items of a list: as they come, or in batches on several threads.

use super::{
    decode::{Decoder, Type},
    decode_pool::{DecodePool, ROOM_FOR_A_TASK, WORTH_A_TASK},
    error::ListWatchError,
    item::Item,
    list_body::{ItemText, malformed},
    places::Places,
};
use crate::object::Object;

/// The items of a list that is being read, in the server's order.
#[derive(Debug)]
pub(super) struct ListItems<K> {
    decoder: Decoder,
    items: Vec<Item<K>>,
    pool: Option<DecodePool<(Batch, Vec<Item<K>>)>>,
    /// An item turned out to be no JSON.
    malformed: bool,
    waiting: Batch,
    /// Batches that are done, to be used again.
    spare: Vec<(Batch, Vec<Item<K>>)>,
}

/// Objects that wait to be decoded, one behind the other, and without what is not kept.
#[derive(Debug, Default)]
struct Batch {
    text: String,
    objects: Vec<Stripped>,
    malformed: bool,
}

/// An object of a batch: where it ends, and what is known of it.
#[derive(Debug)]
struct Stripped {
    end: usize,
    known: Known,
}

#[derive(Debug)]
enum Known {
    Places(Places),
    Type(Type),
}

impl<K: Object> ListItems<K> {
    pub(super) fn new(decoder: Decoder) -> Self {
        Self {
            decoder,
            items: Vec::new(),
            pool: DecodePool::new(),
            malformed: false,
            waiting: Batch::default(),
            spare: Vec::new(),
        }
    }

    /// Takes one object; [`settle`](Self::settle) is to follow before more are read.
    pub(super) fn push(&mut self, item: ItemText<'_>) {
        let Some(pool) = &mut self.pool else {
            self.waiting.push(&self.decoder, item);
            self.waiting.decode(&self.decoder, &mut self.items);
            return self.waiting.clear();
        };
        if self.waiting.text.is_empty() {
            self.waiting.text.reserve(ROOM_FOR_A_TASK);
        }
        self.waiting.push(&self.decoder, item);
        if self.waiting.text.len() >= WORTH_A_TASK {
            let (empty, mut items) = self.spare.pop().unwrap_or_default();
            let (decoder, mut batch) = (self.decoder.clone(), std::mem::replace(&mut self.waiting, empty));
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
            self.malformed |= batch.malformed;
            batch.clear();
            self.spare.push((batch, items));
        }
    }

    /// Returns all items.
    ///
    /// # Errors
    /// One of them is no JSON.
    pub(super) async fn finish(mut self) -> Result<Vec<Item<K>>, ListWatchError> {
        if let Some(pool) = &mut self.pool {
            // The last batch is decoded here, beside the others.
            let mut last = Vec::new();
            self.waiting.decode(&self.decoder, &mut last);
            while let Some((batch, items)) = pool.next().await {
                self.items.extend(items);
                self.malformed |= batch.malformed;
            }
            self.items.extend(last);
        }
        match self.malformed || self.waiting.malformed {
            true => Err(malformed()),
            false => Ok(self.items),
        }
    }
}

impl Batch {
    fn push(&mut self, decoder: &Decoder, item: ItemText<'_>) {
        let known = match item {
            ItemText::Checked(object, places) => {
                Known::Places(decoder.push_stripped(object, places, &mut self.text))
            }
            ItemText::Usual(object) => Known::Type(decoder.push_typed(object, &mut self.text)),
        };
        self.objects.push(Stripped { end: self.text.len(), known });
    }

    fn decode<K: Object>(&mut self, decoder: &Decoder, items: &mut Vec<Item<K>>) {
        let mut start = 0;
        for Stripped { end, known } in &self.objects {
            let object = &self.text[std::mem::replace(&mut start, *end)..*end];
            match known {
                Known::Places(places) => items.push(decoder.list_item(object, places)),
                Known::Type(of) => match decoder.typed_item(object, *of) {
                    Ok(item) => items.push(item),
                    Err(_) => self.malformed = true,
                },
            }
        }
    }

    /// Empties it, but for word of what was malformed.
    fn clear(&mut self) {
        self.text.clear();
        self.objects.clear();
    }
}
