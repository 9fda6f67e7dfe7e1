//! What `deploy/kustomize` gives to a pod: its arguments and its configuration.

use std::fs;
use std::path::{Path, PathBuf};

use daemon::yaml;
use serde_json::Value;
use tempfile::TempDir;

/// The file of the ConfigMap, in a folder of its own.
pub(crate) struct Deployed {
    folder: TempDir,
    arguments: Vec<String>,
}

impl Deployed {
    /// With a kubeconfig instead of the pod's service account.
    pub(crate) fn new(kubeconfig: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = fs::read_to_string(file("config.yaml")).unwrap();
        let connection = format!("\nclientConnection: {{kubeconfig: {kubeconfig:?}}}\n");
        fs::write(folder.path().join("config.yaml"), config + &connection).unwrap();
        let daemon_set = fs::read_to_string(file("daemonset.yaml")).unwrap();
        let daemon_set = yaml::parse(&daemon_set).unwrap().remove(0).value;
        let arguments = &daemon_set["spec"]["template"]["spec"]["containers"][0]["args"];
        let arguments = arguments.as_array().unwrap().iter().map(Value::as_str);
        let arguments = arguments.map(|it| it.unwrap().to_owned()).collect();
        Self { folder, arguments }
    }

    /// The arguments of the container on a node of this name.
    pub(crate) fn arguments(&self, node_name: &str) -> Vec<String> {
        let folder = self.folder.path().to_str().unwrap();
        let in_pod = |argument: &String| {
            let argument = argument.replace("$(NODE_NAME)", node_name);
            argument.replace("/etc/deltaproxy", folder)
        };
        self.arguments.iter().map(in_pod).collect()
    }

    /// The file of the configuration.
    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("config.yaml")
    }

    /// Adds lines to the configuration.
    pub(crate) fn add(&self, lines: &str) {
        let config = fs::read_to_string(self.config()).unwrap();
        fs::write(self.config(), format!("{config}\n{lines}\n")).unwrap();
    }
}

fn file(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/kustomize")).join(name)
}
