//! Watches the configuration file of the daemon. A changed configuration restarts the program with
//! the same arguments and process id; the tables stay.

use std::future::pending;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use std::{env, fs, io};

use daemon::config::{Config, ConfigError, Loaded};
use daemon::observe::Observe;
use engine::printable::Printable;
use tokio::task::spawn_blocking;

use super::failure::Failure;

/// Reads the configuration, including flags.
pub type Load = Box<dyn Fn() -> Result<Loaded, ConfigError> + Send>;

/// Time between two reads of the file.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// The configuration file of the daemon.
pub(super) struct Followed {
    pub(super) path: PathBuf,
    pub(super) load: Load,
}

impl Followed {
    /// Reads the file, unless it is a pipe or a device by now, whose read may never end.
    fn read(&self) -> Result<Loaded, ConfigError> {
        if fs::metadata(&self.path).is_ok_and(|it| !it.is_file()) {
            let source = io::Error::other("it is not a regular file");
            return Err(ConfigError::Read { path: self.path.clone(), source });
        }
        (self.load)()
    }
}

/// Completes when `followed` contains a configuration other than `used` twice in a row, as a file
/// may be read during a write. An invalid configuration is logged and has no effect.
pub(super) async fn changed(used: Config, mut followed: Followed, observe: Observe) {
    let (mut last, mut reported) = (None, Vec::new());
    loop {
        tokio::time::sleep(READ_INTERVAL).await;
        // On a thread of its own: a file system may not answer, and servers share the runtime.
        let reading = spawn_blocking(move || (followed.read(), followed));
        let Ok((read, same)) = reading.await else { return pending().await };
        followed = same;
        match read {
            Ok(Loaded { config, sha256, .. }) => {
                reported.clear();
                if config == used {
                    observe.configuration().loaded(sha256.as_deref());
                }
                if config != used && last.as_ref() == Some(&config) {
                    let fields = changed_fields(&used, &config);
                    tracing::info!(fields, "the configuration has changed; restarting");
                    return;
                }
                last = Some(config);
            }
            Err(error) => {
                last = None;
                observe.configuration().refused();
                let errors = error.messages();
                if errors != reported {
                    for error in &errors {
                        let error = Printable(error);
                        tracing::warn!("{error}; the previous configuration stays in use");
                    }
                }
                reported = errors;
            }
        }
    }
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

/// Executes the program again in this process. Returns only on failure.
pub fn restart() -> Failure {
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
