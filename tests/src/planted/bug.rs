//! What a bug is, as its file tells it: which rule it breaks, who must find it, and what it changes.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::behaviours::Id;

/// A test program that finds bugs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestTarget {
    /// The unit tests of the runtime.
    Lib,
    /// The unit tests of the API server.
    Apiserver,
    /// `tests/tests/suite`.
    Suite,
    /// `tests/tests/chaos`.
    Chaos,
    /// `tests/tests/trials`.
    Trials,
}

impl TestTarget {
    fn of(word: &str) -> Option<Self> {
        let all = [Self::Lib, Self::Apiserver, Self::Suite, Self::Chaos, Self::Trials];
        all.into_iter().find(|target| target.name() == word)
    }

    /// Names it, as the files do.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lib => "lib",
            Self::Apiserver => "apiserver",
            Self::Suite => "suite",
            Self::Chaos => "chaos",
            Self::Trials => "trials",
        }
    }
}

/// A bug to plant.
#[derive(Clone, Debug)]
pub struct Bug {
    /// The name of its file.
    pub name: String,
    /// The behaviours that it breaks.
    pub ids: Vec<Id>,
    /// What goes wrong.
    pub says: String,
    /// Where the tests are that must find it.
    pub target: TestTarget,
    /// Their names; at least one of them must fail.
    pub tests: Vec<String>,
    hunks: Vec<Hunk>,
}

/// A change of one place, which is found by its text.
#[derive(Clone, Debug)]
struct Hunk {
    file: String,
    lines: Vec<Line>,
}

#[derive(Clone, Debug)]
enum Line {
    Keep(String),
    Drop(String),
    Put(String),
}

impl Line {
    fn of(line: &str) -> Option<Self> {
        let text = line.get(1..)?.trim().to_owned();
        match line.as_bytes().first()? {
            b' ' => Some(Self::Keep(text)),
            b'-' => Some(Self::Drop(text)),
            b'+' => Some(Self::Put(text)),
            _ => None,
        }
    }

    fn before(&self) -> Option<&str> {
        match self {
            Self::Keep(text) | Self::Drop(text) => Some(text),
            Self::Put(_) => None,
        }
    }
}

/// Why a bug can't be read or planted.
#[derive(Debug, thiserror::Error)]
pub enum Flaw {
    /// Its file is not in the form that the README tells.
    #[error("{bug}: line {line} is no {wanted}")]
    Form {
        /// The bug.
        bug: String,
        /// Where.
        line: usize,
        /// What should stand there.
        wanted: &'static str,
    },
    /// The code has changed.
    #[error("{bug} can't be planted: {file} holds {times} places that read {text:?}, and must hold one")]
    Place {
        /// The bug.
        bug: String,
        /// Where it was to be planted.
        file: String,
        /// How often the text was found.
        times: usize,
        /// How the place begins.
        text: String,
    },
    /// A file is gone.
    #[error("{bug} can't be planted: {file}")]
    File {
        /// The bug.
        bug: String,
        /// Which file.
        file: String,
        /// What is wrong with it.
        source: io::Error,
    },
}

impl Bug {
    /// Reads a bug.
    ///
    /// # Errors
    /// The text has another form.
    pub fn read(name: &str, text: &str) -> Result<Self, Flaw> {
        let flaw = |line: usize, wanted| Flaw::Form { bug: name.to_owned(), line, wanted };
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let (ids, says) = lines.next().and_then(|(_, line)| line.split_once(": ")).unwrap_or_default();
        let ids: Vec<Id> = ids.split(' ').map_while(Id::of).collect();
        if ids.is_empty() || says.is_empty() {
            return Err(flaw(1, "`ID ID: what goes wrong.`"));
        }
        let found_by = lines.next().and_then(|(_, line)| line.strip_prefix("found by: "));
        let mut words = found_by.unwrap_or_default().split(' ');
        let target = words.next().and_then(TestTarget::of);
        let target = target.ok_or_else(|| flaw(2, "`found by: lib|apiserver|suite|chaos|trials TEST..`"))?;
        let tests: Vec<String> = words.map(str::to_owned).collect();
        if tests.is_empty() {
            return Err(flaw(2, "`found by: lib|apiserver|suite|chaos|trials TEST..`"));
        }
        let mut hunks = Vec::<Hunk>::new();
        for (at, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            match (Line::of(line), hunks.last_mut()) {
                (None, last) => {
                    let file = last.filter(|_| line == "@@").map(|hunk| hunk.file.clone());
                    hunks.push(Hunk { file: file.unwrap_or_else(|| line.to_owned()), lines: Vec::new() });
                }
                (Some(line), Some(hunk)) => hunk.lines.push(line),
                (Some(_), None) => return Err(flaw(at, "path of a file")),
            }
        }
        let changes = |hunk: &Hunk| {
            hunk.lines.iter().any(|line| line.before().is_some())
                && hunk.lines.iter().any(|line| !matches!(line, Line::Keep(_)))
        };
        if hunks.is_empty() || !hunks.iter().all(changes) {
            return Err(flaw(text.lines().count(), "end of a change"));
        }
        Ok(Self { name: name.to_owned(), ids, says: says.to_owned(), target, tests, hunks })
    }

