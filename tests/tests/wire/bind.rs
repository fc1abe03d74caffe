//! Placeholders: what varies from server to server, bound at first sight.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};

static HOLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\{(uid|rv|at|continue|suffix|time|microtime|int|age|ns|any)(?::(\d+)(?:\+(\d+))?)?\}")
        .expect("a pattern")
});

static FILL: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\{fill:(\d+)\}").expect("a pattern"));

/// A kind of placeholder whose values are remembered, and its number.
type Hole = (String, u64);

/// A placeholder in a request for something no answer has shown.
#[derive(Debug, thiserror::Error)]
#[error("{0} was never seen in an answer")]
pub(crate) struct Unbound(String);

/// What the placeholders of one scenario stand for.
#[derive(Debug)]
pub(crate) struct Bound {
    namespace: String,
    values: BTreeMap<Hole, String>,
}

impl Bound {
    /// Starts with nothing but the namespace's name.
    pub(crate) fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), values: BTreeMap::new() }
    }

    /// Returns the namespace's name.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Puts what was bound into a text.
    ///
    /// # Errors
    ///
    /// When a placeholder was not bound yet.
    pub(crate) fn fill(&self, text: &str) -> Result<String, Unbound> {
        let (mut out, mut from) = (String::new(), 0);
        for hole in HOLE.captures_iter(text) {
            let whole = hole.get_match();
            out.push_str(&text[from..whole.start()]);
            out.push_str(&self.value(&hole).ok_or_else(|| Unbound(whole.as_str().to_owned()))?);
            from = whole.end();
        }
        out.push_str(&text[from..]);
        let letters = |fill: &Captures<'_>| "x".repeat(fill[1].parse().unwrap_or_default());
        Ok(FILL.replace_all(&out, letters).into_owned())
    }

    fn value(&self, hole: &Captures<'_>) -> Option<String> {
        if &hole[1] == "ns" {
            return Some(self.namespace.clone());
        }
        let value = self.values.get(&key(hole)?)?;
        match hole.get(3) {
            Some(by) => Some((value.parse::<u64>().ok()? + by.as_str().parse::<u64>().ok()?).to_string()),
            None => Some(value.clone()),
        }
    }

    /// Holds a text against one with placeholders; gives what is wrong.
    pub(crate) fn unify(&mut self, want: &str, got: &str) -> Vec<String> {
        let (mut pattern, mut from) = (r"(?s)\A".to_owned(), 0);
        let holes: Vec<_> = HOLE.captures_iter(want).collect();
        for hole in &holes {
            let whole = hole.get_match();
            pattern += &regex::escape(&want[from..whole.start()]);
            pattern += &format!("({})", self.shape(&hole[1]));
            from = whole.end();
        }
        pattern += &regex::escape(&want[from..]);
        pattern += r"\z";
        let pattern = Regex::new(&pattern).expect("an escaped text is a pattern");
        let Some(found) = pattern.captures(got) else {
            return vec![format!("got {}, want {}", short(got), short(want))];
        };
        let values = found.iter().skip(1).map(|value| value.map_or("", |value| value.as_str()));
        holes.iter().zip(values).filter_map(|(hole, value)| self.bind(hole, value)).collect()
    }

    fn shape(&self, kind: &str) -> String {
        match kind {
            "uid" => "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}".to_owned(),
            "continue" => r"\S+".to_owned(),
            "suffix" => "[bcdfghjklmnpqrstvwxz2456789]{5}".to_owned(),
            "time" => r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z".to_owned(),
            "microtime" => r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z".to_owned(),
            "age" => "(?:[0-9]+[smhd])+".to_owned(),
            "any" => ".*".to_owned(),
            "ns" => regex::escape(&self.namespace),
            _ => "[0-9]+".to_owned(),
        }
    }

    fn bind(&mut self, hole: &Captures<'_>, value: &str) -> Option<String> {
        let (kind, number) = key(hole)?;
        let by = hole.get(3).map_or(Some(0), |by| by.as_str().parse::<u64>().ok())?;
        let value = match value.parse::<u64>() {
            Ok(version) if by > 0 => version.saturating_sub(by).to_string(),
            _ => value.to_owned(),
        };
        if let Some(old) = self.values.get(&(kind.clone(), number)) {
            return (*old != value).then(|| format!("{} was {old}, is {value}", &hole[0]));
        }
        let disorder = if kind == "rv" { self.disorder(number, &value) } else { None };
        self.values.insert((kind, number), value);
        disorder
    }

    /// Finds an object version that this one should be on the other side of.
    fn disorder(&self, number: u64, value: &str) -> Option<String> {
        let version: u64 = value.parse().ok()?;
        let seen = self.values.iter().filter(|((kind, _), _)| kind == "rv");
        for ((_, other), theirs) in seen {
            let theirs: u64 = theirs.parse().ok()?;
            if number.cmp(other) != version.cmp(&theirs) {
                return Some(format!(
                    "{{rv:{number}}} = {version} is out of order with {{rv:{other}}} = {theirs}"
                ));
            }
        }
        None
    }
}

/// Names a placeholder that is remembered.
fn key(hole: &Captures<'_>) -> Option<Hole> {
    let remembered = ["uid", "rv", "at", "continue", "suffix"].contains(&&hole[1]);
    let number = hole.get(2)?.as_str().parse().ok()?;
    remembered.then(|| (hole[1].to_owned(), number))
}

/// Quotes a text, its end left out where it is long.
pub(crate) fn short(text: &str) -> String {
    const MOST: usize = 200;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_sight_binds_and_later_ones_must_agree() {
        let mut bound = Bound::new("n");
        assert!(bound.unify("/{ns}/{rv:1}", "/n/7").is_empty());
        assert_eq!(bound.unify("{rv:1}", "8"), ["{rv:1} was 7, is 8"]);
        assert_eq!(bound.unify("{rv:1}", "x"), ["got \"x\", want \"{rv:1}\""]);
        assert_eq!(bound.fill("{rv:1+10} {ns} {fill:3}").unwrap(), "17 n xxx");
        assert_eq!(bound.fill("{uid:1}").unwrap_err().to_string(), "{uid:1} was never seen in an answer");
    }

    #[test]
    fn object_versions_keep_the_recorded_order() {
        let mut bound = Bound::new("n");
        assert!(bound.unify("{rv:2}", "7").is_empty());
        assert!(bound.unify("{rv:1}", "5").is_empty());
        assert_eq!(bound.unify("{rv:3}", "7"), ["{rv:3} = 7 is out of order with {rv:2} = 7"]);
        assert!(bound.unify("{at:1}", "1").is_empty(), "versions of collections have no order");
    }
}
