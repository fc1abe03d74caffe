//! Label and field selectors: parsed once, normalised, so that equal questions read equal.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use crate::object::{is_domain, is_name};

/// Selects objects by their labels, in Kubernetes' syntax: `tier=gold,env in (a,b),!x,size>1`.
///
/// Matches as the API server does: `!=` and `notin` also match objects that lack the label. Shown in a normal form:
/// two selectors that read the same select the same.
///
/// ```
/// use watchkeeper::store::Selector;
///
/// let selector: Selector = "tier in (silver, gold), !legacy".parse()?;
/// assert!(selector.matches(&[("tier".to_owned(), "gold".to_owned())].into()));
/// assert!(!selector.matches(&Default::default()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The book has more: [namespaces, selectors and tenants](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/how-to/tenants.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    requirements: BTreeSet<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Test {
    Exists,
    Absent,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Above(i64),
    Below(i64),
}

impl Selector {
    /// Selects everything.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Returns whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns whether labels meet every requirement.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_by(|key| labels.get(key).map(|value| Cow::Borrowed(value.as_str())))
    }

    /// Returns whether labels that are found by their keys meet every requirement.
    pub fn matches_by<'l>(&self, label: impl Fn(&str) -> Option<Cow<'l, str>>) -> bool {
        let mut requirements = self.requirements.iter();
        requirements.all(|requirement| requirement.test.holds(label(&requirement.key).as_deref()))
    }

    /// Returns a label and its values; nothing matches without one of them.
    pub(crate) fn one_of(&self) -> Option<(&str, &BTreeSet<String>)> {
        self.needed().find_map(|(key, values)| Some((key, values?)))
    }

    /// Names the labels without which nothing matches, and the values that will do; `None` if all will.
    pub(super) fn needed(&self) -> impl Iterator<Item = (&str, Option<&BTreeSet<String>>)> {
        self.requirements.iter().filter_map(|Requirement { key, test }| match test {
            Test::In(values) => Some((key.as_str(), Some(values))),
            Test::Exists | Test::Above(_) | Test::Below(_) => Some((key.as_str(), None)),
            Test::Absent | Test::NotIn(_) => None,
        })
    }
}

impl Test {
    fn holds(&self, label: Option<&str>) -> bool {
        let number = || label.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::Exists => label.is_some(),
            Self::Absent => label.is_none(),
            Self::In(values) => label.is_some_and(|value| values.contains(value)),
            Self::NotIn(values) => label.is_none_or(|value| !values.contains(value)),
            Self::Above(bound) => number().is_some_and(|value| value > *bound),
            Self::Below(bound) => number().is_some_and(|value| value < *bound),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Requirement { key, test }) in self.requirements.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "," })?;
            match test {
                Test::Exists => f.write_str(key)?,
                Test::Absent => write!(f, "!{key}")?,
                Test::In(values) => write_set(f, key, ("=", "in"), values)?,
                Test::NotIn(values) => write_set(f, key, ("!=", "notin"), values)?,
                Test::Above(bound) => write!(f, "{key}>{bound}")?,
                Test::Below(bound) => write!(f, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

/// Writes a set of one value as a comparison, a larger one as a set.
fn write_set(
    f: &mut fmt::Formatter<'_>,
    key: &str,
    (one, several): (&str, &str),
    values: &BTreeSet<String>,
) -> fmt::Result {
    let joined = values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    match values.len() {
        1 => write!(f, "{key}{one}{joined}"),
        _ => write!(f, "{key} {several} ({joined})"),
    }
}

/// Where a selector can't be read, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the selector {selector:?} does not parse: at character {at}, expected {rule}")]
pub struct InvalidSelector {
    /// The selector as it was given.
    pub selector: String,
    /// How many characters stand before the mistake.
    pub at: usize,
    /// What is expected there.
    pub rule: &'static str,
}

impl FromStr for Selector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        let mut parser = Parser { text, at: 0 };
        let mut requirements = BTreeSet::new();
        parser.blanks();
        while !parser.ended() {
            requirements.insert(parser.requirement()?);
            parser.blanks();
            if !parser.ended() {
                parser.expect(",", "a comma, or the end")?;
                parser.blanks();
                if parser.ended() {
                    return Err(parser.mistake("a label key after the comma"));
                }
            }
        }
        Ok(Self { requirements })
    }
}

