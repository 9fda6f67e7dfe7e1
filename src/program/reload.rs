//! Watches the configuration file of the daemon, and reads it at SIGHUP. A changed configuration
//! restarts the program with the same arguments and process id; the tables stay.

use std::future::pending;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs, io};

use daemon::config::{Config, ConfigError, Loaded};
use daemon::observe::{LeftOut, Observe};
use engine::model::ProblemKind;
use engine::printable::Printable;
use nix::sys::signal::{SigSet, Signal as Number};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;

use super::failure::Failure;

/// Reads the configuration, including flags.
pub type Load = Box<dyn Fn() -> Result<Loaded, ConfigError> + Send>;

/// Time between two reads of the file.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// The configuration file of the daemon.
pub(super) struct FollowedFile {
    pub(super) path: PathBuf,
    pub(super) load: Load,
}

impl FollowedFile {
    /// Reads the file, unless it is a pipe or a device by now, whose read may never end.
    fn read(&self) -> Result<Loaded, ConfigError> {
        if fs::metadata(&self.path).is_ok_and(|it| !it.is_file()) {
            let source = io::Error::other("it is not a regular file");
            return Err(ConfigError::Read { path: self.path.clone(), source });
        }
        (self.load)()
    }
}

/// Returns SIGHUP, which no longer ends the process. [`restart`] may have blocked it.
pub(super) fn hang_up() -> io::Result<Signal> {
    let hang_up = signal(SignalKind::hangup())?;
    SigSet::from(Number::SIGHUP).thread_unblock()?;
    Ok(hang_up)
}

/// Completes when `followed` contains a configuration other than `used`: at SIGHUP, or twice in a
/// row, as a file may be read during a write. An invalid configuration is reported and has no effect.
pub(super) async fn changed(
    used: Config,
    followed: Option<FollowedFile>,
    mut hang_up: Signal,
    observe: Observe,
) {
    let Some(mut followed) = followed else {
        while hang_up.recv().await.is_some() {
            tracing::info!("SIGHUP: there is no configuration file to read again");
        }
        return pending().await;
    };
    let (mut last, mut reported) = (None, Vec::new());
    loop {
        let is_requested = tokio::select! {
            () = tokio::time::sleep(READ_INTERVAL) => false,
            Some(()) = hang_up.recv() => true,
        };
        // On a thread of its own: a file system may not answer, and servers share the runtime.
        let reading = spawn_blocking(move || (followed.read(), followed));
        let Ok((read, same)) = reading.await else { return pending().await };
        followed = same;
        match read {
            Ok(Loaded { config, sha256, .. }) => {
                if !std::mem::take(&mut reported).is_empty() {
                    tracing::info!("the configuration file can be used again");
                    observe.configuration_refused(Vec::new());
                }
                if config == used {
                    observe.metrics().configuration.loaded(sha256.as_deref());
                    if is_requested {
                        tracing::info!("SIGHUP: the configuration has not changed");
                    }
                } else if is_requested || last.as_ref() == Some(&config) {
                    let fields = changed_fields(&used, &config);
                    tracing::info!(fields, "the configuration has changed; restarting");
                    return;
                }
                last = Some(config);
            }
            Err(error) => {
                last = None;
                let errors = error.messages();
                if is_requested || errors != reported {
                    report_refused(&followed.path, &errors, &observe);
                }
                reported = errors;
            }
        }
    }
}

/// Reports errors of the file in the log and as problems.
fn report_refused(path: &Path, errors: &[String], observe: &Observe) {
    let problem = |error| {
        let message = format!("{}; the previous configuration stays in use", Printable(error));
        tracing::warn!("{message}");
        let (kind, object) = (ProblemKind::Invalid.name(), path.display().to_string());
        LeftOut { kind, object, field: String::new(), message }
    };
    let problems: Vec<_> = errors.iter().map(problem).collect();
    problems.iter().for_each(|problem| observe.left_out(problem.clone()));
    observe.configuration_refused(problems);
}

/// Returns the names of the fields that differ.
fn changed_fields(used: &Config, new: &Config) -> String {
    let changes = used.changes(new);
    let mut names: Vec<_> = changes.iter().map(|change| &*change.field).collect();
    if used.log != new.log {
        names.push("logging");
    }
    names.join(", ")
}

/// Environment variable with the process that executed itself again.
const RELOADED: &str = "DELTAPROXY_RELOADED";

/// Returns whether this process executed itself again. Other processes may inherit the variable.
pub(super) fn is_reload() -> bool {
    env::var(RELOADED).is_ok_and(|process| process == std::process::id().to_string())
}

/// Gives this process its name again: the kernel took that of the executed link `/proc/self/exe`.
/// Threads that start later inherit it.
pub(super) fn rename() {
    let program = env::args_os().next().unwrap_or_default();
    // Without a writable /proc the process keeps its name, which only people read.
    let name = Path::new(&program).file_name().unwrap_or(&program);
    let _ = fs::write("/proc/self/comm", name.as_encoded_bytes());
}

/// Executes the program again in this process. Returns only on failure.
pub fn restart() -> Failure {
    // Until the program handles it again, SIGHUP waits instead of ending the process.
    let _ = SigSet::from(Number::SIGHUP).thread_block();
    let mut arguments = env::args_os();
    // The program's name selects the command line.
    let name = arguments.next().unwrap_or_else(|| "deltaproxy".into());
    let error = Command::new("/proc/self/exe")
        .arg0(name)
        .args(arguments)
        .env(RELOADED, std::process::id().to_string())
        .exec();
    Failure::new(format!("cannot start again with another configuration: {error}"))
}
