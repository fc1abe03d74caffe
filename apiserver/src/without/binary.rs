//! Without the feature `protobuf`: a binary body is refused.

use std::borrow::Cow;

use http::Method;

use super::ApiRequest;
use crate::proto;
use crate::status::Status;
use crate::write::{Target, media_type};

/// Returns the request as it is.
///
/// # Errors
/// 415 for a body in protobuf.
pub(super) fn in_json<'a>(request: &'a ApiRequest, _: &Target) -> Result<Cow<'a, ApiRequest>, Status> {
    json_of(request, ("", ""))
}

/// Returns the request as it is.
///
/// # Errors
/// 415 for a body in protobuf.
pub(super) fn json_of<'a>(request: &'a ApiRequest, _: (&str, &str)) -> Result<Cow<'a, ApiRequest>, Status> {
    let is_binary = media_type(&request.headers) == proto::MEDIA
        && request.method != Method::PATCH
        && !request.body.is_empty();
    if is_binary {
        let message = "bodies in protobuf need the feature `protobuf` of watchkeeper-apiserver";
        return Err(Status::unsupported_media_type(message));
    }
    Ok(Cow::Borrowed(request))
}
