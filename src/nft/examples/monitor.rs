//! Prints the changes of all tables like `nft monitor`, without generations and comments.
//!
//! Run it as root: `cargo run -p nft-netlink --example monitor COUNT`. It ends after that many
//! changes.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::os::fd::AsFd;

use nft_netlink::kernel::{Extent, Nftables, Notifications};
use nft_netlink::netlink::socket::ReceiveError;
use nft_netlink::{
    AnyElement, AnySet, ChangedObject, ObjectChange, RuleContext, SetContents, TableFamily,
    TableRef,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Follows the changes of all tables.
pub(crate) struct Monitor {
    notifications: Notifications,
    kernel: Nftables,
    /// The sets of each table, those of rules with their elements: a notification about elements or
    /// a rule has the names of sets only.
    sets: BTreeMap<TableRef, Vec<SetContents>>,
}

impl Monitor {
    pub(crate) fn open() -> Result<Self, Box<dyn Error>> {
        let (notifications, kernel) = (Notifications::open()?, Nftables::open()?);
        let mut monitor = Self { notifications, kernel, sets: BTreeMap::new() };
        monitor.read_sets()?;
        Ok(monitor)
    }

    /// Reads the sets that exist, without the elements of named ones.
    fn read_sets(&mut self) -> Result<(), Box<dyn Error>> {
        self.sets.clear();
        for family in TableFamily::ALL {
            for header in self.kernel.tables(family)? {
                let table = self.kernel.whole_table(family, &header.name, Extent::Structure)?;
                let sets = table.map(|table| table.sets).unwrap_or_default();
                self.sets.insert(TableRef::new(family, header.name), sets);
            }
        }
        Ok(())
    }

    /// Returns the changes since the last call, each as a command of nft(8). Does not block.
    pub(crate) fn next(&mut self) -> Result<Vec<String>, Box<dyn Error>> {
        match self.notifications.take_changes() {
            Ok(changes) => {
                let changes = together(changes);
                Ok(changes.iter().filter_map(|change| self.line(change)).collect())
            }
            // More changes than the receive buffer holds: later ones will arrive.
            Err(error) if were_lost(&error) => {
                self.read_sets()?;
                Ok(vec![format!("# changes were lost: {error}")])
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns a change as a command. The sets of rules are no commands of their own.
    fn line(&mut self, change: &ObjectChange) -> Option<String> {
        let place = TableRef::new(change.family, change.table.clone());
        let verb = if change.is_deleted { "delete" } else { "add" };
        let sets = self.sets.entry(place.clone()).or_default();
        let context = RuleContext { family: change.family, sets, interfaces: &interface_name };
        let what = match &change.object {
            ChangedObject::Table(_) if change.is_deleted => {
                self.sets.remove(&place);
                return Some(format!("delete table {place}"));
            }
            ChangedObject::Table(_) => format!("table {place}"),
            ChangedObject::Chain(chain) if change.is_deleted => {
                format!("chain {place} {}", chain.name)
            }
            ChangedObject::Chain(chain) => format!("chain {place} {}", chain.text(change.family)),
            ChangedObject::Rule(rule) if change.is_deleted => {
                format!("rule {place} {} handle {}", rule.chain, rule.handle)
            }
            ChangedObject::Rule(rule) => {
                format!("rule {place} {} {}", rule.chain, context.text(&rule.expressions))
            }
            ChangedObject::Set(set) => return changed_set(sets, set, change.is_deleted, &place),
            ChangedObject::Elements { set, elements } => {
                let known = sets.iter_mut().find(|contents| contents.set.name == *set)?;
                if known.set.is_anonymous() {
                    known.elements.extend(elements.iter().cloned());
                    return None;
                }
                format!("element {place} {}", elements_text(known, elements, change.family))
            }
            ChangedObject::Object(object) => format!("{} {place} {}", object.noun(), object.name),
            ChangedObject::Flowtable(flowtable) => format!("flowtable {place} {}", flowtable.name),
        };
        Some(format!("{verb} {what}"))
    }
}

/// Makes one change of consecutive ones of elements of a set: the kernel notifies both ends of a
/// range on their own.
fn together(changes: Vec<ObjectChange>) -> Vec<ObjectChange> {
    let mut joined: Vec<ObjectChange> = Vec::new();
    for mut change in changes {
        if let Some(last) = joined.last_mut()
            && (last.family, &last.table, last.is_deleted)
                == (change.family, &change.table, change.is_deleted)
            && let ChangedObject::Elements { set, elements } = &mut last.object
            && let ChangedObject::Elements { set: other, elements: more } = &mut change.object
            && set == other
        {
            elements.append(more);
        } else {
            joined.push(change);
        }
    }
    joined
}

/// Notes that a set was added or deleted, and returns the command.
fn changed_set(
    sets: &mut Vec<SetContents>,
    set: &AnySet,
    is_deleted: bool,
    place: &TableRef,
) -> Option<String> {
    sets.retain(|contents| contents.set.name != set.name);
    let text = if is_deleted {
        format!("delete {} {place} {}", set.noun(), set.name)
    } else {
        sets.push(SetContents { set: set.clone(), elements: Vec::new() });
        format!("add {} {place} {set}", set.noun())
    };
    (!set.is_anonymous()).then_some(text)
}

fn elements_text(known: &SetContents, elements: &[AnyElement], family: TableFamily) -> String {
    let context = RuleContext { family, sets: &[], interfaces: &interface_name };
    let changed = SetContents { set: known.set.clone(), elements: elements.to_vec() };
    format!("{} {}", known.set.name, context.elements(&changed))
}

fn were_lost(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ReceiveError>());
    matches!(inner, Some(ReceiveError::Overrun))
}

fn interface_name(index: u32) -> Option<String> {
    nix::net::if_::if_indextoname(index).ok()?.into_string().ok()
}

#[expect(clippy::print_stdout, reason = "a program of the command line")]
fn main() -> Result<(), Box<dyn Error>> {
    let most: usize = std::env::args().nth(1).ok_or("usage: monitor COUNT")?.parse()?;
    let mut monitor = Monitor::open()?;
    let mut count = 0;
    while count < most {
        let descriptor = PollFd::new(monitor.notifications.as_fd(), PollFlags::POLLIN);
        poll(&mut [descriptor], PollTimeout::NONE)?;
        for line in monitor.next()?.iter().take(most - count) {
            println!("{line}");
            count += 1;
        }
    }
    Ok(())
}
