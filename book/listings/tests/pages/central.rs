//! The types that users meet first: each shows an example, and names the page of the book that has more.

use super::marked::{files, read};

/// What users write, run, read and ask.
const CENTRAL: [&str; 28] = [
    "trait Reconciler<",
    "struct Context<",
    "struct Action ",
    "enum Cleanup ",
    "struct Terminal(",
    "struct Controller<",
    "struct Manager ",
    "struct Running ",
    "struct Inspector ",
    "enum Error ",
    "enum WriteError ",
    "struct SharedInformer<",
    "struct SharedInformerFactory ",
    "trait EventHandler<",
    "trait Watched:",
    "struct Lister<",
    "struct Selector ",
    "struct IndexDefinition<",
    "struct WorkQueue<",
    "struct RateLimit ",
    "trait RateLimiter:",
    "struct ObjectKey ",
    "struct Conditions(",
    "struct LeaderElection ",
    "struct Event ",
    "struct Apply<",
    "struct Create<",
    "struct Delete ",
];

const BOOK: &str = "https://github.com/watchkeeper/watchkeeper/blob/main/book/src/";

/// The doc comment above an item.
fn comment(source: &str, item: &str) -> Option<String> {
    let lines: Vec<&str> = source.lines().collect();
    let at =
        lines.iter().position(|line| line.strip_prefix("pub ").is_some_and(|rest| rest.starts_with(item)))?;
    let above = lines[..at].iter().rev().take_while(|line| !line.is_empty() && **line != "}");
    let mut comment: Vec<&str> = above.filter(|line| line.starts_with("///")).copied().collect();
    comment.reverse();
    Some(comment.join("\n"))
}

#[test]
fn each_central_type_shows_an_example_and_names_a_page() {
    let sources: Vec<String> = files("runtime/src", ".rs").iter().map(|path| read(path)).collect();
    let mut lacking = Vec::new();
    for item in CENTRAL {
        let found: Vec<String> = sources.iter().filter_map(|source| comment(source, item)).collect();
        let [comment] = found.as_slice() else { panic!("{item}: {} of them", found.len()) };
        for wanted in ["```", BOOK] {
            if !comment.contains(wanted) {
                lacking.push(format!("{item}lacks {wanted}"));
            }
        }
    }
    assert!(lacking.is_empty(), "{lacking:#?}");
}
