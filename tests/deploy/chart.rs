//! The chart renders the objects of the kustomize base, and more where values ask for it; its values
//! fit its schema.
//!
//! The templates use few expressions, which [`rendered`] replaces without Helm. `make deploy-check`
//! renders with Helm and names the results in `DELTAPROXY_CHART` and `DELTAPROXY_CHART_EVERYTHING`.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Map, Value, json};

use super::{base, documents, folder, read};

const CHART: &str = "deploy/helm/deltaproxy";

/// The value without a default, and its value in the base.
const REQUIRED: (&str, &str) = ("/apiServer/host", "api.example.internal");

fn values() -> Value {
    let mut values = read(&folder(CHART).join("values.yaml")).remove(0);
    let value = values.pointer_mut(REQUIRED.0).unwrap();
    assert_eq!(*value, json!(""), "a required value has a default");
    *value = json!(REQUIRED.1);
    values
}

/// The values that turn on everything that is off by default.
fn everything() -> Value {
    let mut values = values();
    let more = fs::read_to_string(folder("deploy/helm/everything.json")).unwrap();
    merge(&mut values, serde_json::from_str(&more).unwrap());
    values
}

/// Replaces values by those of `more`, as Helm does.
fn merge(values: &mut Value, more: Value) {
    match (values, more) {
        (Value::Object(values), Value::Object(more)) => {
            for (key, value) in more {
                merge(values.entry(key).or_insert(Value::Null), value);
            }
        }
        (value, more) => *value = more,
    }
}

/// The text of all templates of objects.
fn templates() -> String {
    let files = fs::read_dir(folder(CHART).join("templates")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|it| it == "yaml"));
    files.sort();
    let texts: Vec<_> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    texts.join("---\n")
}

/// Expressions of a template: the text between `{{` and `}}`.
fn expressions(text: &str) -> Vec<&str> {
    text.split("{{").skip(1).map(|part| part.split_once("}}").unwrap().0).collect()
}

/// The first `{{- if PATH }}` or `{{- with PATH }}` up to its end: its path, its text, and the texts
/// before and after. Blocks are not nested.
fn block(text: &str) -> Option<[&str; 4]> {
    let starts = ["{{- if ", "{{- with "].map(|start| (text.find(start), start));
    let (at, start) = starts.into_iter().filter_map(|(at, start)| Some((at?, start))).min()?;
    let (path, rest) = text[at + start.len()..].split_once(" }}").unwrap();
    let (inside, after) = rest.split_once("{{- end }}").unwrap();
    assert!(!inside.contains("{{- if ") && !inside.contains("{{- with "), "{path}: nested");
    Some([path, inside.trim_end(), text[..at].trim_end(), after])
}

/// A template without its blocks: each is there if its value is not empty.
fn without_blocks(template: &str, values: &Value) -> String {
    let Some([path, inside, before, after]) = block(template) else { return template.to_owned() };
    let empty = [json!(false), json!(""), json!([]), json!({})];
    let is_there = !empty.contains(value_of(path, values));
    let inside = inside.replace(" . ", &format!(" {path} "));
    let text = if is_there { inside } else { String::new() };
    without_blocks(&format!("{before}{text}{after}"), values)
}

fn value_of<'a>(path: &str, values: &'a Value) -> &'a Value {
    let pointer = path.strip_prefix(".Values").unwrap().replace('.', "/");
    values.pointer(&pointer).unwrap_or_else(|| panic!("values.yaml has no {path}"))
}

/// YAML of a value as lines that follow each other at `indent`.
fn indented(value: &Value, indent: &str) -> String {
    let lines = if let Some(list) = value.as_array().filter(|it| !it.is_empty()) {
        list.iter().map(|it| format!("- {it}")).collect()
    } else if let Some(object) = value.as_object().filter(|it| !it.is_empty()) {
        object.iter().map(|(key, it)| format!("{}: {it}", json!(key))).collect()
    } else {
        vec![value.to_string()]
    };
    let indent = " ".repeat(indent.parse().unwrap());
    lines.iter().map(|line| format!("\n{indent}{line}")).collect()
}

