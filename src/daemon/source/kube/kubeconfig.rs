//! A kubeconfig, and the files that it or a pod names: read without waiting, and within limits.

use std::io;
use std::path::{Path, PathBuf};

use kube::config::{Kubeconfig, KubeconfigError};

use crate::named_file::{self, LONGEST};

/// Token and certificate authority of a pod's service account.
pub(super) const IN_CLUSTER: [&str; 2] = [
    "/var/run/secrets/kubernetes.io/serviceaccount/token",
    "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
];

/// Reads a kubeconfig. Relative paths in it begin in its folder.
pub(super) fn read_kubeconfig(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let text = named_file::read(path, LONGEST)
        .and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other))
        .map_err(|error| KubeconfigError::ReadConfig(error, path.to_owned()))?;
    let mut kubeconfig = Kubeconfig::from_yaml(text.trim_start_matches('\u{feff}'))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    paths_in(&mut kubeconfig).for_each(|named| {
        *named = folder.join(&*named).to_string_lossy().into_owned();
    });
    let users = kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut());
    let commands = users.filter_map(|user| user.exec.as_mut()?.command.as_mut());
    // Other commands are searched in `PATH`, as by client-go.
    commands.filter(|command| command.contains('/')).for_each(|command| {
        *command = folder.join(&*command).to_string_lossy().into_owned();
    });
    Ok(kubeconfig)
}

/// Returns the paths of the files to which a kubeconfig refers, in all of its contexts.
fn paths_in(kubeconfig: &mut Kubeconfig) -> impl Iterator<Item = &mut String> {
    let clusters = kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut());
    let users = kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut());
    let of_users = users.flat_map(|user| {
        [&mut user.client_certificate, &mut user.client_key, &mut user.token_file]
    });
    clusters.map(|cluster| &mut cluster.certificate_authority).chain(of_users).flatten()
}

/// Returns these paths.
pub(super) fn named_files(kubeconfig: &mut Kubeconfig) -> Vec<PathBuf> {
    paths_in(kubeconfig).map(|path| PathBuf::from(&*path)).collect()
}

/// Checks that a library can read these files.
///
/// # Errors
/// A file that exists is no regular file, or is too long.
pub(super) fn check(files: &[PathBuf]) -> io::Result<()> {
    files.iter().try_for_each(|path| {
        let named = |error| io::Error::other(format!("{}: {error}", path.display()));
        named_file::check(path).map_err(named)
    })
}
