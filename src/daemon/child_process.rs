//! Waits for the end of another program, within limits of time and of output.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin};
use tokio::time::timeout;

/// A program that has ended, and what it wrote into its pipes.
pub(crate) struct EndedChild {
    pub(crate) status: ExitStatus,
    pub(crate) output: Vec<u8>,
    pub(crate) errors: Vec<u8>,
}

/// The limits of a program.
pub(crate) struct ChildLimits {
    pub(crate) time: Duration,
    /// Bytes of an output.
    pub(crate) output: u64,
}

/// Waits for the end of a program that is killed on drop. Writes `input` into its pipe, if it has
/// one. Kills it at the time limit, and then returns `None`. Processes that it started are killed
/// too, if it has a process group of its own.
///
/// # Errors
/// Errors of the system, or an output is too long. The program is killed.
pub(crate) async fn ended(
    mut child: Child,
    input: &[u8],
    limits: ChildLimits,
) -> io::Result<Option<EndedChild>> {
    let group = child.id().and_then(|id| i32::try_from(id).ok());
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let ended = async {
        // The program may fill its output before it reads.
        let (output, errors, ()) = tokio::try_join!(
            read(stdout, limits.output),
            read(stderr, limits.output),
            write(stdin, input),
        )?;
        Ok(EndedChild { status: child.wait().await?, output, errors })
    };
    let ended = timeout(limits.time, ended).await.ok().transpose();
    if !matches!(ended, Ok(Some(_))) {
        // It may have ended meanwhile, or have no group of its own.
        let _ = group.map(|group| killpg(Pid::from_raw(group), Signal::SIGKILL));
        let _ = child.kill().await;
    }
    ended
}

/// Reads a pipe to its end.
async fn read(pipe: Option<impl AsyncRead + Unpin>, longest: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(longest.saturating_add(1)).read_to_end(&mut bytes).await?;
    }
    if bytes.len() as u64 > longest {
        return Err(io::Error::other(format!("it printed more than {} MiB", longest >> 20)));
    }
    Ok(bytes)
}

async fn write(pipe: Option<ChildStdin>, input: &[u8]) -> io::Result<()> {
    if let Some(mut pipe) = pipe {
        // The program reports an incomplete input itself.
        let _ = pipe.write_all(input).await;
    }
    Ok(())
}
