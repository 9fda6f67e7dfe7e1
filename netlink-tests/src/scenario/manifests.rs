//! A folder of manifests, and the program run on it as a user would.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::hosts::NODE_NAME;
use super::object::Object;
use super::web::slice;
use test_hosts::Host;
use test_hosts::{Finished, Process, deltaproxy_binary};

/// A folder of manifests; removed when this is dropped.
#[derive(Debug)]
pub struct Manifests(TempDir);

impl Manifests {
    /// A folder with these files of one object each. Their names are without `.yaml`.
    ///
    /// # Panics
    /// When the folder cannot be made, or a file in it; so do all that write files.
    #[must_use]
    pub fn new(files: &[(&str, &dyn Object)]) -> Self {
        let manifests = Self(tempfile::tempdir().expect("a temporary folder"));
        files.iter().for_each(|(name, object)| manifests.write(name, *object));
        manifests
    }

    /// Writes a file of one object.
    pub fn write(&self, name: &str, object: &dyn Object) {
        let documents: Vec<_> = object.documents().iter().map(ToString::to_string).collect();
        // Documents of JSON are documents of YAML too, and so may stand in one file.
        self.write_text(name, &documents.join("\n---\n"));
    }

    /// Replaces the text of a file atomically: a daemon reads the former text or the new one.
    pub fn write_text(&self, name: &str, text: &str) {
        let unfinished = self.path().join(name).with_extension("unfinished");
        fs::write(&unfinished, text).expect("a file in a folder of our own");
        fs::rename(unfinished, self.file(name)).expect("a file in a folder of our own");
    }

    /// Writes `slice`: these hosts are the endpoints of the service `web`.
    pub fn set_endpoints(&self, hosts: &str) {
        self.write("slice", &slice(hosts));
    }

    /// The text of a file.
    #[must_use]
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).expect("a file that was written")
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) {
        fs::remove_file(self.file(name)).expect("a file that was written");
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The arguments that run `command` on this folder for the lab's node.
    #[must_use]
    pub fn arguments<'a>(&'a self, command: &'a str) -> Vec<&'a str> {
        let path = self.path().to_str().expect("temporary folders have plain names");
        let cidr = "--cluster-cidr=10.244.0.0/16,fd00:10:244::/48";
        vec![command, "--manifests", path, "--hostname-override", NODE_NAME, cidr]
    }

    /// Runs a command to its end.
    #[must_use]
    pub fn once(&self, host: &Host, command: &str) -> Finished {
        host.output(deltaproxy_binary(), &self.arguments(command))
    }

    /// Starts the daemon and waits for the line of its log.
    #[must_use]
    #[track_caller]
    pub fn run(&self, host: &Host) -> Process {
        self.run_with(host, &["--healthz-bind-address=", "--metrics-bind-address="])
    }

    /// The same, with other arguments than those that keep it from serving health and metrics.
    #[must_use]
    #[track_caller]
    pub fn run_with(&self, host: &Host, more: &[&str]) -> Process {
        let arguments = [&self.arguments("run"), more].concat();
        let mut daemon = host.spawn(deltaproxy_binary(), &arguments);
        daemon.wait_for_line("started", START_LIMIT);
        daemon
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name).with_extension("yaml")
    }
}

/// How long the daemon may take to start, on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(10);