/// The value of an expression as YAML. Panics on expressions of other forms.
fn rendered(expression: &str, values: &Value) -> String {
    let words: Vec<_> = expression.trim_start_matches('-').split_whitespace().collect();
    let value = |path: &str| value_of(path, values);
    let file = |name: &str| folder(CHART).join(name.trim_matches('"'));
    match words[..] {
        [".Release.Namespace"] => "kube-system".to_owned(),
        ["toYaml", path, "|", "nindent", indent] => indented(value(path), indent),
        ["list", a, b, "|", "toYaml", "|", "sha256sum"] => {
            format!("sum-of-{}", [a, b].map(|path| value(path).to_string()).concat().len())
        }
        [".Files.Get", name, "|", "nindent", indent] => indented(&read(&file(name))[0], indent),
        [".Files.Get", name, "|", "toJson"] => {
            json!(fs::read_to_string(file(name)).unwrap()).to_string()
        }
        ["regexFind", "\"[0-9]+$\"", path] => {
            let text = value(path).as_str().unwrap();
            text.rsplit_once(':').unwrap().1.to_owned()
        }
        [path, "|", "quote"] => {
            let value = value(path);
            value.as_str().map_or_else(|| format!("\"{value}\""), |text| format!("{text:?}"))
        }
        [path] => value(path).as_str().unwrap().to_owned(),
        _ => panic!("an expression that this test does not know: {expression}"),
    }
}

/// The objects rendered with `values`, by Helm if `variable` names its result.
fn render(values: &Value, variable: &str) -> Vec<Value> {
    let text = std::env::var_os(variable).map_or_else(
        || {
            let template = without_blocks(&templates(), values);
            let replaced = |text: String, expression: &&str| {
                text.replace(&format!("{{{{{expression}}}}}"), &rendered(expression, values))
            };
            expressions(&template).iter().fold(template.clone(), replaced)
        },
        |path| fs::read_to_string(path).unwrap(),
    );
    let mut objects = documents(&text);
    objects.retain(|object| !object.is_null());
    objects
}

/// The objects rendered with the default values.
pub(super) fn objects() -> Vec<Value> {
    render(&values(), "DELTAPROXY_CHART")
}

/// Adds the ConfigMap that kustomize generates, under the name before its hash.
fn whole_base() -> Vec<Value> {
    let config = read(&folder("deploy/kustomize/config.yaml")).remove(0);
    let mut objects = base();
    objects.push(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "deltaproxy", "namespace": "kube-system" },
        "data": { "config.yaml": config },
    }));
    sorted(objects)
}

fn sorted(mut objects: Vec<Value>) -> Vec<Value> {
    objects.sort_by_key(|object| object["kind"].to_string());
    objects
}

#[test]
fn the_chart_renders_the_objects_of_the_base() {
    let mut objects = sorted(objects());
    for object in &mut objects {
        // The file, not its spelling, must be the same.
        if let Some(config) = object.pointer_mut("/data/config.yaml") {
            *config = documents(config.as_str().unwrap()).remove(0);
        }
        // kustomize has a hash in the name of the ConfigMap instead.
        if let Some(metadata) = object.pointer_mut("/spec/template/metadata") {
            let removed = metadata.as_object_mut().unwrap().remove("annotations").unwrap();
            assert_eq!(
                removed.as_object().unwrap().keys().collect::<Vec<_>>(),
                ["checksum/config"]
            );
        }
    }
    assert_eq!(objects, whole_base());
}

