//! Programs started by a test, their output line by line, and their end.

use std::env;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::deadline::{LENIENCE, eventually, stretched};

/// A running program; killed when this is dropped. If the test fails, its output is shown, so that a
/// program that ended early says why.
#[derive(Debug)]
pub struct Process {
    /// File name of the program.
    name: String,
    child: Child,
    lines: Arc<Lines>,
    readers: Vec<JoinHandle<()>>,
    /// Index of the first line that no wait has matched.
    next: usize,
}

/// A program that has ended, with its output.
#[derive(Debug, Clone)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Finished {
    /// The exit code, or `None` when a signal ended it.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The warnings on its standard error. On a busy machine a daemon may end before all stale flows
    /// are deleted; that warning is left out.
    #[must_use]
    pub fn warnings(&self) -> Vec<&str> {
        self.stderr
            .lines()
            .filter(|line| line.contains("WARN") && !line.contains("stale UDP flows stay"))
            .collect()
    }

    /// Its standard output, if it ended with code 0.
    ///
    /// # Panics
    /// When it did not; the message holds its output.
    #[must_use]
    #[track_caller]
    pub fn ok(self) -> String {
        let Self { status, stdout, stderr } = self;
        assert!(status.success(), "{status}\n{stdout}{stderr}");
        stdout
    }
}

impl Process {
    /// Starts `program` in the calling thread's namespace, gives it `input` to read and reads its
    /// output.
    pub(crate) fn start(
        program: &Path,
        args: &[impl AsRef<OsStr>],
        input: &str,
    ) -> std::io::Result<Self> {
        let mut process = Self::start_unread(program, args, input)?;
        process.read_output();
        Ok(process)
    }

    /// The same, but its output fills the pipes until [`Self::read_output`].
    pub(crate) fn start_unread(
        program: &Path,
        args: &[impl AsRef<OsStr>],
        input: &str,
    ) -> std::io::Result<Self> {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // From here on a panic ends the child.
        let process = Self { name, child, lines: Arc::default(), readers: Vec::new(), next: 0 };
        if let Some(mut stdin) = stdin {
            // A program that does not read its input ends the pipe; that is no error.
            let _ = stdin.write_all(input.as_bytes());
        }
        Ok(process)
    }

    /// Reads both streams from now on.
    pub fn read_output(&mut self) {
        let lines = &self.lines;
        let stdout = self.child.stdout.take().map(|pipe| lines.follow(pipe, Stream::Stdout));
        let stderr = self.child.stderr.take().map(|pipe| lines.follow(pipe, Stream::Stderr));
        self.readers.extend(stdout.into_iter().chain(stderr));
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next line (of either stream) that contains `text` and returns it. A later call
    /// looks only at what comes after that line.
    ///
    /// # Panics
    /// After `limit`, or when the program has ended without that line.
    #[track_caller]
    pub fn wait_for_line(&mut self, text: &str, limit: Duration) -> String {
        let next = self.next;
        let matches = |output: &Output| {
            let mut later = output.lines.iter().skip(next);
            later.position(|line| line.text.contains(text)).map(|at| next + at)
        };
        let waiting = |output: &mut Output| matches(output).is_none() && output.open_streams > 0;
        let output = self.lines.lock();
        let waited =
            self.lines.grown.wait_timeout_while(output, stretched(limit * LENIENCE), waiting);
        let (output, _) = waited.expect("readers do not panic");
        let found = matches(&output).map(|at| (at, output.lines[at].text.clone()));
        let has_ended = output.open_streams == 0;
        drop(output);
        let Some((at, line)) = found else {
            let until = if has_ended { "before its end".into() } else { format!("in {limit:?}") };
            panic!("{} wrote no line with {text:?} {until}", self.name)
        };
        self.next = at + 1;
        line
    }

    /// The output so far, of both streams.
    #[must_use]
    pub fn output(&self) -> String {
        self.lines.lock().lines.iter().fold(String::new(), |mut all, line| {
            let _ = writeln!(all, "{}", line.text);
            all
        })
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When the process has ended.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a pid fits");
        kill(Pid::from_raw(pid), signal).expect("it is still our child");
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends SIGTERM and waits for the end.
    ///
    /// # Panics
    /// When it does not end within `limit`.
    #[track_caller]
    pub fn terminate(self, limit: Duration) -> Finished {
        self.signal(Signal::SIGTERM);
        self.finish(limit)
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// When it does not end within `limit`.
    #[track_caller]
    pub fn finish(mut self, limit: Duration) -> Finished {
        let status = eventually("the end of a program", limit, || {
            self.child.try_wait().expect("it is our child")
        });
        // A grandchild that keeps the pipe open would hold us here; no program under test has any.
        for reader in self.readers.drain(..) {
            reader.join().expect("readers do not panic");
        }
        let output = self.lines.lock();
        Finished {
            status,
            stdout: text_of(&output.lines, Stream::Stdout),
            stderr: text_of(&output.lines, Stream::Stderr),
        }
    }

    /// Writes how the program ended and its output to standard error, which a failed test shows.
    fn explain_failure(&self, ended: Option<ExitStatus>) {
        // A grandchild may keep the streams open.
        let waiting = |output: &mut Output| output.open_streams > 0;
        let rest = self.lines.grown.wait_timeout_while(self.lines.lock(), LAST_OUTPUT, waiting);
        drop(rest);
        let end = ended.map_or("still ran".to_owned(), |status| format!("had ended: {status}"));
        eprintln!("{} {end}. Its output:\n{}", self.name, self.output());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let ended = self.child.try_wait().ok().flatten();
        // Fails only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            self.explain_failure(ended);
        }
    }
}

/// Longest wait for the last output of a program that has ended.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Stdout,
    Stderr,
}

#[derive(Debug)]
struct Line {
    stream: Stream,
    text: String,
}

/// The lines of a program so far, in the order of reading.
#[derive(Debug, Default)]
struct Output {
    lines: Vec<Line>,
    /// Streams that are read and have not ended.
    open_streams: usize,
}

/// The output of a program, and a signal for each new line and each end of a stream.
#[derive(Debug, Default)]
struct Lines {
    output: Mutex<Output>,
    grown: Condvar,
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Output> {
        self.output.lock().expect("readers do not panic")
    }

    fn follow(
        self: &Arc<Self>,
        pipe: impl Read + Send + 'static,
        stream: Stream,
    ) -> JoinHandle<()> {
        let lines = Arc::clone(self);
        lines.lock().open_streams += 1;
        thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                let text = String::from_utf8_lossy(&line).into_owned();
                lines.lock().lines.push(Line { stream, text });
                lines.grown.notify_all();
            }
            lines.lock().open_streams -= 1;
            lines.grown.notify_all();
        })
    }
}

fn text_of(lines: &[Line], stream: Stream) -> String {
    let mut text = String::new();
    for line in lines.iter().filter(|line| line.stream == stream) {
        text.push_str(&line.text);
        text.push('\n');
    }
    text
}

/// The program under test, as built beside the running test or demonstration.
///
/// # Panics
/// When it has not been built; the message has the command.
#[must_use]
#[track_caller]
pub fn deltaproxy_binary() -> PathBuf {
    let test = env::current_exe().expect("/proc is mounted");
    // target/debug/deps/packets-1234 or target/debug/demo -> target/debug/deltaproxy
    let folders = test.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join("deltaproxy")).find(|binary| binary.is_file());
    found.unwrap_or_else(|| {
        panic!("no deltaproxy beside {}: cargo build --workspace", test.display())
    })
}
