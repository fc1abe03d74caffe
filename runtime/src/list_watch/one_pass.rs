//! Cuts an object's bytes and finds its metadata in one pass, where it is written as API servers write.

use std::{borrow::Cow, ops::Range};

use super::{
    json::{Scan, ValueScanner, is_blank},
    lean::{ManagedFields, TypeNames},
    raw::RawObject,
    text::{Metadata, ObjectText},
};
use crate::object::ObjectKey;

/// An object without what is not kept, and the type that it says it has.
#[derive(Debug)]
pub(super) struct Cut<'a> {
    pub(super) object: RawObject,
    pub(super) api_version: Option<&'a str>,
    pub(super) kind: Option<&'a str>,
}

/// Cuts an object; `None` where anything about it is unusual.
///
/// Unusual are blanks between tokens, escapes in keys, members that come twice, metadata without a name, and whatever
/// is no JSON object: all that has a slower reader.
pub(super) fn cut<'a>(
    object: &'a [u8],
    names: TypeNames<'_>,
    managed_fields: ManagedFields,
) -> Option<Cut<'a>> {
    let text = std::str::from_utf8(object).ok()?;
    u32::try_from(text.len()).ok()?;
    let mut cursor = Cursor { text: object, at: 0 };
    let (mut api_version, mut kind, mut found) = (None, None, None);
    cursor.skip(b'{')?;
    loop {
        match cursor.key()? {
            b"metadata" => set(&mut found, metadata(&mut cursor, managed_fields)?)?,
            b"apiVersion" => set(&mut api_version, cursor.value()?)?,
            b"kind" => set(&mut kind, cursor.value()?)?,
            _ => {
                cursor.value()?;
            }
        }
        match cursor.next()? {
            b',' => {}
            b'}' if cursor.at == object.len() => break,
            _ => return None,
        }
    }
    let found: Found = found?;
    let missing = |said: &Option<Range<usize>>, key: &str, name: &str| match said {
        Some(_) => String::new(),
        None => format!(",\"{key}\":\"{name}\""),
    };
    let api_version_filled_in = missing(&api_version, "apiVersion", names.api_version);
    let kind_filled_in = missing(&kind, "kind", names.kind);
    let parts = [
        &text[..found.left_out.start],
        &text[found.left_out.end..text.len() - 1],
        &api_version_filled_in,
        &kind_filled_in,
        "}",
    ];
    let lean: Box<str> = parts.concat().into();
    let said = |range: Option<Range<usize>>| match range {
        Some(range) => plain(&text[range]).map(Some),
        None => Some(None),
    };
    Some(Cut {
        api_version: said(api_version)?,
        kind: said(kind)?,
        object: RawObject { key: found.key, text: ObjectText::found(lean, &found.metadata) },
    })
}

/// Sets what may be set once.
fn set<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

/// Reads a string without escapes.
fn plain(json: &str) -> Option<&str> {
    json.strip_prefix('"')?.strip_suffix('"').filter(|text| !text.contains('\\'))
}

/// Who an object is, what of its text is left out, and where its metadata then stand.
struct Found {
    key: ObjectKey,
    left_out: Range<usize>,
    metadata: Metadata,
}

fn metadata(cursor: &mut Cursor<'_>, managed_fields: ManagedFields) -> Option<Found> {
    let start = cursor.at;
    cursor.skip(b'{')?;
    let (mut name, mut namespace, mut left_out) = (None, None, None);
    let [mut uid, mut version, mut labels, mut owners] = [const { None }; 4];
    loop {
        let member = cursor.at;
        let key = cursor.key()?;
        let value = cursor.value()?;
        match key {
            b"name" => set(&mut name, value)?,
            b"namespace" => set(&mut namespace, value)?,
            b"uid" => set(&mut uid, value)?,
            b"resourceVersion" => set(&mut version, value)?,
            b"labels" => set(&mut labels, value)?,
            b"ownerReferences" => set(&mut owners, value)?,
            b"managedFields" if managed_fields == ManagedFields::Drop => {
                // With the comma before it; where it comes first, with the one behind it.
                let first = member == start + 1;
                let range = if first { member..value.end + 1 } else { member - 1..value.end };
                set(&mut left_out, range)?;
            }
            _ => {}
        }
        match cursor.next()? {
            b',' => {}
            b'}' => break,
            _ => return None,
        }
    }
    let text = |range: Range<usize>| &cursor.text[range];
    let name: Cow<'_, str> = serde_json::from_slice(text(name?)).ok()?;
    let namespace: Option<Cow<'_, str>> = match namespace {
        Some(namespace) => serde_json::from_slice(text(namespace)).ok()?,
        None => None,
    };
    if name.is_empty() {
        return None;
    }
    let left_out = left_out.unwrap_or(cursor.at..cursor.at);
    let moved = |range: Range<usize>| match range.start >= left_out.end {
        true => range.start - left_out.len()..range.end - left_out.len(),
        false => range,
    };
    let [uid, version, labels, owners] = [uid, version, labels, owners].map(|range| range.map(moved));
    let whole = start..cursor.at - left_out.len();
    let metadata = Metadata { whole, uid, version, labels, owners };
    Some(Found { key: ObjectKey::new(namespace.unwrap_or_default(), name), left_out, metadata })
}

