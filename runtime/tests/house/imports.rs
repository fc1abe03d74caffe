//! Which file imports which: `use` items and paths, followed through re-exports to the file that defines the name.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The files of one crate that are shipped, and what each imports.
pub(crate) struct Crate {
    files: BTreeMap<Module, File>,
}

/// The path of a module from the crate's root; the root's own is empty.
type Module = Vec<String>;

struct File {
    path: PathBuf,
    uses: Vec<Use>,
    /// Paths in code, the keywords of relative paths included.
    paths: BTreeSet<Vec<String>>,
}

/// One name that a `use` item brings into a file.
struct Use {
    /// The name that it has here.
    name: String,
    path: Vec<String>,
    /// Whether others may use it from here.
    reach: Reach,
}

#[derive(Clone, Copy, PartialEq)]
enum Reach {
    Here,
    HandedOn,
}

impl Crate {
    /// Reads the crate whose sources are in a folder.
    pub(crate) fn read(sources: &Path) -> Self {
        let mut paths = Vec::new();
        super::rust_files(sources, &mut paths);
        let shipped = paths.into_iter().filter(|path| !is_test(path.strip_prefix(sources).unwrap()));
        let file = |path: PathBuf| {
            let code = without_tests(&fs::read_to_string(&path).unwrap());
            let module = module_of(path.strip_prefix(sources).unwrap());
            let (uses, rest) = split_uses(&code);
            (module, File { path, uses, paths: paths_in(&rest) })
        };
        Self { files: shipped.map(file).collect() }
    }

    /// The files that import each other in a circle, each circle once.
    pub(crate) fn circles(&self) -> Vec<String> {
        let arrows: BTreeMap<&Module, BTreeSet<Module>> =
            self.files.iter().map(|(module, file)| (module, self.imports(module, file))).collect();
        let reaches = |from: &Module| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![from.clone()]);
            while let Some(module) = next.pop() {
                for to in arrows.get(&module).into_iter().flatten() {
                    if seen.insert(to.clone()) {
                        next.push(to.clone());
                    }
                }
            }
            seen
        };
        let reached: BTreeMap<&Module, BTreeSet<Module>> =
            self.files.keys().map(|module| (module, reaches(module))).collect();
        let circle = |module: &Module| -> BTreeSet<Module> {
            let back = |other: &&Module| reached[*other].contains(module);
            reached[module].iter().filter(back).cloned().collect()
        };
        let circles: BTreeSet<_> = self.files.keys().map(circle).filter(|circle| circle.len() > 1).collect();
        circles.iter().map(|circle| self.describe(circle, &arrows)).collect()
    }

    fn describe(&self, circle: &BTreeSet<Module>, arrows: &BTreeMap<&Module, BTreeSet<Module>>) -> String {
        let name = |module: &Module| self.files[module].path.display().to_string();
        let within = |module: &Module| {
            let to: Vec<_> = arrows[module].intersection(circle).map(name).collect();
            format!("  {} imports {}", name(module), to.join(", "))
        };
        circle.iter().map(within).collect::<Vec<_>>().join("\n")
    }

    fn imports(&self, module: &Module, file: &File) -> BTreeSet<Module> {
        // The face of a folder hands names on, and needs none of them for that.
        let is_face = file.path.file_name().is_some_and(|name| name == "mod.rs" || name == "lib.rs");
        let used = file.uses.iter().filter(|used| !(is_face && used.reach == Reach::HandedOn));
        let used = used.map(|used| &used.path);
        let local = |path: &Vec<String>| {
            let alias = file.uses.iter().find(|used| used.name == path[0]);
            alias.map_or_else(|| path.clone(), |used| [used.path.as_slice(), &path[1..]].concat())
        };
        let in_code: Vec<_> = file.paths.iter().map(local).collect();
        let found = used.chain(&in_code).filter_map(|path| self.resolve(module, path, 8));
        found.filter(|found| found != module).collect()
    }

    /// Finds the file that defines what a path names, if that is in this crate.
    fn resolve(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (mut at, mut rest) = (from.clone(), path);
        match rest.first()?.as_str() {
            "crate" => (at, rest) = (Module::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {}
            first => {
                let child = [from.as_slice(), &[first.to_owned()]].concat();
                self.files.contains_key(&child).then_some(())?;
            }
        }
        while rest.first().is_some_and(|first| first == "super") {
            at.pop()?;
            rest = &rest[1..];
        }
        while let Some((first, more)) = rest.split_first() {
            let child = [at.as_slice(), std::slice::from_ref(first)].concat();
            if !self.files.contains_key(&child) {
                break;
            }
            (at, rest) = (child, more);
        }
        let file = self.files.get(&at)?;
        let exported = rest.first().and_then(|item| file.uses.iter().find(|used| used.name == *item));
        match exported {
            Some(used) if depth > 0 && at != *from => self.resolve(&at, &used.path, depth - 1),
            _ => Some(at),
        }
    }
}

