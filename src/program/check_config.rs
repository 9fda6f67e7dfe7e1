//! `config check`: prints the effective configuration of a file.

use std::path::PathBuf;

use daemon::config::kube_proxy::KubeProxyFlags;
use engine::printable::Printable;

use super::failure::Failure;
use super::output::print;

/// Prints a configuration with all defaults as YAML. Comments before it name the fields without
/// effect.
///
/// # Errors
/// The file cannot be read, or a field is invalid.
pub fn check_config(file: PathBuf) -> Result<(), Failure> {
    let flags = KubeProxyFlags::of_file(file);
    let notes = flags.load().map_err(|error| Failure::of_config(&error))?.notes;
    let comments = notes
        .lines()
        .iter()
        .fold(String::new(), |comments, line| format!("{comments}# {}\n", Printable(line)));
    let text = flags.written().map_err(|error| Failure::of_config(&error))?;
    print(&format_args!("{comments}{text}"));
    Ok(())
}