/// Reads tokens that follow each other without blanks.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn next(&mut self) -> Option<u8> {
        let byte = *self.text.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn skip(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    /// Reads a key without escapes, and its colon.
    fn key(&mut self) -> Option<&'a [u8]> {
        self.skip(b'"')?;
        let rest = &self.text[self.at..];
        let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        self.at += end;
        self.skip(b'"')?;
        self.skip(b':')?;
        Some(&rest[..end])
    }

    /// Passes over a value.
    fn value(&mut self) -> Option<Range<usize>> {
        let rest = &self.text[self.at..];
        if is_blank(*rest.first()?) {
            return None;
        }
        let Scan::Ends(length) = ValueScanner::default().scan(rest) else { return None };
        let start = self.at;
        self.at += length;
        (length > 0).then_some(start..self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list_watch::raw::LeanBytes;

    const NAMES: TypeNames<'_> = TypeNames { api_version: "v1", kind: "Pod" };

    fn members(of: &[&str], chosen: usize) -> String {
        let chosen = (0..of.len()).filter(|at| chosen >> at & 1 == 1).map(|at| of[at]);
        chosen.collect::<Vec<_>>().join(",")
    }

    #[test]
    fn it_cuts_as_the_slower_reader_does_or_leaves_it_to_that() {
        let inner = [
            r#""managedFields":[{"f:a":{"}":"\""}}]"#,
            r#""name":"a""#,
            r#""namespace":"n""#,
            r#""uid":"u\u0031""#,
            r#""managedFields":[]"#,
            r#""resourceVersion":"7""#,
            r#""labels":{"a":"b,}"}"#,
            r#""ownerReferences":[{"kind":"K","name":"o","uid":"p"}]"#,
        ];
        let mut cuts = 0;
        for chosen in 0..1 << inner.len() {
            let metadata = format!(r#""metadata":{{{}}}"#, members(&inner, chosen));
            let outer =
                [r#""kind":"Pod""#, &metadata, r#""spec":{"metadata":{"name":"x"}}"#, r#""apiVersion":"v1""#];
            for outer_chosen in 0..1 << outer.len() {
                let json = format!("{{{}}}", members(&outer, outer_chosen));
                for managed_fields in [ManagedFields::Drop, ManagedFields::Keep] {
                    let Some(cut) = cut(json.as_bytes(), NAMES, managed_fields) else { continue };
                    let slow = LeanBytes::of(json.as_bytes(), NAMES, managed_fields);
                    assert_eq!(cut.api_version, slow.api_version.as_deref(), "{json}");
                    assert_eq!(cut.kind, slow.kind.as_deref(), "{json}");
                    let slow = slow.into_raw().expect("what is cut is an object with a name");
                    assert_eq!(cut.object.text.json(), slow.text.json());
                    assert_eq!(cut.object.key, slow.key);
                    let parts = |object: &RawObject| {
                        let text = object.text.clone();
                        (
                            text.uid().map(str::to_owned),
                            text.version(),
                            text.label("a").map(Cow::into_owned),
                            text.owners(),
                            text.finalizers(),
                            text.metadata().is_ok(),
                        )
                    };
                    assert_eq!(parts(&cut.object), parts(&slow), "{json}");
                    cuts += 1;
                }
            }
        }
        assert!(cuts > 1_000, "only {cuts} were cut");
    }

    #[test]
    fn what_is_unusual_is_left_to_the_slower_reader() {
        let usual = r#"{"kind":"Pod","metadata":{"name":"a"},"spec":{}}"#;
        assert!(cut(usual.as_bytes(), NAMES, ManagedFields::Drop).is_some());
        for unusual in [
            "",
            "{}",
            "[]",
            r#"{"metadata":{}}"#,
            r#"{"metadata":{"name":""}}"#,
            r#"{"metadata":{"name":7}}"#,
            r#"{"metadata":{"name":"a","namespace":7}}"#,
            r#"{"metadata": {"name":"a"}}"#,
            r#"{"metadata":{"name":"a" }}"#,
            r#"{"metad\u0061ta":{"name":"a"},"metadata":{"name":"b"}}"#,
            r#"{"metadata":{"name":"a","name":"b"}}"#,
            r#"{"metadata":{"name":"a"},"metadata":{"name":"b"}}"#,
            r#"{"metadata":{"name":"a"}}}"#,
            r#"{"metadata":{"name":"a"}"#,
            r#"{"metadata":{"name":"a"},}"#,
            r#"{"metadata":{"name":"a"},"kind":7}"#,
        ] {
            assert!(cut(unusual.as_bytes(), NAMES, ManagedFields::Drop).is_none(), "{unusual}");
        }
        assert!(cut(b"{\"metadata\":{\"name\":\"\xff\"}}", NAMES, ManagedFields::Drop).is_none());
    }
}
