//! Lists the files of a path and reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::problem::FilesError;

/// Largest manifest file that is read, in bytes; the parser has the same limit.
pub(super) const MAX_FILE: usize = crate::yaml::MAX_TEXT;

/// Most manifest files in a directory: enough for one file per object of a large cluster.
pub(super) const MAX_FILES: usize = 200_000;

/// Files of a path, and the directories in which a change may affect them.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Manifest files with their stamps; `None` if the file could not be examined.
    pub(super) files: BTreeMap<PathBuf, Option<Stamp>>,
    /// Directories that contain the files, after links are resolved.
    pub(super) folders: BTreeSet<PathBuf>,
    /// The directory has more files than are read.
    pub(super) too_many: bool,
}

/// Metadata that differs between two versions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn new(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Returns whether the last write is so long before `now` that another write would change the
    /// stamp: file times of the kernel have a resolution of some milliseconds.
    pub(super) fn is_settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let changed = Duration::new(
            u64::try_from(self.changed.0).unwrap_or_default(),
            u32::try_from(self.changed.1).unwrap_or_default(),
        );
        changed + Duration::from_millis(100) < now
    }
}

/// Lists the manifest files of a path.
///
/// # Errors
/// The path does not exist or cannot be listed.
pub(super) fn scan(path: &Path) -> Result<Scan, FilesError> {
    let unreadable = |source| FilesError::Unreadable { path: path.to_owned(), source };
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(FilesError::Missing(path.to_owned()));
        }
        Err(error) => return Err(unreadable(error)),
    };
    let mut scan = Scan::default();
    if metadata.is_file() {
        scan.add(path.to_owned());
        return Ok(scan);
    }
    if !metadata.is_dir() {
        return Err(FilesError::NotAFile(path.to_owned()));
    }
    scan.folders.insert(path.to_owned());
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if !is_manifest(&entry.path()) {
            continue;
        }
        if scan.files.len() >= MAX_FILES {
            scan.too_many = true;
            break;
        }
        scan.add(entry.path());
    }
    Ok(scan)
}

impl Scan {
    /// Adds a file, unless it no longer exists or is not a regular file.
    fn add(&mut self, file: PathBuf) {
        let Ok(link) = fs::symlink_metadata(&file) else { return };
        if link.is_symlink()
            && let Some(folder) = fs::canonicalize(&file).ok().as_deref().and_then(Path::parent)
        {
            self.folders.insert(folder.to_owned());
        }
        match fs::metadata(&file) {
            Ok(metadata) if metadata.is_file() => {
                self.files.insert(file, Some(Stamp::new(&metadata)));
            }
            Ok(_) => {}
            // A dangling link: the reader reports it.
            Err(_) => {
                self.files.insert(file, None);
            }
        }
    }
}

fn is_manifest(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension = path.extension().and_then(|extension| extension.to_str());
    !hidden && matches!(extension, Some("yaml" | "yml" | "json"))
}
