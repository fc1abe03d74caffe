//! What a scrape brings, read back: families with their types, labels and buckets, and the values of series.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// A metric, under the name that its samples have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Family {
    /// `counter`, `gauge` or `histogram`.
    pub shape: String,
    /// What it says of itself.
    pub help: String,
    /// The names of its labels, `le` aside.
    pub labels: BTreeSet<String>,
    /// The upper bounds of a histogram's buckets, infinity aside.
    pub bounds: Vec<f64>,
    /// Its lines.
    pub samples: Vec<Sample>,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// With the suffix that a histogram's lines have.
    pub name: String,
    /// Labels and their values.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

/// Reads a page of OpenMetrics.
///
/// # Panics
/// It is none.
pub fn families(page: &str) -> BTreeMap<String, Family> {
    assert!(page.ends_with("# EOF\n"), "it ends early: {page}");
    let (mut families, mut named) = (BTreeMap::<String, Family>::new(), String::new());
    let mut help = String::new();
    for line in page.lines().filter(|line| *line != "# EOF") {
        if let Some(told) = line.strip_prefix("# HELP ") {
            told.split_once(' ').expect("a name and a text").1.clone_into(&mut help);
        } else if let Some(told) = line.strip_prefix("# TYPE ") {
            let (name, shape) = told.rsplit_once(' ').expect("a name and a type");
            named = if shape == "counter" { format!("{name}_total") } else { name.to_owned() };
            let family =
                Family { shape: shape.to_owned(), help: std::mem::take(&mut help), ..Family::default() };
            assert!(families.insert(named.clone(), family).is_none(), "{named} is there twice");
        } else {
            let sample = sample(line);
            assert!(sample.name.starts_with(&named), "{line} follows the type of {named}");
            let family = families.get_mut(&named).expect("a type precedes its samples");
            family.labels.extend(sample.labels.keys().filter(|label| *label != "le").cloned());
            let bound = sample.labels.get("le").and_then(|bound| bound.parse::<f64>().ok());
            if let Some(bound) = bound.filter(|bound| bound.is_finite() && !family.bounds.contains(bound)) {
                family.bounds.push(bound);
            }
            family.samples.push(sample);
        }
    }
    families
}

fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').expect("a series and a value");
    let value = value.parse().unwrap_or_else(|_| panic!("no value: {line}"));
    let Some((name, rest)) = series.split_once('{') else {
        return Sample { name: series.to_owned(), labels: BTreeMap::new(), value };
    };
    let pairs = rest.strip_suffix('}').expect("the labels end").split("\",").map(|pair| {
        let (label, value) = pair.split_once("=\"").expect("a label and its value");
        (label.to_owned(), value.trim_end_matches('"').to_owned())
    });
    Sample { name: name.to_owned(), labels: pairs.collect(), value }
}

/// Adds up the samples of a name whose labels are these, whatever others they have.
pub fn sum(page: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let families = families(page);
    let samples = families.values().flat_map(|family| &family.samples).filter(|sample| sample.name == name);
    let has = |sample: &Sample| {
        labels.iter().all(|(label, value)| sample.labels.get(*label).is_some_and(|one| one == value))
    };
    samples.filter(|sample| has(sample)).map(|sample| sample.value).sum()
}

/// As the Go program of `tests/controller-runtime` prints a family.
impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self.labels.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        write!(f, "{} {{{labels}}}", self.shape)?;
        self.bounds.iter().try_for_each(|bound| write!(f, " {bound}"))
    }
}
