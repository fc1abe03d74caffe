//! Whether what ARCHITECTURE.md names exists: files, types and functions.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::rust_files;

/// Folders whose Rust files may define what the document names.
const CRATES: [&str; 8] =
    ["runtime", "macros", "apiserver", "trials", "tests", "benches", "examples", "book/listings"];

/// Folders in which a path of the document may begin.
const BASES: [&str; 6] = ["", "runtime", "runtime/src", "apiserver/src", "tests", "tests/tests"];

/// Names that the language or a library defines.
const FOREIGN: [&str; 5] = ["std", "tower", "SystemTime", "managedFields", "unsafe"];

/// What the repository holds, as far as a document can name it.
struct Repository {
    root: PathBuf,
    /// The names of packages, modules, types and functions.
    names: BTreeSet<String>,
    /// Types and modules, with what their files define.
    members: BTreeSet<(String, String)>,
}

/// Lists the names in backticks that lead nowhere.
pub(crate) fn dangling(root: &Path) -> Vec<String> {
    let repository = Repository::read(root);
    let document = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    names(&document).into_iter().filter(|name| !repository.has(name)).collect()
}

/// Takes the names out of a document's text, which stand in backticks; pictures are left out.
fn names(document: &str) -> BTreeSet<String> {
    let prose = document.split("```").step_by(2).collect::<Vec<_>>().join("\n");
    let marked = prose.split('`').skip(1).step_by(2);
    let plain =
        |name: &str| name.trim_start_matches("#[derive(").trim_end_matches([']', ')', '(', '!']).to_owned();
    marked.flat_map(alternatives).map(|name| plain(&name)).collect()
}

/// Writes out `{a,b}`.
pub(crate) fn alternatives(name: &str) -> Vec<String> {
    let Some((before, rest)) = name.split_once('{') else { return vec![name.to_owned()] };
    let Some((inside, after)) = rest.split_once('}') else { return vec![name.to_owned()] };
    inside.split(',').map(|part| format!("{before}{part}{after}")).collect()
}

impl Repository {
    fn read(root: &Path) -> Self {
        let mut repository = Self { root: root.to_owned(), names: BTreeSet::new(), members: BTreeSet::new() };
        for folder in CRATES.map(|name| root.join(name)) {
            let mut paths = Vec::new();
            if folder.is_dir() {
                rust_files(&folder, &mut paths);
            }
            paths.iter().for_each(|path| repository.add(path));
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
            let names = manifest.lines().filter_map(|line| line.strip_prefix("name = "));
            repository.names.extend(names.map(|name| name.trim_matches('"').to_owned()));
        }
        repository
    }

    /// Adds what a file defines, as members of its module and of the types that it defines or implements.
    fn add(&mut self, path: &Path) {
        let code = fs::read_to_string(path).unwrap();
        let mut owners = implemented(&code);
        let defined = definitions(&code);
        let module = if path.ends_with("mod.rs") { path.parent().unwrap() } else { path };
        owners.insert(module.file_stem().unwrap_or_default().to_string_lossy().into_owned());
        owners.extend(defined.iter().filter(|name| name.starts_with(char::is_uppercase)).cloned());
        for owner in owners {
            self.members.extend(defined.iter().map(|name| (owner.clone(), name.clone())));
            self.names.insert(owner);
        }
        self.names.extend(defined);
    }

    fn has(&self, name: &str) -> bool {
        let mut parts = name.rsplit("::");
        let (last, owner) = (parts.next().unwrap_or_default(), parts.next());
        let is_foreign = name.split("::").next().is_some_and(|first| FOREIGN.contains(&first));
        let is_path = || {
            let paths = BASES.map(|base| self.root.join(base).join(name));
            paths.iter().any(|path| path.exists() || path.with_extension("rs").exists())
        };
        is_foreign
            || match owner {
                Some(owner) => self.members.contains(&(owner.to_owned(), last.to_owned())),
                None => self.names.contains(name) || is_path(),
            }
    }
}

/// Names of the modules, types, variants and functions that some code defines.
pub(crate) fn definitions(code: &str) -> BTreeSet<String> {
    code.lines().filter_map(definition).map(str::to_owned).collect()
}

fn definition(line: &str) -> Option<&str> {
    let mut words = line.split(|letter: char| !is_of_name(letter)).filter(|word| !word.is_empty());
    if line.trim_start().starts_with(['/', '"', '#']) {
        return None;
    }
    let first =
        words.find(|word| !["pub", "crate", "super", "in", "async", "const", "self"].contains(word))?;
    let is_kind = ["mod", "struct", "enum", "trait", "type", "fn", "macro_rules"].contains(&first);
    let is_variant =
        first.starts_with(char::is_uppercase) && line.starts_with("    ") && line.ends_with([',', '{']);
    if is_kind { words.next() } else { is_variant.then_some(first) }
}

/// Names of the types that some code implements something for.
fn implemented(code: &str) -> BTreeSet<String> {
    let of_impl = |line: &&str| line.trim_start().starts_with("impl");
    let words = code.lines().filter(of_impl).flat_map(|line| line.split(|letter: char| !is_of_name(letter)));
    words.filter(|word| word.starts_with(char::is_uppercase)).map(str::to_owned).collect()
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}
