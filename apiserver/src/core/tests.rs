//! Claims about the whole core, through its one entry.
