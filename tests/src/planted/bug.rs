//! What a bug is, as its file tells it: which rule it breaks, who must find it, and what it changes.

use std::{
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
};

use super::place::{self, Place};
use crate::behaviours::Id;

/// A test program that finds bugs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestTarget {
    /// The unit tests of the runtime.
    Lib,
    /// `tests/tests/suite`.
    Suite,
    /// `tests/tests/chaos`.
    Chaos,
    /// `tests/tests/trials`.
    Trials,
}

impl TestTarget {
    fn of(word: &str) -> Option<Self> {
        let all = [Self::Lib, Self::Suite, Self::Chaos, Self::Trials];
        all.into_iter().find(|target| target.name() == word)
    }

    /// Names it, as the files do.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lib => "lib",
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

/// A change within one function, which is found by its text.
#[derive(Clone, Debug)]
struct Hunk {
    place: Place,
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
    #[error("{bug}: line {line} is not {wanted}")]
    Form {
        /// The bug.
        bug: String,
        /// Where.
        line: usize,
        /// What should stand there.
        wanted: &'static str,
    },
    /// The code has changed.
    #[error(
        "{bug} can't be planted: `{function}` is found {functions} times, and {text:?} in it {times} times"
    )]
    Place {
        /// The bug.
        bug: String,
        /// Where it was to be planted.
        function: String,
        /// How many functions have that name.
        functions: usize,
        /// How often the text was found in them; it must be once.
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
        let target = target.ok_or_else(|| flaw(2, "`found by: lib|suite|chaos|trials TEST..`"))?;
        let tests: Vec<String> = words.map(str::to_owned).collect();
        if tests.is_empty() {
            return Err(flaw(2, "`found by: lib|suite|chaos|trials TEST..`"));
        }
        let mut hunks = Vec::<Hunk>::new();
        for (at, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            match (Line::of(line), hunks.last_mut()) {
                (None, last) => {
                    let place = last.filter(|_| line == "@@").map(|hunk| hunk.place.clone());
                    let place =
                        place.or_else(|| Place::of(line)).ok_or_else(|| flaw(at, "`fn Type::name`"))?;
                    hunks.push(Hunk { place, lines: Vec::new() });
                }
                (Some(line), Some(hunk)) => hunk.lines.push(line),
                (Some(_), None) => return Err(flaw(at, "`fn Type::name`")),
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
        let failed = |file: &Path, source| Flaw::File {
            bug: self.name.clone(),
            file: file.display().to_string(),
            source,
        };
        let files = place::sources(root).map_err(|error| failed(root, error))?;
        let read = |file: PathBuf| match fs::read_to_string(root.join(&file)) {
            Ok(text) => Ok((file, text)),
            Err(error) => Err(failed(&file, error)),
        };
        let mut code = files.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let mut changed = Vec::new();
        for hunk in &self.hunks {
            let (mut functions, mut places) = (0, Vec::new());
            for (file, (_, text)) in code.iter().enumerate() {
                let found = hunk.place.find(text);
                functions += found.len();
                places.extend(
                    found.into_iter().flat_map(|lines| hunk.within(text, lines)).map(|at| (file, at)),
                );
            }
            let [(file, at)] = places[..] else {
                return Err(Flaw::Place {
                    bug: self.name.clone(),
                    function: hunk.place.to_string(),
                    functions,
                    times: places.len(),
                    text: hunk.lines.iter().find_map(Line::before).unwrap_or_default().to_owned(),
                });
            };
            code[file].1 = hunk.applied(&code[file].1, at);
            changed.push(file);
        }
        let is_changed = |(at, file)| changed.contains(&at).then_some(file);
        Ok(code.into_iter().enumerate().filter_map(is_changed).collect())
    }
}

impl Hunk {
    /// Returns the lines of a function at which its text begins, whatever its indentation.
    fn within(&self, text: &str, function: Range<usize>) -> Vec<usize> {
        let lines: Vec<&str> = text.lines().take(function.end).collect();
        let before: Vec<&str> = self.lines.iter().filter_map(Line::before).collect();
        let here = |at: &usize| lines[*at..].iter().zip(&before).all(|(line, wanted)| line.trim() == *wanted);
        let last = (lines.len() + 1).saturating_sub(before.len());
        (function.start..last).filter(here).collect()
    }

    /// Changes the text at a line.
    fn applied(&self, text: &str, place: usize) -> String {
        let lines: Vec<&str> = text.lines().collect();
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
        after.join("\n") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Q8 Q7: nobody waits.\nfound by: lib one two\n\nfn A::a\n fn a() {\n-b();\n+c();\n@@\n-  d();\n\nfn b\n e\n+f\n";

    fn hunk(lines: &str) -> Hunk {
        let text = format!("R1: no\nfound by: lib a\nfn a\n{lines}");
        Bug::read("x", &text).unwrap().hunks.remove(0)
    }

    #[test]
    fn a_bug_says_what_it_breaks_who_finds_it_and_what_it_changes() {
        let bug = Bug::read("lost", TEXT).unwrap();
        let ids: Vec<_> = bug.ids.iter().map(ToString::to_string).collect();
        assert_eq!((ids.join(" ").as_str(), bug.says.as_str()), ("Q8 Q7", "nobody waits."));
        assert_eq!((bug.target, bug.tests.join(" ").as_str()), (TestTarget::Lib, "one two"));
        let places: Vec<_> = bug.hunks.iter().map(|hunk| hunk.place.to_string()).collect();
        assert_eq!(places, ["fn A::a", "fn A::a", "fn b"]);
    }

    #[test]
    fn a_mistake_in_a_file_is_named_with_its_line() {
        let line = |text: &str| match Bug::read("x", text) {
            Err(Flaw::Form { line, .. }) => line,
            other => panic!("{other:?}"),
        };
        assert_eq!(line("no id\nfound by: lib a\na.rs\n-a\n"), 1);
        assert_eq!(line("R1: no\nfound by: nobody\nfn a\n-a\n"), 2);
        assert_eq!(line("R1: no\nfound by: lib\nfn a\n-a\n"), 2);
        assert_eq!(line("R1: no\nfound by: lib a\n-a\n"), 3);
        assert_eq!(line("R1: no\nfound by: lib a\na.rs\n-a\n"), 3, "a file is not a place");
        assert_eq!(line("R1: no\nfound by: lib a\nfn a\n a\n"), 4, "nothing changes");
        assert_eq!(line("R1: no\nfound by: lib a\nfn a\n+a\n"), 4, "nowhere");
        assert_eq!(line("R1: no\nfound by: lib a\n"), 2, "nothing at all");
    }

    #[test]
    fn a_place_is_found_by_its_text_whatever_its_indentation() {
        let code = "fn a() {\n        b();\n}\nfn d() {\n    b();\n}\n";
        let planted = |hunk: &Hunk| {
            let places = hunk.within(code, 0..3);
            places.first().map(|at| (places.len(), hunk.applied(code, *at)))
        };
        let (times, text) = planted(&hunk(" fn a() {\n-b();\n+    c();\n")).unwrap();
        assert_eq!((times, text.as_str()), (1, "fn a() {\nc();\n}\nfn d() {\n    b();\n}\n"));
        let (times, text) = planted(&hunk("-b();\n }\n+e\n")).unwrap();
        assert_eq!((times, text.as_str()), (1, "fn a() {\n}\ne\nfn d() {\n    b();\n}\n"));
        assert_eq!(planted(&hunk("-x();\n")), None);
        assert_eq!(planted(&hunk("-b();\n }\n fn d() {\n")), None, "it ends with the function");
    }
}