/// The object of this kind and name.
fn object<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut of_kind = objects.iter().filter(|it| it["kind"] == kind);
    let found = of_kind.find(|it| it["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

#[test]
fn everything_that_is_off_by_default_can_be_turned_on() {
    let objects = render(&everything(), "DELTAPROXY_CHART_EVERYTHING");
    assert_eq!(objects.len(), self::objects().len() + 3);
    for object in objects.iter().filter(|it| it["apiVersion"] != "monitoring.coreos.com/v1") {
        super::checked(object).unwrap_or_else(|error| panic!("{error}"));
    }

    let daemon_set = object(&objects, "DaemonSet", "deltaproxy");
    let template = &daemon_set["spec"]["template"];
    assert_eq!(template["metadata"]["annotations"]["example.com/team"], "network");
    assert_eq!(template["spec"]["imagePullSecrets"], json!([{ "name": "registry" }]));
    let container = &template["spec"]["containers"][0];
    assert_eq!(container["args"].as_array().unwrap().last().unwrap(), "--log-level=debug");
    assert_eq!(container["env"].as_array().unwrap().last().unwrap()["name"], "HTTPS_PROXY");
    assert_eq!(container["ports"], json!([{ "name": "metrics", "containerPort": 10249 }]));
    let config = &object(&objects, "ConfigMap", "deltaproxy")["data"]["config.yaml"];
    let config = documents(config.as_str().unwrap()).remove(0);
    assert_eq!(config["metricsBindAddress"], "0.0.0.0:10249");

    let rules = &object(&objects, "ClusterRole", "deltaproxy")["rules"];
    let all = read(&folder(super::READINESS_RIGHTS)).remove(0)["rules"].clone();
    // The role of the base may get nodes already.
    for rule in &all.as_array().unwrap()[1..] {
        assert!(rules.as_array().unwrap().contains(rule), "{rule}");
    }

    let monitor = object(&objects, "PodMonitor", "deltaproxy");
    assert_eq!(monitor["metadata"]["labels"], json!({ "release": "prometheus" }));
    assert_eq!(monitor["spec"]["selector"]["matchLabels"], template["metadata"]["labels"]);
    assert_eq!(monitor["spec"]["podMetricsEndpoints"][0]["port"], "metrics");
    let rule = object(&objects, "PrometheusRule", "deltaproxy");
    assert_eq!(rule["spec"], read(&folder("deploy/alerts.yaml"))[0]);
    let dashboard = object(&objects, "ConfigMap", "deltaproxy-dashboard");
    assert_eq!(dashboard["metadata"]["labels"], json!({ "grafana_dashboard": "1" }));
    let file = fs::read_to_string(folder("deploy/dashboard.json")).unwrap();
    assert_eq!(dashboard["data"]["deltaproxy.json"], file);
}

/// Fails where `value` has a key that the schema lacks, or lacks one that it requires.
fn fits(value: &Value, schema: &Value, path: &str) {
    let Some(object) = value.as_object() else { return };
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    let required = schema["required"].as_array().into_iter().flatten();
    for key in required.map(|key| key.as_str().unwrap()) {
        assert!(object.contains_key(key), "{path}.{key} is required");
        assert!(properties.contains_key(key), "{path}.{key} is required and has no schema");
    }
    for (key, value) in object {
        let path = format!("{path}.{key}");
        match properties.get(key) {
            Some(schema) => fits(value, schema, &path),
            None => assert!(schema["additionalProperties"] != false, "{path} is not in the schema"),
        }
    }
}

#[test]
fn the_values_fit_the_schema_and_each_is_used() {
    let schema = fs::read_to_string(folder(CHART).join("values.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let values = values();
    fits(&values, &schema, "values");
    fits(&everything(), &schema, "values");

    let templates = templates();
    let used: BTreeSet<_> = expressions(&templates)
        .into_iter()
        .flat_map(|expression| expression.split(".Values.").skip(1))
        .map(|path| path.split([' ', '.']).next().unwrap())
        .collect();
    let given: BTreeSet<_> = values.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(used, given);
}

#[test]
fn chart_image_and_program_have_one_version() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = read(&folder(CHART).join("Chart.yaml")).remove(0);
    assert_eq!((&chart["version"], &chart["appVersion"]), (&json!(version), &json!(version)));
    assert_eq!(values()["image"]["tag"], version);
}
