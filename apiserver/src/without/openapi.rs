//! Without the feature `openapi`: documents are not served.

use bytes::Bytes;
use http::Response;

use super::ApiRequest;
use crate::route::RequestInfo;
use crate::state::State;
use crate::status::Status;

/// Answers requests below `/openapi`; `None` for all others.
///
/// # Errors
/// 404 for every document.
pub(super) fn document(
    _: &mut State,
    _: &ApiRequest,
    info: &RequestInfo,
) -> Result<Option<Response<Bytes>>, Status> {
    match info.path.strip_prefix("/openapi/") {
        Some(_) => Err(Status::page_not_found()),
        None => Ok(None),
    }
}
