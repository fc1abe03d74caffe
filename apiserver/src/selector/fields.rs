//! Field selectors: `path=value` terms joined by commas.

use super::SelectorError;

/// One term of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldTerm {
    /// The path, e.g. `metadata.name`.
    pub(crate) path: String,
    /// The value compared with.
    pub(crate) value: String,
    /// Whether equality or its contrary selects.
    pub(crate) relation: Relation,
}

/// How a term compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// `=` or `==`.
    Is,
    /// `!=`.
    IsNot,
}

impl FieldTerm {
    /// Returns whether a field's text fits.
    pub(crate) fn matches(&self, text: &str) -> bool {
        (text == self.value) == (self.relation == Relation::Is)
    }
}

/// The terms of a field selector; all must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector(Vec<FieldTerm>);

impl FieldSelector {
    /// Reads a selector.
    ///
    /// # Errors
    /// A term without an operator.
    pub(crate) fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for part in split(text).into_iter().filter(|part| !part.is_empty()) {
            let (path, rest, relation) = if let Some((path, rest)) = part.split_once("!=") {
                (path, rest, Relation::IsNot)
            } else if let Some((path, rest)) = part.split_once("==") {
                (path, rest, Relation::Is)
            } else if let Some((path, rest)) = part.split_once('=') {
                (path, rest, Relation::Is)
            } else {
                let message = format!("invalid selector: '{text}'; can't understand '{part}'");
                return Err(SelectorError(message));
            };
            terms.push(FieldTerm { path: path.to_owned(), value: unescape(rest), relation });
        }
        Ok(Self(terms))
    }

    /// Returns the terms.
    pub(crate) fn terms(&self) -> &[FieldTerm] {
        &self.0
    }

    /// Returns whether it is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value that a path must have, if the selector sets one.
    pub(crate) fn exact(&self, path: &str) -> Option<&str> {
        self.0.iter().find(|t| t.path == path && t.relation == Relation::Is).map(|t| t.value.as_str())
    }
}

/// Splits at commas that no backslash protects.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { chars.next().unwrap_or('\\') } else { c });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_compare_as_text() {
        let selector = FieldSelector::parse("metadata.name==a,spec.x!=b\\,c").expect("parses");
        assert_eq!(selector.exact("metadata.name"), Some("a"));
        assert!(!selector.terms()[1].matches("b,c"));
        assert!(selector.terms()[1].matches(""));
    }

    #[test]
    fn a_term_without_an_operator_is_refused() {
        let error = FieldSelector::parse("rubbish").expect_err("refused");
        assert_eq!(error.0, "invalid selector: 'rubbish'; can't understand 'rubbish'");
    }
}
