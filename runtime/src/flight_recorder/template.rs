//! Writes objects of a kind as what differs from one of them.
//!
//! Most of an object repeats what others of its kind have as well. To find that costs less than to copy all of it twice, into a
//! buffer and from there into the system's; and a file of the same size holds several times as much.

use std::{mem, ops::Range};

/// Begins a reference: three digits say where in the template it begins, and three how long it is. JSON never has this byte, nor the
/// next one.
const REFERENCE: u8 = 1;
/// Begins a reference whose length is two digits. It skips as many bytes of the template as there are since the last reference.
const SAME_PLACE: u8 = 2;
/// Shorter repetitions are not worth a reference, which takes three bytes or seven.
const SHORTEST: usize = 8;
/// What is longer is written whole: to look through it would hold up others for too long.
const LONGEST: usize = 16 << 10;
/// How far apart a repetition is looked for. One that is found is extended in both directions.
const STEP: usize = 4;
/// The table of places has this many bits.
const BITS: u32 = 11;
/// How often the template changes in one buffer: each time costs as much as to write twenty events.
const CHANGES: u8 = 4;

/// Lines that are written to the file together, or not at all.
#[derive(Default)]
pub(super) struct Buffer {
    pub(super) text: Vec<u8>,
    number: u64,
    /// Used again and again.
    shortened: Vec<u8>,
}

impl Buffer {
    /// Takes the lines, and begins with others in the place of the given ones.
    pub(super) fn take(&mut self, next: Vec<u8>) -> Vec<u8> {
        let taken = mem::replace(&mut self.text, next);
        self.clear();
        taken
    }

    /// Drops the lines, and begins with others.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.number += 1;
    }
}

/// The last event of a watch, or the last object, that was written whole; the next ones refer to it.
#[derive(Default)]
pub(super) struct Template {
    /// The buffer that has it.
    buffer: u64,
    /// Where in the buffer it is.
    range: Range<usize>,
    /// Where in it eight bytes are, by their hash; empty until it is needed.
    places: Vec<u16>,
    changes: u8,
}

/// It has a control character, which no JSON in one line needs.
#[derive(Debug)]
pub(super) struct ControlCharacter;

impl Template {
    /// Adds JSON to a buffer: whole, after the name of a field, or as what differs, after the name `like`.
    ///
    /// # Errors
    /// It has a control character. Part of it was added then.
    pub(super) fn add(
        &mut self,
        buffer: &mut Buffer,
        field: &[u8],
        json: &[u8],
    ) -> Result<(), ControlCharacter> {
        if self.buffer != buffer.number {
            self.forget();
            self.buffer = buffer.number;
        }
        let Buffer { text, shortened, .. } = buffer;
        if !self.range.is_empty() && json.len() <= LONGEST {
            shortened.clear();
            self.shorten(&text[self.range.clone()], json, shortened)?;
            if shortened.len() <= json.len() / 4 * 3 || self.changes == CHANGES {
                text.extend_from_slice(b"\"like\":");
                text.extend_from_slice(shortened);
                return Ok(());
            }
            self.changes += 1;
        }
        text.extend_from_slice(field);
        let start = text.len();
        add_literal(json, text)?;
        self.places.clear();
        self.range = if json.len() <= LONGEST { start..text.len() } else { 0..0 };
        Ok(())
    }

    /// Makes the next JSON whole.
    pub(super) fn forget(&mut self) {
        *self = Self { buffer: self.buffer, ..Self::default() };
    }

    /// Adds references to the template, and what is not in it.
    fn shorten(&mut self, template: &[u8], json: &[u8], text: &mut Vec<u8>) -> Result<(), ControlCharacter> {
        if self.places.is_empty() {
            self.places.resize(1 << BITS, 0);
            let places = (0..=u16::MAX).zip(template.windows(8));
            places.for_each(|(at, bytes)| self.places[hash(word_at(bytes, 0).unwrap_or_default())] = at);
        }
        // Where a repetition may begin, in both; and what was not added yet.
        let (mut at, mut from, mut rest) = (0, 0, 0);
        // Where the template goes on if as many bytes differ in both.
        let mut expected = 0;
        loop {
            let same = common(&json[at..], &template[from..]);
            if same >= SHORTEST {
                add_literal(&json[rest..at], text)?;
                let is_same_place = from == expected + (at - rest);
                add_reference(from, same, is_same_place, text);
                rest = at + same;
                expected = from + same;
            }
            (at, from) = (at + same, from + same);
            // Often only a few characters differ.
            if let (Some(one), Some(other)) = (word_at(json, at), word_at(template, from))
                && let (Some(next), Some(next_there)) = (word_at(json, at + 8), word_at(template, from + 8))
                && next == next_there
            {
                let differ = 8 - (one ^ other).leading_zeros() as usize / 8;
                (at, from) = (at + differ, from + differ);
                continue;
            }
            let start = at;
            loop {
                at += STEP;
                let Some(word) = word_at(json, at) else {
                    return add_literal(&json[rest..], text);
                };
                let places = [from + at - start, usize::from(self.places[hash(word)])];
                if let Some(place) = places.into_iter().find(|place| word_at(template, *place) == Some(word))
                {
                    from = place;
                    break;
                }
            }
            while at > rest && from > 0 && json[at - 1] == template[from - 1] {
                (at, from) = (at - 1, from - 1);
            }
        }
    }
}

