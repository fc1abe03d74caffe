//! A page as a list of steps.

use crate::Edit;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// By Ctrl-C.
    Interrupt,
    /// By SIGKILL.
    Kill,
}

/// What a reader does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Changes a file.
    Edit(Edit),
    /// Changes a file for a while.
    Try(Edit),
    /// Takes back what was tried.
    Undo,
    /// Types lines, one after another, and sees their output.
    Run(Vec<(String, String)>),
    /// Starts what runs on in a terminal of its own, and sees these lines.
    Start {
        /// The terminal.
        terminal: String,
        /// The line that is typed.
        typed: String,
        /// The lines that come.
        printed: String,
    },
    /// Sees more lines of what was started.
    See {
        /// The terminal.
        terminal: String,
        /// The lines that come.
        printed: String,
    },
    /// Ends what was started.
    End {
        /// The terminal.
        terminal: String,
        /// How.
        signal: Signal,
    },
}

/// A block of a page: its language, its text, and the line above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence<'a> {
    /// What stands after the first three backticks.
    pub language: &'a str,
    /// The text between the fences.
    pub block: &'a str,
    /// The comment in the line above.
    pub comment: Option<&'a str>,
}

/// Finds the blocks of a page.
pub fn fences(page: &str) -> Vec<Fence<'_>> {
    let mut found = Vec::new();
    let (mut rest, mut above) = (page, "");
    while let Some((line, after)) = rest.split_once('\n') {
        rest = after;
        if let Some(language) = line.strip_prefix("```") {
            let end = after.find("```\n").expect("a block ends");
            found.push(Fence { language, block: &after[..end], comment: comment(above) });
            rest = &after[end + 4..];
        }
        above = line;
    }
    found
}

/// Reads a page.
///
/// # Errors
/// A comment or a block that can't be read.
pub fn script(page: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let (mut rest, mut above) = (page, "");
    while let Some((line, after)) = rest.split_once('\n') {
        rest = after;
        if let Some(language) = line.strip_prefix("```") {
            let end = after.find("```\n").ok_or("a block does not end")?;
            steps.extend(of_block(language, comment(above), &after[..end])?);
            rest = &after[end + 4..];
        } else if let Some(said) = comment(line) {
            steps.extend(alone(said));
        }
        above = line;
    }
    Ok(steps)
}

fn comment(line: &str) -> Option<&str> {
    line.trim().strip_prefix("<!-- ")?.strip_suffix(" -->")
}

/// Reads a comment that needs no block.
fn alone(said: &str) -> Option<Step> {
    if said == "undo" {
        return Some(Step::Undo);
    }
    if said.contains(": remove ") && !said.starts_with("try: ") {
        return Edit::read(said, "").map(Step::Edit);
    }
    let (how, terminal) = said.split_once(": ")?;
    let signal = match how {
        "stop" => Signal::Interrupt,
        "kill" => Signal::Kill,
        _ => return None,
    };
    Some(Step::End { terminal: terminal.to_owned(), signal })
}

fn of_block(language: &str, comment: Option<&str>, block: &str) -> Result<Option<Step>, String> {
    let Some(comment) = comment else {
        let needs_one = ["rust", "toml", "yaml", "console"].contains(&language);
        return if needs_one { Err(format!("a block has no comment above it:\n{block}")) } else { Ok(None) };
    };
    let unreadable = || format!("`{comment}` can't be read");
    Ok(Some(match comment.split_once(": ") {
        None if comment == "shown" => return Ok(None),
        None if comment == "run" => Step::Run(typed(block)),
        Some(("try", edit)) => Step::Try(Edit::read(edit, block).ok_or_else(unreadable)?),
        Some(("start", terminal)) => {
            let (typed, printed) = typed(block).into_iter().next().ok_or_else(unreadable)?;
            Step::Start { terminal: terminal.to_owned(), typed, printed }
        }
        Some(("sees", terminal)) => Step::See { terminal: terminal.to_owned(), printed: block.to_owned() },
        _ => Step::Edit(Edit::read(comment, block).ok_or_else(unreadable)?),
    }))
}

/// Splits what a terminal shows into what was typed and what came.
fn typed(block: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(typed), _) => found.push((typed.to_owned(), String::new())),
            (None, Some((typed, printed))) if typed.ends_with('\\') && printed.is_empty() => {
                *typed += &format!("\n{line}");
            }
            (None, Some((_, printed))) => *printed += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    found
}
