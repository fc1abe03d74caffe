//! A copy of the repository, in which bugs are planted: nobody's work is touched.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Bug, Flaw};

/// A copy below the target folder. It stays there, so that the next run builds only what changed.
#[derive(Debug)]
pub struct Copy {
    from: PathBuf,
    to: PathBuf,
}

impl Copy {
    /// Makes the copy, or brings it up to date: files that git tracks, or would.
    ///
    /// # Errors
    /// Git can't list the files, or one can't be copied.
    pub fn of(from: &Path, to: &Path) -> io::Result<Self> {
        let copy = Self { from: from.to_owned(), to: to.to_owned() };
        let files = copy.files()?;
        for file in &files {
            copy.bring(file)?;
        }
        let wanted: HashSet<PathBuf> = files.iter().map(|file| to.join(file)).collect();
        for file in below(to)? {
            if !wanted.contains(&file) {
                fs::remove_file(file)?;
            }
        }
        Ok(copy)
    }

    /// Returns where the copy is.
    pub fn root(&self) -> &Path {
        &self.to
    }

    /// Plants a bug, for as long as what is returned lives.
    ///
    /// # Errors
    /// Its places are not there, or a file can't be written.
    pub fn plant(&self, bug: &Bug) -> Result<Planted<'_>, Flaw> {
        let mut planted = Planted { root: &self.to, originals: Vec::new() };
        for (file, text) in bug.planted(&self.to)? {
            let failed =
                |source| Flaw::File { bug: bug.name.clone(), file: file.display().to_string(), source };
            let original = fs::read_to_string(self.to.join(&file)).map_err(failed)?;
            planted.originals.push((file.clone(), original));
            fs::write(self.to.join(&file), text).map_err(failed)?;
        }
        Ok(planted)
    }

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&self.from)
            .output()?;
        if !listed.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&listed.stderr).into_owned()));
        }
        let names = String::from_utf8_lossy(&listed.stdout).into_owned();
        let files = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
        Ok(files.filter(|file| self.from.join(file).is_file()).collect())
    }

    /// Copies a file if it differs: one that does not keeps its time, and what was built of it.
    fn bring(&self, file: &Path) -> io::Result<()> {
        let (from, to) = (self.from.join(file), self.to.join(file));
        if fs::read(&to).is_ok_and(|held| fs::read(&from).is_ok_and(|wanted| wanted == held)) {
            return Ok(());
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        let text = fs::read(&from)?;
        fs::write(&to, text)?;
        fs::set_permissions(&to, fs::metadata(&from)?.permissions())
    }
}

fn below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => files.extend(below(&entry.path())?),
            false => files.push(entry.path()),
        }
    }
    Ok(files)
}

/// A bug in its place; taken out when dropped.
#[derive(Debug)]
pub struct Planted<'a> {
    root: &'a Path,
    originals: Vec<(PathBuf, String)>,
}

impl Drop for Planted<'_> {
    fn drop(&mut self) {
        for (file, original) in &self.originals {
            if let Err(error) = fs::write(self.root.join(file), original) {
                eprintln!("{} still holds a bug: {error}", file.display());
            }
        }
    }
}
