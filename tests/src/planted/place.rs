//! Finds a function of the runtime by its type and its name, in whatever file it is.

use std::{
    fmt, fs, io,
    ops::Range,
    path::{Path, PathBuf},
};

/// A function of the runtime: `fn Type::name`, or `fn name` outside of impls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The type or trait whose block holds the function.
    owner: Option<String>,
    name: String,
}

impl Place {
    /// Reads a line such as `fn Writer::learn`.
    pub(super) fn of(line: &str) -> Option<Self> {
        let is_name = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || c == '_');
        let path = line.strip_prefix("fn ")?;
        let (owner, name) =
            path.split_once("::").map_or((None, path), |(owner, name)| (Some(owner.to_owned()), name));
        let valid = owner.as_deref().is_none_or(is_name) && is_name(name);
        valid.then(|| Self { owner, name: name.to_owned() })
    }

    /// Returns the lines of each function of this name.
    pub(super) fn find(&self, code: &str) -> Vec<Range<usize>> {
        let lines: Vec<&str> = code.lines().collect();
        let mut blocks: Vec<(usize, String)> = Vec::new();
        let mut found = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            blocks.retain(|(end, _)| at < *end);
            if let Some(owner) = owner(&lines[at..]) {
                blocks.push((end(&lines, at), owner));
            }
            let owner = blocks.last().map(|(_, owner)| owner);
            if function(line) == Some(self.name.as_str()) && owner == self.owner.as_ref() {
                found.push(at..end(&lines, at));
            }
        }
        found
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            Some(owner) => write!(f, "fn {owner}::{}", self.name),
            None => write!(f, "fn {}", self.name),
        }
    }
}

/// Lists the runtime's source files, as paths below the root.
///
/// # Errors
/// A folder can't be read.
pub(super) fn sources(root: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut folders, mut files) = (vec![PathBuf::from("runtime/src")], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the line after an item: rustfmt closes it at its own indentation.
fn end(lines: &[&str], begin: usize) -> usize {
    let line = lines[begin];
    if line.ends_with(['}', ';']) {
        return begin + 1;
    }
    let close = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
    lines[begin..].iter().position(|line| *line == close).map_or(lines.len(), |at| begin + at + 1)
}

/// Returns the name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let words = ["const", "async", "pub"];
    let is_word = |word: &str| words.contains(&word) || word.starts_with("pub(") || word.ends_with(')');
    before.split_whitespace().all(is_word).then(|| rest.split(['(', '<']).next())?
}

/// Returns the type or trait whose block the first of some lines begins.
fn owner(lines: &[&str]) -> Option<String> {
    let first = lines.first()?.trim_start();
    if !first.starts_with("impl") && !first.split(' ').take(2).any(|word| word == "trait") {
        return None;
    }
    let header: Vec<&str> =
        lines.iter().take_while(|line| !line.ends_with('{')).map(|line| line.trim()).collect();
    let last = lines.get(header.len()).map_or("", |line| line.trim());
    let header = format!("{} {last}", header.join(" "));
    let header = without_generics(header.trim());
    let header = header.split(" where ").next()?.trim_end_matches('{').trim();
    let named = match header.split_once(" for ") {
        Some((_, named)) => named,
        None => header
            .trim_start_matches("pub ")
            .strip_prefix("impl")
            .or_else(|| header.split_once("trait ").map(|(_, it)| it))?,
    };
    let path = named.split([':', ' ', '&']).filter(|word| !word.is_empty()).take_while(|word| *word != "+");
    let path: Vec<&str> = path.collect();
    let name = if header.contains("trait ") { path.first() } else { path.last() };
    name.map(|name| (*name).to_owned())
}

/// Leaves out what is between angle brackets.
fn without_generics(text: &str) -> String {
    let (mut depth, mut before) = (0_usize, ' ');
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '<' => depth += 1,
            '>' if before == '-' => {}
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => out.push(c),
            _ => {}
        }
        before = c;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "\
impl<K: Kind> Writer<K> {
    pub(crate) async fn learn(&self) {
        a();
    }
}

impl<F: Fn(&u8) -> u8> Release for Arc<Queue<F>>
where
    F: Send,
{
    fn learn(&self) { b() }
}

pub trait Learn: Send {
    fn learn(&self);
}

fn learn() {
    c();
}
";

    /// Returns the first and the last line of each place.
    fn found(place: &str) -> Vec<(usize, usize)> {
        let places = Place::of(place).unwrap().find(CODE);
        places.into_iter().map(|lines| (lines.start, lines.end - 1)).collect()
    }

    #[test]
    fn a_function_is_found_by_its_type_and_its_name() {
        assert_eq!(found("fn Writer::learn"), [(1, 3)]);
        assert_eq!(found("fn Arc::learn"), [(10, 10)]);
        assert_eq!(found("fn Learn::learn"), [(14, 14)]);
        assert_eq!(found("fn learn"), [(17, 19)]);
        assert!(found("fn Writer::other").is_empty());
    }

    #[test]
    fn only_a_function_is_a_place() {
        for line in ["runtime/src/a.rs", "fn ", "fn a::", "fn a b", "Writer::learn"] {
            assert_eq!(Place::of(line), None, "{line}");
        }
    }
}
