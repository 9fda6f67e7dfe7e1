//! Objects that clients create, change and delete, completed as kube-apiserver 1.36 does.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::kind::Kind;
use super::request::Request;
use super::state::State;
use super::target::Target;

/// The code and the body of an answer.
pub(super) type Answer = (u16, Value);

impl Request {
    /// The verb of a request about a single object, and the object or the list it is to be in.
    fn write(&self) -> Option<(&'static str, Target)> {
        let target = Target::of(&self.path)?;
        let verb = match (self.method.as_str(), &target.name) {
            ("POST", None) => "create",
            ("PATCH", Some(_)) => "patch",
            ("DELETE", Some(_)) => "delete",
            ("GET", Some(_)) => "get",
            _ => return None,
        };
        Some((verb, target))
    }
}

impl State {
    /// Whether a request gets no answer.
    pub(super) fn ignores(&self, request: &Request) -> bool {
        request.write().is_some_and(|(verb, target)| {
            self.writes.ignored.contains(&(verb, &*target.resource()))
        })
    }

    /// Carries out a request that changes an object, or reads one; `None` if it names something
    /// else.
    pub(super) fn write(&mut self, request: &Request) -> Option<Answer> {
        let (verb, target) = request.write()?;
        if let Some(answer) = self.refusal(verb, &target) {
            return Some(answer);
        }
        Some(match verb {
            "create" => self.create(&target, &request.posted),
            "patch" => match (request.content_type.as_str(), target.is_status) {
                ("application/merge-patch+json", false) => self.merge(&target, &request.posted),
                ("application/strategic-merge-patch+json", true) => {
                    self.merge_conditions(&target, &request.posted)
                }
                _ => status(415, "the body of the request was in an unknown format"),
            },
            "delete" => self.delete(&target),
            _ => self.read(&target, request),
        })
    }

    /// The refusal of what the client has no right to.
    pub(super) fn refusal(&self, verb: &str, target: &Target) -> Option<Answer> {
        let resource = target.resource();
        let is_forbidden = self.writes.forbidden.contains(&(verb, &*resource));
        let scope = match &target.namespace {
            Some(namespace) => format!("in the namespace {namespace:?}"),
            None => "at the cluster scope".to_owned(),
        };
        let name = target.name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
        let group = target.kind.api_version().split_once('/').map_or("", |(group, _)| group);
        is_forbidden.then(|| {
            status(
                403,
                &format!(
                    "{resource}{name} is forbidden: User \"probe\" cannot {verb} resource \
                     {resource:?} in API group {group:?} {scope}"
                ),
            )
        })
    }

    fn create(&mut self, target: &Target, object: &Value) -> Answer {
        let mut object = object.clone();
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let created = Target { name: Some(name.clone()), ..target.clone() };
        let Some(key) = created.key().filter(|_| !name.is_empty()) else {
            return status(422, "metadata.name: Required value: name or generateName is required");
        };
        if let Some(namespace) = &target.namespace {
            if self.store.get(Kind::Namespace, namespace).is_none() {
                return status(404, &format!("namespaces {namespace:?} not found"));
            }
            object["metadata"]["namespace"] = namespace.as_str().into();
        }
        if self.store.get(target.kind, &key).is_some() {
            return status(409, &format!("{} {name:?} already exists", target.kind.plural()));
        }
        self.writes.created += 1;
        let number = self.writes.created;
        object["metadata"]["uid"] = format!("24293d57-b45a-40b6-aa34-{number:012x}").into();
        object["metadata"]["creationTimestamp"] = "2026-11-21T02:31:15Z".into();
        object["metadata"]["managedFields"] = json!([{
            "manager": "unknown", "operation": "Update", "time": "2026-11-21T02:31:15Z",
            "apiVersion": target.kind.api_version(), "fieldsType": "FieldsV1", "fieldsV1": {},
        }]);
        let problem = match target.kind {
            Kind::Namespace => {
                object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
                object["spec"] = json!({"finalizers": ["kubernetes"]});
                object["status"] = json!({"phase": "Active"});
                None
            }
            Kind::Service => complete_service(&mut object, number, self.writes.has_only_ipv6),
            Kind::EndpointSlice => {
                object["metadata"]["generation"] = 1.into();
                check_slice(&object)
            }
            Kind::Node | Kind::ServiceCidr => None,
        };
        match problem {
            Some(problem) => status(422, &problem),
            None => (201, self.put(target.kind, object, &key)),
        }
    }

    fn merge(&mut self, target: &Target, patch: &Value) -> Answer {
        if let Some(object) = self.writes.before_patch.take_if(|it| Kind::of(it) == target.kind) {
            self.store.put(target.kind, object);
        }
        let Some(key) = target.key() else { return missing(target) };
        let Some(mut object) = self.store.get(target.kind, &key) else { return missing(target) };
        let version = &patch["metadata"]["resourceVersion"];
        if !version.is_null() && *version != object["metadata"]["resourceVersion"] {
            return status(409, "the object has been modified; please apply your changes to it");
        }
        merge(&mut object, patch);
        let generation = object["metadata"]["generation"].as_u64().unwrap_or_default();
        object["metadata"]["generation"] = (generation + 1).into();
        (200, self.put(target.kind, object, &key))
    }

