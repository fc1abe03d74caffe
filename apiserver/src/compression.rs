//! Compression: long answers are sent as gzip to clients that accept it.
//!
//! Over sockets alone: a client in the same process would have to undo at once what took its time.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Response, header};

use crate::faults::FaultyBody;

/// Answers up to this length are sent as they are.
const THRESHOLD: usize = 128 * 1024;

/// Returns whether a request takes gzip; a clause with parameters does not count.
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|clause| clause.trim() == "gzip")
}

/// Compresses an answer that is long enough, and that no rule reaches into.
pub(crate) async fn compress(response: Response<FaultyBody>) -> Response<FaultyBody> {
    let long = response.body().as_whole().filter(|body| body.len() > THRESHOLD).cloned();
    let Some(body) = long else { return response };
    // Long answers take milliseconds: others are not to wait for that.
    let compressed = tokio::task::spawn_blocking(move || gzip(&body)).await;
    let Ok(Some(compressed)) = compressed else { return response };
    let (mut parts, _) = response.into_parts();
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    Response::from_parts(parts, FaultyBody::whole(compressed))
}

fn gzip(body: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    encoder.write_all(body).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    async fn answer(length: usize) -> Response<FaultyBody> {
        compress(Response::new(FaultyBody::whole(Bytes::from(vec![b'x'; length])))).await
    }

    // wire 021
    #[tokio::test]
    async fn only_long_answers_are_compressed() {
        assert_eq!(answer(THRESHOLD).await.headers().get(header::CONTENT_ENCODING), None);
        let long = answer(THRESHOLD + 1).await;
        assert_eq!(long.headers()[header::CONTENT_ENCODING], "gzip");
        let mut text = Vec::new();
        let body = long.body().as_whole().expect("nothing is planted");
        GzDecoder::new(&body[..]).read_to_end(&mut text).expect("it is gzip");
        assert_eq!(text, vec![b'x'; THRESHOLD + 1]);
    }

    #[test]
    fn gzip_is_taken_where_it_is_named() {
        for (value, taken) in [("gzip", true), ("deflate, gzip", true), ("gzip;q=0", false), ("br", false)] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(takes_gzip(&headers), taken, "{value}");
        }
    }
}
