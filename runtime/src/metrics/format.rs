//! The text formats that Prometheus reads: OpenMetrics, which the encoder writes, and the older one, converted from it.

/// A text format of metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    #[default]
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4, which `promtool check metrics` reads.
    Text,
}

impl Format {
    /// Returns the format for a request with this `Accept` header: OpenMetrics if it names it, otherwise text.
    pub fn accepted(accept: Option<&str>) -> Self {
        let ranges = accept.unwrap_or_default().split(',');
        let mut types = ranges.map(|range| range.split(';').next().unwrap_or_default().trim());
        match types.any(|media| media.eq_ignore_ascii_case("application/openmetrics-text")) {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }

    /// Returns the media type, for the header `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Converts a page of OpenMetrics to a format.
pub(super) fn written_as(page: String, format: Format) -> String {
    if format == Format::OpenMetrics {
        return page;
    }
    let mut text = String::with_capacity(page.len());
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        match line.strip_prefix("# ").and_then(|comment| comment.split_once(' ')) {
            Some(("HELP", help)) => {
                let (name, help) = help.split_once(' ').unwrap_or((help, ""));
                let its_type = lines.peek().and_then(|next| next.strip_prefix("# TYPE ")?.rsplit(' ').next());
                push(&mut text, &["# HELP ", &named(name, its_type.unwrap_or_default()), " ", help]);
            }
            Some(("TYPE", line)) => {
                let (name, its_type) = line.rsplit_once(' ').unwrap_or((line, ""));
                let older = match its_type {
                    "counter" | "gauge" | "histogram" | "summary" => its_type,
                    "info" | "stateset" => "gauge",
                    _ => "untyped",
                };
                push(&mut text, &["# TYPE ", &named(name, its_type), " ", older]);
            }
            Some(_) => {}
            None if line.starts_with('#') => {}
            None => push(&mut text, &[without_exemplar(line)]),
        }
    }
    text
}

fn push(text: &mut String, parts: &[&str]) {
    parts.iter().for_each(|part| text.push_str(part));
    text.push('\n');
}

/// Returns the name of the samples of a family. In the older format it is the name of the family, too.
fn named(family: &str, its_type: &str) -> String {
    match its_type {
        "counter" => format!("{family}_total"),
        "info" => format!("{family}_info"),
        _ => family.to_owned(),
    }
}

/// Cuts off an exemplar (` # {..} 1.0`), which may only follow the value.
fn without_exemplar(sample: &str) -> &str {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in sample.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '#' if !quoted => return sample[..at].trim_end(),
            _ => {}
        }
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    // P3
    #[test]
    fn a_client_that_accepts_open_metrics_gets_it_and_others_get_text() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;q=0.4,*/*;q=0.1";
        for (accept, format) in [
            (Some(prometheus), Format::OpenMetrics),
            (Some("text/plain, Application/OpenMetrics-Text"), Format::OpenMetrics),
            (Some("text/html,*/*;q=0.8"), Format::Text),
            (Some(";;,,;"), Format::Text),
            (None, Format::Text),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept:?}");
        }
    }

    // P3
    #[test]
    fn open_metrics_is_converted_to_the_older_format() {
        let page = "# HELP a Things.\n# TYPE a counter\n# UNIT a seconds\na_total{x=\"# {\\\" }\"} 1 # {id=\"7\"} 1.0 2\n\
            # HELP b Others.\n# TYPE b gauge\nb 2\n# HELP c The build.\n# TYPE c info\nc_info{v=\"1\"} 1\n\
            # TYPE d unknown\nd 3\n# EOF\n";
        assert_eq!(
            written_as(page.to_owned(), Format::Text),
            "# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"# {\\\" }\"} 1\n\
             # HELP b Others.\n# TYPE b gauge\nb 2\n# HELP c_info The build.\n# TYPE c_info gauge\nc_info{v=\"1\"} 1\n\
             # TYPE d untyped\nd 3\n"
        );
        assert_eq!(written_as(page.to_owned(), Format::OpenMetrics), page);
    }
}
