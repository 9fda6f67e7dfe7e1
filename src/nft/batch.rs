//! A transaction as netlink messages.
//!
//! The kernel accepts a batch as one datagram, from `NFNL_MSG_BATCH_BEGIN` to `NFNL_MSG_BATCH_END`.
//! Sequence numbers increase by one per message, so an error identifies its message.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use thiserror::Error;

use super::abi::*;
use crate::difference::{Difference, RawMessage};
use crate::element::{Element, LIST_LIMIT, write_list};
use crate::family::TableFamily;
use crate::message_kind::MessageKind;
use crate::netlink::attr::{AttrWriter, TooLong};
use crate::netlink::message::{self, Header};
use crate::request::Generation;
use crate::set::Set;
use crate::table::TableRef;
use crate::text::Name;
use crate::transaction::{Destroyed, Operation, Transaction};

/// The message of a batch that requests an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledge {
    /// `NFNL_MSG_BATCH_END`; Linux 6.10 and later.
    BatchEnd,
    /// The last message before it.
    LastMessage,
}

/// An encoded transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// All messages from `NFNL_MSG_BATCH_BEGIN` to `NFNL_MSG_BATCH_END`.
    pub bytes: Vec<u8>,
    /// Origin of each message between begin and end. The first has the sequence number
    /// `first_sequence + 1`; the end has the one after the last.
    pub messages: SmallVec<[MessageOrigin; USUAL_MESSAGES]>,
    /// Sequence number of the message that begins the batch.
    pub first_sequence: u32,
}

/// Capacity for the messages of a change of one endpoint, with reserve.
const USUAL_MESSAGES: usize = 8;

/// The origin of a message of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageOrigin {
    /// Index into [`Transaction::operations`].
    pub operation: usize,
    /// Index of the message's first element in the operation's list; 0 for other operations.
    pub first_element: usize,
    /// Type of the message.
    pub kind: MessageKind,
    /// Offset of the message's header in [`Batch::bytes`].
    pub offset: usize,
}

/// Why a transaction cannot be encoded. No part of it may be sent.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EncodeError {
    /// An attribute of the operation does not fit its 16-bit length.
    #[error("operation {operation} has an attribute longer than 65535 bytes")]
    TooLong {
        /// Index into [`Transaction::operations`].
        operation: usize,
    },
    /// Key or data of an element do not match the set's types.
    #[error("element {element} of operation {operation} is not of the set's types")]
    Element {
        /// Index into [`Transaction::operations`].
        operation: usize,
        /// Index into the operation's elements.
        element: usize,
    },
}

impl Batch {
    /// Encodes a difference. The kernel refuses it if the ruleset has another generation than that
    /// which was compared. Each message is an operation of its own.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] if a message is longer than its length field.
    pub fn of_difference(
        difference: &Difference,
        first_sequence: u32,
        acknowledge: Acknowledge,
    ) -> Result<Self, EncodeError> {
        let messages = difference.messages();
        let bytes = messages.iter().map(|it| it.attributes.len() + MESSAGE_BYTES).sum();
        let size = Size { messages: messages.len(), bytes };
        let generation = difference.generation();
        let mut writer = BatchWriter::new(Vec::new(), first_sequence, size, generation);
        writer.raw(messages, difference.family().number())?;
        Ok(writer.finish(acknowledge))
    }

    /// Returns the origin of the message with this sequence number. `None` for the messages that
    /// begin and end the batch, and for numbers outside it.
    pub fn origin(&self, sequence: u32) -> Option<MessageOrigin> {
        let index = sequence.wrapping_sub(self.first_sequence).checked_sub(1)?;
        self.messages.get(usize::try_from(index).ok()?).copied()
    }

    /// Returns the message with this origin, header included.
    pub fn message(&self, origin: MessageOrigin) -> &[u8] {
        let rest = self.bytes.get(origin.offset..).unwrap_or_default();
        let length = rest.first_chunk().map_or(0, |length| u32::from_ne_bytes(*length));
        usize::try_from(length).ok().and_then(|length| rest.get(..length)).unwrap_or_default()
    }

    /// Returns the sequence number of the message that ends the batch.
    pub fn last_sequence(&self) -> u32 {
        let messages = u32::try_from(self.messages.len()).unwrap_or(u32::MAX);
        self.first_sequence.wrapping_add(messages).wrapping_add(1)
    }

