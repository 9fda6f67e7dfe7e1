//! Runs the command line of kube-proxy.

use std::fs;
use std::sync::Arc;

use daemon::config::Config;
use daemon::config::kube_proxy::{Action, KubeProxyFlags};
use daemon::config::log::LogFlags;
use daemon::observe::Startup;
use daemon::other_modes;
use nft::kernel::Nftables;

use super::cleanup::cleanup_node;
use super::failure::Failure;
use super::log::{Log, noted};
use super::node::set_up_node;
use super::output::print;
use super::run::End;

/// Runs kube-proxy's command line; `arguments` are those after the program's name.
///
/// # Errors
/// A flag or the configuration is invalid, or the action fails.
pub fn kube_proxy(arguments: Vec<String>, log: &mut Log) -> Result<End, Failure> {
    let flags = KubeProxyFlags::parse(arguments).map_err(|error| Failure::of_config(&error))?;
    match &flags.action {
        Action::Help => print(&KubeProxyFlags::help()),
        Action::Version { raw } => print(&version(*raw)),
        Action::Write(path) => {
            *log = Log::start(flags.log.or(LogFlags::default()));
            let text = flags.written().map_err(|error| Failure::of_config(&error))?;
            fs::write(path, text).map_err(|error| {
                Failure::new(format!("--write-config-to: {}: {error}", path.display()))
            })?;
        }
        Action::Cleanup => {
            // No flag of kube-proxy makes a daemon write to the Node.
            cleanup_node(true, flags.file_path().map(|_| flags.load()))?
        }
        Action::InitOnly => {
            let loaded = flags.load().map_err(|error| Failure::of_config(&error))?;
            *log = Log::start(loaded.config.log);
            let config = noted(loaded);
            Nftables::open().map_err(Failure::new)?;
            set_up_node(&config);
            let outcome = other_modes::remove();
            outcome.log_removed();
            // kube-proxy ignores these errors too.
            for error in &outcome.errors {
                tracing::warn!("{error}");
            }
            tracing::info!("nftables works and the node is set up; exiting because of --init-only");
        }
        Action::Run => {
            let flags = Arc::new(flags);
            let own = Arc::clone(&flags);
            let startup = |config: &Config| {
                Ok(Startup { configuration: flags.effective(config)?, flags: flags.listed() })
            };
            return super::run(Box::new(move || own.load()), flags.file_path(), startup, log);
        }
    }
    Ok(End::Stopped)
}

fn version(raw: bool) -> String {
    let version = env!("CARGO_PKG_VERSION");
    if !raw {
        return format!("deltaproxy v{version}\n");
    }
    format!(
        "deltaproxy version={version} arch={} os={} debug={}\n",
        std::env::consts::ARCH,
        std::env::consts::OS,
        cfg!(debug_assertions),
    )
}
