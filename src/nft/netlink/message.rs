//! Netlink messages: appended to a buffer, and split from a received datagram.
//!
//! No length is trusted: every step through a datagram moves forward by at least a header, so the
//! walk over any bytes is bounded and ends in messages or an error. Layouts: `struct nlmsghdr` and
//! `struct nlmsgerr` of `<linux/netlink.h>`. Numbers of the netlink layer itself are in host byte
//! order.

use super::attr::{AttrWriter, Attrs, TooLong};

/// Length of `struct nlmsghdr` in bytes.
pub const HEADER_LENGTH: usize = 16;

/// Flag `NLM_F_REQUEST`: the message is a request to the kernel.
pub const REQUEST: u16 = 0x1;
/// Flag `NLM_F_MULTI`: the answer has several messages and ends with `NLMSG_DONE`.
pub const MULTI: u16 = 0x2;
/// Flag `NLM_F_ACK`: the kernel acknowledges success too.
pub const ACK: u16 = 0x4;
/// Flag `NLM_F_CREATE` of a request: the object is created if it does not exist.
pub const CREATE: u16 = 0x400;
/// Flag `NLM_F_DUMP_INTR` of an answer: the dumped objects changed during the dump.
pub const DUMP_INTERRUPTED: u16 = 0x10;
/// Flag `NLM_F_DUMP` of a request: the kernel returns every object.
pub const DUMP: u16 = 0x300;

const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
const NLMSGERR_ATTR_OFFS: u16 = 2;

/// A datagram that does not consist of netlink messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The remaining datagram is shorter than a header.
    #[error("{0} bytes are left, expected a netlink header of 16 bytes")]
    ShortHeader(usize),
    /// The length in a header is shorter than the header or longer than the remaining datagram.
    #[error("a netlink message has a length of {stated} bytes, but {available} are left")]
    Length {
        /// `nlmsg_len`, in bytes.
        stated: usize,
        /// Bytes left in the datagram, this header included.
        available: usize,
    },
    /// `NLMSG_ERROR` or `NLMSG_DONE` is shorter than its structure.
    #[error("a netlink acknowledgement has only {0} bytes")]
    ShortAcknowledgement(usize),
}

/// Header of a message to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// `nlmsg_type`.
    pub kind: u16,
    /// `nlmsg_flags`.
    pub flags: u16,
    /// `nlmsg_seq`, which answers repeat.
    pub sequence: u32,
}

/// Appends one message: header, the bytes of `fixed`, then the attributes that `fill` writes.
///
/// # Errors
/// [`TooLong`] if a length does not fit its field; `out` is then unchanged.
pub fn append(
    out: &mut Vec<u8>,
    header: Header,
    fixed: &[u8],
    fill: impl FnOnce(&mut AttrWriter<'_>),
) -> Result<(), TooLong> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&header.kind.to_ne_bytes());
    out.extend_from_slice(&header.flags.to_ne_bytes());
    out.extend_from_slice(&header.sequence.to_ne_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(fixed);
    let mut attributes = AttrWriter::new(out);
    fill(&mut attributes);
    let written = attributes.finish();
    let length = out.len() - start;
    let (Ok(()), Ok(stated)) = (written, u32::try_from(length)) else {
        out.truncate(start);
        return Err(TooLong);
    };
    out[start..start + 4].copy_from_slice(&stated.to_ne_bytes());
    out.resize(start + aligned(length), 0);
    Ok(())
}

/// One message of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// `nlmsg_type`.
    pub kind: u16,
    /// `nlmsg_flags`.
    pub flags: u16,
    /// `nlmsg_seq`, the same as that of the request.
    pub sequence: u32,
    /// Bytes after the header, without padding.
    pub payload: &'a [u8],
}

