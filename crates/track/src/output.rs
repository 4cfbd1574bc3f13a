//! Outputs that appear under their name only when they are complete.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tempfile::NamedTempFile;

use crate::error::os_reason;
use crate::{Error, Result};

/// A form in which tracks are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Everything, in the schema `track/1`.
    Json,
    /// One row per frame and point.
    Csv,
    /// NumPy arrays.
    Npz,
}

impl Format {
    /// All forms.
    pub const ALL: [Self; 3] = [Self::Json, Self::Csv, Self::Npz];

    /// The extension, without a dot.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Npz => "npz",
        }
    }

    /// The form that a path's extension asks for, in any case.
    ///
    /// # Errors
    /// An extension that is no form of tracks.
    pub fn of(path: &Path) -> Result<Self> {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
        extension.parse().map_err(|()| {
            let found = match extension {
                "" => "the name has no extension".to_owned(),
                other => format!("'.{other}' is no form of tracks"),
            };
            Error::output(path, format!("{found}; choose .json, .csv or .npz"))
        })
    }
}

impl FromStr for Format {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, ()> {
        let lower = s.to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|format| format.extension() == lower)
            .ok_or(())
    }
}

/// Refuses a path that nothing could be written to, before any work is done for it. Leaves nothing behind.
///
/// # Errors
/// The folder is missing or not writable, or the path is a folder.
pub fn check_writable(path: &Path) -> Result<()> {
    Pending::create(path).map(drop)
}

/// Writes a file that appears under its name only when it is complete, and replaces what had it.
///
/// # Errors
/// The path cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = Pending::create(path)?;
    file.write_all(bytes)
        .and_then(|()| file.flush())
        .map_err(|e| Error::output(path, format!("{}; check the disk", os_reason(&e))))?;
    file.finish()
}

/// A file being written beside its destination. Dropped unfinished, it is gone.
pub(crate) struct Pending {
    writer: BufWriter<NamedTempFile>,
    path: PathBuf,
}

impl Pending {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return Err(Error::output(
                path,
                "it is a folder; give the name of a file",
            ));
        }
        if path.file_name().is_none() {
            return Err(Error::output(
                path,
                "it names no file; give the name of a file",
            ));
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        if !folder.is_dir() {
            let reason = format!("there is no folder {}; create it first", folder.display());
            return Err(Error::output(path, reason));
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(".track.").suffix(".part");
        // Temporary files are private; a finished output is as readable as any other file of the user.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let file = builder.tempfile_in(folder).map_err(|e| {
            Error::output(
                path,
                format!(
                    "no file can be created there: {}; choose another folder",
                    os_reason(&e)
                ),
            )
        })?;
        Ok(Self {
            writer: BufWriter::new(file),
            path: path.to_path_buf(),
        })
    }

    /// The file itself, for writers that need to seek.
    pub(crate) fn file(&mut self) -> &mut File {
        self.writer.get_mut().as_file_mut()
    }

    /// Gives the file its name, replacing what had it.
    pub(crate) fn finish(self) -> Result<()> {
        let path = self.path;
        let failed =
            |e: &std::io::Error| Error::output(&path, format!("{}; check the disk", os_reason(e)));
        let file = self.writer.into_inner().map_err(|e| failed(e.error()))?;
        file.persist(&path).map_err(|e| failed(&e.error))?;
        Ok(())
    }
}

impl Write for Pending {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_has_its_name_only_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        std::fs::write(&path, "old").unwrap();
        let mut pending = Pending::create(&path).unwrap();
        pending.write_all(b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        drop(pending);
        assert_eq!(names(folder.path()), ["a.json"]);
        let mut pending = Pending::create(&path).unwrap();
        pending.write_all(b"new").unwrap();
        pending.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["a.json"]);
    }

    #[test]
    fn paths_that_cannot_be_used_are_refused_early() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("no/a.json");
        let error = check_writable(&missing).unwrap_err().to_string();
        assert!(error.contains("there is no folder"), "{error}");
        let error = check_writable(folder.path()).unwrap_err().to_string();
        assert!(error.contains("it is a folder"), "{error}");
        assert!(check_writable(&folder.path().join("a.json")).is_ok());
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn extensions_decide_whatever_their_case() {
        assert_eq!(Format::of(Path::new("a.NPZ")).unwrap(), Format::Npz);
        let error = Format::of(Path::new("a.xlsx")).unwrap_err().to_string();
        assert_eq!(
            error,
            "a.xlsx: cannot be written ('.xlsx' is no form of tracks; choose .json, .csv or .npz)"
        );
        assert!(Format::of(Path::new("a")).is_err());
    }
}
