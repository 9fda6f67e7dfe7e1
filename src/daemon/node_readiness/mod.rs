//! The condition `deltaproxy.io/ServiceProxyReady` of this node's Node object, and the startup taint
//! of that name.
//!
//! Nothing waits for it. A request is sent only if the readiness of this node changed and the change
//! lasts, at most one after another; `course.rs` has the times. A failed request is repeated after the
//! waits of a watch, and one that the server refuses after minutes.

mod course;
mod node_object;

use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use self::course::{Course, CourseInput, NextStep};
use self::node_object::{NAME, NodeObject};
use crate::config::NodeReadiness;
use crate::observe::{Observe, Readiness};
use crate::source::kube::{ApiServer, Backoff, OnRequest, RestClient, SourceError, random};

/// Time between two looks at the readiness of this node.
const LOOK: Duration = Duration::from_secs(1);

/// Time limit of the requests of one step, with the load of the credentials.
const LIMIT: Duration = Duration::from_secs(60);

/// Least wait after a refusal, which only an administrator can change.
const REFUSED: Duration = Duration::from_mins(5);

/// Attempts to remove the taint while others change the Node.
const TRIES: usize = 5;

/// The Node object of this node, and what is known of it.
pub struct ReadinessReporter {
    /// The settings.
    pub settings: NodeReadiness,
    /// Name of the Node.
    pub node_name: String,
    /// The API server.
    pub server: ApiServer,
    /// Reports each request.
    pub requests: OnRequest,
    /// The readiness of this node.
    pub observe: Observe,
    /// Time at which the Node was created: with another one, it was created anew.
    pub created: watch::Receiver<i64>,
    /// The node has tables of an earlier daemon: services may work before the first sync.
    pub has_tables: bool,
}

/// What is left of earlier steps.
#[derive(Default)]
struct ReportProgress {
    course: Course,
    backoff: Backoff,
    /// The last step failed, which the log says.
    has_failed: bool,
    /// The Node whose taint was looked for.
    untainted: Option<String>,
}

impl ReadinessReporter {
    /// Reports until the future is dropped.
    pub async fn run(mut self) {
        let mut progress = ReportProgress::default();
        let mut is_synced = false;
        loop {
            if let Some(judged) = self.judge(&progress.course) {
                progress.course.handle(CourseInput::Judged(judged), Instant::now(), random());
            }
            let now = Instant::now();
            let pause = match progress.course.next() {
                NextStep::ReadAt(due) if due <= now => {
                    self.step(&mut progress).await;
                    continue;
                }
                NextStep::ReadAt(due) => LOOK.min(due - now),
                NextStep::Wait | NextStep::Write(_) => LOOK,
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = self.observe.tables_complete(), if !is_synced => is_synced = true,
                Ok(()) = self.created.changed() =>
                    progress.course.handle(CourseInput::Anew, Instant::now(), random()),
            }
        }
    }

    /// Returns the readiness, if the Node should follow it.
    fn judge(&self, course: &Course) -> Option<Readiness> {
        let readiness = self.observe.readiness(self.settings.lost_after);
        let is_first = matches!(course.judged(), None | Some(Readiness::Starting));
        let is_followed = match readiness {
            Readiness::Ready => true,
            // The taint is removed once.
            _ if !self.settings.condition => false,
            // A daemon that starts beside its tables does not make a ready Node unready.
            Readiness::Starting => is_first && !self.has_tables,
            Readiness::TablesBlocked | Readiness::NodePortsClosed | Readiness::ApiServerLost => {
                true
            }
        };
        is_followed.then_some(readiness)
    }