fn hash(word: u64) -> usize {
    (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - BITS)) as usize
}

fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

/// Returns how many bytes are the same at the beginning.
fn common(one: &[u8], other: &[u8]) -> usize {
    let mut same = 0;
    // Large chunks are compared several times as fast as words.
    for (one, other) in one.as_chunks::<32>().0.iter().zip(other.as_chunks::<32>().0) {
        if one != other {
            let words = one.as_chunks::<8>().0.iter().zip(other.as_chunks::<8>().0);
            for (one, other) in words {
                let differs = u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
                if differs != 0 {
                    return same + differs.trailing_zeros() as usize / 8;
                }
                same += 8;
            }
        }
        same += 32;
    }
    let rest = one.iter().zip(other).skip(same);
    same + rest.take_while(|(one, other)| one == other).count()
}

/// Adds bytes as they are.
fn add_literal(bytes: &[u8], text: &mut Vec<u8>) -> Result<(), ControlCharacter> {
    text.extend_from_slice(bytes);
    // Without an early end, because that is several times as fast.
    match bytes.iter().fold(true, |all, byte| all & (*byte >= b' ')) {
        true => Ok(()),
        false => Err(ControlCharacter),
    }
}

fn add_reference(from: usize, length: usize, is_same_place: bool, text: &mut Vec<u8>) {
    // Six bits each, as a character from `@` on.
    let digit = |number: usize| b'@' | (number & 0x3f) as u8;
    if is_same_place && length < 1 << 12 {
        return text.extend_from_slice(&[SAME_PLACE, digit(length >> 6), digit(length)]);
    }
    text.extend_from_slice(&[
        REFERENCE,
        digit(from >> 12),
        digit(from >> 6),
        digit(from),
        digit(length >> 12),
        digit(length >> 6),
        digit(length),
    ]);
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::Index};
    use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};

    use super::*;

    /// Reads what was added, without the encoder's code: the last whole text, and what is added now.
    fn read(whole: &mut Vec<u8>, added: &[u8]) -> Vec<u8> {
        if let Some(text) = added.strip_prefix(b"\"line\":") {
            *whole = text.to_vec();
            return text.to_vec();
        }
        let mut bytes = added.strip_prefix(b"\"like\":").unwrap().iter().copied();
        let (mut text, mut place) = (Vec::new(), 0);
        while let Some(byte) = bytes.next() {
            let mut number = |digits: usize| {
                (0..digits).fold(0, |sum, _| sum * 64 + usize::from(bytes.next().unwrap() - b'@'))
            };
            let (from, length) = match byte {
                1 => (number(3), number(3)),
                2 => (place, number(2)),
                _ => {
                    text.push(byte);
                    place += 1;
                    continue;
                }
            };
            text.extend_from_slice(&whole[from..from + length]);
            place = from + length;
        }
        text
    }

    /// Adds a text; returns what was added.
    fn add(template: &mut Template, buffer: &mut Buffer, text: &[u8]) -> Vec<u8> {
        let before = buffer.text.len();
        template.add(buffer, b"\"line\":", text).unwrap();
        buffer.text[before..].to_vec()
    }

    /// Writes texts into one buffer; returns how long each of them is there.
    fn written(texts: &[Vec<u8>]) -> Vec<usize> {
        let (mut template, mut buffer, mut whole) = (Template::default(), Buffer::default(), Vec::new());
        let written = texts.iter().map(|text| {
            let added = add(&mut template, &mut buffer, text);
            assert_eq!(String::from_utf8_lossy(&read(&mut whole, &added)), String::from_utf8_lossy(text));
            added.len()
        });
        written.collect()
    }

    /// An object of a kind: most is the same, some is its own.
    fn object(number: usize, name: &str) -> Vec<u8> {
        let labels: String = (0..20).map(|label| format!(r#","label-{label}":"of everybody""#)).collect();
        let own = number.wrapping_mul(0x9E37_79B9);
        format!(r#"{{"metadata":{{"name":"{name}","uid":"{own:x}"{labels}}},"spec":{{"size":{number}}}}}"#)
            .into()
    }

    proptest! {
        // P26
        #[test]
        fn what_was_shortened_reads_as_before(
            first in vec(0x20_u8..0x7f, 0..=300),
            edits in vec(vec((any::<Index>(), vec(0x20_u8..0x7f, 0..=20), 0..40_usize), 0..6), 1..20),
        ) {
            let mut texts = vec![first];
            for edits in edits {
                let mut text = texts.last().cloned().unwrap_or_default();
                for (at, new, gone) in edits {
                    let at = at.index(text.len() + 1);
                    let end = text.len().min(at + gone);
                    text.splice(at..end, new);
                }
                texts.push(text);
            }
            written(&texts);
        }
    }

    // P26
    #[test]
    fn an_object_takes_a_fraction_once_another_of_its_kind_is_there() {
        let texts: Vec<_> = (0..100).map(|number| object(number, &"x".repeat(number % 7 + 1))).collect();
        let sizes = written(&texts);
        assert!(sizes[0] > texts[0].len());
        assert!(sizes[1..].iter().all(|size| *size < 80), "{sizes:?}");
    }

    // P26
    #[test]
    fn another_template_is_taken_where_the_first_does_not_fit_and_not_again_and_again() {
        let bookmark = br#"{"type":"BOOKMARK"}"#.to_vec();
        let sizes =
            written(&[&[bookmark], &*(0..3).map(|number| object(number, "a")).collect::<Vec<_>>()].concat());
        assert!(sizes[1] > 500 && sizes[2] < 80 && sizes[3] < 80, "{sizes:?}");
        // Nothing repeats: as many are whole as a buffer changes its template, and the rest is hardly longer.
        let mut random = SmallRng::seed_from_u64(1);
        let mut letters = || (0..500).map(|_| random.random_range(b'a'..=b'z')).collect::<Vec<_>>();
        let texts: Vec<_> = (0..20).map(|_| letters()).collect();
        let (mut template, mut buffer) = (Template::default(), Buffer::default());
        let whole = texts.iter().filter(|text| {
            let added = add(&mut template, &mut buffer, text);
            assert!(added.len() <= text.len() + 7);
            added.starts_with(b"\"line\":")
        });
        assert_eq!(whole.count(), 1 + usize::from(CHANGES));
    }

    // P26
    #[test]
    fn each_buffer_begins_with_a_whole_object_and_so_does_what_follows_a_long_one() {
        let (mut template, mut buffer, mut whole) = (Template::default(), Buffer::default(), Vec::new());
        let mut is_whole = |is_new: bool, text: &[u8]| {
            if is_new {
                buffer.take(Vec::new());
            }
            let added = add(&mut template, &mut buffer, text);
            assert!(read(&mut whole, &added) == text);
            added.starts_with(b"\"line\":")
        };
        let one = object(1, "a");
        let long = |letter: &str| letter.repeat(LONGEST + 1).into_bytes();
        assert_eq!(
            [true, false, true, false].map(|is_new| is_whole(is_new, &one)),
            [true, false, true, false]
        );
        assert_eq!(
            [&*long("b"), &long("b"), &one, &one].map(|text| is_whole(false, text)),
            [true, true, true, false]
        );
        // As long as a template may be.
        let longest = [&*one, &long("c")].concat()[..LONGEST].to_vec();
        assert_eq!([true, false].map(|is_new| is_whole(is_new, &longest)), [true, false]);
    }

    // P26
    #[test]
    fn references_go_far_back_and_may_split_a_character() {
        let numbers: String = (0..3_000).map(|number| format!("{number},")).collect();
        let (first, second) =
            (format!("{{\"ä\":[{numbers}0]}}"), format!("{{\"ö\":[{}0]}}", &numbers[9_000..]));
        assert!(first.len() < LONGEST && first.len() > 12_000);
        let sizes = written(&[first.into(), second.into()]);
        assert!(sizes[1] < 50, "{sizes:?}");
    }

    // P26
    #[test]
    fn bytes_that_json_does_not_have_are_refused() {
        let (mut template, mut buffer) = (Template::default(), Buffer::default());
        let mut add = |text: &[u8]| template.add(&mut buffer, b"\"line\":", text).is_ok();
        assert!(!add(b"{\"a\":\"\0\"}"));
        assert!(add(&object(1, "a")));
        for byte in [0, 1, 2, 0x1f] {
            let mut broken = object(2, "a");
            broken[12] = byte;
            assert!(!add(&broken));
        }
        assert!(add(&object(3, "a")));
    }
}
