//! Errors of JSON, in the words of the server's own reader.

/// Words a JSON error as the server does.
pub(crate) fn go_error(error: &serde_json::Error, body: &[u8]) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let line_start: usize =
        body.split_inclusive(|c| *c == b'\n').take(error.line().saturating_sub(1)).map(<[u8]>::len).sum();
    let at = line_start + error.column().saturating_sub(1);
    let found = body.get(at).map_or(' ', |c| char::from(*c));
    let first = body.iter().position(|c| !c.is_ascii_whitespace()) == Some(at);
    let place =
        if first || at == 0 { "looking for beginning of value" } else { "after object key:value pair" };
    format!("invalid character '{found}' {place}")
}