    /// Returns the files that the bug changes, as they are with it.
    ///
    /// # Errors
    /// A place is not there, or not there once.
    pub fn planted(&self, root: &Path) -> Result<Vec<(PathBuf, String)>, Flaw> {
        let mut changed = Vec::<(PathBuf, String)>::new();
        for hunk in &self.hunks {
            let file = PathBuf::from(&hunk.file);
            let known = changed.iter().position(|(path, _)| *path == file);
            let text = match known {
                Some(at) => changed.swap_remove(at).1,
                None => fs::read_to_string(root.join(&file)).map_err(|source| Flaw::File {
                    bug: self.name.clone(),
                    file: hunk.file.clone(),
                    source,
                })?,
            };
            let text = hunk.applied(&text).map_err(|times| Flaw::Place {
                bug: self.name.clone(),
                file: hunk.file.clone(),
                times,
                text: hunk.lines.iter().find_map(Line::before).unwrap_or_default().to_owned(),
            })?;
            changed.push((file, text));
        }
        Ok(changed)
    }
}

impl Hunk {
    /// Changes the one place that reads as the hunk says, whatever its indentation; else tells how many do.
    fn applied(&self, text: &str) -> Result<String, usize> {
        let lines: Vec<&str> = text.lines().collect();
        let before: Vec<&str> = self.lines.iter().filter_map(Line::before).collect();
        let here = |at: &usize| lines[*at..].iter().zip(&before).all(|(line, wanted)| line.trim() == *wanted);
        let last = (lines.len() + 1).saturating_sub(before.len());
        let places: Vec<usize> = (0..last).filter(here).collect();
        let [place] = places[..] else { return Err(places.len()) };
        let mut after: Vec<&str> = lines[..place].to_vec();
        let mut at = place;
        for line in &self.lines {
            match line {
                Line::Keep(_) => after.push(lines[at]),
                Line::Drop(_) => {}
                Line::Put(text) => after.push(text),
            }
            at += usize::from(line.before().is_some());
        }
        after.extend(&lines[at..]);
        Ok(after.join("\n") + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Q8 Q7: nobody waits.\nfound by: lib one two\n\na.rs\n fn a() {\n-b();\n+c();\n@@\n-  d();\n\nb.rs\n e\n+f\n";

    fn hunk(lines: &str) -> Hunk {
        let text = format!("R1: no\nfound by: lib a\na.rs\n{lines}");
        Bug::read("x", &text).unwrap().hunks.remove(0)
    }

    #[test]
    fn a_bug_says_what_it_breaks_who_finds_it_and_what_it_changes() {
        let bug = Bug::read("lost", TEXT).unwrap();
        let ids: Vec<_> = bug.ids.iter().map(ToString::to_string).collect();
        assert_eq!((ids.join(" ").as_str(), bug.says.as_str()), ("Q8 Q7", "nobody waits."));
        assert_eq!((bug.target, bug.tests.join(" ").as_str()), (TestTarget::Lib, "one two"));
        let files: Vec<_> = bug.hunks.iter().map(|hunk| hunk.file.as_str()).collect();
        assert_eq!(files, ["a.rs", "a.rs", "b.rs"]);
    }

    #[test]
    fn a_mistake_in_a_file_is_named_with_its_line() {
        let line = |text: &str| match Bug::read("x", text) {
            Err(Flaw::Form { line, .. }) => line,
            other => panic!("{other:?}"),
        };
        assert_eq!(line("no id\nfound by: lib a\na.rs\n-a\n"), 1);
        assert_eq!(line("R1: no\nfound by: nobody\na.rs\n-a\n"), 2);
        assert_eq!(line("R1: no\nfound by: lib\na.rs\n-a\n"), 2);
        assert_eq!(line("R1: no\nfound by: lib a\n-a\n"), 3);
        assert_eq!(line("R1: no\nfound by: lib a\na.rs\n a\n"), 4, "nothing changes");
        assert_eq!(line("R1: no\nfound by: lib a\na.rs\n+a\n"), 4, "nowhere");
        assert_eq!(line("R1: no\nfound by: lib a\n"), 2, "nothing at all");
    }

    #[test]
    fn a_place_is_found_by_its_text_whatever_its_indentation() {
        let code = "fn a() {\n        b();\n}\nfn d() {\n    b();\n}\n";
        assert_eq!(
            hunk(" fn a() {\n-b();\n+    c();\n").applied(code).unwrap(),
            "fn a() {\nc();\n}\nfn d() {\n    b();\n}\n"
        );
        assert_eq!(hunk("-b();\n").applied(code), Err(2));
        assert_eq!(hunk("-x();\n").applied(code), Err(0));
        assert_eq!(
            hunk("-b();\n }\n fn d() {\n").applied(code).unwrap(),
            "fn a() {\n}\nfn d() {\n    b();\n}\n"
        );
        assert_eq!(hunk("-b();\n }\n+e\n").applied("b();\n}").unwrap(), "}\ne\n");
    }
}
