//! The prediction of `explain` for each probe, compared with its outcome.
//!
//! Every probe of a [`super::World`] is predicted before it is sent. The endpoint that answers must
//! be among the predicted ones, and refusals, silence and masquerade must agree.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use inspect::explain::{Error, Explanation, Fate, Kernel, PossibleFate, Question, Start, explain};

use super::expect::Protocol;
use test_hosts::Answer;
use test_hosts::Host;

/// The kernel's rules on the node, and the servers by address.
#[derive(Debug)]
pub(crate) struct Oracle {
    node: Host,
    kernel: Mutex<Kernel>,
    servers: BTreeMap<String, Vec<SocketAddr>>,
}

impl Oracle {
    pub(crate) fn new(node: &Host) -> Self {
        let kernel = node.run(Kernel::open).expect("nftables and routes can be read");
        Self { node: node.clone(), kernel: Mutex::new(kernel), servers: BTreeMap::new() }
    }

    /// A server of this name is at the addresses of a host.
    pub(crate) fn add_server(&mut self, name: &str, host: &Host, port: u16) {
        let addresses = [IpAddr::from(host.ip()), host.ip6().into()];
        let addresses = addresses.map(|address| SocketAddr::new(address, port));
        self.servers.entry(name.to_owned()).or_default().extend(addresses);
    }

    /// The predicted outcome of a probe; `None` while the node has no tables.
    pub(crate) fn predict(
        &self,
        client: &Host,
        to: SocketAddr,
        protocol: Protocol,
    ) -> Option<Explanation> {
        let is_node = client.link_index().is_none();
        let source = if to.is_ipv4() { client.ip().into() } else { client.ip6().into() };
        let question = Question {
            to,
            protocol: Some(match protocol {
                Protocol::Tcp => 6,
                Protocol::Udp => 17,
                Protocol::Sctp => 132,
            }),
            from: (!is_node).then_some((source, None)),
            interface: None,
            start: Some(if is_node { Start::Output } else { Start::Prerouting }),
        };
        let explanation = self.node.run(|| {
            let mut kernel = self.kernel.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            explain(&mut kernel, &question)
        });
        match explanation {
            Ok(explanations) => explanations.into_iter().next(),
            Err(Error::NoTable { .. } | Error::Changing) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Compares a prediction with the answer, unless the rules have changed meanwhile.
    #[track_caller]
    pub(crate) fn check(&self, predicted: Option<&Explanation>, client: &Host, answer: &Answer) {
        let Some(predicted) = predicted else { return };
        let current = || {
            let mut kernel = self.kernel.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            kernel.start().is_ok_and(|generation| generation == predicted.generation)
        };
        assert!(
            self.agrees(predicted, client, answer) || !current(),
            "got {answer:?}, but explain predicts:\n{predicted}"
        );
    }

    fn agrees(&self, predicted: &Explanation, client: &Host, answer: &Answer) -> bool {
        let outcomes = &predicted.prediction.outcomes;
        assert!(outcomes.iter().all(|it| it.is_certain), "something is not known:\n{predicted}");
        let possible: Vec<_> = outcomes.iter().filter(|it| it.share > 0.0).collect();
        let any = |is_it: &dyn Fn(&PossibleFate) -> bool| possible.iter().any(|it| is_it(it));
        let unserved = |outcome: &PossibleFate| match outcome.fate {
            Fate::Sent { to, .. } => !self.servers.values().flatten().any(|it| *it == to),
            Fate::Handed(_)
            | Fate::Refused(_)
            | Fate::Dropped(_)
            | Fate::NoRoute(_)
            | Fate::Unknown(_) => false,
        };
        match answer {
            Answer::From { server, seen } => any(&|outcome| match outcome.fate {
                Fate::Sent { to, translated, masqueraded, .. } => {
                    // A test may give a host more addresses, also that of the packet itself.
                    let is_there =
                        !translated || self.servers[server].contains(&to) || unserved(outcome);
                    let is_own = client.link_index().is_none();
                    let sees_client = seen.ip() == predicted.packet.source;
                    is_there && (masqueraded != sees_client || is_own)
                }
                Fate::Handed(_)
                | Fate::Refused(_)
                | Fate::Dropped(_)
                | Fate::NoRoute(_)
                | Fate::Unknown(_) => false,
            }),
            Answer::Refused => any(&|it| matches!(it.fate, Fate::Refused(_)) || unserved(it)),
            Answer::Silent | Answer::Unreachable(_) => {
                any(&|it| matches!(it.fate, Fate::Dropped(_) | Fate::NoRoute(_)) || unserved(it))
            }
            Answer::Echoed => true,
        }
    }
}
