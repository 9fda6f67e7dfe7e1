//! The crate nftables: JSON for `nft -j`.

use std::borrow::Cow;

use nftables::batch::Batch;
use nftables::expr::{Expression, NamedExpression, Payload, PayloadField};
use nftables::helper;
use nftables::schema::{
    Chain, Element, FlushObject, NfCmd, NfListObject, Rule, Set, SetType, SetTypeValue, Table,
};
use nftables::stmt::{Accept, Match, Operator, Statement};
use nftables::types::NfFamily;

use crate::{CHAIN, Desired, SET, TABLE};

const FAMILY: NfFamily = NfFamily::IP;

fn chain() -> Chain<'static> {
    Chain { family: FAMILY, table: TABLE.into(), name: CHAIN.into(), ..Chain::default() }
}

fn set(size: Option<u32>) -> Box<Set<'static>> {
    let set_type = SetTypeValue::Single(SetType::Ipv4Addr);
    Box::new(Set {
        family: FAMILY,
        table: TABLE.into(),
        name: SET.into(),
        set_type,
        size,
        ..Set::default()
    })
}

/// `tcp dport PORT accept`
fn rule(port: u16) -> Rule<'static> {
    let field = PayloadField { protocol: "tcp".into(), field: "dport".into() };
    let left = Expression::Named(NamedExpression::Payload(Payload::PayloadField(field)));
    let right = Expression::Number(port.into());
    let expr = vec![
        Statement::Match(Match { left, right, op: Operator::EQ }),
        Statement::Accept(Some(Accept {})),
    ];
    Rule {
        family: FAMILY,
        table: TABLE.into(),
        chain: CHAIN.into(),
        expr: expr.into(),
        ..Rule::default()
    }
}

fn add_contents(batch: &mut Batch<'static>, desired: &Desired) {
    desired.ports.iter().for_each(|port| batch.add(NfListObject::Rule(rule(*port))));
    if !desired.addresses.is_empty() {
        let address =
            |address: &std::net::Ipv4Addr| Expression::String(Cow::Owned(address.to_string()));
        let elem: Vec<_> = desired.addresses.iter().map(address).collect();
        batch.add(NfListObject::Element(Element {
            family: FAMILY,
            table: TABLE.into(),
            name: SET.into(),
            elem: elem.into(),
        }));
    }
}

/// Makes the table.
pub fn load(desired: &Desired) {
    let mut batch = Batch::new();
    batch.add(NfListObject::Table(Table { family: FAMILY, name: TABLE.into(), handle: None }));
    batch.add(NfListObject::Chain(chain()));
    batch.add(NfListObject::Set(set(desired.size)));
    add_contents(&mut batch, desired);
    helper::apply_ruleset(&batch.to_nftables()).unwrap();
}

/// Replaces what is in the chain and in the set.
pub fn change(desired: &Desired) {
    let mut batch = Batch::new();
    batch.add_cmd(NfCmd::Flush(FlushObject::Chain(chain())));
    batch.add_cmd(NfCmd::Flush(FlushObject::Set(set(desired.size))));
    add_contents(&mut batch, desired);
    helper::apply_ruleset(&batch.to_nftables()).unwrap();
}
