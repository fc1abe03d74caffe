//! A file of bounded size, in three parts: the oldest is written over.
//!
//! A part ends at its first NUL byte. What is behind that is left from the part that was there before: cutting it off would cost
//! more than writing, because the system would have to find new pages for all that follows.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

/// What ends a part.
const END: u8 = 0;
/// Where the parts before the newest are, the older one last.
const OLDER: [&str; 2] = [".old", ".oldest"];

/// The file that is written.
pub(super) struct Ring {
    path: PathBuf,
    /// Most bytes of a part, its end included.
    most: u64,
    written: u64,
    file: File,
    /// Held while somebody writes.
    _lock: File,
}

impl Ring {
    /// Opens a new part; what an earlier process wrote becomes older.
    pub(super) fn open(path: &Path, at_most: u64) -> io::Result<Self> {
        let most = at_most / (1 + OLDER.len() as u64);
        let lock = lock(path)?;
        for older in OLDER.map(|suffix| behind(path, suffix)) {
            // An earlier process may have been given more. Its last part stays: it may show how that process ended.
            if fs::metadata(&older).is_ok_and(|file| file.len() > most) {
                fs::remove_file(&older)?;
            }
        }
        Ok(Self { _lock: lock, path: path.to_owned(), most, written: 0, file: begin(path, most)? })
    }

    /// Begins another part in the place of the oldest.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        (self.file, self.written) = (begin(&self.path, self.most)?, 0);
        Ok(())
    }

    /// Returns how many bytes fit into the part.
    pub(super) fn room(&self) -> usize {
        usize::try_from(self.most.saturating_sub(self.written + 1)).unwrap_or(usize::MAX)
    }

    /// Writes lines. They belong in one part, however long they are.
    ///
    /// A process that is killed leaves either all of the lines or none.
    pub(super) fn append(&mut self, text: &mut Vec<u8>) -> io::Result<()> {
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

/// Keeps everybody else from writing: two would rename the parts of each other.
fn lock(path: &Path) -> io::Result<File> {
    let file = options().open(behind(path, ".lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(io::Error::other("another manager records into it")),
        // Not every file system has locks.
        Err(TryLockError::Error(_)) => Ok(file),
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Makes each part older by one, and begins another in the place of the oldest.
fn begin(path: &Path, most: u64) -> io::Result<File> {
    let [old, oldest] = OLDER.map(|suffix| behind(path, suffix));
    let free = behind(path, ".free");
    for (from, to) in [(&*oldest, &*free), (&old, &oldest), (path, &old), (&free, path)] {
        match fs::rename(from, to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let mut file = options().open(path)?;
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

/// Reads all parts, the oldest first.
#[cfg(any(test, feature = "http"))]
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    for suffix in OLDER.iter().rev() {
        match part(&behind(path, suffix)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            read => all.extend(read?),
        }
    }
    all.extend(part(path)?);
    Ok(all)
}

#[cfg(any(test, feature = "http"))]
pub(super) fn part(path: &Path) -> io::Result<Vec<u8>> {
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

    fn line(number: u32) -> Vec<u8> {
        format!("{{\"t\":{number}}}\n").into_bytes()
    }

    /// Writes a line, into a new part where this one is full.
    fn write(ring: &mut Ring, number: u32) {
        let mut line = line(number);
        if ring.room() < line.len() {
            ring.begin().unwrap();
        }
        ring.append(&mut line).unwrap();
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
        let mut ring = Ring::open(&path, 15_000).unwrap();
        // All parts have been written over.
        for number in 0..2_500 {
            write(&mut ring, number);
        }
        let before = read(&path).unwrap();
        let text = [line(7_777), line(8_888)].concat();
        // Whatever the process has written of it, nothing counts yet.
        for reached in 1..=text.len() {
            ring.prepare(&mut text[..reached].to_vec()).unwrap();
            assert_eq!(read(&path).unwrap(), before);
        }
        ring.append(&mut text.clone()).unwrap();
        assert_eq!(read(&path).unwrap(), [before, text].concat());
        fs::remove_dir_all(folder).unwrap();
    }

    // P26
    #[test]
    fn all_parts_stay_within_the_bound_and_the_oldest_is_written_over() {
        let folder = folder("bound");
        let path = folder.join("op.wkr");
        let mut ring = Ring::open(&path, 1_500).unwrap();
        let parts = || [path.clone(), behind(&path, ".old"), behind(&path, ".oldest")];
        for number in 0..500 {
            write(&mut ring, number);
            let sizes = parts().map(|part| fs::metadata(part).map_or(0, |part| part.len()));
            assert!(sizes.iter().sum::<u64>() <= 1_500, "{sizes:?}");
            assert!(!behind(&path, ".free").exists());
            // Each line follows the one before, whatever is left behind the end.
            let all = String::from_utf8(read(&path).unwrap()).unwrap();
            let numbers: Vec<u32> = all.lines().filter_map(number_of).collect();
            let first = number + 1 - numbers.len() as u32;
            assert_eq!(numbers, (first..=number).collect::<Vec<_>>(), "{all}");
            assert!(number < 150 || all.len() >= 900, "two parts are full: {}", all.len());
        }
        // After a clean end nothing is left behind the end.
        ring.close().unwrap();
        assert_eq!(fs::read(&path).unwrap(), part(&path).unwrap());
        // Two do not write at once.
        let refused = Ring::open(&path, 1_500).err().unwrap();
        assert_eq!(refused.to_string(), "another manager records into it");
        drop(ring);
        // Another process goes on behind it.
        let mut other = Ring::open(&path, 1_500).unwrap();
        other.append(&mut line(7)).unwrap();
        let all = String::from_utf8(read(&path).unwrap()).unwrap();
        assert!(all.ends_with("{\"t\":499}\n{\"t\":7}\n"), "{all}");
        // One that is given less keeps the last part, and drops those before it.
        drop(other);
        drop(Ring::open(&path, 300).unwrap());
        let all = String::from_utf8(read(&path).unwrap()).unwrap();
        assert_eq!(all, "{\"t\":7}\n");
        fs::remove_dir_all(folder).unwrap();
    }
}
