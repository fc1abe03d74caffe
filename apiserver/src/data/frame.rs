//! Frames: bytes with their kind, length and checksums.

use std::ops::Range;

/// The bytes before a payload: kind, length, the payload's checksum, the checksum of those.
pub(super) const HEAD: usize = 13;

/// The unit in which disks write; unwritten parts are zero.
const SECTOR: usize = 512;

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// Part of a snapshot.
    Snapshot,
    /// The end of a snapshot: its counts.
    End,
    /// Changes.
    Log,
}

impl FrameKind {
    fn byte(self) -> u8 {
        match self {
            Self::Snapshot => b'S',
            Self::End => b'E',
            Self::Log => b'L',
        }
    }

    fn of(byte: u8) -> Option<Self> {
        [Self::Snapshot, Self::End, Self::Log].into_iter().find(|kind| kind.byte() == byte)
    }
}

/// Writes a frame; the payload is at most 4 GiB.
pub(super) fn write(out: &mut Vec<u8>, kind: FrameKind, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("payloads are cut into parts far below 4 GiB");
    let start = out.len();
    out.push(kind.byte());
    out.extend(length.to_le_bytes());
    out.extend(crc32fast::hash(payload).to_le_bytes());
    let head = crc32fast::hash(&out[start..]);
    out.extend(head.to_le_bytes());
    out.extend(payload);
}

/// The content at an offset of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FoundFrame {
    /// A whole frame; the range is its payload.
    Frame(FrameKind, Range<usize>),
    /// The end of the file.
    Nothing,
    /// A frame that was not written to its end.
    Unfinished,
    /// Anything else.
    Damage(&'static str),
}

/// Reads the frame at a place.
pub(super) fn read(bytes: &[u8], at: usize) -> FoundFrame {
    let rest = &bytes[at..];
    if rest.is_empty() {
        return FoundFrame::Nothing;
    }
    let Some((head, _)) = rest.split_at_checked(HEAD) else { return FoundFrame::Unfinished };
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if crc32fast::hash(&head[..9]) != number(9) {
        return if unwritten(bytes, at) {
            FoundFrame::Unfinished
        } else {
            FoundFrame::Damage("the checksum of its head does not fit")
        };
    }
    let Some(kind) = FrameKind::of(head[0]) else { return FoundFrame::Damage("its kind is not known") };
    let payload = at + HEAD..(at + HEAD).saturating_add(number(1) as usize);
    let Some(content) = bytes.get(payload.clone()) else { return FoundFrame::Unfinished };
    if crc32fast::hash(content) == number(5) {
        return FoundFrame::Frame(kind, payload);
    }
    if payload.end == bytes.len() && unwritten(bytes, at) {
        return FoundFrame::Unfinished;
    }
    FoundFrame::Damage("the checksum of its content does not fit")
}

/// Returns whether a sector from a place on is all zero: a write that power was lost in leaves such.
///
/// No content has a zero byte, and no head begins with one.
fn unwritten(bytes: &[u8], at: usize) -> bool {
    let first = (at / SECTOR + 1) * SECTOR;
    let (begun, whole) = bytes[at..].split_at((first - at).min(bytes.len() - at));
    std::iter::once(begun)
        .chain(whole.chunks(SECTOR))
        .any(|sector| !sector.is_empty() && sector.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, FrameKind::Log, b"first\n");
        write(&mut bytes, FrameKind::Log, &[b'x'; 2000]);
        bytes
    }

    #[test]
    fn frames_are_read_as_written() {
        let bytes = two();
        assert_eq!(read(&bytes, 0), FoundFrame::Frame(FrameKind::Log, 13..19));
        assert_eq!(read(&bytes, 19), FoundFrame::Frame(FrameKind::Log, 32..2032));
        assert_eq!(read(&bytes, 2032), FoundFrame::Nothing);
    }

    #[test]
    fn a_sector_that_was_never_written_is_an_unfinished_write() {
        let mut bytes = two();
        bytes[512..1024].fill(0);
        assert_eq!(read(&bytes, 19), FoundFrame::Unfinished);
        assert_eq!(read(&[0; 40], 0), FoundFrame::Unfinished);
        // The same in a frame that another one follows is damage.
        bytes.extend(two());
        assert!(matches!(read(&bytes, 19), FoundFrame::Damage(_)));
    }
}
