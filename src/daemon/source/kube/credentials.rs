//! Files of the server's address and our credentials, and their changes.
//!
//! Contents are compared, because files are replaced by rename and by new targets of symbolic
//! links, as the kubelet does with those of the service account.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use super::client::{ApiServer, folder};
use super::kubeconfig::Selected;
use super::settings::IN_CLUSTER;
use crate::named_file::{self, LONGEST};

/// Returns a digest of the contents of all files of a client for `server`.
pub(super) fn digest(server: &ApiServer) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in files(server) {
        path.hash(&mut hasher);
        let content = named_file::check(&path).and_then(|()| named_file::read(&path, LONGEST));
        content.map_err(|error| error.kind()).hash(&mut hasher);
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
            let bytes = named_file::check(path).and_then(|()| named_file::read(path, LONGEST));
            let selected = bytes.ok().and_then(|it| Selected::parse(&it, folder(path)).ok());
            let named = selected.iter().flat_map(Selected::files);
            // Without a cluster, the service account of the pod may be in use.
            let of_pod = selected.iter().filter(|it| it.cluster.is_none()).flat_map(|_| IN_CLUSTER);
            [path.clone()].into_iter().chain(named).chain(of_pod.map(PathBuf::from)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
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
            "clusters: [{{name: a, cluster: {cluster}}}]\nusers: [{{name: a, user: {user}}}]\n\
             contexts: [{{name: c, context: {{cluster: a, user: a}}}}]\ncurrent-context: c"
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
