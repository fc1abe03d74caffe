//! Without the feature `protobuf`: nothing has a binary form.

use serde_json::Value;

/// The media type of one object.
pub(crate) const MEDIA: &str = "application/vnd.kubernetes.protobuf";

/// The media type of a watch.
pub(crate) const STREAM_MEDIA: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// Returns `None`: no object can be encoded.
pub(crate) fn encode(_: &Value) -> Option<Vec<u8>> {
    None
}

/// Returns `None`: no event can be encoded.
pub(crate) fn event(_: &Value) -> Option<Vec<u8>> {
    None
}
