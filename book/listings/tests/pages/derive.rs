//! The mistakes with the derive that the reference lists are those that the compiler is tried with.

use super::marked::{assert_marked, files, read};

/// Code of a case, and what the compiler says of a token in it.
fn mistakes(case: &str) -> Vec<(String, Vec<String>)> {
    let text = read(case);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some((before, said)) = line.split_once("//~") else { continue };
        // A comment of its own is about the line above.
        let code = if before.is_empty() { lines[at - 1] } else { before.trim() };
        // An attribute says little without what it is on.
        let mut below =
            lines[at + 1..].iter().filter(|line| !line.starts_with("//") && !line.starts_with("#["));
        let on = below.next().filter(|_| code.starts_with("#[informer"));
        let on = on.map(|on| format!("\n{}", on.split(" //~").next().unwrap_or_default()));
        let messages = said.split("//~").map(message).collect();
        found.push((format!("{code}{}", on.unwrap_or_default()), messages));
    }
    found
}

/// Returns a message without the token that it is about: which is in backticks, or is `_`.
fn message(said: &str) -> String {
    let said = said.trim_start_matches('^').trim();
    let said = said.strip_prefix("_ ").unwrap_or(said);
    let message =
        said.strip_prefix('`').and_then(|rest| rest.split_once("` ")).map_or(said, |(_, message)| message);
    message.trim().to_owned()
}

#[test]
fn the_page_lists_each_mistake_with_the_derive() {
    let mut text = String::new();
    for case in files("tests/tests/ui/fail", ".rs") {
        let page = read(&case);
        let says = page.lines().next().unwrap().trim_start_matches("//! ").trim_end_matches('.').to_owned();
        text += &format!("### {says}\n\n");
        for (code, messages) in mistakes(&case) {
            text += &format!("```text\n{code}\nerror: {}\n```\n\n", messages.join("\nnote: "));
        }
    }
    assert!(text.matches("error:").count() > 20, "{text}");
    assert_marked("book/src/reference/derive.md", "mistakes", &text);
}
