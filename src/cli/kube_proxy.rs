//! The program in kube-proxy's place: its command line, without a subcommand.

use std::fs;

use super::{Failure, Log, checked};
use crate::config::kube_proxy::{Action, KubeProxyFlags};
use crate::kernel::Nftables;
use crate::observe::Observe;

/// Does what kube-proxy does with these arguments, the ones after the program's name.
///
/// # Errors
/// A flag or the configuration is wrong, or what stops the action that they name.
pub fn kube_proxy(arguments: Vec<String>, log: &mut Log) -> Result<(), Failure> {
    let flags = KubeProxyFlags::parse(arguments).map_err(Failure::new)?;
    match &flags.action {
        Action::Help => super::print(&KubeProxyFlags::help()),
        Action::Version { raw } => super::print(&version(*raw)),
        Action::Write(path) => {
            *log = Log::start(flags.log);
            let text = flags.written().map_err(Failure::new)?;
            fs::write(path, text).map_err(|error| {
                Failure(vec![format!("--write-config-to: {}: {error}", path.display())])
            })?;
        }
        Action::Cleanup => super::cleanup()?,
        Action::Check => {
            *log = Log::start(flags.log);
            checked(flags.load())?;
            Nftables::open().map_err(Failure::new)?;
            tracing::info!("nftables can be used, and --init-only was given");
        }
        Action::Run => {
            let observe = Observe::new();
            *log = Log::start_queued(flags.log, observe.clone()).map_err(Failure::new)?;
            return super::run(checked(flags.load())?, observe);
        }
    }
    Ok(())
}

fn version(raw: bool) -> String {
    let version = env!("CARGO_PKG_VERSION");
    match raw {
        false => format!("deltaproxy v{version}\n"),
        true => format!(
            "deltaproxy version={version} arch={} os={} debug={}\n",
            std::env::consts::ARCH,
            std::env::consts::OS,
            cfg!(debug_assertions),
        ),
    }
}
