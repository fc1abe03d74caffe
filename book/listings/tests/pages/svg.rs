//! How the pictures that runs draw are written: no background, the colour of the text, and letters that a phone shows.

/// The width of every picture.
pub(crate) const WIDTH: usize = 460;

/// What may be said in a text of an SVG.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A line of text; `class` is `s`, with `m` in the middle or `e` at the end.
pub(crate) fn text(x: f64, y: f64, class: &str, said: &str) -> String {
    format!("<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{}</text>\n", escaped(said))
}

/// A stroke along a path.
pub(crate) fn stroke(path: &str, more: &str) -> String {
    format!("<path class=\"b\" d=\"{path}\"{more}/>\n")
}

/// A whole picture.
pub(crate) fn picture(title: &str, height: usize, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"14\" fill=\"currentColor\">\n\
         <title>{}</title>\n\
         <style>svg:root{{color:#24292f}}@media (prefers-color-scheme:dark){{svg:root{{color:#d0d7de}}}}.b{{fill:none;stroke:currentColor;stroke-width:1.5}}.m{{text-anchor:middle}}.e{{text-anchor:end}}.s{{font-size:14px}}</style>\n\
         {body}</svg>\n",
        escaped(title),
    )
}
