//! The configuration file while the daemon runs: another configuration in it starts the program
//! again, with the same arguments and process id. The tables stay meanwhile.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use super::Failure;
use crate::config::{Config, ConfigError, Loaded};
use crate::printable::Printable;

/// Reads the configuration, flags included.
pub type Load = Box<dyn Fn() -> Result<Loaded, ConfigError> + Send>;

/// Time between two looks at the file.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Ready when `load` gives another configuration than `used` twice in a row: a file may be read
/// while it is written. One that cannot be used is logged, and changes nothing.
pub(super) async fn changed(used: Config, load: Load) {
    let (mut last, mut reported) = (None, String::new());
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        match load() {
            Ok(Loaded { config, .. }) => {
                reported.clear();
                if config != used && last.as_ref() == Some(&config) {
                    tracing::info!("the configuration has changed: starting again with it");
                    return;
                }
                last = Some(config);
            }
            Err(error) => {
                last = None;
                let error = error.to_string();
                if error != reported {
                    let error = Printable(&error);
                    tracing::warn!("{error}; the configuration before stays in use");
                }
                reported = error;
            }
        }
    }
}

/// Executes the program again in this process. Returns only if that fails.
pub fn restart() -> Failure {
    let mut arguments = env::args_os();
    // The name decides about the command line.
    let name = arguments.next().unwrap_or_else(|| "deltaproxy".into());
    let error = Command::new("/proc/self/exe").arg0(name).args(arguments).exec();
    Failure(vec![format!("cannot start again with another configuration: {error}")])
}
