//! The condition of the daemon in one line, for people: whether it is ready, and what is wrong.

use std::time::Duration;

use nft::family::Family;

use super::health_state::Verdict;

/// What the line depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition<'a> {
    pub(super) verdict: &'a Verdict,
    /// Resources whose watch is lost, and the time since the first loss.
    pub(super) lost: (&'a [&'static str], Duration),
    /// Why all objects of a resource cannot be used, or may be of an earlier time.
    pub(super) unusable: Option<&'a str>,
    /// Whether the last sync of each family succeeded.
    pub(super) programmed: [bool; 2],
    /// NodePorts are closed in both families.
    pub(super) are_node_ports_closed: bool,
    /// The present configuration file is invalid, so that an earlier one is in use.
    pub(super) is_configuration_refused: bool,
}

impl Condition<'_> {
    /// Returns the line, and whether nothing is wrong.
    pub(super) fn line(&self) -> (String, bool) {
        let mut wrong = Vec::new();
        if self.verdict.lacks_node {
            wrong.push("this node has no Node object".to_owned());
        }
        if let (resources @ [_, ..], since) = self.lost {
            let names: Vec<_> =
                resources.iter().map(|it| it.split('.').next().unwrap_or(it)).collect();
            let out_of_date = if self.verdict.ready { "out of date: " } else { "" };
            let names = names.join(", ");
            wrong.push(format!("{out_of_date}no watch of {names} for {}", span(since)));
        }
        wrong.extend(self.unusable.map(str::to_owned));
        if self.verdict.ready || self.verdict.lacks_node {
            let failed = Family::ALL.into_iter().zip(self.programmed).filter(|(_, is)| !is);
            wrong.extend(failed.map(|(family, _)| format!("{} is not programmed", family.name())));
            if self.are_node_ports_closed {
                wrong.push("NodePorts are closed".to_owned());
            }
        }
        if !self.verdict.healthy() {
            wrong.push("a change waits for too long".to_owned());
        }
        if self.is_configuration_refused {
            wrong.push("the configuration file is refused, an earlier one is in use".to_owned());
        }
        match (self.verdict.ready, wrong.is_empty()) {
            (true, true) => ("ready".to_owned(), true),
            (true, false) => (format!("ready, but {}", wrong.join("; ")), false),
            (false, true) => ("not ready".to_owned(), false),
            (false, false) => (format!("not ready: {}", wrong.join("; ")), false),
        }
    }
}

/// Returns a time in its largest units.
fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m{}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h{minutes}m"),
        (days, hours, _) => format!("{days}d{hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::health_state::FamilyVerdict;
    use super::*;

    #[test]
    fn the_line_says_what_is_wrong() {
        let ready = Verdict {
            families: [FamilyVerdict { healthy: true, synced_ago: None }; 2],
            alive: true,
            ready: true,
            lacks_node: false,
            node_eligible: true,
        };
        let fine = Condition {
            verdict: &ready,
            lost: (&[], Duration::ZERO),
            unusable: None,
            programmed: [true; 2],
            are_node_ports_closed: false,
            is_configuration_refused: false,
        };
        let lost = (&["services", "endpointslices.discovery.k8s.io"][..], Duration::from_secs(754));
        let without_node = Verdict { ready: false, lacks_node: true, ..ready };
        let starting = Verdict { ready: false, ..ready };
        let mut late = ready;
        late.families[1].healthy = false;
        for (condition, line) in [
            (fine, "ready"),
            (
                Condition { lost, ..fine },
                "ready, but out of date: no watch of services, endpointslices for 12m34s",
            ),
            (
                Condition { verdict: &without_node, are_node_ports_closed: true, ..fine },
                "not ready: this node has no Node object; NodePorts are closed",
            ),
            (
                Condition { is_configuration_refused: true, ..fine },
                "ready, but the configuration file is refused, an earlier one is in use",
            ),
            (
                Condition { unusable: Some("the versions went back"), ..fine },
                "ready, but the versions went back",
            ),
            (Condition { verdict: &starting, programmed: [false; 2], ..fine }, "not ready"),
            (
                Condition { verdict: &late, programmed: [true, false], ..fine },
                "ready, but IPv6 is not programmed; a change waits for too long",
            ),
        ] {
            assert_eq!(condition.line(), (line.to_owned(), line == "ready"));
        }
    }
}
