//! Draws charts as SVG.

use std::fmt::Write as _;

/// One chart: lines over the same axes.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) lines: Vec<Line>,
    /// How figures are spread across, and up.
    pub(crate) spread: (Spread, Spread),
}

/// How figures are spread over an axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spread {
    /// From zero, evenly: what should be level looks level.
    Evenly,
    /// By decades.
    Decades,
}

/// One line: its name, and its points from left to right, all above zero.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 240.0;
/// The height of a line of the legend.
const LEGEND: f64 = 18.0;
const LEFT: f64 = 50.0;
const TOP: f64 = 30.0;
const PLOT_WIDTH: f64 = 290.0;
const PLOT_HEIGHT: f64 = 165.0;
/// Colours that can be told apart on light and dark pages.
const COLOURS: [&str; 6] = ["#3f8fd2", "#e06377", "#4fa65a", "#a98bb0", "#c9982f", "#888888"];
/// The colour of text where a picture is not part of a page.
pub(crate) const STYLE: &str =
    "<style>svg:root{color:#24292f}@media (prefers-color-scheme:dark){svg:root{color:#d0d7de}}</style>";

/// Maps the figures of an axis to a stretch of the drawing.
struct Axis {
    spread: Spread,
    /// The marked figures: the first and the last are the ends.
    marks: Vec<f64>,
    from: f64,
    length: f64,
}

impl Axis {
    /// Spans all figures.
    fn over(figures: impl Iterator<Item = f64> + Clone, spread: Spread, (from, length): (f64, f64)) -> Self {
        let least = figures.clone().fold(f64::MAX, f64::min).log10().floor() as i32;
        let most = figures.fold(f64::MIN_POSITIVE, f64::max);
        let marks = match spread {
            Spread::Decades => {
                let high = most.log10().ceil() as i32;
                (least.min(high - 1)..=high).map(|decade| 10_f64.powi(decade)).collect()
            }
            Spread::Evenly => {
                // The largest step of 1, 2 or 5 that leaves at least three.
                let decade = 10_f64.powi(most.log10().floor() as i32);
                let steps = [2.0, 1.0, 0.5, 0.2, 0.1].map(|part| part * decade);
                let step = steps.into_iter().find(|step| most / step >= 3.0).unwrap_or(decade / 10.0);
                (0..=(most / step).ceil() as u32).map(|mark| f64::from(mark) * step).collect()
            }
        };
        Self { spread, marks, from, length }
    }

    fn at(&self, figure: f64) -> f64 {
        let [low, high] = [self.marks[0], self.marks[self.marks.len() - 1]];
        let share = match self.spread {
            Spread::Evenly => (figure - low) / (high - low),
            Spread::Decades => (figure / low).log10() / (high / low).log10(),
        };
        self.from + share * self.length
    }
}

