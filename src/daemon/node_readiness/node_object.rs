//! The Node object as JSON: its condition, its taint, and the patches that change them.
//!
//! The patches leave everything else as it is: conditions are merged by their types, and the list of
//! taints is replaced only in the version that was read.

use serde_json::{Value, json};

use crate::observe::Readiness;

/// Type of the condition, and key of the taint.
pub(super) const NAME: &str = "deltaproxy.io/ServiceProxyReady";

/// Status, reason and message of the condition.
const WORDS: [(Readiness, [&str; 3]); 5] = [
    (
        Readiness::Ready,
        ["True", "FirstSyncDone", "the tables of the node have all services of the cluster"],
    ),
    (
        Readiness::Starting,
        ["False", "Starting", "the node has no tables, and the first sync is not done"],
    ),
    (
        Readiness::TablesBlocked,
        ["False", "TablesBlocked", "the kernel refuses a table, or another program owns it"],
    ),
    (
        Readiness::NodePortsClosed,
        ["False", "NodePortsClosed", "no address of the node serves NodePorts"],
    ),
    (
        Readiness::ApiServerLost,
        ["False", "ApiServerLost", "Services or EndpointSlices are not watched, and out of date"],
    ),
];

/// A Node object.
#[derive(Debug)]
pub(super) struct NodeObject(pub(super) Value);

impl NodeObject {
    /// Returns what the condition shows; `None` if it is absent or of another program.
    pub(super) fn shown(&self) -> Option<Readiness> {
        let condition = self.condition()?;
        let shows =
            |words: &[&str; 3]| condition["status"] == words[0] && condition["reason"] == words[1];
        WORDS.into_iter().find(|(_, words)| shows(words)).map(|(readiness, _)| readiness)
    }

    fn condition(&self) -> Option<&Value> {
        let conditions = self.0["status"]["conditions"].as_array()?;
        conditions.iter().find(|condition| condition["type"] == NAME)
    }

    /// Returns the strategic merge patch of the condition at `time`. The time of the transition
    /// changes with the status alone.
    pub(super) fn condition_patch(&self, readiness: Readiness, time: &str) -> Value {
        let words = WORDS.into_iter().find(|(known, _)| *known == readiness);
        let [status, reason, message] = words.map_or(["Unknown", "", ""], |(_, words)| words);
        let mut condition = json!({
            "type": NAME,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": time,
        });
        if self.condition().is_none_or(|condition| condition["status"] != status) {
            condition["lastTransitionTime"] = time.into();
        }
        json!({"status": {"conditions": [condition]}})
    }

    /// Returns the strategic merge patch that removes the condition; `None` if there is none.
    pub(super) fn removal(&self) -> Option<Value> {
        self.condition()?;
        Some(json!({"status": {"conditions": [{"$patch": "delete", "type": NAME}]}}))
    }

    /// Returns the merge patch that removes the taint from this version of the Node; `None` if there
    /// is none.
    pub(super) fn taint_patch(&self) -> Option<Value> {
        let taints = self.0["spec"]["taints"].as_array()?;
        let others: Vec<_> = taints.iter().filter(|taint| taint["key"] != NAME).collect();
        (others.len() < taints.len()).then(|| {
            json!({
                "metadata": {"resourceVersion": self.0["metadata"]["resourceVersion"]},
                "spec": {"taints": others},
            })
        })
    }

    /// Returns the identity of the object, which a Node that is created anew does not share.
    pub(super) fn uid(&self) -> &str {
        self.0["metadata"]["uid"].as_str().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: &str = "2026-11-28T10:00:00Z";

    fn node(conditions: &Value, taints: &Value) -> NodeObject {
        NodeObject(json!({
            "metadata": {"resourceVersion": "7", "uid": "u"},
            "spec": {"taints": taints},
            "status": {"conditions": conditions},
        }))
    }

    #[test]
    fn a_written_condition_is_found_again_and_others_are_not() {
        let other = json!({"type": "Ready", "status": "True", "reason": "FirstSyncDone"});
        for (readiness, [status, reason, _]) in WORDS {
            let patch = node(&json!([other]), &json!(null)).condition_patch(readiness, TIME);
            let written = &patch["status"]["conditions"];
            assert_eq!(written.as_array().unwrap().len(), 1);
            assert_eq!(
                (&written[0]["status"], &written[0]["reason"]),
                (&status.into(), &reason.into())
            );
            let found = node(&json!([other, written[0]]), &json!(null));
            assert_eq!(found.shown(), Some(readiness));
        }
        for absent in [json!(null), json!([other]), json!("text"), json!([1, {"type": NAME}])] {
            assert_eq!(node(&absent, &json!(null)).shown(), None, "{absent}");
        }
        assert_eq!(NodeObject(json!([])).shown(), None);
    }

    #[test]
    fn the_time_of_the_transition_changes_with_the_status_alone() {
        let former = json!([{"type": NAME, "status": "False", "reason": "NodePortsClosed"}]);
        let node = node(&former, &json!(null));
        let field = |readiness| {
            let patch = node.condition_patch(readiness, TIME);
            patch["status"]["conditions"][0]["lastTransitionTime"].clone()
        };
        assert_eq!(field(Readiness::TablesBlocked), Value::Null);
        assert_eq!(field(Readiness::Ready), TIME);
    }

    #[test]
    fn the_condition_alone_is_removed() {
        let mine = json!([{"type": "Ready"}, {"type": NAME}]);
        let expected = json!({"status": {"conditions": [{"$patch": "delete", "type": NAME}]}});
        assert_eq!(node(&mine, &json!(null)).removal(), Some(expected));
        assert_eq!(node(&json!([{"type": "Ready"}]), &json!(null)).removal(), None);
    }

    #[test]
    fn the_taint_alone_is_removed_whatever_its_effect_and_only_from_the_version_that_was_read() {
        let other = json!({"key": "deltaproxy.io/other", "effect": "NoSchedule"});
        let taints = json!([{"key": NAME, "effect": "NoSchedule"}, other, {"key": NAME, "value": "x", "effect": "NoExecute"}]);
        let expected = json!({
            "metadata": {"resourceVersion": "7"}, "spec": {"taints": [other]},
        });
        assert_eq!(node(&json!(null), &taints).taint_patch(), Some(expected));
        for none in [json!(null), json!([]), json!([other]), json!("text")] {
            assert_eq!(node(&json!(null), &none).taint_patch(), None, "{none}");
        }
    }
}