/// Kind of a message in the netlink protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning<'a> {
    /// Object for the layer above.
    Object(Message<'a>),
    /// `NLMSG_ERROR`: the request with this sequence number was done or refused.
    Acknowledgement(Acknowledgement<'a>),
    /// `NLMSG_DONE`: the dump is complete or ended with an error.
    Done(Acknowledgement<'a>),
    /// `NLMSG_NOOP`.
    Nothing,
    /// `NLMSG_OVERRUN`: the kernel lost messages.
    Overrun,
}

/// The end of a request: `struct nlmsgerr` with its extended acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledgement<'a> {
    /// Error number as in `errno.h`, 0 for success.
    pub errno: i32,
    /// `NLMSGERR_ATTR_OFFS`: byte offset of the offending attribute, from the start of the header
    /// of the refused message.
    pub offset: Option<u32>,
    /// `NLMSGERR_ATTR_MSG`: the kernel's text.
    pub reason: Option<&'a str>,
}

impl<'a> Message<'a> {
    /// Returns whether the dumped objects changed during the dump.
    pub fn interrupted(&self) -> bool {
        self.flags & DUMP_INTERRUPTED != 0
    }

    /// Returns the kind of this message.
    ///
    /// # Errors
    /// [`MessageError::ShortAcknowledgement`] if an acknowledgement is truncated.
    pub fn meaning(self) -> Result<Meaning<'a>, MessageError> {
        Ok(match self.kind {
            NLMSG_ERROR => Meaning::Acknowledgement(self.error()?),
            NLMSG_DONE => Meaning::Done(self.done()?),
            NLMSG_OVERRUN => Meaning::Overrun,
            NLMSG_NOOP => Meaning::Nothing,
            _ => Meaning::Object(self),
        })
    }

    /// Decodes `struct nlmsgerr`: an error, the header of the refused message, its payload unless
    /// capped, then attributes.
    fn error(&self) -> Result<Acknowledgement<'a>, MessageError> {
        let errno = self.errno()?;
        let short = MessageError::ShortAcknowledgement(self.payload.len());
        let header = self.payload.get(4..4 + HEADER_LENGTH).ok_or(short)?;
        let echoed = if self.flags & NLM_F_CAPPED != 0 {
            HEADER_LENGTH
        } else {
            usize::try_from(u32_at(header, 0)).unwrap_or(usize::MAX)
        };
        let start = aligned(echoed.max(HEADER_LENGTH)).saturating_add(4);
        Ok(self.with_attributes(errno, start))
    }

    /// Decodes `NLMSG_DONE`: an error number, then attributes.
    fn done(&self) -> Result<Acknowledgement<'a>, MessageError> {
        // Some dumps of old kernels end without an error number, which means success.
        if self.payload.is_empty() {
            return Ok(Acknowledgement::default());
        }
        Ok(self.with_attributes(self.errno()?, 4))
    }

    /// Returns the positive error number. The kernel sends it negative; a positive number in
    /// `NLMSG_DONE` means success.
    fn errno(&self) -> Result<i32, MessageError> {
        let bytes = self.payload.first_chunk::<4>();
        let bytes = bytes.ok_or(MessageError::ShortAcknowledgement(self.payload.len()))?;
        Ok(i32::from_ne_bytes(*bytes).saturating_neg().max(0))
    }

    fn with_attributes(&self, errno: i32, start: usize) -> Acknowledgement<'a> {
        let mut acknowledgement = Acknowledgement { errno, offset: None, reason: None };
        if self.flags & NLM_F_ACK_TLVS == 0 {
            return acknowledgement;
        }
        // Reason and offset are optional: a broken attribute ends the iteration without an error.
        let attributes = Attrs::new(self.payload.get(start..).unwrap_or_default());
        for attr in attributes.flatten() {
            match attr.kind {
                NLMSGERR_ATTR_MSG => acknowledgement.reason = attr.str().ok(),
                NLMSGERR_ATTR_OFFS => {
                    let bytes = attr.payload.first_chunk();
                    acknowledgement.offset = bytes.map(|bytes| u32::from_ne_bytes(*bytes));
                }
                _ => {}
            }
        }
        acknowledgement
    }
}

/// The messages of one datagram, in order. The first error is the last item.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// Returns the messages of `datagram`.
    pub fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram }
    }

    fn split(&mut self) -> Result<Message<'a>, MessageError> {
        let rest = std::mem::take(&mut self.rest);
        let Some(header) = rest.first_chunk::<HEADER_LENGTH>() else {
            return Err(MessageError::ShortHeader(rest.len()));
        };
        let stated = usize::try_from(u32_at(header, 0)).unwrap_or(usize::MAX);
        if stated < HEADER_LENGTH || stated > rest.len() {
            return Err(MessageError::Length { stated, available: rest.len() });
        }
        self.rest = rest.get(aligned(stated)..).unwrap_or_default();
        Ok(Message {
            kind: u16::from_ne_bytes([header[4], header[5]]),
            flags: u16::from_ne_bytes([header[6], header[7]]),
            sequence: u32_at(header, 8),
            payload: &rest[HEADER_LENGTH..stated],
        })
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, MessageError>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.rest.is_empty()).then(|| self.split())
    }
}