/// Draws charts below each other, so that they can be read on a phone, with one legend at the end.
pub(crate) fn draw(charts: &[Chart]) -> String {
    let lines = charts.first().map_or(0, |chart| chart.lines.len());
    let height = charts.len() as f64 * HEIGHT + 12.0 + lines as f64 * LEGEND;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\" fill=\"currentColor\">\n{STYLE}\n"
    );
    for (at, chart) in charts.iter().enumerate() {
        let _ = writeln!(svg, "<g transform=\"translate(0 {})\">", at as f64 * HEIGHT);
        draw_chart(&mut svg, chart);
        svg.push_str("</g>\n");
    }
    if let Some(chart) = charts.first() {
        for (at, line) in chart.lines.iter().enumerate() {
            let (x, y) = (LEFT, height - 12.0 - (lines - 1 - at) as f64 * LEGEND);
            let _ = writeln!(svg, "<circle cx=\"{x}\" cy=\"{}\" r=\"4\" fill=\"{}\"/>", y - 4.0, colour(at));
            let _ = writeln!(svg, "<text x=\"{}\" y=\"{y}\">{}</text>", x + 8.0, escaped(&line.name));
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_chart(svg: &mut String, chart: &Chart) {
    let points = || chart.lines.iter().flat_map(|line| &line.points);
    let _ =
        writeln!(svg, "<text x=\"{LEFT}\" y=\"18\" font-weight=\"bold\">{}</text>", escaped(&chart.title));
    if points().next().is_none() {
        return;
    }
    let across = Axis::over(points().map(|point| point.0), chart.spread.0, (LEFT, PLOT_WIDTH));
    let up = Axis::over(points().map(|point| point.1), chart.spread.1, (TOP + PLOT_HEIGHT, -PLOT_HEIGHT));
    draw_grid(svg, &across, &up);
    for (at, line) in chart.lines.iter().enumerate() {
        let places: Vec<(f64, f64)> = line.points.iter().map(|(x, y)| (across.at(*x), up.at(*y))).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let (path, colour) = (path.join(" "), colour(at));
        let _ = writeln!(
            svg,
            "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        );
        // Where there are many, the line shows them.
        for (x, y) in places.into_iter().filter(|_| line.points.len() < 20) {
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
    }
}

fn draw_grid(svg: &mut String, across: &Axis, up: &Axis) {
    let bottom = TOP + PLOT_HEIGHT;
    for figure in across.marks.iter().copied() {
        let x = across.at(figure);
        let _ = writeln!(svg, "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"currentColor\" opacity=\".2\"/>");
        let (y, text) = (bottom + 16.0, shown(figure));
        let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>");
    }
    for figure in up.marks.iter().copied() {
        let (y, right) = (up.at(figure), LEFT + PLOT_WIDTH);
        let _ = writeln!(svg, "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"currentColor\" opacity=\".2\"/>");
        let (x, below, text) = (LEFT - 6.0, y + 4.0, shown(figure));
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{below:.1}\" text-anchor=\"end\">{text}</text>");
    }
}

fn colour(at: usize) -> &'static str {
    COLOURS[at % COLOURS.len()]
}

fn shown(figure: f64) -> String {
    match figure {
        1e6.. => format!("{}M", figure / 1e6),
        1e3.. => format!("{}k", figure / 1e3),
        _ => format!("{figure}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_are_evenly_spread_and_enclose_all_points() {
        let axis = Axis::over([20.0, 5_000.0].into_iter(), Spread::Decades, (0.0, 300.0));
        let at: Vec<_> = axis.marks.iter().map(|mark| axis.at(*mark).round()).collect();
        assert_eq!(at, [0.0, 100.0, 200.0, 300.0]);
        assert!((0.0..=300.0).contains(&axis.at(20.0)) && (0.0..=300.0).contains(&axis.at(5_000.0)));
    }

    #[test]
    fn an_even_axis_begins_at_zero_and_encloses_all_points() {
        for (most, marks) in [(4_311.0, 6), (98.2, 6), (600.0, 4), (1.0, 6)] {
            let axis = Axis::over([most / 2.0, most].into_iter(), Spread::Evenly, (0.0, 100.0));
            assert_eq!((axis.marks[0], axis.marks.len()), (0.0, marks), "{:?}", axis.marks);
            assert!(axis.at(most) <= 100.0 && axis.at(most) >= 2.0 * axis.at(most / 2.0) - 0.001);
        }
    }

    #[test]
    fn a_chart_has_every_line_and_a_legend_and_an_empty_one_is_drawn() {
        let spread = (Spread::Decades, Spread::Evenly);
        let line = |name: &str| Line { name: name.to_owned(), points: vec![(1e3, 5.0), (1e6, 7.0)] };
        let chart = Chart { title: "a < b".to_owned(), lines: vec![line("one"), line("two")], spread };
        let empty = Chart { title: "none".to_owned(), lines: Vec::new(), spread };
        let svg = draw(&[chart, empty]);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains("a &lt; b") && svg.contains(">two</text>") && !svg.contains("NaN"));
    }
}