    /// Merges the conditions of a status by their types, as a strategic merge patch does.
    fn merge_conditions(&mut self, target: &Target, patch: &Value) -> Answer {
        let Some(key) = target.key() else { return missing(target) };
        let Some(mut object) = self.store.get(target.kind, &key) else { return missing(target) };
        let former = object["status"]["conditions"].as_array().cloned();
        let mut conditions = former.unwrap_or_default();
        for change in patch["status"]["conditions"].as_array().into_iter().flatten() {
            let known = conditions.iter().position(|it| it["type"] == change["type"]);
            match known {
                Some(place) if change["$patch"] == "delete" => drop(conditions.remove(place)),
                Some(place) => merge(&mut conditions[place], change),
                None => conditions.push(change.clone()),
            }
        }
        object["status"]["conditions"] = conditions.into();
        (200, self.put(target.kind, object, &key))
    }

    fn put(&mut self, kind: Kind, object: Value, key: &str) -> Value {
        self.store.put(kind, object);
        self.store.get(kind, key).expect("it was put there")
    }

    /// Deletes an object; of a namespace all that it has, which a controller does soon after.
    fn delete(&mut self, target: &Target) -> Answer {
        let Some(key) = target.key() else { return missing(target) };
        let Some(mut object) = self.store.get(target.kind, &key) else { return missing(target) };
        self.store.delete(target.kind, &key);
        match target.kind {
            Kind::Namespace => {
                for kind in [Kind::Service, Kind::EndpointSlice] {
                    let (keys, prefix) = (self.store.keys(kind), format!("{key}/"));
                    let inside = keys.iter().filter(|key| key.starts_with(&prefix));
                    inside.for_each(|key| self.store.delete(kind, key));
                }
                object["metadata"]["deletionTimestamp"] = "2026-11-21T02:31:32Z".into();
                object["status"]["phase"] = "Terminating".into();
                (200, object)
            }
            Kind::Service => (200, object),
            Kind::EndpointSlice | Kind::Node | Kind::ServiceCidr => {
                let details = json!({
                    "name": target.name, "kind": target.kind.plural(), "uid": object["metadata"]["uid"],
                });
                let success = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                    "details": details,
                });
                (200, success)
            }
        }
    }

    fn read(&self, target: &Target, request: &Request) -> Answer {
        let found = target.key().and_then(|key| self.store.get(target.kind, &key));
        let Some(object) = found else { return missing(target) };
        if request.accept.contains("PartialObjectMetadata") {
            let metadata = json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": object["metadata"],
            });
            return (200, metadata);
        }
        (200, object)
    }
}

fn missing(target: &Target) -> Answer {
    let name = target.name.as_deref().unwrap_or_default();
    status(404, &format!("{} {name:?} not found", target.kind.plural()))
}

fn status(code: u16, message: &str) -> Answer {
    (code, super::respond::status_object(code, message))
}

/// Allocates a ClusterIP and fills in the defaults of pkg/apis/core/v1/defaults.go.
fn complete_service(service: &mut Value, number: u8, has_only_ipv6: bool) -> Option<String> {
    let served = if has_only_ipv6 { "IPv6" } else { "IPv4" };
    let family = service["spec"]["ipFamilies"][0].as_str().unwrap_or(served).to_owned();
    // The server of the tests has one family for each of its Services.
    if has_only_ipv6 && family != "IPv6" {
        return Some(format!(
            "Service \"deltaproxy-probe\" is invalid: spec.ipFamilies[0]: Invalid value: \
             {family:?}: not configured on this cluster"
        ));
    }
    let ip = match family.as_str() {
        "IPv6" => format!("fd00:10:96::c8:{number:x}"),
        _ => format!("10.96.200.{number}"),
    };
    let spec = &mut service["spec"];
    spec["clusterIP"] = ip.as_str().into();
    spec["clusterIPs"] = json!([ip]);
    spec["ipFamilies"] = json!([family]);
    spec["internalTrafficPolicy"] = "Cluster".into();
    spec["sessionAffinity"] = "None".into();
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        port["targetPort"] = port["port"].clone();
    }
    service["status"] = json!({"loadBalancer": {}});
    None
}

/// Refuses what `ValidateEndpointIP` refuses first.
fn check_slice(slice: &Value) -> Option<String> {
    let address = slice["endpoints"][0]["addresses"][0].as_str()?;
    let is_loopback = address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_loopback.then(|| {
        format!(
            "EndpointSlice.discovery.k8s.io is invalid: endpoints[0].addresses[0]: Invalid value: \
             {address:?}: may not be in the loopback range (127.0.0.0/8, ::1/128)"
        )
    })
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            target.as_object_mut().and_then(|target| target.remove(name));
        } else {
            merge(&mut target[name.as_str()], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_patch_replaces_lists_and_removes_nulls() {
        let mut object = json!({"a": {"b": 1, "c": 2}, "d": [1, 2]});
        merge(&mut object, &json!({"a": {"b": null, "e": 3}, "d": [9]}));
        assert_eq!(object, json!({"a": {"c": 2, "e": 3}, "d": [9]}));
    }
}
