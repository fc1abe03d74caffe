//! What a dry run would have written until all came to rest, by controller.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use serde_json::Value;

use crate::api_request::{ApiRequest, ApiVerb};

/// The most objects of a sort that a report names.
const NAMED: usize = 5;
/// The most fields of a sort that a report names.
const FIELDS: usize = 12;
/// The most different writes of a sort to one object that are kept: an operator may write the time.
const KEPT: usize = 16;

/// Reports what a build of an operator would change in a live cluster; made by [`Manager::rehearse`](crate::Manager::rehearse).
///
/// Its text is for people. It names each controller, what that would create, change and delete, which fields and how often
/// each, who set these fields last, what the server would refuse, and the objects whose runs failed; it
/// shows one write of each sort in full. Values of Secrets are never shown.
#[derive(Clone, Debug, Default)]
pub struct Rehearsal {
    /// By the digest of what was sent; the last one that was tried is the last.
    writes: BTreeMap<WriteName, Vec<(u64, TriedWrite)>>,
    /// Objects whose last run failed, and how, by controller.
    failures: BTreeMap<String, Vec<String>>,
    /// What was not at rest at the end.
    restless: Vec<String>,
    took: Duration,
}

/// Which write: the controller, the object, and the verb.
pub(super) type WriteName = (Arc<str>, String, &'static str);

/// A write, as the server answered that it would carry it out.
#[derive(Clone, Debug)]
pub(super) struct TriedWrite {
    pub(super) effect: WriteEffect,
    /// The kind of the object, as the API names it.
    pub(super) resource: String,
    /// One for each field; none where that is not known.
    pub(super) diff: Vec<String>,
    /// Who set these fields last.
    pub(super) managers: BTreeSet<String>,
}

/// What a write would do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WriteEffect {
    Creates,
    Changes,
    Deletes,
    /// The server refuses it, and says why.
    Refused(String),
}

impl TriedWrite {
    /// Describes a write by the object before it, and by what differs after it.
    pub(super) fn new(write: &ApiRequest, before: Option<&Value>, diff: Vec<String>) -> Self {
        let deletes = matches!(write.verb, ApiVerb::Delete | ApiVerb::DeleteCollection);
        let effect = match before {
            _ if deletes => WriteEffect::Deletes,
            Some(Value::Null) => WriteEffect::Creates,
            _ => WriteEffect::Changes,
        };
        let managers = before.map(|before| managers(before, &diff)).unwrap_or_default();
        Self { effect, resource: write.path.resource(), diff, managers }
    }

    /// Describes a write that the server refuses.
    pub(super) fn refused(write: &ApiRequest, answer: &[u8]) -> Self {
        let status: Value = serde_json::from_slice(answer).unwrap_or_default();
        let why = status["message"].as_str().unwrap_or("it does not say why").to_owned();
        let effect = WriteEffect::Refused(why);
        Self { effect, resource: write.path.resource(), diff: Vec::new(), managers: BTreeSet::new() }
    }
}

/// Names who set the fields that a diff names, as the object's `managedFields` have it.
fn managers(before: &Value, diff: &[String]) -> BTreeSet<String> {
    let entries = before["metadata"]["managedFields"].as_array();
    let sets = |entry: &&Value| {
        diff.iter().filter_map(|line| field(line)).any(|path| owns(&entry["fieldsV1"], path))
    };
    let found = entries.into_iter().flatten().filter(sets);
    found.filter_map(|entry| entry["manager"].as_str()).map(str::to_owned).collect()
}

/// Returns whether a set of fields has a path; below a list, whether it has anything of the list.
fn owns(fields: &Value, path: &str) -> bool {
    let mut at = fields;
    for step in path.split('.') {
        let (name, in_list) = step.split_once('[').map_or((step, false), |(name, _)| (name, true));
        match &at[format!("f:{name}")] {
            Value::Null => return false,
            found => at = found,
        }
        if in_list {
            return true;
        }
    }
    true
}

/// Returns the path that a line of a diff names.
fn field(line: &str) -> Option<&str> {
    let rest = line.strip_prefix(['+', '-', '~'])?.strip_prefix(' ')?;
    rest.split_once(": ").map(|(path, _)| path)
}

impl Rehearsal {
    /// Keeps the last that the server said of a write; one that would change nothing is forgotten.
    ///
    /// The digest is that of what is sent: another write to the same object is another write.
    pub(super) fn keep(&mut self, name: WriteName, digest: u64, tried: Option<TriedWrite>) {
        if let Some(of_name) = self.writes.get_mut(&name) {
            // Somebody else has created it meanwhile.
            let is_there = tried.as_ref().is_none_or(|tried| tried.effect == WriteEffect::Changes);
            of_name
                .retain(|(of, known)| *of != digest && !(is_there && known.effect == WriteEffect::Creates));
        }
        if let Some(tried) = tried {
            let of_name = self.writes.entry(name).or_default();
            of_name.push((digest, tried));
            if of_name.len() > KEPT {
                of_name.remove(0);
            }
        } else if self.writes.get(&name).is_some_and(Vec::is_empty) {
            self.writes.remove(&name);
        }
    }

