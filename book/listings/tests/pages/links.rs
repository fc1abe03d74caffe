//! Each link between pages, and from pages to files of the repository, leads somewhere.

use std::{collections::BTreeSet, path::Path, sync::LazyLock};

use super::marked::{files, pages, read, root};

const REPOSITORY: &str = "https://github.com/watchkeeper/watchkeeper/";
const RUSTDOC: &str = "https://docs.rs/watchkeeper/latest/watchkeeper/";

/// The pages outside the book whose links are checked.
const OTHERS: [&str; 14] = [
    "README.md",
    "ARCHITECTURE.md",
    "AGENTS.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "RELEASING.md",
    "SECURITY.md",
    "SUPPORT.md",
    "apiserver/README.md",
    "examples/cronjob/README.md",
    "examples/deploy/README.md",
    "trials/README.md",
    "llms.txt",
];

/// The code of the runtime, read once.
static SOURCES: LazyLock<String> =
    LazyLock::new(|| files("runtime/src", ".rs").iter().map(|path| read(path)).collect());

/// A page without its blocks of code.
fn prose(text: &str) -> String {
    let mut inside = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// The targets of the links and pictures of a page.
fn targets(text: &str) -> Vec<String> {
    let prose = prose(text);
    let mut found: Vec<String> = prose
        .split("](")
        .skip(1)
        .filter_map(|after| Some(after.split_once(')')?.0.split(' ').next()?.to_owned()))
        .collect();
    let definitions = prose.lines().filter(|line| line.starts_with('['));
    found.extend(definitions.filter_map(|line| Some(line.split_once("]: ")?.1.trim().to_owned())));
    for attribute in ["src=\"", "href=\""] {
        found.extend(
            prose.split(attribute).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())),
        );
    }
    found
}

/// The anchors of a page's headings, as mdBook and code hosts make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text);
    let headings = headings.lines().filter(|line| line.starts_with('#'));
    let mut found = BTreeSet::new();
    for heading in headings {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let anchor: String = text
            .chars()
            .filter_map(|c| match c {
                ' ' => Some('-'),
                c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
                _ => None,
            })
            .collect();
        let mut free = anchor.clone();
        for count in 1.. {
            if !found.contains(&free) {
                break;
            }
            free = format!("{anchor}-{count}");
        }
        found.insert(free);
    }
    found
}

/// Says what is wrong with a link of a page.
fn wrong(page: &str, target: &str) -> Option<String> {
    if let Some(path) = target.strip_prefix(REPOSITORY) {
        let mut parts = path.splitn(3, '/');
        return match (parts.next()?, parts.next(), parts.next()) {
            ("tree" | "blob" | "raw", Some("main"), Some(path)) => {
                let (path, anchor) = path.split_once('#').unwrap_or((path, ""));
                let place = root().join(path);
                (!place.exists())
                    .then(|| format!("the repository has no {path}"))
                    .or_else(|| without_anchor(&place, anchor))
            }
            _ => None,
        };
    }
    if let Some(path) = target.strip_prefix(RUSTDOC) {
        let name = path.rsplit('/').next()?.split('#').next()?.strip_suffix(".html")?;
        let (kind, name) = name.split_once('.')?;
        if kind == "derive" {
            let known = read("macros/src/lib.rs").contains(&format!("proc_macro_derive({name},"));
            return (!known).then(|| format!("macros/src/lib.rs derives no {name}"));
        }
        let declared = format!("pub {kind} {name}");
        let known = SOURCES.contains(&declared);
        return (!known).then(|| format!("runtime/src has no `{declared}`"));
    }
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let folder = root().join(page).parent()?.to_owned();
    let place = if path.is_empty() { root().join(page) } else { folder.join(path) };
    if !place.exists() {
        return Some("there is no such file".to_owned());
    }
    without_anchor(&place, anchor)
}

/// Says that a page lacks a heading.
fn without_anchor(place: &Path, anchor: &str) -> Option<String> {
    let is_page = place.extension().is_some_and(|extension| extension == "md");
    let leads = anchor.is_empty() || !is_page || {
        anchors(&std::fs::read_to_string(place).unwrap()).contains(anchor)
    };
    (!leads).then(|| format!("the page has no heading #{anchor}"))
}

#[test]
fn each_link_leads_somewhere() {
    let (mut count, mut broken) = (0, Vec::new());
    let others = OTHERS.iter().map(|page| (*page).to_owned()).filter(|page| root().join(page).exists());
    for page in pages().into_iter().chain(others) {
        for target in targets(&read(&page)) {
            count += 1;
            broken.extend(wrong(&page, &target).map(|why| format!("{page}: {target}: {why}")));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(count > 100, "{count}");
}

// Whether a type has a page of its own in a module depends on what rustdoc makes of re-exports.
#[test]
#[ignore = "reads what `cargo doc` has made"]
fn each_link_into_the_api_documentation_has_its_page_and_its_anchor() {
    let docs = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().join("doc/watchkeeper");
    let mut count = 0;
    for page in pages().into_iter().chain(OTHERS.map(str::to_owned)) {
        for target in targets(&read(&page)) {
            let Some(path) = target.strip_prefix(RUSTDOC) else { continue };
            let (path, anchor) = path.split_once('#').unwrap_or((path, ""));
            let file =
                if path.ends_with(".html") { docs.join(path) } else { docs.join(path).join("index.html") };
            let html =
                std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{page}: {target}: {error}"));
            assert!(anchor.is_empty() || html.contains(&format!("id=\"{anchor}\"")), "{page}: {target}");
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
}

#[test]
fn each_link_of_the_api_documentation_to_the_repository_leads_somewhere() {
    let (mut count, mut broken) = (0, Vec::new());
    let sources = ["runtime/src", "macros/src", "apiserver/src", "trials/src"];
    for file in sources.iter().flat_map(|folder| files(folder, ".rs")) {
        let text = read(&file);
        for line in text.lines().filter(|line| line.trim_start().starts_with("//")) {
            for rest in line.split(REPOSITORY).skip(1) {
                let target = rest.split([')', '>', ' ', '`']).next().unwrap();
                count += 1;
                let why = wrong(&file, &format!("{REPOSITORY}{target}"));
                broken.extend(why.map(|why| format!("{file}: {target}: {why}")));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(count > 30, "{count}");
}

#[test]
fn each_page_is_in_the_summary_once() {
    let summary = targets(&read("book/src/SUMMARY.md"));
    for page in pages().iter().filter(|page| !page.ends_with("/SUMMARY.md")) {
        let short = page.strip_prefix("book/src/").unwrap();
        assert_eq!(summary.iter().filter(|target| *target == short).count(), 1, "{short}");
    }
}

#[test]
fn each_picture_follows_the_theme() {
    for picture in files("book/src/pictures", ".svg").iter().filter(|path| !path.contains("flames")) {
        let text = read(picture);
        assert!(text.contains("currentColor"), "{picture} has colours of its own alone");
        assert!(
            !text.contains("fill=\"white\"") && !text.contains("fill=\"#fff"),
            "{picture} is a white slab"
        );
    }
}

#[test]
fn targets_and_anchors_are_found() {
    let page = "# A `b` c\n\n[x](y.md#z) ![p](q.svg)\n\n```\n[no](no.md)\n```\n\n# A b c\n";
    assert_eq!(targets(page), ["y.md#z", "q.svg"]);
    assert_eq!(anchors(page), BTreeSet::from(["a-b-c".to_owned(), "a-b-c-1".to_owned()]));
}
