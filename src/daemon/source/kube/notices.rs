//! Event objects (events.k8s.io/v1) for left-out objects and for the start of the daemon. Those
//! that kube-proxy also writes have the same reasons and actions.
//!
//! Nothing blocks on them. An Event that cannot be written or exceeds the rate limit appears in the
//! log only. The name of an Event is derived from its content, so all nodes of a cluster write it
//! once until it expires. Each start is an Event of its own.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use engine::model::{Problem, ProblemKind, Resource};
use engine::printable::Printable;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as EventObject;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::client::{ApiServer, Connected, load};
use super::request_counts::OnRequest;
use super::resources::api_resource;
use super::source_error::SourceError;
use crate::rate_limit::RateLimit;
use crate::source::notice::Notice;
use crate::source::objects::MAX_NAME;

/// Events that may be written at once after an idle time.
const BURST: u32 = 20;

/// Mean time between further events.
const INTERVAL: Duration = Duration::from_secs(5);

/// Attempts to write the Event of the start, as in client-go (`maxTriesPerEvent` in
/// tools/events/event_broadcaster.go).
const START_TRIES: u32 = 13;

/// Time between two attempts.
const START_RETRY: Duration = Duration::from_secs(10);

/// Time limit to write one event.
const LIMIT: Duration = Duration::from_secs(10);

/// Time after which the credentials are loaded again: a token may have been replaced.
const CREDENTIALS: Duration = Duration::from_secs(60);

/// Longest `note` in bytes (`ValidateEvent` in pkg/apis/core/validation/events.go).
const MAX_NOTE: usize = 1024;

/// `reportingController` of the events.
const CONTROLLER: &str = "deltaproxy";

/// The action of events about the start.
const START: &str = "StartKubeProxy";

/// Namespace of events about cluster-scoped objects.
const CLUSTER_NAMESPACE: &str = "default";

/// Fields of an event that depend on the notice alone.
struct EventWords {
    kind: &'static str,
    reason: &'static str,
    action: &'static str,
    note: String,
}

impl EventWords {
    fn of(notice: &Notice) -> Self {
        let (reason, action, note) = match notice {
            // Nothing is left out: the object is served as without the annotation.
            Notice::LeftOut(problem) if problem.is_of_annotation() => {
                ("Ignored", "Route", text_of(problem))
            }
            Notice::LeftOut(problem) if notice.is_of_missing_node() => {
                ("NodeNotFound", "Route", text_of(problem))
            }
            Notice::LeftOut(problem) if problem.kind == ProblemKind::Overlap => {
                ("Overlap", "Route", text_of(problem))
            }
            Notice::LeftOut(problem) => ("LeftOut", "Route", text_of(problem)),
            Notice::ClosedPort(problem) => {
                ("FailedToStartServiceHealthcheck", "Listen", text_of(problem))
            }
            Notice::Starting => ("Starting", START, String::new()),
            Notice::NoHealthPort(why) => ("FailedToStartProxierHealthcheck", START, why.clone()),
            Notice::NoMetricsPort(why) => ("FailedToStartMetricServer", START, why.clone()),
        };
        let kind = if *notice == Notice::Starting { "Normal" } else { "Warning" };
        let mut words = Self { kind, reason, action, note };
        words.note.truncate(words.note.floor_char_boundary(MAX_NOTE));
        words
    }
}

fn text_of(problem: &Problem) -> String {
    match problem.field.as_str() {
        "" => problem.message.clone(),
        field => format!("{field}: {}", problem.message),
    }
}

/// Writes an event for each notice until all senders are dropped. Reports its requests to
/// `requests`.
pub async fn write_notices(
    server: &ApiServer,
    node_name: &str,
    mut notices: mpsc::Receiver<Notice>,
    requests: OnRequest,
) {
    let mut limit = RateLimit::new(INTERVAL, BURST);
    let mut client = None;
    let mut is_working = true;
    // Time of the next attempt to write the Event of the start, and the number of attempts.
    let (mut again, mut tries) = (None, 0);
    loop {
        let notice = tokio::select! {
            notice = notices.recv() => match notice {
                Some(notice) => notice,
                None => return,
            },
            () = sleep_until(again) => Notice::Starting,
        };
        tokio::time::sleep_until(limit.start(Instant::now())).await;
        let written = write((server, &requests), &mut client, node_name, &notice);
        let written = tokio::time::timeout(LIMIT, written);
        let error = match written.await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(match &client {
                Some(Connected { server, .. }) => format!("{server}: {error}"),
                None => error.to_string(),
            }),
            Err(_) => Some(format!("no answer within {} s", LIMIT.as_secs())),
        };
        if error.is_some() {
            // Loads the credentials again before the next event.
            client = None;
        }
        if notice == Notice::Starting {
            // The server may start after this node. The watches report that it is unreachable.
            tries += 1;
            again = (error.is_some() && tries < START_TRIES).then(|| Instant::now() + START_RETRY);
            continue;
        }
        // Logs the first failure, and the first one after a success.
        if let (true, Some(error)) = (is_working, &error) {
            let error = Printable(error);
            tracing::warn!("cannot write events: {error}");
        }
        is_working = error.is_none();
    }
}

