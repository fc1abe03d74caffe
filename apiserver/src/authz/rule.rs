//! Rules: what one line of a role lets, as stored, without copies.

use std::fmt::Write as _;

use serde_json::Value;

use super::attributes::Attributes;

/// One rule of a role.
#[derive(Clone, Copy, Debug)]
pub(super) struct PolicyRule<'a>(pub(super) &'a Value);

/// Reads a list of texts.
pub(super) fn texts<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a str> + Clone {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default().iter().filter_map(Value::as_str)
}

impl<'a> PolicyRule<'a> {
    fn verbs(self) -> impl Iterator<Item = &'a str> + Clone {
        texts(self.0, "verbs")
    }

    fn groups(self) -> impl Iterator<Item = &'a str> + Clone {
        texts(self.0, "apiGroups")
    }

    fn resources(self) -> impl Iterator<Item = &'a str> + Clone {
        texts(self.0, "resources")
    }

    fn names(self) -> impl Iterator<Item = &'a str> + Clone {
        texts(self.0, "resourceNames")
    }

    fn paths(self) -> impl Iterator<Item = &'a str> + Clone {
        texts(self.0, "nonResourceURLs")
    }

    /// Returns whether a request is let.
    pub(super) fn allows(self, asked: &Attributes) -> bool {
        if !self.verbs().any(|verb| verb == "*" || verb == asked.verb) {
            return false;
        }
        if let Some(path) = &asked.path {
            return self.paths().any(|pattern| pattern == "*" || path_covers(pattern, path));
        }
        self.groups().any(|group| group == "*" || group == asked.group)
            && self.resources().any(|resource| resource == "*" || names(resource, asked))
            && (self.names().next().is_none() || self.names().any(|name| name == asked.name))
    }

    /// Counts the simple rules that it consists of.
    pub(super) fn size(self) -> usize {
        let count = |texts: &mut dyn Iterator<Item = &'a str>| texts.count();
        let verbs = count(&mut self.verbs());
        let names = count(&mut self.names()).max(1);
        let resources = count(&mut self.groups()).saturating_mul(count(&mut self.resources()));
        let paths = count(&mut self.paths());
        verbs.saturating_mul(resources.saturating_mul(names).saturating_add(paths))
    }

    /// Breaks it down into rules of one verb, one resource and one name each.
    pub(super) fn simple(self) -> Vec<Simple<'a>> {
        let mut out = Vec::new();
        for group in self.groups() {
            for resource in self.resources() {
                for verb in self.verbs() {
                    let base = Simple { group, resource, verb, ..Simple::default() };
                    let before = out.len();
                    out.extend(self.names().map(|name| Simple { name: Some(name), ..base }));
                    if out.len() == before {
                        out.push(base);
                    }
                }
            }
        }
        for path in self.paths() {
            out.extend(self.verbs().map(|verb| Simple { verb, path: Some(path), ..Simple::default() }));
        }
        out
    }

    /// Returns whether it lets all that a simple rule lets.
    pub(super) fn covers(self, simple: &Simple<'_>) -> bool {
        if !self.verbs().any(|verb| verb == "*" || verb == simple.verb) {
            return false;
        }
        if let Some(path) = simple.path {
            return self.paths().any(|pattern| path_covers(pattern, path));
        }
        let below = |resource: &str| {
            let (_, subresource) = simple.resource.split_once('/')?;
            Some(resource.strip_prefix("*/")? == subresource)
        };
        let resource =
            |resource: &str| resource == "*" || resource == simple.resource || below(resource) == Some(true);
        let named = match simple.name {
            None => self.names().next().is_none(),
            Some(name) => self.names().next().is_none() || self.names().any(|own| own == name),
        };
        self.groups().any(|group| group == "*" || group == simple.group)
            && self.resources().any(resource)
            && named
    }
}

/// Returns whether a rule's resource matches the request's: `pods`, `pods/log` or `*/log`.
fn names(resource: &str, asked: &Attributes) -> bool {
    if asked.subresource.is_empty() {
        return resource == asked.resource;
    }
    match resource.split_once('/') {
        Some((plural, subresource)) => {
            subresource == asked.subresource && (plural == "*" || plural == asked.resource)
        }
        None => false,
    }
}

/// Returns whether a pattern, which may end with `*`, covers a path.
fn path_covers(pattern: &str, path: &str) -> bool {
    pattern == path || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

/// A rule that can't be broken down further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Simple<'a> {
    group: &'a str,
    resource: &'a str,
    verb: &'a str,
    name: Option<&'a str>,
    path: Option<&'a str>,
}

/// Writes simple rules as the server lists them: verbs of one resource together, in the order of the text.
pub(super) fn describe(rules: &[Simple<'_>]) -> String {
    let mut merged: Vec<(Simple<'_>, Vec<&str>)> = Vec::new();
    for rule in rules {
        let key = Simple { verb: if rule.path.is_some() { rule.verb } else { "" }, ..*rule };
        match merged.iter_mut().find(|(there, _)| *there == key && there.path.is_none()) {
            Some((_, verbs)) => verbs.push(rule.verb),
            None => merged.push((key, vec![rule.verb])),
        }
    }
    let mut lines: Vec<String> = merged.iter().map(|(rule, verbs)| line(rule, verbs)).collect();
    lines.sort();
    lines.dedup();
    lines.join("\n")
}

fn line(rule: &Simple<'_>, verbs: &[&str]) -> String {
    let mut parts = Vec::new();
    match rule.path {
        Some(path) => parts.push(format!("NonResourceURLs:[{path:?}]")),
        None => {
            parts.push(format!("APIGroups:[{:?}], Resources:[{:?}]", rule.group, rule.resource));
        }
    }
    if let Some(name) = rule.name {
        parts.push(format!("ResourceNames:[{name:?}]"));
    }
    let mut shown = String::new();
    for (index, verb) in verbs.iter().enumerate() {
        // Writing to a text does not fail.
        let _written = write!(shown, "{}{verb:?}", if index > 0 { " " } else { "" });
    }
    parts.push(format!("Verbs:[{shown}]"));
    format!("{{{}}}", parts.join(", "))
}
