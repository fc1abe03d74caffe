//! Label selectors: equality, sets, existence and order.

use memchr::memmem::Finder;

use super::SelectorError;

/// The condition of one requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Need {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
    Above(i64),
    Below(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    need: Need,
}

/// A label selector; all requirements must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    /// Reads a selector, e.g. `a=1,b in (x,y),!c`.
    ///
    /// # Errors
    /// The error, in the server's words.
    pub(crate) fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parser = Parser { tokens: lex(text), at: 0 };
        parser
            .selector()
            .map(Self)
            .map_err(|why| SelectorError(format!("unable to parse requirement: {why}")))
    }

    /// Returns whether everything is selected.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether labels fit; `get` reads one.
    pub(crate) fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| {
            let value = get(&requirement.key);
            match &requirement.need {
                Need::Exists => value.is_some(),
                Need::Absent => value.is_none(),
                Need::In(list) => value.is_some_and(|v| list.iter().any(|x| x == v)),
                Need::NotIn(list) => value.is_none_or(|v| list.iter().all(|x| x != v)),
                Need::Above(than) => value.and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v > *than),
                Need::Below(than) => value.and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v < *than),
            }
        })
    }
}

/// What must stand in the JSON text of an object for its labels to fit: cheaper to look for than reading the labels.
///
/// A text that passes may still not fit. One that does not pass can't.
#[derive(Debug)]
pub(crate) struct TextFilter(Vec<Vec<Finder<'static>>>);

impl TextFilter {
    /// Returns whether an object may fit, by its text without blanks between names and values.
    pub(crate) fn passes(&self, text: &[u8]) -> bool {
        self.0.iter().all(|any| any.iter().any(|finder| finder.find(text).is_some()))
    }
}

impl LabelSelector {
    /// Makes what texts can be looked through with first.
    pub(crate) fn text_filter(&self) -> TextFilter {
        // Keys and values of labels have no characters that JSON escapes; what has some can't be a label's.
        let finder = |text: String| Finder::new(&text).into_owned();
        let wanted = self.0.iter().filter_map(|Requirement { key, need }| match need {
            Need::In(list) => {
                Some(list.iter().map(|value| finder(format!("\"{key}\":\"{value}\""))).collect())
            }
            Need::Exists | Need::Above(_) | Need::Below(_) => Some(vec![finder(format!("\"{key}\":\""))]),
            Need::Absent | Need::NotIn(_) => None,
        });
        TextFilter(wanted.collect())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Sign(&'static str),
    End,
}

impl Token {
    fn shown(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Sign(sign) => sign,
            Self::End => "",
        }
    }
}

fn lex(text: &str) -> Vec<Token> {
    const SIGNS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", "<", ">"];
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || "=!(),<>".contains(c)).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    tokens.push(Token::End);
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut all = Vec::new();
        loop {
            match self.peek() {
                Token::End => return Ok(all),
                Token::Word(_) | Token::Sign("!") => {
                    all.push(self.requirement()?);
                    match self.next() {
                        Token::End => return Ok(all),
                        Token::Sign(",") => match self.peek() {
                            Token::Word(_) | Token::Sign("!") => {}
                            other => {
                                return Err(format!(
                                    "found '{}', expected: identifier after ','",
                                    other.shown()
                                ));
                            }
                        },
                        other => {
                            return Err(format!(
                                "found '{}', expected: ',' or 'end of string'",
                                other.shown()
                            ));
                        }
                    }
                }
                other => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        other.shown()
                    ));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = *self.peek() == Token::Sign("!");
        if negated {
            self.at += 1;
        }
        let key = match self.next() {
            Token::Word(word) => word,
            other => return Err(format!("found '{}', expected: identifier", other.shown())),
        };
        check_label_key(&key).map_err(|why| format!("<nil>: Invalid value: {key:?}: {why}"))?;
        if negated || matches!(self.peek(), Token::End | Token::Sign(",")) {
            let need = if negated { Need::Absent } else { Need::Exists };
            return Ok(Requirement { key, need });
        }
        let need = match self.next() {
            Token::Sign("=" | "==") => Need::In(vec![self.value(&key)?]),
            Token::Sign("!=") => Need::NotIn(vec![self.value(&key)?]),
            Token::Sign(">") => Need::Above(self.number(&key)?),
            Token::Sign("<") => Need::Below(self.number(&key)?),
            Token::Word(word) if word == "in" => Need::In(self.values(&key)?),
            Token::Word(word) if word == "notin" => Need::NotIn(self.values(&key)?),
            other => {
                let known = "in, notin, =, ==, !=, gt, lt";
                return Err(format!("found '{}', expected: {known}", other.shown()));
            }
        };
        Ok(Requirement { key, need })
    }

    fn value(&mut self, key: &str) -> Result<String, String> {
        match self.peek().clone() {
            Token::End | Token::Sign(",") => Ok(String::new()),
            Token::Word(word) => {
                self.at += 1;
                check_label_value(&word)
                    .map_err(|why| format!("values[0][{key}]: Invalid value: {word:?}: {why}"))?;
                Ok(word)
            }
            other @ Token::Sign(_) => Err(format!("found '{}', expected: identifier", other.shown())),
        }
    }

    fn number(&mut self, key: &str) -> Result<i64, String> {
        let text = self.value(key)?;
        text.parse().map_err(|_| {
            format!("values[0][{key}]: Invalid value: {text:?}: for 'Gt', 'Lt' operators, the value must be an integer")
        })
    }

    fn values(&mut self, key: &str) -> Result<Vec<String>, String> {
        let open = self.next();
        if open != Token::Sign("(") {
            return Err(format!("found '{}' expected: '('", open.shown()));
        }
        let mut all = Vec::new();
        loop {
            match self.next() {
                Token::Sign(")") => {
                    if all.is_empty() {
                        all.push(String::new());
                    }
                    return Ok(all);
                }
                Token::Sign(",") => {
                    if all.is_empty() || matches!(self.peek(), Token::Sign("," | ")")) {
                        all.push(String::new());
                    }
                }
                Token::Word(word) => {
                    let at = all.len();
                    check_label_value(&word)
                        .map_err(|why| format!("values[{at}][{key}]: Invalid value: {word:?}: {why}"))?;
                    all.push(word);
                }
                other => return Err(format!("found '{}', expected: ',', or identifier", other.shown())),
            }
        }
    }
}

