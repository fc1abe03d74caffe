//! The derive, and the context's typed verbs: what compiles and what it then does, and what is refused and how.
//!
//! Cases that are refused are examples of this package which only build with the feature `ui-fail`. Each line of
//! theirs that is wrong says so, ``//~ `token` part of the message``, or the next line does with `//~^`. The token `_`
//! stands for any place in the file: which of several that need the same bound the compiler reports may change from
//! build to build.

use std::{
    collections::BTreeMap,
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

/// Cases that compile; each is a module with its own claims.
#[path = "ui/pass"]
mod pass {
    mod collisions;
    mod compact;
    mod hygiene;
    mod indexes;
    mod kinds;
    mod prelude;
    mod visibility;
}

const REFUSED: [&str; 11] = [
    "keys",
    "names",
    "no_custom_resource",
    "no_display",
    "no_informer",
    "no_resource",
    "spec_for_kind",
    "status",
    "structs",
    "types",
    "versions",
];

/// An error: its line, the token it points at, and what it says.
type Mistake = (u64, String, String);

// M1 M3 M7 W12
#[test]
fn each_mistake_is_one_error_at_its_token() {
    let (reported, log) = build_refused_cases();
    for case in REFUSED {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/ui/fail/{case}.rs"));
        let expected = expectations(&fs::read_to_string(&file).unwrap());
        let reported = reported.get(&format!("ui_fail_{case}")).map(Vec::as_slice).unwrap_or_default();
        assert!(!expected.is_empty(), "{case} expects nothing");
        let mut left = reported.to_vec();
        let found = expected.iter().map_while(|(line, token, part)| {
            let found = left.iter().position(|(at, under, message)| {
                (token == "_" || (line, token) == (at, under)) && message.contains(part)
            });
            found.map(|found| left.remove(found).2)
        });
        let found: Vec<String> = found.collect();
        let all = expected.len() == reported.len() && expected.len() == found.len();
        assert!(all, "{case}.rs\nexpected {expected:#?}\nreported {reported:#?}\n{log}");
        if env::var_os("UPDATE_SNAPSHOTS").is_some() {
            fs::write(&file, completed(&fs::read_to_string(&file).unwrap(), &found)).unwrap();
        }
    }
}

/// Writes the first lines of messages into a case, in place of the parts of them that it expects: the book prints them.
fn completed(source: &str, found: &[String]) -> String {
    let mut found = found.iter().filter_map(|message| message.lines().next());
    let lines = source.lines().map(|text| {
        let mut annotations = text.split("//~");
        let code = annotations.next().unwrap_or_default().to_owned();
        let whole = annotations.map(|annotation| {
            let (before, part) = annotation.split_once("` ").unwrap_or((annotation, ""));
            let line = found.next().filter(|line| line.contains(part.trim()) && !line.ends_with(','));
            format!("//~{before}` {}", line.unwrap_or(part.trim()))
        });
        format!("{code}{}\n", whole.collect::<Vec<_>>().join(" "))
    });
    lines.collect()
}

/// Reads what a case says of its own lines.
fn expectations(source: &str) -> Vec<Mistake> {
    let mut expected = Vec::new();
    for (line, text) in (1..).zip(source.lines()) {
        for annotation in text.split("//~").skip(1) {
            let (line, annotation) = match annotation.strip_prefix('^') {
                Some(annotation) => (line - 1, annotation),
                None => (line, annotation),
            };
            let (token, part) = annotation
                .trim()
                .strip_prefix('`')
                .and_then(|rest| rest.split_once("` "))
                .unwrap_or_else(|| panic!("write //~ `token` message, not {annotation}"));
            expected.push((line, token.to_owned(), part.to_owned()));
        }
    }
    expected
}

/// Builds all refused cases at once; gives each one's errors in the order of lines, and what cargo said.
///
/// The whole workspace is selected as in `cargo test --workspace`, so that what that has built serves here too.
fn build_refused_cases() -> (BTreeMap<String, Vec<Mistake>>, String) {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--workspace", "--keep-going", "--message-format=json", "--quiet"]);
    cargo.args(["--features", "watchkeeper-tests/ui-fail"]);
    cargo.args(REFUSED.iter().flat_map(|case| ["--example".to_owned(), format!("ui_fail_{case}")]));
    // Build scripts that look at these would run again, and all that hangs on them.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"]
            .iter()
            .any(|prefix| text.starts_with(prefix))
        {
            cargo.env_remove(&name);
        }
    }
    let output =
        cargo.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null()).output().expect("cargo runs");
    assert!(!output.status.success(), "every case compiled");
    let mut reported = BTreeMap::<_, Vec<_>>::new();
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let message: Value = serde_json::from_slice(line).expect("cargo speaks JSON");
        if let Some(mistake) = mistake(&message["message"]) {
            let case = message["target"]["name"].as_str().unwrap_or_default();
            reported.entry(case.to_owned()).or_default().push(mistake);
        }
    }
    reported.values_mut().for_each(|mistakes| mistakes.sort());
    (reported, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Takes an error apart, with its notes; `None` for warnings, and for the count at the end.
fn mistake(message: &Value) -> Option<Mistake> {
    let spans = message["spans"].as_array().filter(|_| message["level"] == "error")?;
    let span = spans.iter().find(|span| span["is_primary"] == true)?;
    let text = &span["text"][0];
    let column = |name: &str| text[name].as_u64().and_then(|column| usize::try_from(column).ok());
    let (start, end) = (column("highlight_start")?, column("highlight_end")?);
    let token = text["text"].as_str()?.chars().skip(start - 1).take(end - start).collect();
    let notes =
        message["children"].as_array().into_iter().flatten().filter_map(|note| note["message"].as_str());
    let told: Vec<&str> = message["message"].as_str().into_iter().chain(notes).collect();
    Some((span["line_start"].as_u64()?, token, told.join("\n")))
}
