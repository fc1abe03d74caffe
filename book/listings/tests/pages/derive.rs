//! The mistakes with the derive that the reference lists are those that the compiler is tried with.

use super::marked::{assert_marked, files, read};

/// A line of a case, and what the compiler says of a token in it.
fn mistakes(case: &str) -> Vec<(String, String)> {
    let (mut found, mut code) = (Vec::new(), String::new());
    for line in read(case).lines() {
        let Some((before, said)) = line.split_once("//~") else {
            code = line.trim().to_owned();
            continue;
        };
        let before = before.trim();
        if !before.is_empty() {
            before.clone_into(&mut code);
        }
        let said = said.trim_start_matches('^').trim();
        let said = said.strip_prefix("_ ").unwrap_or(said);
        // The token stands in backticks, or several words do.
        let message = said
            .strip_prefix('`')
            .and_then(|rest| rest.split_once("` "))
            .map_or(said, |(_, message)| message);
        found.push((code.clone(), message.trim().to_owned()));
    }
    found
}

#[test]
fn the_page_lists_each_mistake_with_the_derive() {
    let mut text = String::new();
    for case in files("tests/tests/ui/fail", ".rs") {
        let page = read(&case);
        let says = page.lines().next().unwrap().trim_start_matches("//! ").trim_end_matches('.').to_owned();
        text += &format!("### {says}\n\n");
        for (code, message) in mistakes(&case) {
            text += &format!("```text\n{code}\nerror: {message}\n```\n\n");
        }
    }
    assert!(text.matches("error:").count() > 20, "{text}");
    assert_marked("book/src/reference/derive.md", "mistakes", &text);
}
