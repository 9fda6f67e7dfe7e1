//! `config check`: prints the effective configuration of a file, and the Services of a cluster that use
//! what will be removed.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use daemon::config::Source;
use daemon::config::kube_proxy::KubeProxyFlags;
use engine::printable::Printable;

use super::api_server::users_of_external_ips;
use super::failure::Failure;
use super::output::print;

/// The flags of `config check`.
#[derive(Debug, Clone, Args)]
pub struct CheckFlags {
    /// Path of the file
    #[arg(required_unless_present = "cluster")]
    file: Option<PathBuf>,
    /// Also list the Services of the cluster that use what Kubernetes will remove: externalIPs
    #[arg(long)]
    cluster: bool,
    /// The cluster's kubeconfig file, in place of that of FILE or the service account of the pod
    #[arg(long, value_name = "FILE", requires = "cluster")]
    kubeconfig: Option<PathBuf>,
}

/// Prints a configuration with all defaults as YAML. Comments before it name the fields without
/// effect, and the Services that use what will be removed.
///
/// # Errors
/// The file cannot be read, a field is invalid, or the Services cannot be listed.
pub fn check_config(flags: CheckFlags) -> Result<(), Failure> {
    let failure = |error| Failure::of_config(&error);
    let file = flags.file.map(KubeProxyFlags::of_file);
    let loaded = file.as_ref().map(KubeProxyFlags::load).transpose().map_err(failure)?;
    let mut lines = loaded.as_ref().map(|it| it.notes.lines()).unwrap_or_default();
    if flags.cluster {
        let source = match (flags.kubeconfig, loaded) {
            (Some(path), _) => Source::Kubeconfig(path),
            (None, Some(loaded)) => loaded.config.source,
            (None, None) => Source::InCluster,
        };
        lines.extend(users_of_external_ips(&source)?);
    }
    let Some(file) = file else {
        let none = || vec!["no Service has externalIPs".to_owned()];
        print(&Lines("", if lines.is_empty() { none() } else { lines }));
        return Ok(());
    };
    let text = file.written().map_err(failure)?;
    print(&format_args!("{}{text}", Lines("# ", lines)));
    Ok(())
}

/// Lines of text after a prefix.
struct Lines(&'static str, Vec<String>);

impl fmt::Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(prefix, lines) = self;
        lines.iter().try_for_each(|line| writeln!(f, "{prefix}{}", Printable(line)))
    }
}
