//! The files of a client, replaced together as the kubelet replaces those of a volume: by another
//! target of a symbolic link.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use tempfile::TempDir;

/// A kubeconfig and the files that it names.
#[derive(Debug)]
pub struct Credentials {
    folder: TempDir,
    contents: BTreeMap<String, String>,
    versions: usize,
}

impl Credentials {
    /// Files for a server with TLS at this address. `user` is the user of the kubeconfig, which
    /// names files as `data/NAME`.
    #[track_caller]
    pub fn new(address: SocketAddr, user: &str, files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        let cluster =
            format!("{{server: \"https://{address}\", certificate-authority: data/ca.crt}}");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
             clusters: [{{name: test, cluster: {cluster}}}]\n\
             users: [{{name: test, user: {user}}}]\n\
             contexts: [{{name: test, context: {{cluster: test, user: test}}}}]\n"
        );
        fs::write(folder.path().join("kubeconfig"), text).expect("the folder is writable");
        let mut credentials = Self { folder, contents: BTreeMap::new(), versions: 0 };
        credentials.replace(files);
        credentials
    }

    /// The kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Replaces these files; the others stay as they are.
    #[track_caller]
    pub fn replace(&mut self, files: &[(&str, &str)]) {
        self.contents.extend(files.iter().map(|(name, text)| ((*name).into(), (*text).into())));
        self.versions += 1;
        let version = self.versions.to_string();
        let folder = self.folder.path().join(&version);
        fs::create_dir(&folder).expect("each version is a new folder");
        for (name, text) in &self.contents {
            fs::write(folder.join(name), text).expect("the folder is writable");
        }
        let link = self.folder.path().join("next");
        symlink(version, &link).expect("the last link was renamed");
        fs::rename(link, self.folder.path().join("data")).expect("a link can be replaced");
    }
}
