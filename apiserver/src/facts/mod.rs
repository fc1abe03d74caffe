//! Facts: the fields of the published Kubernetes messages, as numbers, names and forms.
//!
//! `fields.txt` is written by `tools/fields` (see there) and holds, one a line: the kinds (`group/version Kind message`,
//! `*` for kinds of every version), then each message (`name:`, with `atomic` if it is owned as one value) and its
//! fields: number, name in JSON, form, and marks. A form is a presence (`*` kept when given, `!` always written, `?` left
//! out when empty, `^` its fields stand in the parent), `[]` or `{}` for lists and maps, and a type: `s` string, `b` bool,
//! `i` and `l` integers of 32 and 64 bits, `d` double, `y` bytes, or a message's name. In the values after `enum=`, `~`
//! stands for a blank.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

/// When a field is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Whenever it is given, empty or not.
    Given,
    /// Always.
    Always,
    /// Unless it is empty.
    NotEmpty,
    /// Its own fields belong to the parent.
    Inlined,
}

/// How many values a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// One.
    One,
    /// A list.
    List,
    /// A map from strings.
    Map,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A string.
    Text,
    /// A boolean.
    Flag,
    /// An integer of 32 bits.
    Int32,
    /// An integer of 64 bits.
    Int64,
    /// A floating point number.
    Double,
    /// Bytes, base64 in JSON.
    Bytes,
    /// A message, by its place in the table.
    Message(usize),
    /// A message with a special form in JSON.
    Special(Special),
}

/// Messages whose JSON is not an object of their fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    /// A time in seconds.
    Time,
    /// A time in microseconds.
    MicroTime,
    /// A text such as `100m`.
    Quantity,
    /// An integer or a string.
    IntOrString,
    /// Any JSON, as bytes.
    Json,
}

/// How the items of a list are owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// As one value.
    Atomic,
    /// Each by itself.
    Set,
    /// Each by the values of these fields.
    Keys(Vec<&'static str>),
}

/// One field of a message.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// The number on the wire.
    pub(crate) number: u32,
    /// The name in JSON; empty if it has none.
    pub(crate) name: &'static str,
    /// When it is written.
    pub(crate) presence: Presence,
    /// How many values it has.
    pub(crate) count: Count,
    /// The type of each.
    pub(crate) form: Form,
    /// How a list's items are owned.
    pub(crate) ownership: Ownership,
    /// Whether it is owned as one value.
    pub(crate) atomic: bool,
    /// The merge key of a strategic merge patch's list; empty for scalars.
    pub(crate) merge: Option<&'static str>,
    /// The default.
    pub(crate) default: Option<Value>,
    /// The values that it, or each of its items, may have; empty if it is not an enumeration.
    pub(crate) values: Vec<String>,
}

/// One message.
#[derive(Debug)]
pub(crate) struct Message {
    /// The package's last two parts and the name, e.g. `core.v1.Pod`.
    #[cfg(test)]
    pub(crate) name: &'static str,
    /// The fields by number.
    pub(crate) fields: Vec<Field>,
    /// Whether it is owned as one value.
    pub(crate) atomic: bool,
}

impl Message {
    /// Finds a field by its number.
    pub(crate) fn numbered(&self, number: u32) -> Option<&Field> {
        self.fields.binary_search_by_key(&number, |field| field.number).ok().map(|at| &self.fields[at])
    }

    /// Returns whether it is a bare list in JSON.
    pub(crate) fn is_list(&self) -> bool {
        matches!(self.fields.as_slice(), [only] if only.name.is_empty() && only.count == Count::List)
    }
}

/// The whole table.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    messages: Vec<Message>,
    names: HashMap<&'static str, usize>,
    kinds: HashMap<(&'static str, &'static str), usize>,
}

impl Facts {
    /// Returns a message by its place.
    pub(crate) fn at(&self, place: usize) -> &Message {
        &self.messages[place]
    }

    /// Finds a message by name, e.g. `core.v1.Pod`.
    pub(crate) fn named(&self, name: &str) -> Option<&Message> {
        self.names.get(name).map(|place| &self.messages[*place])
    }

    /// Finds the message of an OpenAPI definition, e.g. `io.k8s.api.core.v1.Pod`.
    pub(crate) fn defined(&self, definition: &str) -> Option<&Message> {
        let start = definition.rmatch_indices('.').nth(2).map_or(0, |(at, _)| at + 1);
        self.named(&definition[start..])
    }

    /// Finds a field by its name in JSON, inlined messages included.
    pub(crate) fn field<'a>(&'a self, message: &'a Message, name: &str) -> Option<&'a Field> {
        message.fields.iter().find_map(|field| match (field.presence, field.form) {
            (Presence::Inlined, Form::Message(inner)) => self.field(self.at(inner), name),
            _ => (field.name == name).then_some(field),
        })
    }

    /// Lists the names of the fields that are always written, inlined messages included.
    pub(crate) fn always(&self, message: &Message) -> Vec<&'static str> {
        let mut names = Vec::new();
        for field in &message.fields {
            match (field.presence, field.form) {
                (Presence::Inlined, Form::Message(inner)) => names.extend(self.always(self.at(inner))),
                (Presence::Always, _) => names.push(field.name),
                _ => {}
            }
        }
        names
    }

    /// Finds the message of a kind.
    pub(crate) fn kind(&self, api_version: &str, kind: &str) -> Option<&Message> {
        let place = self.kinds.get(&(api_version, kind)).or_else(|| self.kinds.get(&("*", kind)))?;
        Some(&self.messages[*place])
    }

    /// Returns all messages.
    #[cfg(test)]
    pub(crate) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns all kinds with their versions.
    #[cfg(test)]
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.kinds.keys().copied()
    }
}