    /// Reads the Node and changes what differs.
    async fn step(&self, progress: &mut ReportProgress) {
        let changed = timeout(LIMIT, self.change(progress)).await;
        let outcome = changed.unwrap_or_else(|_| {
            Err(SourceError::Unreachable(format!("no answer within {} s", LIMIT.as_secs())))
        });
        let now = Instant::now();
        let Err(error) = outcome else {
            progress.has_failed = false;
            return;
        };
        let wait = match &error {
            error if is_refusal(error) => REFUSED + REFUSED.mul_f64(random()),
            _ => progress.backoff.after_failure(now, (Duration::ZERO, Duration::ZERO), random()),
        };
        progress.course.handle(CourseInput::Failed(wait), now, random());
        if !std::mem::replace(&mut progress.has_failed, true) {
            tracing::warn!("cannot write {NAME} of the Node: {}", advice(&error));
        }
    }

    async fn change(&self, progress: &mut ReportProgress) -> Result<(), SourceError> {
        let judged = progress.course.judged();
        let rest = RestClient::load_counted(&self.server, self.requests.clone()).await?;
        let mut node = NodeObject(rest.read(&path(&self.node_name)).await?);
        // Without the option there is no condition to write.
        let shown = if self.settings.condition { node.shown() } else { judged };
        progress.course.handle(CourseInput::Read(shown), Instant::now(), random());
        let mut conditioned = Ok(());
        if let NextStep::Write(readiness) = progress.course.next() {
            match self.write_condition(&rest, &node, readiness).await {
                Ok(changed) => {
                    node = changed;
                    progress.course.handle(CourseInput::Written, Instant::now(), random());
                }
                Err(error) => conditioned = Err(error),
            }
        }
        // The rights of both differ.
        if self.settings.startup_taint && judged == Some(Readiness::Ready) {
            let uid = node.uid().to_owned();
            if progress.untainted.as_ref() != Some(&uid) {
                self.remove_taint(&rest, node).await?;
                progress.untainted = Some(uid);
            }
        }
        conditioned
    }

    /// Writes the condition. Returns the Node as it is then.
    async fn write_condition(
        &self,
        rest: &RestClient,
        node: &NodeObject,
        readiness: Readiness,
    ) -> Result<NodeObject, SourceError> {
        let now = Timestamp::now();
        // The API has whole seconds.
        let time = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
        let (status, patch) = (status(&self.node_name), node.condition_patch(readiness, &time));
        let changed = rest.strategic_merge(&status, &patch).await?;
        tracing::info!("condition {NAME} of the Node is written: {readiness:?}");
        Ok(NodeObject(changed))
    }

    async fn remove_taint(
        &self,
        rest: &RestClient,
        mut node: NodeObject,
    ) -> Result<(), SourceError> {
        let path = path(&self.node_name);
        for left in (0..TRIES).rev() {
            let Some(patch) = node.taint_patch() else { return Ok(()) };
            match rest.merge(&path, &patch).await {
                Ok(_) => {
                    tracing::info!("taint {NAME} of the Node is removed");
                    return Ok(());
                }
                Err(error) if error.is_conflict() && left > 0 => {
                    node = NodeObject(rest.read(&path).await?);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Removes the condition of a Node. Returns its name if there was one.
///
/// # Errors
/// The server refused a request or did not answer.
pub async fn remove_condition(
    server: &ApiServer,
    node_name: &str,
) -> Result<Option<&'static str>, SourceError> {
    let (rest, path) = (RestClient::load(server).await?, path(node_name));
    let Some(patch) = NodeObject(rest.read(&path).await?).removal() else { return Ok(None) };
    rest.strategic_merge(&status(node_name), &patch).await?;
    Ok(Some(NAME))
}

fn path(node_name: &str) -> String {
    format!("/api/v1/nodes/{node_name}")
}

fn status(node_name: &str) -> String {
    format!("{}/status", path(node_name))
}

/// Returns whether the server will answer the same until an administrator acts, or the Node is there.
fn is_refusal(error: &SourceError) -> bool {
    matches!(
        error,
        SourceError::Forbidden(_) | SourceError::Refused { code: 400 | 404 | 405 | 415 | 422, .. }
    )
}

fn advice(error: &SourceError) -> String {
    let SourceError::Forbidden(message) = error else { return error.to_string() };
    format!("the API server forbids it (403): apply deploy/node-readiness-rbac.yaml ({message})")
}
