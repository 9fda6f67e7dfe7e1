//! The signs that an operator looks at, as they are and as they are to be.

use std::collections::BTreeSet;

use netlink_tests::http::get;
use netlink_tests::metrics::{Alerts, Scrapes};
use netlink_tests::{Deadline, Finished, Host, deltaproxy_binary};
use serde_json::Value;

use crate::node::{SOON, now_ms};

/// The signs that are to be seen. The default is those of a node without a daemon and without our
/// tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Signs<'a> {
    /// Status codes of `/readyz` and `/livez`; `None` without a daemon, and so are the others.
    pub(crate) probes: Option<[u16; 2]>,
    /// The condition on the first line of `top`.
    pub(crate) condition: Option<&'a str>,
    /// Kind and object of what `problems` lists.
    pub(crate) problems: Option<&'a [&'a str]>,
    /// Causes in `history` of the commits of this step. Without `unused` and `handover`, which
    /// follow seconds after another commit.
    pub(crate) causes: Option<&'a [&'a str]>,
    /// Endpoints of `web` in `show`; `None` without tables.
    pub(crate) endpoints: Option<&'a [&'a str]>,
    /// Active alerts.
    pub(crate) alerts: &'a [&'a str],
}

/// The signs of a node on which everything is in order and nothing happens.
pub(crate) const FINE: Signs<'_> = Signs {
    probes: Some([200, 200]),
    condition: Some("ready"),
    problems: Some(&[]),
    causes: Some(&[]),
    endpoints: Some(&["10.244.1.5"]),
    alerts: &[],
};

/// Looks at the signs of a node.
pub(crate) struct Observer {
    node: Host,
    alerts: Alerts,
    /// Those of the present step.
    scrapes: Scrapes,
    /// When it began, in milliseconds since 1970.
    began_ms: u64,
}

impl Observer {
    pub(crate) fn new(node: &Host) -> Self {
        let (alerts, scrapes) = (Alerts::deployed(), Scrapes::default());
        Self { node: node.clone(), alerts, scrapes, began_ms: 0 }
    }

    /// Begins a step: alerts about what has happened are over.
    pub(crate) fn begin(&mut self) {
        self.scrapes = Scrapes::default();
        self.scrape();
        self.began_ms = now_ms();
    }

    /// Waits until the signs are these.
    #[track_caller]
    pub(crate) fn expect(&mut self, step: &str, signs: &Signs<'_>) {
        let deadline = Deadline::after(SOON);
        loop {
            let differences = self.differences(signs);
            if differences.is_empty() {
                return;
            }
            assert!(deadline.left().is_some(), "{step}: {}", differences.join("\n"));
        }
    }

    fn differences(&mut self, signs: &Signs<'_>) -> Vec<String> {
        let list = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let mut differences = Vec::new();
        let mut compare = |what: &str, found: String, expected: String| {
            if found != expected {
                differences.push(format!("{what}: {found}, expected {expected}"));
            }
        };
        let text = |value: &dyn std::fmt::Debug| format!("{value:?}");
        compare("/readyz and /livez", text(&self.probes()), text(&signs.probes));
        compare("top", text(&self.condition()), text(&signs.condition));
        compare("problems", text(&self.problems()), text(&signs.problems.map(list)));
        compare("causes in history", text(&self.causes()), text(&signs.causes.map(list)));
        compare("show", text(&self.endpoints()), text(&signs.endpoints.map(list)));
        compare("alerts", text(&self.active_alerts()), text(&list(signs.alerts)));
        differences
    }

    fn probes(&self) -> Option<[u16; 2]> {
        let status = |path| get(&self.node, 10256, path).map(|answer| answer.status);
        Some([status("/readyz")?, status("/livez")?])
    }

    /// What stands before the name of the node, without the time since when.
    fn condition(&self) -> Option<String> {
        let screen = self.run(&["top", "--once", "--interval=100ms"]).stdout;
        let (condition, _) = screen.lines().next()?.split_once("  node ")?;
        let (_, condition) = condition.split_once("  ")?;
        let (before, last) = condition.rsplit_once(' ').unwrap_or(("", condition));
        let is_time = last.starts_with(|it: char| it.is_ascii_digit());
        Some(if is_time { before } else { condition }.trim().to_owned())
    }

    fn problems(&self) -> Option<Vec<String>> {
        let finished = self.run(&["problems", "--output=json"]);
        if finished.code() == Some(2) {
            assert_eq!(finished.stderr, "no daemon runs in this network namespace\n");
            return None;
        }
        let document: Value = serde_json::from_str(&finished.stdout).unwrap();
        let text = |it: &Value, field: &str| it[field].as_str().unwrap().to_owned();
        let problems = document["problems"].as_array().unwrap().iter();
        let problems = problems.map(|it| format!("{} {}", text(it, "kind"), text(it, "object")));
        let problems: BTreeSet<_> = problems.collect();
        assert_eq!(finished.code(), Some(i32::from(!problems.is_empty())), "{document}");
        Some(problems.into_iter().collect())
    }

    fn causes(&self) -> Option<Vec<String>> {
        let commits = self.commits()?;
        let causes = commits.iter().flat_map(|commit| commit["causes"].as_array().unwrap());
        let causes = causes.map(|cause| cause.as_str().unwrap().to_owned());
        let causes: BTreeSet<_> =
            causes.filter(|it| !["unused", "handover"].contains(&it.as_str())).collect();
        Some(causes.into_iter().collect())
    }

    /// The commits of this step, the oldest first.
    pub(crate) fn commits(&self) -> Option<Vec<Value>> {
        let finished = self.run(&["history", "--output=json"]);
        if finished.code() == Some(1) {
            assert_eq!(finished.stderr, "no daemon runs in this network namespace\n");
            return None;
        }
        let document: Value = serde_json::from_str(&finished.ok()).unwrap();
        let commits = document["commits"].as_array().unwrap().iter();
        let of_step = commits.filter(|it| it["at_ms"].as_u64().unwrap() >= self.began_ms);
        Some(of_step.cloned().collect())
    }

    fn endpoints(&self) -> Option<Vec<String>> {
        let finished = self.run(&["show", "10.96.0.10:80", "--output=json"]);
        if finished.code() == Some(2) {
            let stderr = &finished.stderr;
            assert!(stderr.contains("deltaproxy has not programmed this node"), "{stderr}");
            return None;
        }
        let document: Value = serde_json::from_str(&finished.ok()).unwrap();
        let endpoints = document["services"][0]["endpoints"].as_array().unwrap();
        // Connections of former endpoints go on.
        let present = endpoints.iter().filter(|it| it["state"] == "serving");
        let addresses = present.map(|it| it["address"].as_str().unwrap().to_owned());
        let addresses: BTreeSet<_> = addresses.collect();
        Some(addresses.into_iter().collect())
    }

    fn active_alerts(&mut self) -> Vec<String> {
        self.scrape();
        self.alerts.active(&self.scrapes).into_keys().collect()
    }

    fn scrape(&mut self) {
        let page = get(&self.node, 10249, "/metrics").map(|answer| answer.body);
        #[allow(clippy::cast_precision_loss, reason = "milliseconds of this century")]
        let at = now_ms() as f64 / 1_000.0;
        self.scrapes.add(at, page.as_deref());
    }

    fn run(&self, arguments: &[&str]) -> Finished {
        self.node.output(deltaproxy_binary(), arguments)
    }
}
