//! Direct return of a packet: what table direct-return made of it, or why it is translated here.

use engine::direct::ruleset::{DirectElement, DirectRoute, table};
use engine::ruleset;

use super::direct_elements::{DirectWay, direct_element, remembered};
use super::kernel::Kernel;
use super::packet::Packet;
use super::rules::{Rules, TableRules};
use super::service::Service;
use super::step::{Event, Prediction, RuleStep};

/// Direct return of a packet to an address in table direct-return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectReturn {
    /// What the table makes of the packet.
    pub way: DirectWay,
    /// The service, which no rule of this node looks up for a packet that is handed on.
    pub service: Option<Service>,
}

impl Kernel {
    /// Returns what table direct-return makes of a packet; `None` without the table.
    pub(super) fn direct_return(
        &mut self,
        rules: &Rules,
        packet: &Packet,
        prediction: &Prediction,
    ) -> Option<DirectReturn> {
        let table = rules.tables.get(&table())?;
        let sender = |element| matches!(element, DirectElement::HardwareAddress(_));
        if elements(prediction).any(sender) {
            return Some(DirectReturn { way: DirectWay::FromNode, service: None });
        }
        let frontend = elements(prediction).find_map(|element| {
            let DirectElement::Frontend(destination, route) = element else { return None };
            Some((destination, route))
        });
        let Some((destination, route)) = frontend else {
            return Some(DirectReturn { way: not_chosen(table, prediction), service: None });
        };
        let table = ruleset::table(packet.family());
        let mut frontends = [destination.frontend(), destination.node_port()].into_iter();
        let service = frontends.find_map(|it| self.service_of(&table, it));
        Some(DirectReturn { way: chosen(route, prediction), service })
    }
}

fn not_chosen(table: &TableRules, prediction: &Prediction) -> DirectWay {
    if rules_of_table(prediction).next().is_some() {
        return DirectWay::NoDestination;
    }
    let devices = table.base_chains.iter().flat_map(|(_, base)| &base.devices);
    DirectWay::OtherDevice(devices.map(ToString::to_string).collect())
}

fn chosen(route: DirectRoute, prediction: &Prediction) -> DirectWay {
    if let Some(node) = events(prediction).find_map(remembered) {
        return DirectWay::Chosen { route, slot: None, node: Some(node), is_remembered: true };
    }
    let slot = elements(prediction).find_map(|element| {
        let DirectElement::Slot(_, slot, node) = element else { return None };
        Some((slot, node))
    });
    let (slot, node) = slot.unzip();
    DirectWay::Chosen { route, slot, node, is_remembered: false }
}

/// Returns the rules of the table that the packet reached.
fn rules_of_table(prediction: &Prediction) -> impl Iterator<Item = &RuleStep> {
    prediction.rules().filter(|rule| rule.place.table == table())
}

fn events(prediction: &Prediction) -> impl Iterator<Item = &Event> {
    rules_of_table(prediction).flat_map(|rule| &rule.events)
}

fn elements(prediction: &Prediction) -> impl Iterator<Item = DirectElement> {
    events(prediction).filter_map(direct_element)
}
