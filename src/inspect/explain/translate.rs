//! Ends of rules that give a packet another address or another way.

use std::net::{IpAddr, SocketAddr};

use nft::expression::{Fwd, Nat, Reg};
use nft::{Family, Value, Verdict, key};

use super::evaluate::{End, Evaluation, Next, Within};
use super::field::{bytes, number, port_of};
use super::rules::Facts;
use super::state::State;
use super::step::{Event, Hop};

impl Within {
    fn address(&self, register: Reg) -> Option<IpAddr> {
        let destination = self.state.packet().destination;
        let length = Value::new().ip(destination).as_bytes().len();
        network::address_of(&bytes(&self.registers.read(register, length))?)
    }
}

impl<F: Facts> Evaluation<'_, F> {
    /// Translates the source of a packet; this ends the base chain for it.
    pub(super) fn translate_source(&mut self, mut within: Within) -> Vec<Next> {
        self.step.note(Event::Source);
        let packet = within.state.packet_mut();
        (packet.is_snat, packet.source_done, packet.source_port) = (true, true, None);
        self.accept(within.state)
    }

    /// Translates a packet; this ends the base chain for it.
    pub(super) fn nat(&mut self, nat: &Nat, within: Within) -> Vec<Next> {
        if nat.kind == key::NAT_SOURCE {
            return self.translate_source(within);
        }
        let differs = |last: Option<Reg>, first| last.is_some() && last != first;
        if differs(nat.last_address, nat.address) || differs(nat.last_port, nat.port) {
            self.unknown("the kernel chooses of a range; its first address and port are shown");
        }
        let to = match nat.address {
            Some(register) => within.address(register),
            None => Some(within.state.packet().destination),
        };
        let port = match nat.port {
            Some(port) => port_of(&within.registers.read(port, 2)),
            None => Some(within.state.packet().port),
        };
        let (Some(to), Some(port)) = (to, port) else {
            return self.unknown_expression("dnat to an address that is not known", within);
        };
        self.send_to(within.state, SocketAddr::new(to, port))
    }

    fn send_to(&mut self, mut state: State, to: SocketAddr) -> Vec<Next> {
        self.step.note(Event::Destination(to));
        let packet = state.packet_mut();
        (packet.destination, packet.port, packet.destination_done) = (to.ip(), to.port(), true);
        self.accept(state)
    }

    /// Translates to the node itself: packets of the node to the loopback address, others to the
    /// address of the input interface, which is not read.
    pub(super) fn redirect(&mut self, within: Within, port: Option<Reg>) -> Vec<Next> {
        let packet = within.state.packet();
        let loopback = match packet.family() {
            Family::Ip => IpAddr::from([127, 0, 0, 1]),
            Family::Ip6 => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1_u16]),
        };
        let to_port = match port {
            Some(port) => port_of(&within.registers.read(port, 2)),
            None => Some(packet.port),
        };
        match to_port {
            Some(port) if packet.input.index == 0 => {
                self.send_to(within.state, SocketAddr::new(loopback, port))
            }
            Some(_) | None => self.unknown_expression("redirect", within),
        }
    }

    /// Sends a packet by a device; without an address, its hardware addresses stay as they are.
    pub(super) fn hand_on(&mut self, fwd: &Fwd, within: Within) -> Vec<Next> {
        let address = fwd.address.map(|register| within.address(register));
        let device = number(&within.registers.read(fwd.device, 4));
        let (Some(device), None | Some(Some(_))) = (device, address) else {
            return self.unknown_expression("fwd", within);
        };
        let to = address.flatten();
        let hop = Hop {
            to,
            hardware_address: to.and_then(|to| self.facts.hardware_address(to, device)),
            interface: self.facts.interface_name(device),
        };
        self.step.note(Event::Handed(hop.clone()));
        vec![Next::End(within.state, End::Handed(hop))]
    }

    fn accept(&mut self, state: State) -> Vec<Next> {
        vec![Next::End(state, End::Verdict(Verdict::Accept))]
    }
}