/// Returns the number at `at`. The caller guarantees that it is inside `bytes`.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        append(&mut out, Header { kind, flags, sequence }, payload, |_| {}).unwrap();
        out
    }

    fn only_meaning(datagram: &[u8]) -> Meaning<'_> {
        let mut messages = Messages::new(datagram);
        let message = messages.next().unwrap().unwrap();
        assert_eq!(messages.next(), None);
        message.meaning().unwrap()
    }

    /// `nlmsgerr` of a refused message, as 6.18 sends it with `NETLINK_CAP_ACK`.
    fn refusal(flags: u16, attributes: &[u8]) -> Vec<u8> {
        let mut payload = (-2_i32).to_ne_bytes().to_vec();
        payload.extend_from_slice(&written(0x0a0c, REQUEST, 7, &[]));
        payload.extend_from_slice(attributes);
        written(NLMSG_ERROR, flags, 7, &payload)
    }

    fn attribute_bytes(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let mut out = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        out.extend_from_slice(value);
        out.resize(aligned(out.len()), 0);
        out
    }

    #[test]
    fn appended_messages_are_split_again() {
        let mut datagram = written(0x0a00, MULTI, 1, b"abcde");
        datagram.extend(written(0x0a03, MULTI | DUMP_INTERRUPTED, 1, b""));
        let messages: Vec<_> = Messages::new(&datagram).collect::<Result<_, _>>().unwrap();
        assert_eq!(messages.len(), 2);
        assert_eq!((messages[0].kind, messages[0].payload), (0x0a00, &b"abcde"[..]));
        assert!(!messages[0].interrupted());
        assert!(messages[1].interrupted());
        assert_eq!(datagram.len(), 24 + 16, "the first message is padded");
    }

    #[test]
    fn an_extended_acknowledgement_has_the_reason_and_the_offset() {
        let attributes = [
            attribute_bytes(NLMSGERR_ATTR_MSG, b"no such set\0"),
            attribute_bytes(NLMSGERR_ATTR_OFFS, &28_u32.to_ne_bytes()),
        ]
        .concat();
        let datagram = refusal(NLM_F_CAPPED | NLM_F_ACK_TLVS, &attributes);
        let expected = Acknowledgement { errno: 2, offset: Some(28), reason: Some("no such set") };
        assert_eq!(only_meaning(&datagram), Meaning::Acknowledgement(expected));
    }

    #[test]
    fn the_echoed_message_of_an_acknowledgement_is_skipped() {
        let mut payload = (-17_i32).to_ne_bytes().to_vec();
        payload.extend_from_slice(&written(0x0a0c, REQUEST, 7, b"payload"));
        payload.extend(attribute_bytes(NLMSGERR_ATTR_OFFS, &20_u32.to_ne_bytes()));
        let datagram = written(NLMSG_ERROR, NLM_F_ACK_TLVS, 7, &payload);
        let expected = Acknowledgement { errno: 17, offset: Some(20), reason: None };
        assert_eq!(only_meaning(&datagram), Meaning::Acknowledgement(expected));
    }

    #[test]
    fn a_dump_ends_with_its_error_number() {
        let datagram = written(NLMSG_DONE, MULTI, 1, &(-4_i32).to_ne_bytes());
        let expected = Acknowledgement { errno: 4, offset: None, reason: None };
        assert_eq!(only_meaning(&datagram), Meaning::Done(expected));
        let datagram = written(NLMSG_DONE, MULTI, 1, &[]);
        assert_eq!(only_meaning(&datagram), Meaning::Done(Acknowledgement::default()));
    }

    #[test]
    fn a_wrong_length_is_an_error_and_ends_the_iteration() {
        for stated in [0_u32, 15, 25, u32::MAX] {
            let mut datagram = written(0x0a00, 0, 1, &[0; 8]);
            datagram[..4].copy_from_slice(&stated.to_ne_bytes());
            let mut messages = Messages::new(&datagram);
            let stated = usize::try_from(stated).unwrap();
            assert_eq!(messages.next(), Some(Err(MessageError::Length { stated, available: 24 })));
            assert_eq!(messages.next(), None);
        }
        let mut messages = Messages::new(&[1, 2, 3]);
        assert_eq!(messages.next(), Some(Err(MessageError::ShortHeader(3))));
    }

    #[test]
    fn a_truncated_acknowledgement_is_an_error() {
        let datagram = written(NLMSG_ERROR, 0, 1, &[0xfe, 0xff, 0xff, 0xff, 0, 0]);
        let message = Messages::new(&datagram).next().unwrap().unwrap();
        assert_eq!(message.meaning(), Err(MessageError::ShortAcknowledgement(6)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_split_in_bounded_steps(
            datagram in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let mut steps = 0;
            for message in Messages::new(&datagram) {
                steps += 1;
                if let Ok(message) = message {
                    let _ = message.meaning();
                }
            }
            prop_assert!(steps <= datagram.len() / HEADER_LENGTH + 1);
        }

        #[test]
        fn a_damaged_acknowledgement_never_panics(
            at in 0_usize..64, byte in any::<u8>(), flags in any::<u16>(),
        ) {
            let attributes = attribute_bytes(NLMSGERR_ATTR_MSG, b"no such set\0");
            let mut datagram = refusal(flags, &attributes);
            let at = at % datagram.len();
            datagram[at] = byte;
            for message in Messages::new(&datagram).flatten() {
                let _ = message.meaning();
            }
        }
    }
}
