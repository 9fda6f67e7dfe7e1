//! Reads files that the user names, within limits of bytes and of time.
//!
//! A device such as `/dev/zero` has no end, and a pipe may have no writer.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::libc::O_NONBLOCK;
use nix::poll::{PollFd, PollFlags, poll};

/// Most bytes of a file of settings or credentials; usual ones have a few kilobytes.
pub(crate) const LONGEST: usize = 16 << 20;

/// Longest time without a byte of a pipe, in milliseconds.
const SILENCE: u16 = 10_000;

/// Returns the contents of a file of at most `longest` bytes.
///
/// # Errors
/// The file cannot be read, is longer, or is a pipe that is silent for [`SILENCE`].
pub(crate) fn read(path: &Path, longest: usize) -> io::Result<Vec<u8>> {
    // Opening a pipe would wait for a writer.
    let mut file = File::options().read(true).custom_flags(O_NONBLOCK).open(path)?;
    // One byte more than allowed, to detect a file that is too long.
    let (mut bytes, most) = (Vec::new(), longest as u64 + 1);
    if file.metadata()?.is_file() {
        file.take(most).read_to_end(&mut bytes)?;
    } else {
        while bytes.len() <= longest && read_part(&mut file, &mut bytes)? {}
    }
    if bytes.len() > longest {
        return Err(io::Error::other(format!("it is longer than {} MiB", longest >> 20)));
    }
    Ok(bytes)
}

/// Waits for bytes and appends them. Returns whether there may be more.
fn read_part(file: &mut File, bytes: &mut Vec<u8>) -> io::Result<bool> {
    // Before the first writer, a read would return the end of a pipe.
    let mut files = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
    match poll(&mut files, SILENCE) {
        Ok(0) => return Err(io::Error::new(ErrorKind::TimedOut, "nothing is written into it")),
        Err(Errno::EINTR) => return Ok(true),
        other => drop(other?),
    }
    let mut part = [0; 16 << 10];
    match file.read(&mut part) {
        Ok(length) => {
            bytes.extend_from_slice(part.get(..length).unwrap_or_default());
            Ok(length > 0)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

/// Checks that a library can read this file without waiting and within [`LONGEST`].
///
/// # Errors
/// It is no regular file, or longer. A file that does not exist is no error here.
#[cfg(feature = "api-server")]
pub(crate) fn check(path: &Path) -> io::Result<()> {
    let Ok(metadata) = path.metadata() else { return Ok(()) };
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if metadata.len() > LONGEST as u64 {
        return Err(io::Error::other(format!("it is longer than {} MiB", LONGEST >> 20)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::thread;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn a_pipe_is_read_to_its_end_when_its_writer_comes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let writer = path.clone();
        let writing = thread::spawn(move || {
            let mut pipe = File::options().write(true).open(writer).unwrap();
            pipe.write_all(&[b'x'; 100_000]).unwrap();
        });
        assert_eq!(read(&path, LONGEST).unwrap().len(), 100_000);
        writing.join().unwrap();
        #[cfg(feature = "api-server")]
        assert!(check(&path).is_err() && check(&folder.path().join("missing")).is_ok());
    }

    #[test]
    fn a_file_without_an_end_or_longer_than_allowed_is_an_error() {
        let error = |path: &Path| read(path, LONGEST).unwrap_err().to_string();
        assert_eq!(error(Path::new("/dev/zero")), "it is longer than 16 MiB");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        fs::write(&path, vec![b'x'; LONGEST + 1]).unwrap();
        assert_eq!(error(&path), "it is longer than 16 MiB");
        assert_eq!(read(&path, LONGEST + 1).unwrap().len(), LONGEST + 1);
        #[cfg(feature = "api-server")]
        assert!(check(&path).is_err());
    }
}
