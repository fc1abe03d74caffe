//! A file of bounded size, in two parts: the older one is written over.
//!
//! A part ends at its first NUL byte. What is behind that is left from the part that was there before: cutting it off would cost
//! more than writing, because the system would have to find new pages for all that follows.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

/// What ends a part.
const END: u8 = 0;

/// The file that is written.
pub(super) struct Ring {
    path: PathBuf,
    /// Most bytes of a part, its end included.
    most: u64,
    written: u64,
    file: File,
}

impl Ring {
    /// Opens a new part; what an earlier process wrote becomes the older part.
    pub(super) fn open(path: &Path, at_most: u64, began: &str) -> io::Result<Self> {
        let most = at_most / 2;
        let mut ring = Self { path: path.to_owned(), most, written: 0, file: begin(path, most)? };
        let version = env!("CARGO_PKG_VERSION");
        ring.append(
            &mut format!("{{\"t\":0,\"watchkeeper\":\"{version}\",\"began\":\"{began}\"}}\n").into_bytes(),
        )?;
        Ok(ring)
    }

    /// Writes lines, into a new part where this one is full; that begins with a snapshot, for which it says how many bytes
    /// there are.
    ///
    /// A process that is killed leaves either all of the lines or none.
    pub(super) fn write(
        &mut self,
        text: &mut Vec<u8>,
        snapshot: impl FnOnce(usize) -> Vec<u8>,
    ) -> io::Result<()> {
        if self.written + text.len() as u64 >= self.most && self.written > 0 {
            self.file = begin(&self.path, self.most)?;
            self.written = 0;
            let room = usize::try_from(self.most / 2).unwrap_or(usize::MAX);
            self.append(&mut snapshot(room))?;
        }
        self.append(text)
    }

    fn append(&mut self, text: &mut Vec<u8>) -> io::Result<()> {
        let Some(first) = text.first().copied() else { return Ok(()) };
        self.prepare(text)?;
        // Until this byte replaces the end before it, the new text does not count.
        self.file.seek(SeekFrom::Start(self.written))?;
        self.file.write_all(&[first])?;
        self.written += text.len() as u64;
        Ok(())
    }

    /// Writes all but the first byte, and the end.
    fn prepare(&mut self, text: &mut Vec<u8>) -> io::Result<()> {
        text.push(END);
        self.file.seek(SeekFrom::Start(self.written + 1))?;
        let written = self.file.write_all(&text[1..]);
        text.pop();
        written
    }

    /// Cuts off what is behind the end.
    pub(super) fn close(&mut self) -> io::Result<()> {
        self.file.set_len(self.written)
    }
}

/// Makes the file the older part, and begins another in the place of that.
fn begin(path: &Path, most: u64) -> io::Result<File> {
    let (older, oldest) = (behind(path, ".old"), behind(path, ".oldest"));
    for (from, to) in [(&*older, &*oldest), (path, &older), (&oldest, path)] {
        match fs::rename(from, to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    if file.metadata()?.len() > most {
        file.set_len(0)?;
    }
    file.write_all(&[END])?;
    Ok(file)
}

fn behind(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Reads both parts, the older one first.
#[cfg(any(test, feature = "http"))]
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut all = match part(&behind(path, ".old")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    all.extend(part(path)?);
    Ok(all)
}

#[cfg(any(test, feature = "http"))]
fn part(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = fs::read(path)?;
    let end = memchr::memchr(END, &text).unwrap_or(text.len());
    text.truncate(end);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number_of(line: &str) -> Option<u32> {
        line.strip_prefix("{\"t\":")?.strip_suffix('}')?.parse().ok()
    }

    /// Returns a folder of its own.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("watchkeeper-ring-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    // P26
    #[test]
    fn a_process_that_is_killed_leaves_all_of_what_it_wrote_at_once_or_nothing() {
        let folder = folder("killed");
        let path = folder.join("op.wkr");
        let mut ring = Ring::open(&path, 10_000, "2026-01-01T00:00:00Z").unwrap();
        let line = |number: u32| format!("{{\"t\":{number}}}\n");
        // Both parts have been written over.
        for number in 0..2_500 {
            ring.write(&mut line(number).into_bytes(), |_| Vec::new()).unwrap();
        }
        let before = read(&path).unwrap();
        let text = [line(7_777), line(8_888)].concat();
        // Whatever the process has written of it, nothing counts yet.
        for reached in 1..=text.len() {
            ring.prepare(&mut text.as_bytes()[..reached].to_vec()).unwrap();
            assert_eq!(read(&path).unwrap(), before);
        }
        ring.write(&mut text.clone().into_bytes(), |_| Vec::new()).unwrap();
        assert_eq!(read(&path).unwrap(), [&*before, text.as_bytes()].concat());
        fs::remove_dir_all(folder).unwrap();
    }

    // P26
    #[test]
    fn both_parts_stay_within_the_bound_and_a_new_part_begins_with_a_snapshot() {
        let folder = folder("bound");
        let path = folder.join("op.wkr");
        let mut ring = Ring::open(&path, 1_000, "2026-01-01T00:00:00Z").unwrap();
        let mut snapshots = 0;
        for number in 0..300 {
            let line = format!("{{\"t\":{number}}}\n");
            ring.write(&mut line.into_bytes(), |room| {
                assert_eq!(room, 250);
                snapshots += 1;
                b"{\"object\":1}\n".to_vec()
            })
            .unwrap();
            let sizes =
                [&path, &behind(&path, ".old")].map(|part| fs::metadata(part).map_or(0, |part| part.len()));
            assert!(sizes.iter().sum::<u64>() <= 1_000, "{sizes:?}");
            assert!(!behind(&path, ".oldest").exists());
            // Each line follows the one before, whatever is left behind the end.
            let all = String::from_utf8(read(&path).unwrap()).unwrap();
            let numbers: Vec<u32> = all.lines().filter_map(number_of).collect();
            let first = number + 1 - numbers.len() as u32;
            assert_eq!(numbers, (first..=number).collect::<Vec<_>>(), "{all}");
        }
        let all = String::from_utf8(read(&path).unwrap()).unwrap();
        assert!(
            snapshots > 0 && all.ends_with("{\"t\":299}\n") && all.starts_with("{\"object\":1}\n"),
            "{all}"
        );
        // After a clean end nothing is left behind the end.
        ring.close().unwrap();
        assert_eq!(fs::read(&path).unwrap(), part(&path).unwrap());
        // Another process goes on behind it.
        drop(Ring::open(&path, 1_000, "2026-01-01T00:00:00Z").unwrap());
        let both = String::from_utf8(read(&path).unwrap()).unwrap();
        assert!(both.contains("{\"t\":299}\n{\"t\":0,\"watchkeeper\""), "{both}");
        fs::remove_dir_all(folder).unwrap();
    }
}
