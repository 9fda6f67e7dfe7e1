//! Files of the server's address and our credentials, and their changes.
//!
//! Contents are compared, because files are replaced by rename and by new targets of symbolic
//! links, as the kubelet does with those of the service account.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use kube::config::{Kubeconfig, KubeconfigError};

use super::client::ApiServer;
use crate::named_file::{self, LONGEST};

/// Token and certificate authority of a pod's service account.
const IN_CLUSTER: [&str; 2] = [
    "/var/run/secrets/kubernetes.io/serviceaccount/token",
    "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
];

/// Returns a digest of the contents of all files of a client for `server`.
pub(super) fn digest(server: &ApiServer) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in files(server) {
        path.hash(&mut hasher);
        read(&path).map_err(|error| error.kind()).hash(&mut hasher);
    }
    hasher.finish()
}

/// Returns the files; some may not exist.
fn files(server: &ApiServer) -> Vec<PathBuf> {
    match server {
        ApiServer::InCluster => IN_CLUSTER.map(PathBuf::from).into(),
        ApiServer::Anonymous(_) => Vec::new(),
        ApiServer::Kubeconfig { path, .. } => {
            // A pipe returns its contents only once.
            let kubeconfig = is_file(path).then(|| read_kubeconfig(path));
            let named = kubeconfig
                .and_then(Result::ok)
                .map_or_else(Vec::new, |mut it| named_files(&mut it));
            [path.clone()].into_iter().chain(named).collect()
        }
    }
}

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

fn named_files(kubeconfig: &mut Kubeconfig) -> Vec<PathBuf> {
    paths_in(kubeconfig).map(|path| PathBuf::from(&*path)).collect()
}

/// Checks that the files of a client can be read without waiting, but not a kubeconfig itself, which
/// may be a pipe.
///
/// # Errors
/// A file that exists is no regular file, or is too long.
pub(super) fn check(server: &ApiServer, kubeconfig: Option<&mut Kubeconfig>) -> io::Result<()> {
    let named: Vec<_> = match kubeconfig {
        Some(kubeconfig) => named_files(kubeconfig),
        None => files(server),
    };
    named.iter().try_for_each(|path| {
        let named = |error| io::Error::other(format!("{}: {error}", path.display()));
        named_file::check(path).map_err(named)
    })
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    named_file::check(path)?;
    named_file::read(path, LONGEST)
}

fn is_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_change_of_any_file_is_detected_however_it_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::create_dir_all(folder.join("1")).unwrap();
        fs::create_dir_all(folder.join("2")).unwrap();
        let path = folder.join("kubeconfig");
        let cluster = "{server: \"https://[::1]\", certificate-authority: ca}";
        let user = "{client-certificate: crt, client-key: key, tokenFile: now/token}";
        let text = format!(
            "clusters: [{{name: a, cluster: {cluster}}}]\nusers: [{{name: a, user: {user}}}]"
        );
        fs::write(&path, text).unwrap();
        let server = ApiServer::of_kubeconfig(&path);
        let mut digests = vec![digest(&server)];
        let mut changed = |what: &str| {
            let now = digest(&server);
            assert_eq!(now, digest(&server));
            assert!(!digests.contains(&now), "{what}");
            digests.push(now);
        };
        for name in ["ca", "crt", "key"] {
            fs::write(folder.join(name), "first").unwrap();
            changed(name);
            fs::write(folder.join("new"), "second").unwrap();
            fs::rename(folder.join("new"), folder.join(name)).unwrap();
            changed(name);
        }
        for target in ["1", "2"] {
            fs::write(folder.join(target).join("token"), target).unwrap();
            symlink(target, folder.join("next")).unwrap();
            fs::rename(folder.join("next"), folder.join("now")).unwrap();
            changed("token");
        }
        fs::write(&path, "{}").unwrap();
        changed("kubeconfig");
    }
}