    /// Adds how all stood at the end.
    pub(in crate::manager) fn ended(
        mut self,
        failures: BTreeMap<String, Vec<String>>,
        restless: Vec<String>,
        took: Duration,
    ) -> Self {
        (self.failures, self.restless, self.took) = (failures, restless, took);
        self
    }

    /// Returns whether something would be created, changed or deleted, or refused by the server.
    pub fn would_write(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Returns whether all came to rest, and no object's last run failed: else the report may lack something.
    pub fn is_whole(&self) -> bool {
        self.restless.is_empty() && self.failures.is_empty()
    }

    fn show_controller(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        let of = || self.writes.iter().filter(move |((controller, ..), _)| **controller == *name);
        writeln!(f, "{name}")?;
        for (effect, word) in [
            (WriteEffect::Creates, "create"),
            (WriteEffect::Changes, "change"),
            (WriteEffect::Deletes, "delete"),
        ] {
            let mut kinds = BTreeMap::<String, Vec<(&str, TriedWrite)>>::new();
            for ((_, object, _), tried) in of() {
                if let Some(tried) = together(tried, &effect) {
                    kinds.entry(tried.resource.clone()).or_default().push((object, tried));
                }
            }
            for (resource, all) in kinds {
                show_kind(f, word, &resource, &all)?;
            }
        }
        let all = of().flat_map(|(name, tried)| tried.iter().map(move |(_, tried)| (name, tried)));
        let refused = all.filter_map(|((_, object, verb), tried)| match &tried.effect {
            WriteEffect::Refused(why) => Some(format!("{verb} {object}: {why}")),
            _ => None,
        });
        let mut refused: Vec<_> = refused.collect();
        refused.dedup();
        show_some(f, "would be refused", &refused)?;
        show_some(f, "failed in their last run", self.failures.get(name).map_or(&[][..], Vec::as_slice))?;
        Ok(())
    }
}

/// Makes one of the writes of a sort to an object that have an effect: the last one that sets a field counts.
fn together(all: &[(u64, TriedWrite)], effect: &WriteEffect) -> Option<TriedWrite> {
    let mut all = all.iter().map(|(_, tried)| tried).filter(|tried| tried.effect == *effect);
    let mut sum = all.next()?.clone();
    for next in all {
        sum.diff.retain(|line| !next.diff.iter().any(|other| line == other || sets_the_same(line, other)));
        sum.diff.extend(next.diff.iter().cloned());
        sum.managers.extend(next.managers.iter().cloned());
    }
    Some(sum)
}

fn sets_the_same(line: &str, other: &str) -> bool {
    field(line).is_some_and(|path| field(other) == Some(path))
}

fn show_kind(
    f: &mut fmt::Formatter<'_>,
    word: &str,
    resource: &str,
    all: &[(&str, TriedWrite)],
) -> fmt::Result {
    let names: Vec<&str> =
        all.iter().map(|(name, _)| name.rsplit(' ').next().unwrap_or(name)).take(NAMED).collect();
    let more = if all.len() > NAMED { ", …" } else { "" };
    writeln!(f, "  would {word} {} {resource}: {}{more}", all.len(), names.join(", "))?;
    if word != "change" {
        return show_first(f, all);
    }
    let mut fields = BTreeMap::<String, usize>::new();
    for line in all.iter().flat_map(|(_, tried)| &tried.diff) {
        if let Some(path) = field(line) {
            *fields.entry(format!("{} {path}", &line[..1])).or_default() += 1;
        }
    }
    let mut fields: Vec<_> = fields.into_iter().collect();
    fields.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    for (field, times) in fields.iter().take(FIELDS) {
        writeln!(f, "    {field} ({times})")?;
    }
    if fields.len() > FIELDS {
        writeln!(f, "    and {} fields more", fields.len() - FIELDS)?;
    }
    let mut managers = BTreeMap::<&str, usize>::new();
    for manager in all.iter().flat_map(|(_, tried)| &tried.managers) {
        *managers.entry(manager).or_default() += 1;
    }
    if !managers.is_empty() {
        let managers: Vec<String> =
            managers.iter().map(|(name, times)| format!("{name} ({times})")).collect();
        writeln!(f, "    set until now by {}", managers.join(", "))?;
    }
    show_first(f, all)
}

/// Shows one write in full.
fn show_first(f: &mut fmt::Formatter<'_>, all: &[(&str, TriedWrite)]) -> fmt::Result {
    let Some((name, tried)) = all.iter().find(|(_, tried)| !tried.diff.is_empty()) else { return Ok(()) };
    writeln!(f, "    for example {name}:")?;
    tried.diff.iter().try_for_each(|line| writeln!(f, "      {line}"))
}

fn show_some(f: &mut fmt::Formatter<'_>, what: &str, all: &[String]) -> fmt::Result {
    if all.is_empty() {
        return Ok(());
    }
    writeln!(f, "  {} {what}:", all.len())?;
    all.iter().take(NAMED).try_for_each(|one| writeln!(f, "    {one}"))?;
    match all.len().saturating_sub(NAMED) {
        0 => Ok(()),
        more => writeln!(f, "    and {more} more"),
    }
}

impl fmt::Display for Rehearsal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took = self.took.as_secs_f64();
        match self.restless.is_empty() {
            true => writeln!(f, "All came to rest after {took:.1} s. Nothing was written.")?,
            false => {
                writeln!(
                    f,
                    "After {took:.1} s not all was at rest. Nothing was written. What was still moving:"
                )?;
                self.restless.iter().try_for_each(|what| writeln!(f, "  {what}"))?;
            }
        }
        let writers = self.writes.keys().map(|(controller, ..)| &**controller);
        let names: BTreeSet<&str> = writers.chain(self.failures.keys().map(String::as_str)).collect();
        if names.is_empty() {
            return f.write_str("Nothing would change.\n");
        }
        names.into_iter().try_for_each(|name| {
            f.write_str("\n")?;
            self.show_controller(f, name)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_that_goes_is_no_deletion_whatever_its_name() {
        let write = |method| {
            let uri = "/apis/storage.k8s.io/v1/storageclasses/fast".parse().unwrap();
            ApiRequest::parse(&method, &uri, &http::HeaderMap::new()).unwrap()
        };
        let before = json!({ "kind": "StorageClass" });
        let effect =
            |method, line: &str| TriedWrite::new(&write(method), Some(&before), vec![line.to_owned()]).effect;
        assert_eq!(effect(http::Method::PUT, "- allowVolumeExpansion: true"), WriteEffect::Changes);
        assert_eq!(effect(http::Method::DELETE, "- the whole object"), WriteEffect::Deletes);
    }

    // W30
    #[test]
    fn what_somebody_else_has_created_meanwhile_would_not_be_created() {
        let uri = "/api/v1/namespaces/shop/configmaps/a".parse().unwrap();
        let write = ApiRequest::parse(&http::Method::PATCH, &uri, &http::HeaderMap::new()).unwrap();
        let tried =
            |before: &Value| TriedWrite::new(&write, Some(before), vec!["+ data.x: \"1\"".to_owned()]);
        let name = || ("maps".into(), write.path.to_string(), "patch");
        for (then, is_left) in [(None, false), (Some(tried(&json!({ "kind": "ConfigMap" }))), true)] {
            let mut rehearsal = Rehearsal::default();
            rehearsal.keep(name(), 1, Some(tried(&Value::Null)));
            assert!(rehearsal.to_string().contains("would create"), "{rehearsal}");
            rehearsal.keep(name(), 2, then);
            assert_eq!(rehearsal.would_write(), is_left, "{rehearsal}");
            assert!(!rehearsal.to_string().contains("would create"), "{rehearsal}");
        }
    }

    // W30
    #[test]
    fn a_write_that_changes_nothing_takes_no_other_write_away() {
        let mut rehearsal = Rehearsal::default();
        let uri = "/api/v1/namespaces/shop/configmaps/a".parse().unwrap();
        let write = ApiRequest::parse(&http::Method::PATCH, &uri, &http::HeaderMap::new()).unwrap();
        let before = json!({ "kind": "ConfigMap" });
        let mut keep = |digest: u64, diff: Option<&str>| {
            let tried = diff.map(|line| TriedWrite::new(&write, Some(&before), vec![line.to_owned()]));
            rehearsal.keep(("maps".into(), write.path.to_string(), "patch"), digest, tried);
            rehearsal.clone()
        };
        keep(1, Some("~ data.x: \"1\" -> \"2\""));
        assert!(keep(2, None).would_write());
        let both = keep(3, Some("~ data.y: \"1\" -> \"2\"")).to_string();
        assert!(both.contains("would change 1 configmaps: shop/a"), "{both}");
        assert!(both.contains("~ data.x (1)") && both.contains("~ data.y (1)"), "{both}");
        // What was tried again, and would change nothing by now, is forgotten.
        keep(1, None);
        assert!(!keep(3, None).would_write());
    }

    #[test]
    fn who_set_a_field_is_read_from_managed_fields() {
        let before = json!({ "metadata": { "managedFields": [
            { "manager": "sites", "fieldsV1": { "f:spec": { "f:replicas": {}, "f:template": { "f:spec": {
                "f:containers": { "k:{\"name\":\"web\"}": { "f:image": {} } } } } } } },
            { "manager": "kubectl", "fieldsV1": { "f:metadata": { "f:labels": { "f:tier": {} } } } },
        ] } });
        let of = |line: &str| managers(&before, &[line.to_owned()]).into_iter().collect::<Vec<_>>();
        assert_eq!(of("~ spec.replicas: 1 -> 2"), ["sites"]);
        assert_eq!(of("~ spec.template.spec.containers[0].image: \"a: 1\" -> \"a: 2\""), ["sites"]);
        assert_eq!(of("- metadata.labels.tier: \"gold\""), ["kubectl"]);
        assert_eq!(of("+ spec.paused: true"), [""; 0]);
        assert_eq!(of("- the whole object"), [""; 0]);
    }
}