    /// Returns the number of messages of each kind between begin and end.
    pub fn counts(&self) -> BTreeMap<MessageKind, usize> {
        let mut counts = BTreeMap::new();
        for message in &self.messages {
            *counts.entry(message.kind).or_default() += 1;
        }
        counts
    }
}

impl Transaction {
    /// Encodes the operations as one batch whose first message has the sequence number
    /// `first_sequence`.
    ///
    /// The elements of one operation may need several messages; see [`LIST_LIMIT`].
    ///
    /// # Errors
    /// An operation cannot be expressed; see [`EncodeError`].
    pub fn encode(
        &self,
        first_sequence: u32,
        acknowledge: Acknowledge,
    ) -> Result<Batch, EncodeError> {
        self.encode_into(Vec::new(), first_sequence, acknowledge)
    }

    /// Does the same into the buffer of an earlier batch, whose bytes are lost.
    ///
    /// # Errors
    /// As for [`Transaction::encode`].
    pub fn encode_into(
        &self,
        buffer: Vec<u8>,
        first_sequence: u32,
        acknowledge: Acknowledge,
    ) -> Result<Batch, EncodeError> {
        let mut writer = BatchWriter::new(buffer, first_sequence, self.expected_size(), None);
        for (index, operation) in self.operations.iter().enumerate() {
            writer.operation = index;
            writer.write(operation)?;
        }
        Ok(writer.finish(acknowledge))
    }

    /// Returns the approximate number of messages and bytes, so that buffers seldom grow.
    fn expected_size(&self) -> Size {
        let lists = self.operations.iter().filter_map(Operation::elements);
        let elements = lists.map(|list| list.len() * IPV4_ELEMENT_BYTES).sum::<usize>();
        let messages = self.operations.len() + elements / LIST_LIMIT;
        Size { messages, bytes: (messages + 1) * MESSAGE_BYTES + elements }
    }
}

/// The expected size of a batch.
#[derive(Clone, Copy)]
struct Size {
    messages: usize,
    bytes: usize,
}

/// Bytes of an IPv4 element with a comment.
const IPV4_ELEMENT_BYTES: usize = 96;

/// Bytes of a message without elements, of most kinds.
const MESSAGE_BYTES: usize = 128;

struct BatchWriter {
    batch: Batch,
    operation: usize,
}

impl BatchWriter {
    fn new(
        mut bytes: Vec<u8>,
        first_sequence: u32,
        expected: Size,
        generation: Option<Generation>,
    ) -> Self {
        bytes.clear();
        bytes.reserve(expected.bytes);
        let messages = SmallVec::with_capacity(expected.messages);
        let batch = Batch { bytes, messages, first_sequence };
        let mut writer = Self { batch, operation: 0 };
        writer.boundary(NFNL_MSG_BATCH_BEGIN, NLM_F_REQUEST, first_sequence, |w| {
            if let Some(Generation(generation)) = generation {
                w.be32(NFNL_BATCH_GENID, generation);
            }
        });
        writer
    }

    fn finish(mut self, acknowledge: Acknowledge) -> Batch {
        let last = self.batch.messages.last().map(|origin| origin.offset + FLAGS_OFFSET);
        let flags = match (acknowledge, last) {
            (Acknowledge::LastMessage, Some(at)) => {
                let bytes = &mut self.batch.bytes;
                let flags = u16::from_ne_bytes([bytes[at], bytes[at + 1]]) | NLM_F_ACK;
                bytes[at..at + 2].copy_from_slice(&flags.to_ne_bytes());
                NLM_F_REQUEST
            }
            (Acknowledge::BatchEnd, _) | (Acknowledge::LastMessage, None) => {
                NLM_F_REQUEST | NLM_F_ACK
            }
        };
        let sequence = self.batch.last_sequence();
        self.boundary(NFNL_MSG_BATCH_END, flags, sequence, |_| {});
        self.batch
    }

