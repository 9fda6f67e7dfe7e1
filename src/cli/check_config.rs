//! `config check`: what a configuration file would be used as.

use std::path::PathBuf;

use super::Failure;
use crate::config::kube_proxy::KubeProxyFlags;
use crate::printable::Printable;

/// Prints the configuration of a file with the defaults of what it does not say, as YAML, after
/// what of it has no effect, as comments.
///
/// # Errors
/// The file cannot be read, or says something impossible.
pub fn check_config(file: PathBuf) -> Result<(), Failure> {
    let flags = KubeProxyFlags::of_file(file);
    let notes = flags.load().map_err(Failure::new)?.notes;
    let comments = notes
        .lines()
        .iter()
        .fold(String::new(), |comments, line| format!("{comments}# {}\n", Printable(line)));
    let text = flags.written().map_err(Failure::new)?;
    super::print(&format_args!("{comments}{text}"));
    Ok(())
}
