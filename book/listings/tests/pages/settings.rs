//! The tables of settings are made of the doc comments of their methods.

use super::marked::{assert_marked, read, without_links};

const PAGE: &str = "book/src/reference/settings.md";

/// A method, and the first sentence of its documentation.
type Setting = (String, String);

/// Lists the public methods of an `impl` that return `Self`, in their order.
fn settings(file: &str) -> Vec<Setting> {
    let text = read(file);
    let (mut found, mut says, mut is_hidden) = (Vec::<Setting>::new(), Vec::new(), false);
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let bare = line.trim();
        if let Some(said) = bare.strip_prefix("///") {
            says.push(said.trim());
        } else if bare == "#[doc(hidden)]" {
            is_hidden = true;
        } else if let Some(method) = line.strip_prefix("    pub fn ") {
            let mut signature = lines[at..].iter().map_while(|line| {
                let ends = line.ends_with('{') && line.starts_with("    }") || line.trim() == "{";
                (!ends).then(|| line.trim())
            });
            let signature = signature.by_ref().take(12).collect::<Vec<_>>().join(" ");
            let signature = signature.split(" {").next().unwrap();
            let takes_self = ["(self", "(mut self", "( self", "( mut self"];
            let takes_self = takes_self.iter().any(|this| signature.contains(this));
            if takes_self
                && !is_hidden
                && (signature.contains("-> Self") || signature.contains("-> Result<Self"))
            {
                let name = method.split(['<', '(']).next().unwrap();
                found.push((name.to_owned(), first_paragraph(&says)));
            }
            says.clear();
            is_hidden = false;
        } else if !bare.starts_with("#[") {
            says.clear();
            is_hidden = false;
        }
    }
    found
}

/// Joins the lines up to the first empty one, without links of rustdoc.
fn first_paragraph(says: &[&str]) -> String {
    let paragraph = says.iter().take_while(|line| !line.is_empty()).copied().collect::<Vec<_>>().join(" ");
    without_links(&paragraph).replace('|', "\\|")
}

/// Lists the public fields of a struct, in their order.
fn fields(file: &str, begin: &str) -> Vec<Setting> {
    let text = read(file);
    let (_, body) = text.split_once(begin).unwrap();
    let (body, _) = body.split_once("\n}").unwrap();
    let (mut found, mut says) = (Vec::new(), Vec::new());
    for line in body.lines().map(str::trim) {
        if let Some(said) = line.strip_prefix("///") {
            says.push(said.trim());
        } else if let Some((name, _)) = line.strip_prefix("pub ").and_then(|field| field.split_once(':')) {
            found.push((name.to_owned(), first_paragraph(&says)));
            says.clear();
        }
    }
    found
}

fn table(what: &str, settings: &[Setting]) -> String {
    let rows = settings.iter().map(|(name, says)| format!("| `{name}` | {says} |\n"));
    format!("| {what} | What it does |\n|---|---|\n{}", rows.collect::<String>())
}

#[test]
fn a_method_is_found_with_the_first_paragraph_of_its_documentation() {
    let found = settings("runtime/src/leader_election/settings.rs");
    assert!(found.iter().any(|(name, says)| name == "lease_duration" && says.contains("15 s")), "{found:?}");
    assert_eq!(first_paragraph(&["Like [`a`](Self::a),", "more.", "", "Not this."]), "Like `a`, more.");
}

#[test]
fn methods_with_long_signatures_are_found_and_hidden_ones_are_not() {
    let found = settings("runtime/src/manager/mod.rs");
    assert!(found.iter().any(|(name, _)| name == "controller_in_namespaces"), "{found:?}");
    let found = settings("runtime/src/controller/builder.rs");
    assert!(!found.iter().any(|(name, _)| name == "never_wait_for_own_writes"), "{found:?}");
}

#[test]
fn the_page_shows_the_settings_of_the_code() {
    for (mark, file) in [
        ("controller", "runtime/src/controller/builder.rs"),
        ("watch", "runtime/src/controller/watch.rs"),
        ("manager", "runtime/src/manager/mod.rs"),
        ("http", "runtime/src/manager/http/settings.rs"),
        ("leader election", "runtime/src/leader_election/settings.rs"),
        ("shards", "runtime/src/shards/settings.rs"),
        ("flight recorder", "runtime/src/flight_recorder/mod.rs"),
        ("fleet", "runtime/src/manager/fleet.rs"),
        ("informer", "runtime/src/informer/factory.rs"),
        ("webhooks", "runtime/src/webhook/webhooks.rs"),
        ("calls", "runtime/src/webhook/calls.rs"),
    ] {
        let found = settings(file);
        assert!(!found.is_empty(), "{file}");
        assert_marked(PAGE, mark, &table("Method", &found));
    }
    let found = fields("runtime/src/reflector/config.rs", "pub struct ReflectorConfig {");
    assert!(found.len() > 10, "{found:?}");
    assert_marked(PAGE, "reflector", &table("Field", &found));
}