    fn boundary(
        &mut self,
        kind: u16,
        flags: u16,
        sequence: u32,
        fill: impl FnOnce(&mut AttrWriter<'_>),
    ) {
        let header = Header { kind, flags, sequence };
        let [high, low] = NFNL_SUBSYS_NFTABLES.to_be_bytes();
        let fixed = [NFPROTO_UNSPEC, 0, high, low];
        let written = message::append(&mut self.batch.bytes, header, &fixed, fill);
        debug_assert!(written.is_ok(), "bug: a message of at most 28 bytes is too long");
    }

    fn write(&mut self, operation: &Operation) -> Result<(), EncodeError> {
        use MessageKind::{DelChain, DelFlowtable, DelRule, DelSet, DelSetElem, DelTable};
        use MessageKind::{NewChain, NewFlowtable, NewRule, NewSet, NewTable};
        match operation {
            Operation::AddTable(table) => self.message(NewTable, table.family, |w| table.encode(w)),
            Operation::DeleteTable(table) => {
                self.message(DelTable, table.family, |w| w.str(NFTA_TABLE_NAME, &table.name))
            }
            Operation::AddChain(table, chain) => {
                self.message(NewChain, table.family, |w| chain.write(&table.name, w))
            }
            Operation::DeleteChain(table, name) => {
                self.named(DelChain, table, (NFTA_CHAIN_NAME, name))
            }
            Operation::FlushChain(table, name) => {
                self.named(DelRule, table, (NFTA_RULE_CHAIN, name))
            }
            Operation::AddRule(table, rule) => {
                self.message(NewRule, table.family, |w| rule.encode(&table.name, w))
            }
            Operation::DeleteRule(table, chain, handle) => {
                self.rule(DelRule, table, (chain, *handle))
            }
            Operation::AddFlowtable(table, flowtable) => {
                self.message(NewFlowtable, table.family, |w| flowtable.write(&table.name, w))
            }
            Operation::DeleteFlowtable(table, name) => {
                self.named(DelFlowtable, table, (NFTA_FLOWTABLE_NAME, name))
            }
            Operation::AddDevices(table, flowtable, devices) => {
                self.message(NewFlowtable, table.family, |w| {
                    flowtable.with_devices(devices).write(&table.name, w);
                })
            }
            Operation::DeleteDevices(table, flowtable, devices) => {
                self.message(DelFlowtable, table.family, |w| {
                    flowtable.with_devices(devices).write(&table.name, w);
                })
            }
            Operation::AddSet(table, set) => {
                // Unique in the batch, as the kernel requires; 0 would mean none.
                let id = u32::try_from(self.batch.messages.len() + 1).unwrap_or(u32::MAX);
                self.message(NewSet, table.family, |w| set.encode(&table.name, id, w))
            }
            Operation::DeleteSet(table, name) => self.named(DelSet, table, (NFTA_SET_NAME, name)),
            Operation::FlushSet(table, name) => {
                self.named(DelSetElem, table, (NFTA_SET_ELEM_LIST_SET, name))
            }
            Operation::AddElements(table, set, elements) => {
                self.elements(MessageKind::NewSetElem, table, set, elements)
            }
            Operation::DeleteElements(table, set, elements) => {
                self.elements(DelSetElem, table, set, elements)
            }
            Operation::Destroy(table, destroyed) => self.destroy(table, destroyed),
        }
    }

    fn destroy(&mut self, table: &TableRef, destroyed: &Destroyed) -> Result<(), EncodeError> {
        use MessageKind::{DestroyChain, DestroyFlowtable, DestroyObj, DestroyRule, DestroySet};
        match destroyed {
            Destroyed::Table => self.message(MessageKind::DestroyTable, table.family, |w| {
                w.str(NFTA_TABLE_NAME, &table.name);
            }),
            Destroyed::Chain(name) => self.named(DestroyChain, table, (NFTA_CHAIN_NAME, name)),
            Destroyed::Rule(chain, handle) => self.rule(DestroyRule, table, (chain, *handle)),
            Destroyed::Set(name) => self.named(DestroySet, table, (NFTA_SET_NAME, name)),
            Destroyed::Elements(set, elements) => {
                self.elements(MessageKind::DestroySetElem, table, set, elements)
            }
            Destroyed::Object(kind, name) => self.message(DestroyObj, table.family, |w| {
                w.str(NFTA_OBJ_TABLE, &table.name);
                w.str(NFTA_OBJ_NAME, name);
                w.be32(NFTA_OBJ_TYPE, *kind);
            }),
            Destroyed::Flowtable(name) => {
                self.named(DestroyFlowtable, table, (NFTA_FLOWTABLE_NAME, name))
            }
        }
    }

    /// Writes a message with nothing but the table, the chain and the handle of a rule.
    fn rule(
        &mut self,
        kind: MessageKind,
        table: &TableRef,
        (chain, handle): (&Name, u64),
    ) -> Result<(), EncodeError> {
        self.message(kind, table.family, |w| {
            w.str(NFTA_RULE_TABLE, &table.name);
            w.str(NFTA_RULE_CHAIN, chain);
            w.be64(NFTA_RULE_HANDLE, handle);
        })
    }

    /// Writes a message with nothing but the table and the name of an object. The table is
    /// attribute 1 of every message.
    fn named(
        &mut self,
        kind: MessageKind,
        table: &TableRef,
        (attribute, name): (u16, &Name),
    ) -> Result<(), EncodeError> {
        self.message(kind, table.family, |w| {
            w.str(NFTA_TABLE_NAME, &table.name);
            w.str(attribute, name);
        })
    }

    fn elements(
        &mut self,
        kind: MessageKind,
        table: &TableRef,
        set: &Set,
        elements: &[Element],
    ) -> Result<(), EncodeError> {
        if let Some(element) = elements.iter().position(|element| !fits(kind, element, set)) {
            return Err(EncodeError::Element { operation: self.operation, element });
        }
        let mut first = 0;
        while first < elements.len() {
            let mut written = 0;
            self.message(kind, table.family, |w| {
                w.str(NFTA_SET_ELEM_LIST_TABLE, &table.name);
                w.str(NFTA_SET_ELEM_LIST_SET, &set.name);
                written = write_list(w, &elements[first..], |element, w| {
                    if kind.is_of_keys() {
                        element.encode_key(set, w);
                    } else {
                        element.encode(set, w);
                    }
                });
            })?;
            if let Some(origin) = self.batch.messages.last_mut() {
                origin.first_element = first;
            }
            first += written;
        }
        Ok(())
    }

    /// Writes messages that are encoded already, each as an operation.
    fn raw<'a>(
        &mut self,
        messages: impl IntoIterator<Item = &'a RawMessage>,
        family: u8,
    ) -> Result<(), EncodeError> {
        for (index, message) in messages.into_iter().enumerate() {
            self.operation = index;
            let (kind, flags) = (message.kind, message.flags());
            self.message_with(kind, flags, family, |w| w.encoded(&message.attributes))?;
        }
        Ok(())
    }

