//! Watches the configuration file of the daemon. A changed configuration restarts the program with
//! the same arguments and process id; the tables stay.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use daemon::config::{Config, ConfigError, Loaded};
use daemon::observe::Observe;
use engine::printable::Printable;

use super::failure::Failure;

/// Reads the configuration, including flags.
pub type Load = Box<dyn Fn() -> Result<Loaded, ConfigError> + Send>;

/// Time between two reads of the file.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Completes when `load` returns a configuration other than `used` twice in a row, as a file may be
/// read during a write. An invalid configuration is logged and has no effect.
pub(super) async fn changed(used: Config, load: Load, observe: Observe) {
    let (mut last, mut reported) = (None, Vec::new());
    loop {
        tokio::time::sleep(READ_INTERVAL).await;
        match load() {
            Ok(Loaded { config, sha256, .. }) => {
                reported.clear();
                if config == used {
                    observe.configuration().loaded(sha256.as_deref());
                }
                if config != used && last.as_ref() == Some(&config) {
                    tracing::info!("the configuration has changed; restarting");
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

/// Executes the program again in this process. Returns only on failure.
pub fn restart() -> Failure {
    let mut arguments = env::args_os();
    // The program's name selects the command line.
    let name = arguments.next().unwrap_or_else(|| "deltaproxy".into());
    let error = Command::new("/proc/self/exe").arg0(name).args(arguments).exec();
    Failure::new(format!("cannot start again with another configuration: {error}"))
}