/// Reads a text from left to right.
struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Parser<'t> {
    fn requirement(&mut self) -> Result<Requirement, InvalidSelector> {
        if self.take("!") {
            return Ok(Requirement { key: self.key()?, test: Test::Absent });
        }
        Ok(Requirement { key: self.key()?, test: self.test()? })
    }

    fn test(&mut self) -> Result<Test, InvalidSelector> {
        self.blanks();
        // The longer spelling first: `==` starts with `=`.
        if self.take("==") || self.take("=") {
            return Ok(Test::In([self.value()?].into()));
        }
        if self.take("!=") {
            return Ok(Test::NotIn([self.value()?].into()));
        }
        if self.take(">") {
            return self.number().map(Test::Above);
        }
        if self.take("<") {
            return self.number().map(Test::Below);
        }
        if self.ended() || self.rest().starts_with(',') {
            return Ok(Test::Exists);
        }
        let rule = "one of = == != in notin > <, a comma, or the end";
        match self.word(rule, |word| matches!(word, "in" | "notin").then_some(word))? {
            "in" => self.set().map(Test::In),
            _ => self.set().map(Test::NotIn),
        }
    }

    fn set(&mut self) -> Result<BTreeSet<String>, InvalidSelector> {
        self.blanks();
        self.expect("(", "an opening parenthesis")?;
        let mut values = BTreeSet::new();
        loop {
            values.insert(self.value()?);
            self.blanks();
            if self.take(")") {
                return Ok(values);
            }
            self.expect(",", "a comma or a closing parenthesis")?;
        }
    }

    fn key(&mut self) -> Result<String, InvalidSelector> {
        let rule = "a label key: [domain/]name, letters and digits with -_. between, 63 at most";
        self.word(rule, |key| {
            let (prefix, name) =
                key.rsplit_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
            (is_name(name) && prefix.is_none_or(is_domain)).then(|| key.to_owned())
        })
    }

    fn value(&mut self) -> Result<String, InvalidSelector> {
        let rule = "a label value: letters and digits with -_. between, 63 at most";
        self.word(rule, |value| (value.is_empty() || is_name(value)).then(|| value.to_owned()))
    }

    fn number(&mut self) -> Result<i64, InvalidSelector> {
        self.word("an integer", |number| number.parse().ok())
    }

    /// Reads a word behind blanks; a mistake is reported at its start.
    fn word<T>(
        &mut self,
        rule: &'static str,
        read: impl FnOnce(&'t str) -> Option<T>,
    ) -> Result<T, InvalidSelector> {
        self.blanks();
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_alphanumeric() || "-_./".contains(c))).unwrap_or(rest.len());
        let word = read(&rest[..end]).ok_or_else(|| self.mistake(rule))?;
        self.at += end;
        Ok(word)
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn ended(&self) -> bool {
        self.at == self.text.len()
    }

    fn blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn expect(&mut self, token: &str, rule: &'static str) -> Result<(), InvalidSelector> {
        if self.take(token) { Ok(()) } else { Err(self.mistake(rule)) }
    }

    fn mistake(&self, rule: &'static str) -> InvalidSelector {
        InvalidSelector { selector: self.text.to_owned(), at: self.text[..self.at].chars().count(), rule }
    }
}

/// Selects objects by fields that the server knows: `status.phase=Running,spec.nodeName!=a`.
///
/// Only the server can tell what matches; here it is checked for form and shown in a normal one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector {
    terms: BTreeSet<(String, &'static str, String)>,
}

