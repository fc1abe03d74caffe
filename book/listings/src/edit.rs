//! Changes of files, as a page describes them.

use std::{collections::BTreeMap, ops::Range};

/// The files of a crate: their text, by path.
pub type Files = BTreeMap<String, String>;

/// A change of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The path in the crate.
    pub path: String,
    change: Change,
    block: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Whole,
    Append,
    Replace(String),
    After(String),
    Remove(String),
}

impl Edit {
    /// Reads what a comment says; `None` if it describes something else.
    pub fn read(comment: &str, block: &str) -> Option<Self> {
        let block = block.to_owned();
        if let Some(path) = comment.strip_prefix("file: ") {
            return Some(Self { path: path.to_owned(), change: Change::Whole, block });
        }
        let (path, what) = comment.split_once(": ")?;
        let change = match what.split_once(' ') {
            None if what == "append" => Change::Append,
            Some(("replace", item)) => Change::Replace(item.to_owned()),
            Some(("after", item)) => Change::After(item.to_owned()),
            Some(("remove", item)) => Change::Remove(item.to_owned()),
            _ => return None,
        };
        Some(Self { path: path.to_owned(), change, block })
    }

    /// Changes the file.
    ///
    /// # Errors
    /// The file or the item is missing.
    pub fn apply(&self, files: &mut Files) -> Result<(), String> {
        let Self { path, change, block } = self;
        if *change == Change::Whole {
            files.insert(path.clone(), block.clone());
            return Ok(());
        }
        let text = files.get_mut(path).ok_or_else(|| format!("there is no {path} yet"))?;
        let lines: Vec<&str> = text.lines().collect();
        let missing = |item: &str| format!("{path} has no `{item}`");
        let is_toml = path.ends_with(".toml");
        let found = |item: &str| find(&lines, item, is_toml).ok_or_else(|| missing(item));
        let place = match change {
            Change::Whole | Change::Append => lines.len()..lines.len(),
            Change::Replace(item) => found(item)?,
            Change::After(item) => found(item)?.end..found(item)?.end,
            Change::Remove(item) => {
                let Range { start, end } = found(item)?;
                // One of the blank lines around it goes too.
                let is_blank = |at: Option<usize>| at.and_then(|at| lines.get(at)) == Some(&"");
                match (is_blank(start.checked_sub(1)), is_blank(Some(end))) {
                    (_, true) => start..end + 1,
                    (true, false) => start - 1..end,
                    (false, false) => start..end,
                }
            }
        };
        let is_apart = matches!(change, Change::Append | Change::After(_)) && !is_toml;
        let apart = if is_apart { "\n" } else { "" };
        let of = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        *text = format!("{}{apart}{block}{}", of(&lines[..place.start]), of(&lines[place.end..]));
        Ok(())
    }
}

/// Finds the lines of an item, with its comments and attributes.
fn find(lines: &[&str], item: &str, is_toml: bool) -> Option<Range<usize>> {
    if is_toml {
        let is_it = |line: &&str| **line == *item || line.starts_with(&format!("{item} = "));
        return lines.iter().position(is_it).map(|at| at..at + 1);
    }
    if item == "use" || item == "mod" {
        let is_one =
            |line: &&str| line.starts_with(&format!("{item} ")) && (item == "use" || line.ends_with(';'));
        let (first, last) = (lines.iter().position(is_one), lines.iter().rposition(is_one));
        return Some(first?..end(lines, last?)?);
    }
    let is_it = |line: &str| {
        let named = ["pub(crate) ", "pub ", "async "]
            .iter()
            .fold(line.trim_start(), |line, word| line.strip_prefix(word).unwrap_or(line));
        let rest = named.strip_prefix(item);
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
    };
    let found = lines.iter().enumerate().filter(|(_, line)| is_it(line));
    let (at, _) = found.min_by_key(|(at, line)| (indent(line), *at))?;
    Some(begin(lines, at)..end(lines, at)?)
}

/// Goes up over comments and attributes.
fn begin(lines: &[&str], at: usize) -> usize {
    let own = indent(lines[at]);
    let belongs = |line: &str| {
        let is_end = indent(line) == own && line.ends_with(['}', ';', ',']);
        !line.trim().is_empty() && indent(line) >= own && !is_end && !line.trim_start().starts_with("//!")
    };
    let above = lines[..at].iter().rev().take_while(|line| belongs(line)).count();
    at - above
}

/// Finds the line after the last one of the item that begins here; the code is formatted.
fn end(lines: &[&str], at: usize) -> Option<usize> {
    let own = indent(lines[at]);
    let is_last = |line: &str| indent(line) == own && line.ends_with(['}', ';']);
    lines[at..].iter().position(|line| is_last(line)).map(|more| at + more + 1)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "//! A.\n\nmod b;\n\nuse c;\nuse d::{\n    e,\n};\n\n/// One.\n#[f(\n    g\n)]\npub struct One {\n    h: i,\n}\n\nimpl One {\n    /// J.\n    pub async fn j(\n        k: l,\n    ) {\n        m();\n    }\n\n    fn n() {}\n}\n";

    fn edited(change: &str, block: &str) -> String {
        let mut files = Files::from([("a.rs".to_owned(), CODE.to_owned())]);
        Edit::read(&format!("a.rs: {change}"), block).unwrap().apply(&mut files).unwrap();
        files.remove("a.rs").unwrap()
    }

    #[test]
    fn an_item_is_replaced_with_its_comments() {
        let own = CODE.find("/// One.").unwrap()..CODE.find("\nimpl").unwrap();
        assert_eq!(edited("replace struct One", "X\n"), CODE.replace(&CODE[own], "X\n"));
        let own = CODE.find("    /// J.").unwrap()..CODE.find("\n    fn n").unwrap();
        assert_eq!(edited("replace fn j", "X\n"), CODE.replace(&CODE[own], "X\n"));
        assert_eq!(edited("replace fn n", "X\n"), CODE.replace("    fn n() {}\n", "X\n"));
        assert_eq!(edited("replace use", "X\n"), CODE.replace("use c;\nuse d::{\n    e,\n};\n", "X\n"));
        assert_eq!(edited("replace mod", "X\n"), CODE.replace("mod b;\n", "X\n"));
    }

    #[test]
    fn a_block_is_added_after_an_item_and_at_the_end() {
        assert_eq!(edited("after fn n", "X\n"), CODE.replace("    fn n() {}\n", "    fn n() {}\n\nX\n"));
        assert_eq!(edited("append", "X\n"), format!("{CODE}\nX\n"));
    }

    #[test]
    fn an_item_is_removed() {
        assert_eq!(edited("remove mod", ""), CODE.replace("mod b;\n\n", ""));
        assert_eq!(edited("remove fn n", ""), CODE.replace("\n    fn n() {}\n", ""));
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut files = Files::from([("a.rs".to_owned(), CODE.to_owned())]);
        let edit = Edit::read("a.rs: replace fn o", "").unwrap();
        assert_eq!(edit.apply(&mut files), Err("a.rs has no `fn o`".to_owned()));
    }

    #[test]
    fn a_line_of_a_manifest_is_replaced() {
        let mut files = Files::from([("Cargo.toml".to_owned(), "[dependencies]\na = 1\nb = 2\n".to_owned())]);
        Edit::read("Cargo.toml: replace a", "a = 3\n").unwrap().apply(&mut files).unwrap();
        Edit::read("Cargo.toml: after b", "c = 4\n").unwrap().apply(&mut files).unwrap();
        assert_eq!(files["Cargo.toml"], "[dependencies]\na = 3\nb = 2\nc = 4\n");
    }
}
