//! The fields of the JSON outputs of commands are as recorded. `docs/releases.md` has the promise.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../tests/promises/record.rs"]
mod record;

use std::collections::BTreeSet;
use std::time::Duration;

use netlink_tests::scenario::{
    Lab, Manifests, Node, Object, Service, ServiceCidr, Slice, VIP, WEB, routing, slice,
    web_everywhere,
};
use netlink_tests::{Host, Process, deltaproxy_binary, eventually};
use serde_json::{Value, json};

/// How long a condition may take, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// Objects whose keys are names of services, sets or kinds, not of fields.
const NAMED: [&str; 7] = [
    "apply: elements",
    "apply: messages",
    "plan: summary.added",
    "plan: summary.removed",
    "plan: summary.services",
    "verify: services",
    "verify --manifests: services",
];

/// A service with all that `show` lists: source ranges, affinity, a count of refused packets.
fn restricted() -> Service {
    let ranges = json!(["192.0.2.0/24", "fd00:192:0:2::/64"]);
    web_everywhere()
        .spec("loadBalancerSourceRanges", ranges)
        .spec("sessionAffinity", json!("ClientIP"))
        .external_local()
}

/// The fields of a value below `path`, each with its type; null has none.
fn collect(path: &str, value: &Value, fields: &mut BTreeSet<String>) {
    match value {
        Value::Null => {}
        Value::Bool(_) => {
            fields.insert(format!("{path} bool"));
        }
        Value::Number(_) => {
            fields.insert(format!("{path} number"));
        }
        Value::String(_) => {
            fields.insert(format!("{path} text"));
        }
        Value::Array(items) => {
            items.iter().for_each(|item| collect(&format!("{path}[]"), item, fields));
        }
        Value::Object(members) => {
            for (name, member) in members {
                let name = if NAMED.contains(&path) { "NAME" } else { name };
                let separator = if path.ends_with(':') { " " } else { "." };
                collect(&format!("{path}{separator}{name}"), member, fields);
            }
        }
    }
}

/// A node with a daemon and connections, and the fields that were printed.
struct Recorder {
    lab: Lab,
    manifests: Manifests,
    fields: BTreeSet<String>,
}

impl Recorder {
    fn new() -> Self {
        let lab = Lab::without_objects(routing());
        let cidrs = ServiceCidr::new("kubernetes", &["10.96.0.0/16", "fd00:10:96::/48"]);
        let empty = Service::new("empty", "10.96.0.30").port(80);
        let objects: [(&str, &dyn Object); 5] = [
            ("cidr", &cidrs),
            ("node", &Node::new()),
            ("web", &restricted()),
            ("slice", &slice("a")),
            ("empty", &empty),
        ];
        for setting in ["nf_conntrack_timestamp", "nf_conntrack_acct"] {
            lab.world.node().sysctl(&format!("netfilter/{setting}"), "1");
        }
        Self { lab, manifests: Manifests::new(&objects), fields: BTreeSet::new() }
    }

    fn node(&self) -> &Host {
        self.lab.world.node()
    }

    fn daemon(&self) -> Process {
        let more = ["--healthz-bind-address=", "--metrics-bind-address=", "--counters=endpoints"];
        self.manifests.run_with(self.node(), &more)
    }

    /// Runs a command that must end with this code, and notes the fields of its document.
    #[track_caller]
    fn note(&mut self, command: &str, arguments: &[&str], code: i32) -> Value {
        let arguments = [arguments, &["--output", "json"]].concat();
        let finished = self.node().output(deltaproxy_binary(), &arguments);
        assert_eq!(finished.code(), Some(code), "{command}: {}", finished.stderr);
        let document: Value = serde_json::from_str(&finished.stdout).unwrap();
        collect(&format!("{command}:"), &document, &mut self.fields);
        document
    }

    /// The same for a command with the flags of the manifests.
    #[track_caller]
    fn note_with_manifests(&mut self, command: &str, more: &[&str], code: i32) {
        let path = self.manifests.path().to_str().unwrap().to_owned();
        let words = command.split(' ').next().unwrap();
        let arguments = [&[words, "--manifests", &path], more].concat();
        let _ = self.note(command, &arguments, code);
    }

    #[track_caller]
    fn wait_for_endpoint(&self, address: &str) {
        eventually(&format!("the endpoint {address}"), SOON, || {
            let arguments = ["show", WEB, "--output", "json"];
            let finished = self.node().output(deltaproxy_binary(), &arguments);
            let document: Value = serde_json::from_str(&finished.stdout).ok()?;
            let mut endpoints = document["services"][0]["endpoints"].as_array()?.iter();
            endpoints.any(|it| it["address"] == address && it["state"] == "serving").then_some(())
        });
    }
}

/// Fields that exist in some cases alone are noted where these cases occur: a service with source
/// ranges, affinity and counters, with open connections, one of them to a removed endpoint.
#[test]
fn fields_of_json_outputs_are_as_recorded() {
    let mut recorder = Recorder::new();
    let cidr = "--cluster-cidr=10.244.0.0/16,fd00:10:244::/48";
    let as_node = ["--hostname-override=node-a", cidr];
    recorder.note_with_manifests("plan", &as_node, 1);
    recorder.note_with_manifests("verify --manifests", &as_node, 1);
    recorder.note_with_manifests("apply", &as_node, 0);

    let _daemon = recorder.daemon();
    recorder.wait_for_endpoint("10.244.1.5");
    let pod = recorder.lab.world.host("pod").clone();
    let _former = pod.open_tcp(WEB).unwrap();
    recorder.manifests.write("slice", &slice("b c"));
    recorder.manifests.write("other", &Slice::new("unheard").endpoints("a"));
    let bad = restricted().spec("externalIPs", json!(["somewhere"]));
    recorder.manifests.write("web", &bad);
    recorder.wait_for_endpoint("10.244.1.6");
    let _present = pod.open_tcp(WEB).unwrap();
    let _ = pod.connect_tcp("10.96.0.30:80");

    let _ = recorder.note("show", &["show", "--sample", "1s"], 0);
    let _ = recorder.note("show --draining", &["show", "--draining"], 1);
    let _ = recorder.note("show --connections", &["show", "--connections", "default/web"], 0);
    let _ = recorder.note("show --refused", &["show", "--refused"], 0);
    let _ = recorder.note("explain", &["explain", &format!("{VIP}/tcp"), "--from=192.0.2.10"], 0);
    let _ = recorder.note("history", &["history"], 0);
    let _ = recorder.note("problems", &["problems"], 1);
    recorder.note_with_manifests("plan", &["--commands"], 2);
    let fields: Vec<_> = recorder.fields.into_iter().collect();
    assert!(fields.len() > 100, "{fields:#?}");
    record::compare("json", &fields);
}