    fn message(
        &mut self,
        kind: MessageKind,
        family: TableFamily,
        fill: impl FnOnce(&mut AttrWriter<'_>),
    ) -> Result<(), EncodeError> {
        self.message_with(kind, kind.flags(), family.number(), fill)
    }

    fn message_with(
        &mut self,
        kind: MessageKind,
        flags: u16,
        family: u8,
        fill: impl FnOnce(&mut AttrWriter<'_>),
    ) -> Result<(), EncodeError> {
        let offset = self.batch.bytes.len();
        let (kind_number, sequence) = (kind.number(), self.batch.last_sequence());
        let header = Header { kind: kind_number, flags, sequence };
        let operation = self.operation;
        message::append(&mut self.batch.bytes, header, &[family, 0, 0, 0], fill)
            .map_err(|TooLong| EncodeError::TooLong { operation })?;
        self.batch.messages.push(MessageOrigin { operation, first_element: 0, kind, offset });
        Ok(())
    }
}

/// `nlmsg_flags` in `struct nlmsghdr`.
const FLAGS_OFFSET: usize = 6;

fn fits(kind: MessageKind, element: &Element, set: &Set) -> bool {
    if kind.is_of_keys() { element.key_fits(set) } else { element.fits(set) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::expression::{Immediate, Reg};
    use super::super::{Rule, Type, Value, decode_elements};
    use super::*;
    use crate::netlink::message::Messages;

    fn table() -> TableRef {
        TableRef::new(crate::Family::Ip, "t")
    }

    fn addresses() -> Arc<Set> {
        Arc::new(Set { name: "s".into(), key: vec![Type::Ipv4Addr], ..Set::default() })
    }

    fn element(n: u32) -> Element {
        Element::new(Value::new().ip(n.to_be_bytes().into()))
    }

    fn encode(operations: Vec<Operation>, acknowledge: Acknowledge) -> Batch {
        Transaction { operations }.encode(100, acknowledge).unwrap()
    }

    /// Returns type, flags and sequence number of every message.
    fn headers(batch: &Batch) -> Vec<(u16, u16, u32)> {
        let messages = Messages::new(&batch.bytes).map(Result::unwrap);
        messages.map(|message| (message.kind, message.flags, message.sequence)).collect()
    }

    // nft --debug=mnl delete table ip t
    #[test]
    #[cfg(target_endian = "little")]
    fn a_batch_is_its_messages_between_begin_and_end() {
        let batch = encode(vec![Operation::DeleteTable(table())], Acknowledge::BatchEnd);
        #[rustfmt::skip]
        let expected = [
            20, 0, 0, 0, 0x10, 0, 1, 0, 100, 0, 0, 0, 0, 0, 0, 0,  0, 0, 0, 10,
            28, 0, 0, 0, 2, 10, 1, 0, 101, 0, 0, 0, 0, 0, 0, 0,  2, 0, 0, 0,  6, 0, 1, 0, b't', 0, 0, 0,
            20, 0, 0, 0, 0x11, 0, 5, 0, 102, 0, 0, 0, 0, 0, 0, 0,  0, 0, 0, 10,
        ];
        assert_eq!(batch.bytes, expected);
    }

    #[test]
    fn objects_are_added_without_nlm_f_excl() {
        let rule = Rule { chain: "c".into(), expressions: vec![], comment: None };
        let add = vec![
            Operation::AddSet(table(), addresses()),
            Operation::AddElements(table(), addresses(), [element(1)].into()),
            Operation::AddRule(table(), rule),
        ];
        let batch = encode(add, Acknowledge::LastMessage);
        let (request, create, append, ack) = (0x1, 0x400, 0x800, 0x4);
        let expected = [
            (0x10, request, 100),
            (0xa09, request | create, 101),
            (0xa0c, request | create, 102),
            (0xa06, request | create | append | ack, 103),
            (0x11, request, 104),
        ];
        assert_eq!(headers(&batch), expected);
    }

    // nft --debug=mnl delete rule ip t c handle 7
    #[test]
    #[cfg(target_endian = "little")]
    fn a_rule_is_deleted_by_its_handle() {
        let batch =
            encode(vec![Operation::DeleteRule(table(), "c".into(), 7)], Acknowledge::BatchEnd);
        #[rustfmt::skip]
        let expected = [
            48, 0, 0, 0, 8, 10, 1, 0, 101, 0, 0, 0, 0, 0, 0, 0,  2, 0, 0, 0,
            6, 0, 1, 0, b't', 0, 0, 0,  6, 0, 2, 0, b'c', 0, 0, 0,
            12, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 7,
        ];
        assert_eq!(batch.message(batch.messages[0]), expected);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn what_may_not_exist_is_destroyed_by_messages_of_their_own() {
        let destroyed = [
            Destroyed::Table,
            Destroyed::Chain("c".into()),
            Destroyed::Rule("c".into(), 7),
            Destroyed::Set("s".into()),
            Destroyed::Elements(addresses(), [element(1)].into()),
            Destroyed::Object(1, "o".into()),
            Destroyed::Flowtable("f".into()),
        ];
        let operations = destroyed.map(|what| Operation::Destroy(table(), what)).to_vec();
        let transaction = Transaction { operations: operations.clone() };
        assert_eq!(
            transaction.to_string(),
            "destroy table ip t\n\
             destroy chain ip t c\n\
             destroy rule ip t c handle 7\n\
             destroy set ip t s\n\
             destroy element ip t s { 0.0.0.1 }\n\
             destroy counter ip t o\n\
             destroy flowtable ip t f\n"
        );
        let batch = encode(operations, Acknowledge::BatchEnd);
        let kinds: Vec<_> = headers(&batch).iter().map(|(kind, ..)| *kind).collect();
        assert_eq!(kinds[1..8], [0xa1a, 0xa1b, 0xa1c, 0xa1d, 0xa1e, 0xa1f, 0xa20]);
        #[rustfmt::skip]
        let expected = [
            44, 0, 0, 0, 0x1f, 10, 1, 0, 106, 0, 0, 0, 0, 0, 0, 0,  2, 0, 0, 0,
            6, 0, 1, 0, b't', 0, 0, 0,  6, 0, 2, 0, b'o', 0, 0, 0,  8, 0, 3, 0, 0, 0, 0, 1,
        ];
        assert_eq!(batch.message(batch.messages[5]), expected);
    }

    #[test]
    fn a_sequence_number_leads_to_its_operation() {
        let operations = vec![
            Operation::FlushChain(table(), "c".into()),
            Operation::AddElements(table(), addresses(), vec![].into()),
            Operation::DeleteSet(table(), "s".into()),
        ];
        let batch = encode(operations, Acknowledge::BatchEnd);
        let operation = |sequence| batch.origin(sequence).map(|origin| origin.operation);
        assert_eq!([100, 101, 102, 103].map(operation), [None, Some(0), Some(2), None]);
        assert_eq!(operation(99), None);
        assert_eq!(batch.last_sequence(), 103);
        let counts = BTreeMap::from([(MessageKind::DelRule, 1), (MessageKind::DelSet, 1)]);
        assert_eq!(batch.counts(), counts);
    }

    #[test]
    fn sequence_numbers_wrap_after_the_largest() {
        let operations = vec![Operation::FlushChain(table(), "c".into()); 3];
        let batch = Transaction { operations }.encode(u32::MAX - 1, Acknowledge::BatchEnd).unwrap();
        assert_eq!(batch.origin(u32::MAX).map(|origin| origin.operation), Some(0));
        assert_eq!(batch.origin(1).map(|origin| origin.operation), Some(2));
        assert_eq!(batch.last_sequence(), 2);
    }

    #[test]
    fn an_operation_that_cannot_be_encoded_is_an_error_with_its_index() {
        let value = Immediate::value(vec![0; 70_000], Reg::of_word(0));
        let rule = Rule { chain: "c".into(), expressions: vec![value], comment: None };
        let first = Operation::FlushChain(table(), "c".into());
        let check = |bad: Operation, expected| {
            let transaction = Transaction { operations: vec![first.clone(), bad] };
            assert_eq!(transaction.encode(1, Acknowledge::BatchEnd), Err(expected));
        };
        check(Operation::AddRule(table(), rule), EncodeError::TooLong { operation: 1 });
        let long = "x".repeat(70_000);
        check(Operation::DeleteChain(table(), long.into()), EncodeError::TooLong { operation: 1 });
        let short = Element::new(Value::new());
        check(
            Operation::AddElements(table(), addresses(), vec![element(1), short].into()),
            EncodeError::Element { operation: 1, element: 1 },
        );
        let with_data = Element::with_value(element(1).key, element(1).key);
        check(
            Operation::AddElements(table(), addresses(), [with_data].into()),
            EncodeError::Element { operation: 1, element: 0 },
        );
    }

    #[test]
    fn an_element_is_deleted_by_its_key_alone() {
        let named = Element { comment: Some("n/s:p".into()), ..element(1) };
        let delete = |element| Operation::DeleteElements(table(), addresses(), [element].into());
        let with = encode(vec![delete(named)], Acknowledge::BatchEnd);
        assert_eq!(with, encode(vec![delete(element(1))], Acknowledge::BatchEnd));
    }

    proptest! {
        #[test]
        fn elements_are_spread_over_messages_and_none_is_lost(
            comments in proptest::collection::vec(0usize..200, 0..1500),
        ) {
            let elements: Vec<_> = (0..).zip(&comments).map(|(n, length)| Element {
                comment: Some("c".repeat(*length).into()),
                ..element(n)
            }).collect();
            let operation = Operation::AddElements(table(), addresses(), elements.clone().into());
            let batch = encode(vec![operation], Acknowledge::BatchEnd);
            let mut read = Vec::new();
            for origin in &batch.messages {
                let message = batch.message(*origin);
                prop_assert!(message.len() < 65_535 + 100);
                prop_assert_eq!(origin.first_element, read.len());
                decode_elements(&message[20..], |view| read.push(view.to_element())).unwrap();
            }
            prop_assert_eq!(read.len(), elements.len());
            for (read, sent) in read.iter().zip(&elements) {
                prop_assert_eq!(read.as_ref().map(|element| &element.key), Some(&sent.key));
            }
            let bytes: usize = batch.messages.iter().map(|origin| batch.message(*origin).len()).sum();
            prop_assert!(batch.messages.len() <= bytes / 60_000 + 1, "messages are filled");
        }
    }
}