/// Waits until `due`; for ever without it.
async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

async fn write(
    (server, requests): (&ApiServer, &OnRequest),
    client: &mut Option<Connected>,
    node_name: &str,
    notice: &Notice,
) -> Result<(), SourceError> {
    let Some(mut subject) = Subject::of(notice, node_name) else { return Ok(()) };
    client.take_if(|client| client.loaded_at.elapsed() >= CREDENTIALS);
    let Connected { client, .. } = match client {
        Some(client) => client,
        None => client.insert(load(server, requests.clone()).await?),
    };
    match subject.api(client).get_metadata(&subject.name).await {
        Ok(found) => subject.uid = found.metadata.uid,
        Err(kube::Error::Api(status)) if status.code == 404 && !notice.is_of_missing_node() => {
            return Ok(());
        }
        // An event without the uid is harder to find, but better than none.
        Err(_) => {}
    }
    let event = event(&subject, node_name, notice);
    let events = Api::<EventObject>::namespaced(client.clone(), subject.event_namespace());
    match events.create(&PostParams::default(), &event).await {
        Ok(_) => Ok(()),
        // The event exists already.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err((&error).into()),
    }
}

/// Object that an event names.
#[derive(Debug)]
struct Subject {
    resource: ApiResource,
    namespace: Option<String>,
    name: String,
    uid: Option<String>,
}

impl Subject {
    /// Returns the object with the problem, or the node if there is no problem. `None` if the
    /// object has no name.
    fn of(notice: &Notice, node_name: &str) -> Option<Self> {
        let Some(problem) = notice.problem() else {
            let (resource, name) = (api_resource(Resource::Nodes), node_name.to_owned());
            return Some(Self { resource, namespace: None, name, uid: None });
        };
        let resource = api_resource(problem.object.resource);
        let (namespace, name) = problem.object.name.parts();
        let namespace = namespace.map(str::to_owned);
        (!name.is_empty()).then(|| Self { resource, namespace, name: name.to_owned(), uid: None })
    }

    fn api(&self, client: &Client) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }

    fn event_namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or(CLUSTER_NAMESPACE)
    }

    fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.resource.api_version.clone()),
            kind: Some(self.resource.kind.clone()),
            namespace: self.namespace.clone(),
            name: Some(self.name.clone()),
            uid: self.uid.clone(),
            ..ObjectReference::default()
        }
    }
}

