//! The node whose leftovers are removed; runs its programs with a time limit.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use std::{env, io};

use tokio::process::Command;
use tokio::runtime::Builder;

use crate::child_process::{ChildLimits, EndedChild, ended};

/// Files and programs of the node by which leftovers are found.
pub(super) struct NodeFiles {
    /// `/proc/net` of this thread's network namespace.
    pub(super) net: PathBuf,
    /// `/sys/module`.
    pub(super) modules: PathBuf,
    pub(super) programs: Programs,
}

impl NodeFiles {
    pub(super) fn new() -> Self {
        let [net, modules] = ["/proc/thread-self/net", "/sys/module"].map(PathBuf::from);
        Self { net, modules, programs: Programs::of_node() }
    }

    /// Returns a node whose files are all in one directory.
    #[cfg(test)]
    pub(super) fn at(folder: &std::path::Path, programs: Programs) -> Self {
        Self { net: folder.to_owned(), modules: folder.to_owned(), programs }
    }
}

/// Why a program failed.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// Starting it or waiting for its end failed.
    #[error("cannot run {}: {error}", path.display())]
    Run {
        /// The program.
        path: PathBuf,
        /// RemovalError of the system.
        error: io::Error,
    },
    /// It exited with an error.
    #[error("{} ended with {status}: {message}", path.display())]
    Failed {
        /// The program.
        path: PathBuf,
        /// Exit status.
        status: ExitStatus,
        /// The first line of its standard error.
        message: String,
    },
    /// It was killed at the time limit.
    #[error("{} was killed because it did not end in {} s", path.display(), limit.as_secs_f32())]
    TimedOut {
        /// The program.
        path: PathBuf,
        /// Time limit.
        limit: Duration,
    },
}

/// Directories of programs, and the time limit of each run.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub(super) folders: Vec<PathBuf>,
    pub(super) limit: Duration,
}

/// Time limit of a program: iptables-legacy-restore deletes 100,000 rules in less.
const LIMIT: Duration = Duration::from_secs(20);

impl Programs {
    /// Returns the programs in `PATH` and in the directories for the superuser, which `PATH` may
    /// lack.
    pub(super) fn of_node() -> Self {
        let path = env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<_> = env::split_paths(&path).filter(|it| it.is_absolute()).collect();
        folders.extend(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from));
        Self { folders, limit: LIMIT }
    }

    pub(super) fn find(&self, name: &str) -> Option<PathBuf> {
        self.folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file())
    }

    /// Runs a program and returns its standard output. Blocks.
    pub(super) fn run(
        &self,
        path: &Path,
        arguments: &[&str],
        input: String,
    ) -> Result<String, ProgramError> {
        let run_error = |error| ProgramError::Run { path: path.to_owned(), error };
        let mut command = Command::new(path);
        command.args(arguments).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        let input = input.into_bytes();
        let limits = ChildLimits { time: self.limit, output: u64::MAX };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(run_error)?;
        let ended = runtime.block_on(async { ended(command.spawn()?, &input, limits).await });
        let Some(EndedChild { status, output, errors }) = ended.map_err(run_error)? else {
            return Err(ProgramError::TimedOut { path: path.to_owned(), limit: self.limit });
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if status.success() {
            return Ok(text(&output));
        }
        let message = text(&errors).lines().next().unwrap_or_default().to_owned();
        Err(ProgramError::Failed { path: path.to_owned(), status, message })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;
    use std::process::Command;
    use std::{fs, thread};

    use tempfile::TempDir;

    use super::*;

    /// A directory of shell scripts.
    pub(in super::super) struct Scripts(pub(in super::super) TempDir);

    impl Scripts {
        pub(in super::super) fn new(scripts: &[(&str, &str)]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            for (name, body) in scripts {
                let path = folder.path().join(name);
                write(&path, &format!("#!/bin/sh\ncd {}\n{body}\n", folder.path().display()));
            }
            Self(folder)
        }

        pub(in super::super) fn programs(&self) -> Programs {
            Programs { folders: vec![self.0.path().to_owned()], limit: Duration::from_secs(30) }
        }

        pub(in super::super) fn file(&self, name: &str) -> Option<String> {
            fs::read_to_string(self.0.path().join(name)).ok()
        }
    }

    /// Writes a program from another process. A file that this process has open for writing is
    /// inherited by children of other tests and cannot be executed until they end.
    fn write(path: &Path, text: &str) {
        let mut writer = Command::new("sh")
            .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
            .arg(path)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
    }

    #[test]
    fn a_program_reads_its_input_and_its_output_is_returned() {
        let scripts = Scripts::new(&[("double", "read line; echo \"$1 $line $line\"")]);
        let programs = scripts.programs();
        let path = programs.find("double").unwrap();
        assert_eq!(programs.run(&path, &["x"], "a\n".into()).unwrap(), "x a a\n");
        assert_eq!(programs.find("other"), None);
    }

    #[test]
    fn large_input_and_output_do_not_block_each_other() {
        let scripts = Scripts::new(&[("copy", "exec cat")]);
        let programs = scripts.programs();
        let input = "0123456789".repeat(100_000);
        let output = programs.run(&programs.find("copy").unwrap(), &[], input.clone()).unwrap();
        assert!(output == input);
    }

    #[test]
    fn an_error_contains_the_message_of_the_program() {
        let scripts = Scripts::new(&[("bad", "echo 'no such table' >&2; exit 3")]);
        let programs = scripts.programs();
        let error = programs.run(&programs.find("bad").unwrap(), &[], String::new()).unwrap_err();
        assert!(error.to_string().contains("exit status: 3: no such table"), "{error}");
    }

    #[test]
    fn a_hanging_program_is_killed_with_its_child_processes() {
        let scripts = Scripts::new(&[("hang", "sleep 60 & echo $! > pid; wait")]);
        // The limit may end before the script has written its file.
        let pid = [1, 2, 4, 8, 16].into_iter().find_map(|seconds| {
            let limit = Duration::from_secs(seconds);
            let programs = Programs { limit, ..scripts.programs() };
            let hang = programs.find("hang").unwrap();
            let error = programs.run(&hang, &[], String::new()).unwrap_err();
            assert!(matches!(error, ProgramError::TimedOut { .. }), "{error}");
            scripts.file("pid").map(|pid| pid.trim().to_owned()).filter(|pid| !pid.is_empty())
        });
        let command = format!("/proc/{}/cmdline", pid.unwrap());
        // A signal takes effect after `kill` returns. The command line of a zombie is empty.
        for _ in 0..1_000 {
            if fs::read(&command).unwrap_or_default().is_empty() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("{command}: the process is still running");
    }
}