const NAME_PART: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// The server's words for a name that is not a subdomain.
pub(crate) const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
     and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Returns whether a text is a DNS subdomain, of any length.
pub(crate) fn is_subdomain(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.split('.').all(|label| {
        let label = label.as_bytes();
        label.first().is_some_and(|first| is_inner(*first))
            && label.last().is_some_and(|last| is_inner(*last))
            && label.iter().all(|byte| is_inner(*byte) || *byte == b'-')
    })
}

/// Checks the key of a label or annotation.
///
/// # Errors
/// The server's words for the error.
pub(crate) fn check_label_key(key: &str) -> Result<(), String> {
    let (prefix, name) = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => (None, *name),
        [prefix, name] => (Some(*prefix), *name),
        _ => {
            return Err(format!(
                "a valid label key {NAME_PART} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
        }
    };
    if prefix.is_some_and(str::is_empty) {
        return Err("prefix part must be non-empty".to_owned());
    }
    if let Some(prefix) = prefix.filter(|prefix| prefix.len() > 253 || !is_subdomain(prefix)) {
        let why = if prefix.len() > 253 { "must be no more than 253 characters" } else { SUBDOMAIN };
        return Err(format!("prefix part {why}"));
    }
    if name.is_empty() {
        return Err("name part must be non-empty".to_owned());
    }
    if name.len() > 63 {
        return Err("name part must be no more than 63 bytes".to_owned());
    }
    if !is_label_text(name) {
        return Err(format!("name part {NAME_PART}"));
    }
    Ok(())
}

/// Checks the value of a label.
///
/// # Errors
/// The server's words for the error.
pub(crate) fn check_label_value(value: &str) -> Result<(), String> {
    if value.len() > 63 {
        return Err("must be no more than 63 bytes".to_owned());
    }
    if value.is_empty() || is_label_text(value) {
        return Ok(());
    }
    Err("a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
         start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
         validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        .to_owned())
}

fn is_label_text(text: &str) -> bool {
    let edge = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let bytes = text.as_bytes();
    edge(bytes.first().copied())
        && edge(bytes.last().copied())
        && bytes.iter().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(selector: &str, labels: &[(&str, &str)]) -> bool {
        let selector = LabelSelector::parse(selector).expect("parses");
        selector.matches(|key| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v))
    }

    // wire 014
    #[test]
    fn every_form_selects() {
        let a = [("x", "1"), ("y", "p")];
        for yes in
            ["x=1", "x==1", "x!=2", "x in (1,2)", "x notin (3)", "x", "!z", "x=1,y=p", "x>0", "x<2", ""]
        {
            assert!(fits(yes, &a), "{yes}");
        }
        for no in ["x=2", "x!=1", "x in (2)", "x notin (1)", "!x", "z", "x>1", "x=", "x in ()"] {
            assert!(!fits(no, &a), "{no}");
        }
    }

    // A28
    #[test]
    fn whatever_fits_passes_the_text_filter() {
        let labels = [("x", "1"), ("example.com/y", "p")];
        let text = br#"{"metadata":{"labels":{"example.com/y":"p","x":"1"},"name":"a"},"data":{"z":"3"}}"#;
        let passes =
            |selector: &str| LabelSelector::parse(selector).expect("parses").text_filter().passes(text);
        for selector in [
            "",
            "x=1",
            "x!=2",
            "x in (2,1)",
            "x notin (3)",
            "x",
            "!w",
            "x=1,example.com/y=p",
            "x>0",
            "x<2",
            "w!=1",
        ] {
            assert!(fits(selector, &labels) && passes(selector), "{selector}");
        }
        for selector in ["x=2", "x in (2,3)", "x=", "x in ()", "w", "w>1", "x=1,w=1"] {
            assert!(!passes(selector), "{selector}");
        }
        assert!(passes("z=3") && !fits("z=3", &labels), "what stands elsewhere passes, and is looked at");
    }

    // wire 014
    #[test]
    fn malformed_selectors_are_named() {
        let error = |text: &str| LabelSelector::parse(text).expect_err("refused").0;
        assert_eq!(error("x===1"), "unable to parse requirement: found '=', expected: identifier");
        assert_eq!(error("x in 1"), "unable to parse requirement: found '1' expected: '('");
        assert!(
            error("-x")
                .starts_with("unable to parse requirement: <nil>: Invalid value: \"-x\": name part must")
        );
    }
}