fn event(subject: &Subject, node_name: &str, notice: &Notice) -> EventObject {
    let (words, now) = (EventWords::of(notice), Timestamp::now());
    let time = (*notice == Notice::Starting).then(|| now.as_nanosecond());
    EventObject {
        metadata: ObjectMeta {
            name: Some(event_name(subject, &words, time)),
            namespace: Some(subject.event_namespace().to_owned()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        type_: Some(words.kind.to_owned()),
        reason: Some(words.reason.to_owned()),
        action: Some(words.action.to_owned()),
        note: Some(words.note).filter(|note| !note.is_empty()),
        regarding: Some(subject.reference()),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(format!("{CONTROLLER}-{node_name}").chars().take(128).collect()),
        ..EventObject::default()
    }
}

/// Returns a name derived from the object and the content of the event. `time` makes it unique.
fn event_name(subject: &Subject, words: &EventWords, time: Option<i128>) -> String {
    // All daemons of one build compute the same hash, which is enough.
    let mut hasher = DefaultHasher::new();
    let object = (&subject.resource.kind, &subject.namespace, &subject.name, &subject.uid);
    (object, words.reason, &words.note, time).hash(&mut hasher);
    let suffix = format!(".{:016x}", hasher.finish());
    let room = MAX_NAME - suffix.len();
    let name = subject.name.get(..room).unwrap_or(&subject.name);
    format!("{}{suffix}", name.trim_end_matches(['-', '.']))
}

#[cfg(test)]
mod tests {
    use engine::model::{ObjectName, ObjectRef, ProblemKind};

    use super::*;

    fn left_out(resource: Resource, name: &str, message: &str) -> Notice {
        let object = ObjectRef { resource, name: ObjectName::written(name) };
        let (field, message) = ("spec.ports[0]".to_owned(), message.to_owned());
        Notice::LeftOut(Problem { kind: ProblemKind::Invalid, object, field, message })
    }

    fn name_of(notice: &Notice) -> String {
        let subject = Subject::of(notice, "node-a").unwrap();
        event(&subject, "node-a", notice).metadata.name.unwrap()
    }

    #[test]
    fn an_event_names_the_object_and_the_left_out_field() {
        let notice = left_out(Resource::Services, "default/web", "is wrong");
        let mut subject = Subject::of(&notice, "node-a").unwrap();
        subject.uid = Some("7".to_owned());
        let event = serde_json::to_value(event(&subject, "node-a", &notice)).unwrap();
        assert_eq!(event["note"], "spec.ports[0]: is wrong");
        assert_eq!(event["metadata"]["namespace"], "default");
        assert_eq!(event["reportingInstance"], "deltaproxy-node-a");
        let regarding = serde_json::json!({
            "apiVersion": "v1", "kind": "Service", "namespace": "default", "name": "web", "uid": "7",
        });
        assert_eq!(event["regarding"], regarding);
    }

    #[test]
    fn an_event_about_a_cluster_scoped_object_is_in_the_default_namespace() {
        let notice = left_out(Resource::ServiceCidrs, "kubernetes", "");
        let subject = Subject::of(&notice, "node-a").unwrap();
        assert_eq!(subject.event_namespace(), "default");
        assert_eq!(subject.reference().namespace, None);
    }

    #[test]
    fn events_have_the_same_name_only_if_they_have_the_same_content() {
        let name =
            |name: &str, message: &str| name_of(&left_out(Resource::Services, name, message));
        let first = name("default/web", "a");
        assert_eq!(first, name("default/web", "a"));
        assert_ne!(first, name("default/web", "b"));
        let long = format!("default/{}-{}", "a".repeat(235), "b".repeat(17));
        let long = name(&long, "a");
        assert!(
            long.len() <= MAX_NAME && long.starts_with("aaa") && !long.contains("-."),
            "{long}"
        );
    }

    #[test]
    fn an_ignored_annotation_leaves_nothing_out() {
        let reason = |field: &str| {
            let object = ObjectRef {
                resource: Resource::Services,
                name: ObjectName::written("default/web"),
            };
            let (field, message) = (field.to_owned(), String::new());
            let kind = ProblemKind::Invalid;
            EventWords::of(&Notice::LeftOut(Problem { kind, object, field, message })).reason
        };
        assert_eq!(reason("metadata.annotations[deltaproxy.io/weights]"), "Ignored");
        assert_eq!(reason("spec.externalIPs[0]"), "LeftOut");
    }

    #[test]
    fn each_start_is_an_event_of_the_node() {
        let subject = Subject::of(&Notice::Starting, "node-a").unwrap();
        let event = serde_json::to_value(event(&subject, "node-a", &Notice::Starting)).unwrap();
        let expected = ["Normal", "Starting", "StartKubeProxy"];
        assert_eq!(["type", "reason", "action"].map(|field| event[field].clone()), expected);
        assert_eq!(
            (&event["regarding"]["kind"], &event["regarding"]["name"]),
            (&"Node".into(), &"node-a".into())
        );
        assert_ne!(event["metadata"]["name"], *name_of(&Notice::Starting));
    }

    #[test]
    fn a_note_is_truncated_between_characters() {
        let notice = left_out(Resource::Services, "default/web", &"ä".repeat(MAX_NOTE));
        let note = EventWords::of(&notice).note;
        assert!(note.len() <= MAX_NOTE && note.len() > MAX_NOTE - 2);
    }

    #[test]
    fn an_object_without_a_name_has_no_event() {
        for name in ["", "default/"] {
            let notice = left_out(Resource::Services, name, "");
            assert!(Subject::of(&notice, "node-a").is_none(), "{name}");
        }
    }
}