/// Returns the table, read at first use.
pub(crate) fn facts() -> &'static Facts {
    static FACTS: LazyLock<Facts> = LazyLock::new(|| read(include_str!("fields.txt")));
    &FACTS
}

fn read(text: &'static str) -> Facts {
    let mut facts = Facts::default();
    let lines = || text.lines().filter(|line| !line.starts_with('#'));
    for head in lines().filter_map(|line| Some((line.split_once(':')?, line))) {
        let ((name, marks), line) = head;
        if !line.starts_with(' ') && !name.contains(' ') {
            facts.names.insert(name, facts.messages.len());
            facts.messages.push(Message {
                #[cfg(test)]
                name,
                fields: Vec::new(),
                atomic: marks == " atomic",
            });
        }
    }
    let mut current = 0;
    for line in lines() {
        if let Some(field) = line.strip_prefix(' ') {
            let field = field_of(field, &facts.names);
            facts.messages[current].fields.extend(field);
        } else if let Some(place) = line.split(':').next().and_then(|name| facts.names.get(name)) {
            current = *place;
        } else {
            let mut words = line.split(' ');
            let (version, kind) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let place = words.next().and_then(|message| facts.names.get(message));
            facts.kinds.extend(place.map(|place| ((version, kind), *place)));
        }
    }
    facts
}

fn field_of(line: &'static str, names: &HashMap<&'static str, usize>) -> Option<Field> {
    let mut words = line.split(' ');
    let number = words.next()?.parse().ok()?;
    let name = words.next()?;
    let form = words.next()?;
    let presence = match form.as_bytes().first()? {
        b'*' => Presence::Given,
        b'!' => Presence::Always,
        b'?' => Presence::NotEmpty,
        _ => Presence::Inlined,
    };
    let form = form.trim_start_matches(['*', '!', '?', '^']);
    let (count, form) = if let Some(item) = form.strip_prefix("[]") {
        (Count::List, item)
    } else if let Some(value) = form.strip_prefix("{}") {
        (Count::Map, value)
    } else {
        (Count::One, form)
    };
    let mut field = Field {
        number,
        name: if name == "-" { "" } else { name },
        presence,
        count,
        form: form_of(form, names)?,
        ownership: Ownership::Atomic,
        atomic: false,
        merge: None,
        default: None,
        values: Vec::new(),
    };
    for mark in words {
        match mark.split_once('=') {
            Some(("keys", keys)) => field.ownership = Ownership::Keys(keys.split(',').collect()),
            Some(("default", value)) => field.default = serde_json::from_str(value).ok(),
            Some(("enum", values)) => {
                field.values = values.split(',').map(|value| value.replace('~', " ")).collect();
            }
            Some(("merge", key)) => field.merge = Some(key),
            None if mark == "merge" => field.merge = Some(""),
            None if mark == "set" => field.ownership = Ownership::Set,
            None if mark == "atomic" => field.atomic = true,
            _ => {}
        }
    }
    Some(field)
}

fn form_of(text: &str, names: &HashMap<&'static str, usize>) -> Option<Form> {
    Some(match text {
        "s" => Form::Text,
        "b" => Form::Flag,
        "i" => Form::Int32,
        "l" => Form::Int64,
        "d" => Form::Double,
        "y" => Form::Bytes,
        "Time" => Form::Special(Special::Time),
        "MicroTime" => Form::Special(Special::MicroTime),
        "Quantity" => Form::Special(Special::Quantity),
        "IntOrString" => Form::Special(Special::IntOrString),
        "RawExtension" | "FieldsV1" | "JSON" => Form::Special(Special::Json),
        name => Form::Message(*names.get(name)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_understood() {
        let text = include_str!("fields.txt");
        let fields = text.lines().filter(|line| line.starts_with(' ')).count();
        let messages = text.lines().filter(|line| !line.contains(' ') && line.ends_with(':')).count();
        let atomic = text.lines().filter(|line| line.ends_with(": atomic")).count();
        assert_eq!(facts().messages.iter().map(|message| message.fields.len()).sum::<usize>(), fields);
        assert_eq!(facts().messages.len(), messages + atomic);
        assert_eq!(facts().kinds.len(), text.lines().count() - 1 - fields - messages - atomic);
    }

    #[test]
    fn a_kind_is_found_by_its_version_and_by_its_definition() {
        let pod = facts().kind("v1", "Pod").expect("pods");
        assert_eq!(pod.numbered(2).map(|field| field.name), Some("spec"));
        assert_eq!(
            facts().defined("io.k8s.api.core.v1.Pod").map(|message| message.name),
            Some("core.v1.Pod")
        );
        assert_eq!(
            facts().kind("example.com/v1", "DeleteOptions").map(|m| m.name),
            Some("meta.v1.DeleteOptions")
        );
        assert!(facts().kind("v1", "Deployment").is_none());
    }

    #[test]
    fn enumerations_know_their_values() {
        let values = |message: &str, field: &str| {
            let message = facts().named(message).expect(message);
            facts().field(message, field).expect(field).values.clone()
        };
        assert_eq!(values("core.v1.ServiceSpec", "ipFamilies"), ["", "IPv4", "IPv6"]);
        let usages = values("certificates.v1.CertificateSigningRequestSpec", "usages");
        assert!(usages.contains(&"digital signature".to_owned()), "{usages:?}");
        assert_eq!(values("core.v1.PodSpec", "nodeName"), [""; 0]);
    }

    #[test]
    fn lists_know_their_keys() {
        let container = facts().named("core.v1.Container").expect("containers");
        let ports = container.numbered(6).expect("ports");
        assert_eq!(ports.ownership, Ownership::Keys(vec!["containerPort", "protocol"]));
        assert!(facts().named("core.v1.PodSpec").is_some_and(|spec| !spec.atomic));
    }
}
