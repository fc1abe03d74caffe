//! Compresses the texts of one kind, with its first objects as the dictionary.

use std::sync::{Arc, OnceLock};

use lz4_flex::block::{compress_with_dict, decompress_with_dict};
use parking_lot::Mutex;

/// How many objects a dictionary is made of.
const SAMPLES: usize = 2;
/// Most bytes that a dictionary holds of one object; each compression reads all of the dictionary.
const LARGEST_SAMPLE: usize = 4 << 10;

/// What the texts of a kind have in common: the first two of them.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    samples: Mutex<Vec<Vec<u8>>>,
    bytes: OnceLock<Box<[u8]>>,
}

impl Dictionary {
    /// Compresses a text; the first ones make up the dictionary, and are compressed without it.
    pub(super) fn compress(self: &Arc<Self>, text: &str) -> Compressed {
        match self.bytes.get() {
            Some(bytes) => Compressed::new(text, bytes, Some(self.clone())),
            None => {
                self.sample(text.as_bytes());
                Compressed::alone(text)
            }
        }
    }

    fn sample(&self, text: &[u8]) {
        let mut samples = self.samples.lock();
        samples.push(text[..text.len().min(LARGEST_SAMPLE)].to_vec());
        if samples.len() == SAMPLES {
            self.bytes.get_or_init(|| std::mem::take(&mut *samples).concat().into());
        }
    }
}

/// A text, compressed.
#[derive(Clone)]
pub(super) struct Compressed {
    bytes: Box<[u8]>,
    length: u32,
    /// What it was compressed with.
    dictionary: Option<Arc<Dictionary>>,
}

impl Compressed {
    /// Compresses a text without a dictionary.
    pub(super) fn alone(text: &str) -> Self {
        Self::new(text, &[], None)
    }

    fn new(text: &str, with: &[u8], dictionary: Option<Arc<Dictionary>>) -> Self {
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        Self { bytes: compress_with_dict(text.as_bytes(), with).into(), length, dictionary }
    }

    /// Returns the text.
    pub(super) fn text(&self) -> String {
        let with = self.dictionary.as_ref().and_then(|dictionary| dictionary.bytes.get());
        let with = with.map(|bytes| &**bytes).unwrap_or_default();
        // Both fail only where memory was changed: nothing is read then.
        let bytes = decompress_with_dict(&self.bytes, self.length as usize, with).unwrap_or_default();
        String::from_utf8(bytes).unwrap_or_default()
    }

    /// Counts the bytes that it takes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the dictionary that it was compressed with.
    pub(super) fn dictionary(&self) -> Option<&Arc<Dictionary>> {
        self.dictionary.as_ref()
    }
}

/// Two are equal if their texts are.
impl PartialEq for Compressed {
    fn eq(&self, other: &Self) -> bool {
        let dictionaries = [self, other].map(|one| one.dictionary.as_ref().map(Arc::as_ptr));
        self.length == other.length
            && match dictionaries[0] == dictionaries[1] {
                // One text and one dictionary always give the same bytes.
                true => self.bytes == other.bytes,
                false => self.text() == other.text(),
            }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // S12
    #[test]
    fn objects_that_are_alike_take_a_part_of_their_text() {
        let object = |n: usize| {
            let spec = r#""containers":[{"name":"app","imagePullPolicy":"Always","terminationMessagePath":"/dev/log"}]"#;
            format!(r#"{{"metadata":{{"name":"web-{n}","uid":"{n:032x}"}},"spec":{{{spec}}}}}"#)
        };
        let dictionary = Arc::new(Dictionary::default());
        let compressed: Vec<_> = (0..10).map(|n| dictionary.compress(&object(n))).collect();
        for (n, compressed) in compressed.iter().enumerate() {
            assert_eq!(compressed.text(), object(n));
            assert_eq!(compressed.dictionary().is_some(), n >= SAMPLES);
            assert!(n < SAMPLES || compressed.len() * 2 < object(n).len(), "{} bytes", compressed.len());
            assert!(*compressed == Compressed::alone(&object(n)));
            assert!(*compressed != Compressed::alone(&object(n + 1)));
        }
    }

    proptest! {
        // S12
        #[test]
        fn every_text_comes_back(texts in prop::collection::vec("(ab|[a-z\"{}é]){0,40}", 0..8)) {
            let dictionary = Arc::new(Dictionary::default());
            for text in texts {
                let compressed = dictionary.compress(&text);
                prop_assert_eq!(compressed.text(), &*text);
                prop_assert!(compressed == dictionary.compress(&text));
            }
        }
    }
}
