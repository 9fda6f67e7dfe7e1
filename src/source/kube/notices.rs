//! What was left out, told by Event objects (events.k8s.io/v1) about the objects concerned.
//!
//! Nobody waits for them. What cannot be written, or comes faster than the pace allows, stands in
//! the log alone. An Event's name follows from what it says, so all nodes of a cluster together
//! write it once, until it expires.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as EventObject;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::pace::Pace;
use super::{ApiServer, SourceError, load_client};
use crate::model::{Problem, Resource};
use crate::printable::Printable;
use crate::source::objects::{EndpointSlice, MAX_NAME, Node, Service, ServiceCidr};

/// Events that may be written without waiting, after a quiet time.
const BURST: u32 = 20;

/// The mean time between events when more are asked for.
const INTERVAL: Duration = Duration::from_secs(5);

/// How long one event may take to write.
const LIMIT: Duration = Duration::from_secs(10);

/// The longest `note` (`ValidateEvent` in pkg/apis/core/validation/events.go), in bytes.
const MAX_NOTE: usize = 1024;

/// Who writes the events.
const CONTROLLER: &str = "deltaproxy";

/// Where events about objects of the cluster are.
const CLUSTER_NAMESPACE: &str = "default";

/// Writes an event for each of `problems`, for as long as they have a sender.
pub async fn write_notices(
    server: &ApiServer,
    node_name: &str,
    mut problems: mpsc::Receiver<Problem>,
) {
    let mut pace = Pace::new(INTERVAL, BURST);
    let mut client = None;
    let mut is_working = true;
    while let Some(problem) = problems.recv().await {
        tokio::time::sleep_until(pace.start(Instant::now())).await;
        let written = tokio::time::timeout(LIMIT, write(server, &mut client, node_name, &problem));
        let error = match written.await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {} s", LIMIT.as_secs())),
        };
        // The first failure is told, and the first one after a success.
        if let (true, Some(error)) = (is_working, &error) {
            let error = Printable(error);
            tracing::warn!("cannot write events about what is left out: {error}");
        }
        is_working = error.is_none();
        if error.is_some() {
            // Other credentials may be there by the next time.
            client = None;
        }
    }
}

async fn write(
    server: &ApiServer,
    client: &mut Option<Client>,
    node_name: &str,
    problem: &Problem,
) -> Result<(), SourceError> {
    let Some(mut subject) = Subject::of(problem) else { return Ok(()) };
    let client = match client {
        Some(client) => client,
        None => client.insert(load_client(server).await?),
    };
    match subject.api(client).get_metadata(&subject.name).await {
        Ok(found) => subject.uid = found.metadata.uid,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        // An event without the uid is less easily found, but better than none.
        Err(_) => {}
    }
    let event = event(&subject, node_name, problem);
    let events = Api::<EventObject>::namespaced(client.clone(), subject.event_namespace());
    match events.create(&PostParams::default(), &event).await {
        Ok(_) => Ok(()),
        // It is there already.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err((&error).into()),
    }
}

/// The object that an event is about.
#[derive(Debug)]
struct Subject {
    resource: ApiResource,
    namespace: Option<String>,
    name: String,
    uid: Option<String>,
}

impl Subject {
    /// The object that has the problem, if it has a name.
    fn of(problem: &Problem) -> Option<Self> {
        let resource = match problem.object.resource {
            Resource::Services => ApiResource::erase::<Service>(&()),
            Resource::EndpointSlices => ApiResource::erase::<EndpointSlice>(&()),
            Resource::Nodes => ApiResource::erase::<Node>(&()),
            Resource::ServiceCidrs => ApiResource::erase::<ServiceCidr>(&()),
        };
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

fn event(subject: &Subject, node_name: &str, problem: &Problem) -> EventObject {
    EventObject {
        metadata: ObjectMeta {
            name: Some(event_name(subject, problem)),
            namespace: Some(subject.event_namespace().to_owned()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(Timestamp::now())),
        type_: Some("Warning".to_owned()),
        reason: Some("LeftOut".to_owned()),
        action: Some("Route".to_owned()),
        note: Some(note(problem)),
        regarding: Some(subject.reference()),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(format!("{CONTROLLER}-{node_name}").chars().take(128).collect()),
        ..EventObject::default()
    }
}

/// The object's name and what the event says of it, as a name.
fn event_name(subject: &Subject, problem: &Problem) -> String {
    // The same in all daemons of one build, which is enough.
    let mut hasher = DefaultHasher::new();
    (&problem.object, &subject.uid, &problem.field, &problem.message).hash(&mut hasher);
    let suffix = format!(".{:016x}", hasher.finish());
    let room = MAX_NAME - suffix.len();
    let name = subject.name.get(..room).unwrap_or(&subject.name);
    format!("{}{suffix}", name.trim_end_matches(['-', '.']))
}

fn note(problem: &Problem) -> String {
    let mut note = match problem.field.as_str() {
        "" => problem.message.clone(),
        field => format!("{field}: {}", problem.message),
    };
    note.truncate(note.floor_char_boundary(MAX_NOTE));
    note
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ObjectName, ObjectRef};

    fn problem(resource: Resource, name: &str, message: &str) -> Problem {
        let object = ObjectRef { resource, name: ObjectName::written(name) };
        Problem { object, field: "spec.ports[0]".to_owned(), message: message.to_owned() }
    }

    #[test]
    fn an_event_names_the_object_and_what_was_left_out() {
        let problem = problem(Resource::Services, "default/web", "is wrong");
        let mut subject = Subject::of(&problem).unwrap();
        subject.uid = Some("7".to_owned());
        let event = serde_json::to_value(event(&subject, "node-a", &problem)).unwrap();
        assert_eq!(event["note"], "spec.ports[0]: is wrong");
        assert_eq!(event["metadata"]["namespace"], "default");
        assert_eq!(event["reportingInstance"], "deltaproxy-node-a");
        let regarding = serde_json::json!({
            "apiVersion": "v1", "kind": "Service", "namespace": "default", "name": "web", "uid": "7",
        });
        assert_eq!(event["regarding"], regarding);
    }

    #[test]
    fn an_event_about_an_object_of_the_cluster_is_in_the_default_namespace() {
        let subject = Subject::of(&problem(Resource::ServiceCidrs, "kubernetes", "")).unwrap();
        assert_eq!(subject.event_namespace(), "default");
        assert_eq!(subject.reference().namespace, None);
    }

    #[test]
    fn the_same_words_have_the_same_name_and_others_have_another() {
        let name = |name: &str, message: &str| {
            let problem = problem(Resource::Services, name, message);
            event_name(&Subject::of(&problem).unwrap(), &problem)
        };
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
    fn a_note_is_cut_between_characters() {
        let note = note(&problem(Resource::Services, "default/web", &"ä".repeat(MAX_NOTE)));
        assert!(note.len() <= MAX_NOTE && note.len() > MAX_NOTE - 2);
    }

    #[test]
    fn an_object_without_a_name_is_passed_over() {
        for name in ["", "default/"] {
            assert!(Subject::of(&problem(Resource::Services, name, "")).is_none(), "{name}");
        }
    }
}
