//! Reads the pages of the tutorial as scripts: which files a reader changes, and what a terminal shows.
//!
//! A page marks each block by a comment in the line before its fence:
//!
//! | Comment | The block |
//! |---|---|
//! | `<!-- file: PATH -->` | is the whole file |
//! | `<!-- PATH: append -->` | is added at the end of the file |
//! | `<!-- PATH: replace ITEM -->` | takes the place of an item, such as `fn main` or `impl Rules`; `use` and `mod` are all such lines at the top |
//! | `<!-- PATH: after ITEM -->` | is added after an item |
//! | `<!-- PATH: remove ITEM -->` | (no block) an item is deleted |
//! | `<!-- try: .. -->` with one of these inside | is tried until `<!-- undo -->`, and does not stay |
//! | `<!-- run -->` | is typed after `$ `, and its output follows; a line `…` stands for any lines |
//! | `<!-- start: NAME -->` | is typed in a terminal of that name, and runs on; its lines come in this order |
//! | `<!-- sees: NAME -->` | comes in that terminal, after what was seen there before |
//! | `<!-- stop: NAME -->`, `<!-- kill: NAME -->` | (no block) ends what was started, by Ctrl-C or by SIGKILL |
//! | `<!-- shown -->` | is only shown |

mod edit;
mod output;
mod script;

pub use edit::{Edit, Files};
pub use output::{is_line, normal, shows};
pub use script::{Fence, Signal, Step, fences, script};
