//! The chart renders the objects of the kustomize base, and its values fit its schema.
//!
//! The templates use few expressions, which [`rendered`] replaces without Helm. `make deploy-check`
//! renders with Helm and names the result in `DELTAPROXY_CHART`.

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

/// The text of all templates.
fn templates() -> String {
    let files = fs::read_dir(folder(CHART).join("templates")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let texts: Vec<_> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    texts.join("---\n")
}

/// Expressions of a template: the text between `{{` and `}}`.
fn expressions(text: &str) -> Vec<&str> {
    text.split("{{").skip(1).map(|part| part.split_once("}}").unwrap().0).collect()
}

/// The value of an expression as YAML of one line. Panics on expressions of other forms.
fn rendered(expression: &str, values: &Value) -> String {
    let words: Vec<_> = expression.trim_start_matches('-').split_whitespace().collect();
    let value = |path: &str| {
        let pointer = path.strip_prefix(".Values").unwrap().replace('.', "/");
        values.pointer(&pointer).unwrap_or_else(|| panic!("values.yaml has no {path}"))
    };
    match words[..] {
        [".Release.Namespace"] => "kube-system".to_owned(),
        ["toYaml", path, "|", "nindent", _] => value(path).to_string(),
        ["toYaml", path, "|", "sha256sum"] => format!("sum-of-{}", value(path).to_string().len()),
        [path, "|", "quote"] => {
            let value = value(path);
            value.as_str().map_or_else(|| format!("\"{value}\""), |text| format!("{text:?}"))
        }
        [path] => value(path).as_str().unwrap().to_owned(),
        _ => panic!("an expression that this test does not know: {expression}"),
    }
}

/// The rendered objects.
pub(super) fn objects() -> Vec<Value> {
    if let Some(path) = std::env::var_os("DELTAPROXY_CHART") {
        return documents(&fs::read_to_string(path).unwrap());
    }
    let (templates, values) = (templates(), values());
    let mut text = templates.clone();
    for expression in expressions(&templates) {
        let whole = format!("{{{{{expression}}}}}");
        text = text.replace(&whole, &rendered(expression, &values));
    }
    documents(&text)
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

    let templates = templates();
    let used: BTreeSet<_> = expressions(&templates)
        .into_iter()
        .filter_map(|expression| expression.split(".Values.").nth(1))
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
