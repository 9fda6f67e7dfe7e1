//! The manifests, the chart and the packages of `deploy/` are valid, grant no more than the program
//! needs, and agree with each other.

#![allow(clippy::unwrap_used)] // An unreadable file is a failed test.

#[path = "deploy/chart.rs"]
mod chart;
#[path = "deploy/packages.rs"]
mod packages;
mod recorder;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use daemon::config::Source;
use daemon::config::command_flags::RunFlags;
use daemon::yaml;
use engine::model::Resource;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Container, PodSpec, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule};
use k8s_openapi::api::{self, core::v1};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A folder of the repository.
fn folder(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path)
}

/// The documents of a YAML text.
fn documents(text: &str) -> Vec<Value> {
    yaml::parse(text).unwrap().into_iter().map(|document| document.value).collect()
}

fn read(path: &Path) -> Vec<Value> {
    documents(&fs::read_to_string(path).unwrap())
}

/// The parsed kustomization.
fn kustomization() -> Value {
    read(&folder("deploy/kustomize/kustomization.yaml")).remove(0)
}

/// Names in a list of the kustomization.
fn names(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// All objects of the base, without the generated ConfigMap.
fn base() -> Vec<Value> {
    let files = names(&kustomization()["resources"]);
    files.iter().flat_map(|file| read(&folder("deploy/kustomize").join(file))).collect()
}

/// The object of type `T` among `objects`.
fn find<T: DeserializeOwned>(objects: &[Value], kind: &str) -> T {
    let mut found = objects.iter().filter(|object| object["kind"] == kind);
    let object = found.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(found.next().is_none(), "two objects of kind {kind}");
    serde_json::from_value(object.clone()).unwrap()
}

/// Reads `object` as a `T` and fails if a field is lost.
fn strict<T: DeserializeOwned + Serialize>(object: &Value) -> Result<(), String> {
    let read: T = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
    let written = serde_json::to_value(read).map_err(|error| error.to_string())?;
    if written == *object { Ok(()) } else { Err(format!("{object:#}\nis read as\n{written:#}")) }
}

/// Reads `object` as the type of its kind.
fn checked(object: &Value) -> Result<(), String> {
    match object["kind"].as_str().unwrap_or_default() {
        "DaemonSet" => strict::<DaemonSet>(object),
        "ServiceAccount" => strict::<ServiceAccount>(object),
        "ClusterRole" => strict::<ClusterRole>(object),
        "ClusterRoleBinding" => strict::<ClusterRoleBinding>(object),
        "ConfigMap" => strict::<ConfigMap>(object),
        "ValidatingAdmissionPolicy" => strict::<ValidatingAdmissionPolicy>(object),
        "ValidatingAdmissionPolicyBinding" => strict::<ValidatingAdmissionPolicyBinding>(object),
        other => Err(format!("unexpected kind {other:?}")),
    }
}

/// The pod template of the DaemonSet, and its only container.
fn pod() -> (PodSpec, Container) {
    let daemon_set: DaemonSet = find(&base(), "DaemonSet");
    let mut pod = daemon_set.spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.containers.len(), 1);
    let container = pod.containers.remove(0);
    (pod, container)
}

#[test]
fn every_object_has_only_fields_of_the_api() {
    let objects = base();
    assert_eq!(objects.len(), 4);
    let probe = read(&folder("deploy/probe-rbac.yaml"));
    assert_eq!(probe.len(), 3);
    let readiness = [READINESS_RIGHTS, "deploy/node-readiness-policy.yaml"];
    let readiness: Vec<_> = readiness.iter().flat_map(|file| read(&folder(file))).collect();
    assert_eq!(readiness.len(), 4);
    for object in objects.iter().chain(&chart::objects()).chain(&probe).chain(&readiness) {
        checked(object).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn unknown_fields_and_wrong_types_are_noticed() {
    let mut object = base().into_iter().find(|object| object["kind"] == "DaemonSet").unwrap();
    let container = "/spec/template/spec/containers/0";
    object.pointer_mut(container).unwrap()["livenessprobe"] = json!({});
    assert!(checked(&object).unwrap_err().contains("is read as"));
    object.pointer_mut(container).unwrap()["args"] = json!("run");
    assert!(checked(&object).unwrap_err().contains("invalid type"));
}

#[test]
fn every_file_of_the_base_is_part_of_it() {
    let kustomization = kustomization();
    let mut listed = names(&kustomization["resources"]);
    listed.extend(names(&kustomization["configMapGenerator"][0]["files"]));
    listed.push("kustomization.yaml".to_owned());
    let listed: BTreeSet<_> = listed.into_iter().collect();
    let found = fs::read_dir(folder("deploy/kustomize")).unwrap();
    let found = found.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(found.collect::<BTreeSet<_>>(), listed);
}

/// The verbs that `rules` allow, by API group and resource.
fn verbs(rules: &[PolicyRule]) -> BTreeMap<(String, String), BTreeSet<String>> {
    let mut verbs = BTreeMap::<_, BTreeSet<_>>::new();
    for rule in rules {
        assert!(rule.resource_names.is_none() && rule.non_resource_urls.is_none());
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                let allowed = verbs.entry((group.clone(), resource.clone())).or_default();
                allowed.extend(rule.verbs.iter().cloned());
            }
        }
    }
    verbs
}

/// API group and name of a resource.
fn of<T: k8s_openapi::Resource>() -> (String, String) {
    (T::GROUP.to_owned(), T::URL_PATH_SEGMENT.to_owned())
}

