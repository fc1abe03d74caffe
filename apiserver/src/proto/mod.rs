//! Protobuf: Kubernetes' binary form of built-in kinds, into JSON and out of it, by the table of facts.
//!
//! An object is wrapped in an envelope (`k8s\0`, then its kind and its bytes); events of watches are framed by their length.

mod decode;
mod encode;
mod wire;

#[cfg(test)]
mod tests;

pub(crate) use self::decode::decode;
pub(crate) use self::encode::{encode, event};
pub(crate) use self::wire::{put_bytes, put_double, put_number};

/// The media type.
pub(crate) const MEDIA: &str = "application/vnd.kubernetes.protobuf";

/// The media type of a stream of events.
pub(crate) const STREAM_MEDIA: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// The first bytes of every object.
const MAGIC: &[u8] = b"k8s\0";

/// How deep messages may lie in each other.
const DEPTH: u32 = 100;

/// The error of a body, or of an object to encode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtoError {
    /// The body is empty.
    #[error("empty data")]
    Empty,
    /// It has another format.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    /// It ends too early.
    #[error("unexpected EOF")]
    Short,
    /// The bytes are not a valid message.
    #[error("proto: illegal wireType {0}")]
    WireType(u8),
    /// A number has more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// Messages lie too deep in each other.
    #[error("proto: messages nested deeper than {DEPTH}")]
    TooDeep,
    /// There are more values than a body may have.
    #[error("proto: too many values")]
    TooMany,
    /// A field's bytes do not fit its type.
    #[error("{0}: not a valid {1}")]
    Value(&'static str, &'static str),
    /// Nobody has fields for this kind.
    #[error(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
    )]
    Unknown {
        /// The group and version.
        api_version: String,
        /// The kind.
        kind: String,
    },
}
