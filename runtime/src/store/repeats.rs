//! Finds out whether a list only repeats what is cached.

use std::io::{Error, ErrorKind, Result, Write};

use super::cached_object::CachedObject;
use crate::{delta_fifo::Transform, list_watch::Item, object::Object, users_code::contained};

/// Returns whether an item says, once it is transformed, what is cached already, word for word.
///
/// Not by the version alone: after a conversion, or a restored backup, one version may show other content. Typed
/// objects are compared as JSON.
pub(super) fn repeats<K: Object>(
    held: &CachedObject<K>,
    item: &Item<K>,
    transform: Option<&Transform<K>>,
) -> bool {
    if held.uid() != item.uid() || held.resource_version() != item.resource_version() {
        return false;
    }
    match transform {
        None => says(held, item),
        Some(transform) => transform.applied_to(item).is_some_and(|item| says(held, &item)),
    }
}

fn says<K: Object>(held: &CachedObject<K>, item: &Item<K>) -> bool {
    match item {
        Item::Raw(raw) => held.is_text(&raw.text),
        Item::Object(object) => held.object().is_ok_and(|cached| reads_the_same(&*cached, object)),
        Item::Unreadable(_) => false,
    }
}

/// Compares what the user's `Serialize` writes; where that fails or panics, nothing is known to be the same.
fn reads_the_same<K: Object>(one: &K, other: &K) -> bool {
    let same = || {
        let Ok(text) = serde_json::to_vec(one) else { return false };
        let mut rest = Rest(&text);
        serde_json::to_writer(&mut rest, other).is_ok() && rest.0.is_empty()
    };
    contained(same).unwrap_or(false)
}

/// What is still to be written; anything else is refused.
struct Rest<'a>(&'a [u8]);

impl Write for Rest<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0 = self.0.strip_prefix(bytes).ok_or_else(|| Error::from(ErrorKind::InvalidData))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{list_watch::panicky::Panicky, store::Indexer};

    // R47
    #[test]
    fn an_object_whose_type_panics_as_it_is_written_repeats_nothing() {
        let object = |name: &str| Arc::new(Panicky::named(name));
        let repeats = |name: &str| {
            let held = Indexer::new().write(|batch| batch.hold(Item::Object(object(name)))).unwrap();
            repeats(&held, &Item::Object(object(name)), None)
        };
        assert!(repeats("calm") && !repeats("shy"));
    }
}
