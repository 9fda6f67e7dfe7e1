//! In place of `api_server` in a build without that feature: every API server is an error.

use daemon::config::{Config, Source};
use daemon::observe::Observe;
use daemon::source::notice::Notice;
use engine::Engine;
use engine::model::{Arrival, HostAddresses};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::failure::Failure;

/// Objects of an API server; this build reads none.
pub(crate) enum Followed {}

impl Followed {
    pub(crate) fn start(_config: &Config, _engine: &mut Engine) -> Result<Self, Failure> {
        Err(without())
    }

    pub(crate) fn catch_up(&mut self, _engine: &mut Engine) {
        match *self {}
    }

    pub(crate) fn left_out(self) -> Vec<String> {
        match self {}
    }
}

/// Returns the Services with external IPs; this build reads none.
pub(crate) fn users_of_external_ips(_source: &Source) -> Result<Vec<String>, Failure> {
    Err(without())
}

/// Returns whether this process runs in a pod whose service account it may use: never.
pub fn is_in_pod() -> bool {
    false
}

pub(crate) fn check(source: &Source) -> Result<(), Failure> {
    match source {
        Source::Manifests(_) => Ok(()),
        Source::Kubeconfig(_) | Source::InCluster | Source::Server { .. } => Err(without()),
    }
}

pub(crate) fn follow(
    _config: (&Config, bool),
    _tasks: &mut JoinSet<()>,
    _sender: (mpsc::Sender<Arrival>, watch::Sender<HostAddresses>),
    _notices: (mpsc::Sender<Notice>, mpsc::Receiver<Notice>),
    _observe: &Observe,
) -> Result<(), Failure> {
    Err(without())
}

pub(crate) async fn write_last(_config: &Config, _notice: Notice, _observe: &Observe) {}

pub(crate) fn remove_node_condition(_config: &Config) -> Result<Option<String>, Failure> {
    Ok(None)
}

fn without() -> Failure {
    Failure::new("this program was built without the feature api-server: give --manifests PATH")
}