impl FieldSelector {
    /// Returns whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }
}

impl FromStr for FieldSelector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        let mut terms = BTreeSet::new();
        let mut at = 0;
        for term in split_terms(text) {
            let mistake = || InvalidSelector {
                selector: text.to_owned(),
                at,
                rule: "a field, then = == or !=, then a value",
            };
            if !term.is_empty() {
                let (field, operator, value) = field_term(term).ok_or_else(mistake)?;
                terms.insert((field.to_owned(), operator, value.to_owned()));
            }
            at += term.chars().count() + 1;
        }
        Ok(Self { terms })
    }
}

/// Splits at commas that no backslash guards.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        if c == ',' && !escaped {
            terms.push(&text[start..at]);
            start = at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    terms.push(&text[start..]);
    terms
}

fn field_term(term: &str) -> Option<(&str, &'static str, &str)> {
    let (field, rest) = term.split_at(term.find(['=', '!'])?);
    let operators = [("!=", "!="), ("==", "="), ("=", "=")];
    let (value, operator) =
        operators.iter().find_map(|(given, operator)| Some((rest.strip_prefix(given)?, *operator)))?;
    (!field.trim().is_empty()).then_some((field.trim(), operator, value))
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (field, operator, value)) in self.terms.iter().enumerate() {
            write!(f, "{}{field}{operator}{value}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn labels_match_as_on_the_server() {
        let gold = labels(&[("tier", "gold"), ("env", "a"), ("size", "5")]);
        for (selector, matches) in [
            ("", true),
            ("tier=gold", true),
            ("tier==gold,env in (a,b)", true),
            ("tier!=gold", false),
            ("absent!=gold", true),
            ("absent notin (x)", true),
            ("env notin (a)", false),
            ("tier", true),
            ("!tier", false),
            ("!absent", true),
            ("absent", false),
            ("size>4,size<6", true),
            ("size>5", false),
            ("tier>1", false),
            ("absent=", false),
            ("example.dev/a in (x)", false),
        ] {
            assert_eq!(selector.parse::<Selector>().unwrap().matches(&gold), matches, "{selector}");
        }
    }

    #[test]
    fn equal_selectors_read_equal() {
        for (given, normal) in [
            (" b = 1 , a==2 ", "a=2,b=1"),
            ("x in (b, a,b)", "x in (a,b)"),
            ("x in (a)", "x=a"),
            ("x notin (a)", "x!=a"),
            ("! x,y", "!x,y"),
            ("a=1,a=1", "a=1"),
            ("x=", "x="),
            ("x in ()", "x="),
            ("a.b/c>1", "a.b/c>1"),
        ] {
            let selector: Selector = given.parse().unwrap();
            assert_eq!(selector.to_string(), normal);
            assert_eq!(normal.parse::<Selector>().unwrap(), selector);
        }
        let fields: FieldSelector = "status.phase==Running,metadata.name!=a".parse().unwrap();
        assert_eq!(fields.to_string(), "metadata.name!=a,status.phase=Running");
        assert_eq!(r"a=b\,c".parse::<FieldSelector>().unwrap().to_string(), r"a=b\,c");
    }

    #[test]
    fn a_mistake_is_named_with_its_place() {
        for (given, at) in [
            ("a=b c", 4),
            ("a,,b", 2),
            ("a,", 2),
            ("-a=b", 0),
            ("a in b", 5),
            ("a in (b", 7),
            ("a>x", 2),
            ("a~b", 1),
            ("ü=a", 0),
            ("a=ü", 2),
            ("A_b/c=d", 0),
        ] {
            let error = given.parse::<Selector>().unwrap_err();
            assert_eq!(error.at, at, "{error}");
        }
        assert_eq!("a=b,c".parse::<FieldSelector>().unwrap_err().at, 4);
    }
}