/// Returns whether a file holds tests.
pub(crate) fn is_test(path: &Path) -> bool {
    path.components().any(|part| {
        let name = part.as_os_str().to_string_lossy();
        let name = name.trim_end_matches(".rs");
        name == "tests" || name == "testing" || name.ends_with("_tests")
    })
}

fn module_of(path: &Path) -> Module {
    let parts = path.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    let mut module: Module = parts.map(|part| part.trim_end_matches(".rs").to_owned()).collect();
    if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        module.pop();
    }
    module
}

/// The code without comments, and without modules and imports that only tests have.
pub(crate) fn without_tests(code: &str) -> String {
    let (mut kept, mut lines) = (Vec::new(), code.lines().peekable());
    while let Some(line) = lines.next() {
        let of_tests = line == "#[cfg(test)]"
            && lines.peek().is_some_and(|next| next.contains("mod ") || next.contains("use "));
        if of_tests {
            if lines.next().is_some_and(|opening| opening.ends_with('{')) {
                lines.by_ref().take_while(|line| *line != "}").for_each(drop);
            }
        } else if !line.trim_start().starts_with("//") {
            kept.push(line.split(" // ").next().unwrap_or_default());
        }
    }
    kept.join("\n")
}

/// Takes the `use` items out of some code: the names that they bring with their paths, and the rest.
fn split_uses(code: &str) -> (Vec<Use>, String) {
    let (mut uses, mut rest) = (Vec::new(), String::new());
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let start = line.find("use ").filter(|at| {
            let before = line[..*at].trim();
            before.is_empty() || before.starts_with("pub") && !before.contains('"')
        });
        let Some(at) = start else {
            rest.push_str(line);
            rest.push('\n');
            continue;
        };
        let mut item = line[at + 4..].to_owned();
        while !item.contains(';') {
            let Some(more) = lines.next() else { break };
            item.push_str(more.trim());
        }
        let reach = if line[..at].trim().is_empty() { Reach::Here } else { Reach::HandedOn };
        let mut paths = Vec::new();
        expand(item.trim_end_matches(';').trim(), &[], &mut paths);
        uses.extend(paths.into_iter().map(|(name, path)| Use { name, path, reach }));
    }
    (uses, rest)
}

/// Lists the names and paths of a `use` tree.
fn expand(tree: &str, before: &[String], uses: &mut Vec<(String, Vec<String>)>) {
    let tree = tree.trim();
    let (path, group) = match tree.find('{') {
        Some(at) => (&tree[..at], Some(tree[at + 1..].trim_end_matches(';').trim_end())),
        None => (tree, None),
    };
    let (path, alias) = path.split_once(" as ").unwrap_or((path, ""));
    let segments = path.split("::").map(|segment| segment.trim().to_owned());
    let whole: Vec<String> = before.iter().cloned().chain(segments.filter(|part| !part.is_empty())).collect();
    let Some(group) = group else {
        let path = match whole.last().map(String::as_str) {
            Some("self") if whole.len() > 1 => whole[..whole.len() - 1].to_vec(),
            _ => whole,
        };
        let name =
            if alias.is_empty() { path.last().cloned().unwrap_or_default() } else { alias.trim().to_owned() };
        return uses.push((name, path));
    };
    let (mut depth, mut start) = (0, 0);
    let group = group.strip_suffix('}').unwrap_or(group);
    for (at, sign) in group.char_indices().chain([(group.len(), ',')]) {
        match sign {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !group[start..at].trim().is_empty() {
                    expand(&group[start..at], &whole, uses);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// Finds the paths of at least two segments in code.
fn paths_in(code: &str) -> BTreeSet<Vec<String>> {
    let code = without_restrictions(code);
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let candidates =
        code.split(|c| !is_part(c)).filter(|word| word.contains("::") && !word.starts_with("::"));
    let paths = candidates.map(|word| {
        word.split("::")
            .filter(|part| !part.is_empty())
            .map(|part| part.trim_matches(':').to_owned())
            .collect()
    });
    paths.filter(|path: &Vec<String>| path.len() > 1).collect()
}

/// Leaves out from where items may be seen, which imports nothing.
fn without_restrictions(code: &str) -> String {
    let mut pieces = code.split("pub(in ");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |code, piece| code + piece.split_once(')').map_or(piece, |(_, rest)| rest))
}