#[test]
fn the_role_allows_exactly_the_requests_of_the_program() {
    let verbs_of = |verbs: &[&str]| verbs.iter().map(|verb| (*verb).to_owned()).collect();
    let mut needed = BTreeMap::<_, BTreeSet<String>>::new();
    for resource in Resource::ALL {
        let resource = match resource {
            Resource::Services => of::<v1::Service>(),
            Resource::EndpointSlices => of::<api::discovery::v1::EndpointSlice>(),
            Resource::Nodes => of::<v1::Node>(),
            Resource::ServiceCidrs => of::<api::networking::v1::ServiceCIDR>(),
        };
        // `get` reads the uid of the object of an Event.
        needed.insert(resource, verbs_of(&["get", "list", "watch"]));
    }
    needed.insert(of::<Event>(), verbs_of(&["create"]));
    let role: ClusterRole = find(&base(), "ClusterRole");
    assert_eq!(verbs(&role.rules.unwrap()), needed);
}

/// The rights of the options of node readiness.
const READINESS_RIGHTS: &str = "deploy/node-readiness-rbac.yaml";

#[test]
fn the_rights_of_node_readiness_are_for_the_requests_about_the_own_node_and_the_same_account() {
    let objects = read(&folder(READINESS_RIGHTS));
    let role: ClusterRole = find(&objects, "ClusterRole");
    let needed = [("nodes", &["get", "patch"][..]), ("nodes/status", &["patch"])];
    let needed = needed.map(|(resource, allowed)| {
        let allowed = allowed.iter().map(|verb| (*verb).to_owned()).collect();
        ((String::new(), resource.to_owned()), allowed)
    });
    assert_eq!(verbs(&role.rules.unwrap()), BTreeMap::from(needed));
    let subjects =
        |objects: &[Value]| find::<ClusterRoleBinding>(objects, "ClusterRoleBinding").subjects;
    assert_eq!(subjects(&objects), subjects(&base()));
}

#[test]
fn the_role_is_bound_to_the_account_of_the_pod() {
    let objects = base();
    let (pod, _) = pod();
    let account: ServiceAccount = find(&objects, "ServiceAccount");
    let role: ClusterRole = find(&objects, "ClusterRole");
    let binding: ClusterRoleBinding = find(&objects, "ClusterRoleBinding");
    let daemon_set: DaemonSet = find(&objects, "DaemonSet");
    let subject = &binding.subjects.unwrap()[0];
    assert_eq!(binding.role_ref.name, role.metadata.name.unwrap());
    assert_eq!(Some(&subject.name), account.metadata.name.as_ref());
    assert_eq!(subject.namespace, account.metadata.namespace);
    assert_eq!(pod.service_account_name, account.metadata.name);
    assert_eq!(daemon_set.metadata.namespace, account.metadata.namespace);
}

#[test]
fn the_pod_has_one_capability_and_no_other_privilege() {
    let (pod, container) = pod();
    let context = serde_json::to_value(container.security_context.unwrap()).unwrap();
    let expected = json!({
        "runAsNonRoot": true,
        "runAsUser": 65_532,
        "runAsGroup": 65_532,
        "capabilities": { "drop": ["ALL"], "add": ["NET_ADMIN"] },
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "seccompProfile": { "type": "RuntimeDefault" },
    });
    assert_eq!(context, expected);
    assert_eq!(pod.host_network, Some(true));
    assert_eq!((pod.host_pid, pod.host_ipc, pod.init_containers), (None, None, None));
    let volumes = pod.volumes.unwrap();
    assert!(volumes.iter().all(|volume| volume.host_path.is_none()));
    assert!(container.resources.unwrap().limits.unwrap().contains_key("memory"));
    assert_eq!(pod.priority_class_name.as_deref(), Some("system-node-critical"));
}

#[derive(Parser)]
struct Run {
    #[command(flatten)]
    flags: RunFlags,
}

/// The arguments of the container; references to its environment stand for `node-1`.
fn arguments(container: &Container) -> Vec<String> {
    let expand = |argument: &String| {
        let mut argument = argument.clone();
        for variable in container.env.iter().flatten() {
            argument = argument.replace(&format!("$({})", variable.name), "node-1");
        }
        assert!(!argument.contains("$("), "{argument}: no such variable");
        argument
    };
    container.args.iter().flatten().map(expand).collect()
}

#[test]
fn the_pod_starts_with_its_flags_and_its_configuration() {
    let (pod, container) = pod();
    let arguments = arguments(&container);
    assert_eq!(arguments[0], "run");
    let mut flags = Run::try_parse_from(&arguments).unwrap().flags;

    let given = flags.node.config.take().unwrap();
    let mount = &container.volume_mounts.unwrap()[0];
    let file = given.strip_prefix(&mount.mount_path).unwrap();
    let volumes = pod.volumes.unwrap();
    let volume = volumes.iter().find(|volume| volume.name == mount.name).unwrap();
    let generator = &kustomization()["configMapGenerator"][0];
    assert_eq!(generator["name"], *volume.config_map.as_ref().unwrap().name);
    assert!(names(&generator["files"]).contains(&file.to_str().unwrap().to_owned()));

    flags.node.config = Some(folder("deploy/kustomize").join(file));
    let loaded = flags.load().unwrap();
    assert_eq!(loaded.notes.lines(), Vec::<String>::new());
    assert_eq!((&*loaded.config.node_name, loaded.config.source), ("node-1", Source::InCluster));
    let port = loaded.config.healthz_bind_address.unwrap().port();
    for (probe, path) in
        [(container.liveness_probe, "/livez"), (container.readiness_probe, "/readyz")]
    {
        let probe = serde_json::to_value(probe.unwrap().http_get.unwrap()).unwrap();
        assert_eq!(probe, json!({ "path": path, "port": port }));
    }
}
