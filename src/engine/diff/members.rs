//! Elements that several services can share: cluster IPs and hairpins; and addresses for node
//! ports.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::packed_map::PackedMap;
use crate::piece::Piece;
use crate::ruleset::{Member, TableElement};

/// Cluster IPs and hairpins, with the number of services that need them.
#[derive(Debug, Default)]
pub(super) struct Members(PackedMap<Member, MemberState>);

/// Added to the number of services that need a member, if it is installed.
const INSTALLED: u32 = 1 << 31;

/// The number of services that need a member, and [`INSTALLED`].
#[derive(Clone, Copy, Debug, Default)]
struct MemberState(u32);

impl MemberState {
    fn users(self) -> u32 {
        self.0 & !INSTALLED
    }

    fn is_installed(self) -> bool {
        self.0 & INSTALLED != 0
    }
}

impl Members {
    /// Adds a service that needs the member.
    pub(super) fn share(&mut self, member: Member, piece: &mut Piece) {
        self.0.get_or_default(member).0 += 1;
        self.install(member, piece);
    }

    /// Installs a member that a service needs, if it is missing.
    pub(super) fn install(&mut self, member: Member, piece: &mut Piece) {
        let state = self.0.get_or_default(member);
        if !state.is_installed() {
            state.0 |= INSTALLED;
            add(member, piece);
        }
    }

    /// Removes a service that needed the member.
    pub(super) fn unshare(&mut self, member: Member, piece: &mut Piece) {
        if let Some(state) = self.0.get_mut(&member).filter(|state| state.users() > 0) {
            state.0 -= 1;
        }
        self.sweep(member, piece);
    }

    /// Deletes the member if no service needs it.
    pub(super) fn sweep(&mut self, member: Member, piece: &mut Piece) {
        if self.0.get(&member).is_some_and(|state| state.users() == 0)
            && let Some(state) = self.0.remove(&member)
            && state.is_installed()
        {
            delete(member, piece);
        }
    }

    pub(super) fn installed(&self) -> impl Iterator<Item = Member> {
        self.0.iter().filter(|(_, state)| state.is_installed()).map(|(member, _)| member)
    }

    pub(super) fn is_installed(&self, member: &Member) -> bool {
        self.0.get(member).is_some_and(|state| state.is_installed())
    }

    /// Records that the member is in the kernel.
    pub(super) fn find(&mut self, member: Member) {
        self.0.get_or_default(member).0 |= INSTALLED;
    }

    /// Records that the member is missing in the kernel.
    pub(super) fn lose(&mut self, member: Member) {
        if let Some(state) = self.0.get_mut(&member) {
            state.0 &= !INSTALLED;
        }
    }

    /// Replaces the installed state by a read-back. The numbers of services stay.
    pub(super) fn adopt(&mut self, found: impl Iterator<Item = Member>) {
        self.0.retain_values(|state| {
            state.0 &= !INSTALLED;
            state.users() > 0
        });
        found.for_each(|member| self.find(member));
    }

    /// Returns the members that no service needs.
    pub(super) fn unneeded(&self) -> impl Iterator<Item = Member> {
        self.0.iter().filter(|(_, state)| state.users() == 0).map(|(member, _)| member)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}

/// Addresses that accept traffic to node ports.
#[derive(Debug, Default)]
pub struct NodePortIps {
    desired: BTreeSet<IpAddr>,
    installed: BTreeSet<IpAddr>,
}

impl NodePortIps {
    /// Sets the desired addresses.
    pub fn set_desired(&mut self, addresses: &[IpAddr]) {
        self.desired = addresses.iter().copied().collect();
    }

    /// Replaces the installed addresses by a read-back.
    pub(super) fn adopt(&mut self, found: impl Iterator<Item = IpAddr>) {
        self.installed = found.collect();
    }

    /// Returns whether the installed addresses equal the desired addresses.
    pub(super) fn are_settled(&self) -> bool {
        self.desired == self.installed
    }

    /// Returns whether `address` is installed exactly if it is desired.
    pub fn is_settled(&self, address: IpAddr) -> bool {
        self.desired.contains(&address) == self.installed.contains(&address)
    }

    pub(super) fn is_installed(&self, address: IpAddr) -> bool {
        self.installed.contains(&address)
    }

    pub(super) fn installed(&self) -> impl Iterator<Item = IpAddr> {
        self.installed.iter().copied()
    }

    /// Records that the address is in the kernel.
    pub(super) fn find(&mut self, address: IpAddr) {
        self.installed.insert(address);
    }

    /// Records that the address is missing in the kernel.
    pub(super) fn lose(&mut self, address: IpAddr) {
        self.installed.remove(&address);
    }

    /// Installs the desired addresses.
    pub(super) fn install(&mut self, piece: &mut Piece) {
        if self.are_settled() {
            return;
        }
        let member = |address: &IpAddr| Member::NodePortIp(*address);
        self.installed.difference(&self.desired).for_each(|it| delete(member(it), piece));
        self.desired.difference(&self.installed).for_each(|it| add(member(it), piece));
        self.installed.clone_from(&self.desired);
    }
}

fn add(member: Member, piece: &mut Piece) {
    piece.add(member.family(), &TableElement::Member(member));
}

fn delete(member: Member, piece: &mut Piece) {
    piece.delete(member.family(), &TableElement::Member(member));
}
