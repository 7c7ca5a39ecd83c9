//! What the caller answers for: paths, directories, bytes, and why a file is not handed over.
//!
//! The grammar decides which files are wanted and in which order; everything that touches a file
//! system, permissions included, is behind this trait.

/// Why a file was not handed over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// No such file.
    #[error("no such file")]
    NotFound,
    /// Others may read or change it; the mode bits.
    #[error("permissions {0:04o} are too open")]
    Permission(u32),
    /// A device, socket, directory...
    #[error("not a regular file")]
    NotRegular,
    /// Larger than [`FILE_BYTES`](crate::limits::FILE_BYTES); the size.
    #[error("{0} bytes, more than a configuration file may have")]
    TooLarge(u64),
    /// Anything else.
    #[error("{0}")]
    Io(String),
}

/// A file's content.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// What the loader wants to be said about the file: slug and message.
    pub warnings: Vec<(&'static str, String)>,
}

/// Access to configuration files. Paths are absolute and use `/`, except the entry path.
pub trait Loader {
    /// The path with all symbolic links resolved.
    ///
    /// # Errors
    /// [`LoadError::NotFound`] when nothing is there.
    fn canonical(&mut self, path: &str) -> Result<String, LoadError>;

    /// Whether a path, links followed, is a directory.
    fn is_dir(&mut self, path: &str) -> bool;

    /// Names in a directory, in any order; empty when it cannot be listed.
    fn list(&mut self, dir: &str) -> Vec<String>;

    /// Reads a canonical path, checking type, permissions and [`FILE_BYTES`](crate::limits::FILE_BYTES) first.
    ///
    /// # Errors
    /// Any [`LoadError`].
    fn read(&mut self, path: &str) -> Result<Loaded, LoadError>;
}
