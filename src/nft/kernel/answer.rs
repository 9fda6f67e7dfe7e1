//! Determines the outcome of a batch from the kernel's answers.
//!
//! The kernel sends one message for each refused message of a batch, in order, then the requested
//! acknowledgement; all are queued when `send` returns. A refusal of the batch as a whole carries
//! the sequence number of its first message (`nfnetlink_rcv_batch`).

use std::io;
use std::ops::RangeInclusive;

use nix::errno::Errno;

use crate::batch::{Acknowledge, Batch};
use crate::netlink::message::{Acknowledgement, Meaning, Message, Messages};
use crate::netlink::socket::{ReceiveError, Socket, Wait};

/// Most datagrams read for one batch: one for each message that may be refused, and old answers.
const MAX_DATAGRAMS: usize = 1 << 20;

/// Outcome of a batch.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The kernel applied it.
    Applied,
    /// The kernel refused it; nothing was applied.
    Refused(Refusal),
    /// No answer arrived, or none that can be decoded.
    Lost(io::Error),
}

/// The first refused message of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Sequence number of the refused message.
    pub sequence: u32,
    /// The kernel's error number.
    pub errno: Errno,
    /// Byte offset of the offending attribute from the message's header.
    pub offset: Option<u32>,
    /// The kernel's text.
    pub reason: Option<String>,
}

impl Refusal {
    /// Returns whether the kernel aborted the batch for an external reason: the ruleset changed
    /// during it, a signal arrived, or a module had to be loaded.
    pub(super) fn is_transient(&self, batch: &Batch) -> bool {
        let passing = matches!(self.errno, Errno::ERESTART | Errno::EINTR | Errno::EAGAIN);
        passing && self.sequence == batch.first_sequence
    }
}

/// Answers to one batch so far.
#[derive(Debug)]
struct Answers {
    /// From the first message of the batch to the last.
    sequences: RangeInclusive<u32>,
    acknowledge: Acknowledge,
    acknowledged: bool,
    refusal: Option<Refusal>,
    lost: Option<io::Error>,
}

/// Receives until the outcome of the batch sent last is certain.
///
/// With [`Wait::No`], only answers that have arrived count; no others will come.
pub(super) fn receive_outcome(
    socket: &mut Socket,
    batch: &Batch,
    acknowledge: Acknowledge,
    wait: Wait,
) -> Outcome {
    let mut answers = Answers::new(batch.first_sequence..=batch.last_sequence(), acknowledge);
    for _ in 0..MAX_DATAGRAMS {
        if answers.acknowledged {
            break;
        }
        // After the first answer, all others have arrived too.
        let wait = if answers.is_undecided() { wait } else { Wait::No };
        match socket.receive(wait) {
            Ok(datagram) => answers.take_datagram(datagram),
            Err(ReceiveError::TimedOut) if !answers.is_undecided() => break,
            Err(error @ (ReceiveError::Overrun | ReceiveError::Truncated { .. })) => {
                answers.lose(io::Error::other(error));
            }
            Err(error) => {
                answers.lose(io::Error::other(error));
                break;
            }
        }
    }
    answers.outcome()
}

impl Answers {
    fn new(sequences: RangeInclusive<u32>, acknowledge: Acknowledge) -> Self {
        Self { sequences, acknowledge, acknowledged: false, refusal: None, lost: None }
    }

    fn is_undecided(&self) -> bool {
        self.refusal.is_none() && self.lost.is_none()
    }

    fn lose(&mut self, error: io::Error) {
        self.lost.get_or_insert(error);
    }

    fn take_datagram(&mut self, datagram: &[u8]) {
        for message in Messages::new(datagram) {
            match message.and_then(|message| Ok((message, message.meaning()?))) {
                Ok((message, meaning)) => self.take(&message, meaning),
                Err(error) => self.lose(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
    }

    fn take(&mut self, message: &Message<'_>, meaning: Meaning<'_>) {
        match meaning {
            Meaning::Acknowledgement(answer) if self.sequences.contains(&message.sequence) => {
                self.take_acknowledgement(message.sequence, answer);
            }
            Meaning::Overrun => self.lose(io::Error::other(ReceiveError::Overrun)),
            // A late answer to an earlier request.
            Meaning::Acknowledgement(_) | Meaning::Done(_) | Meaning::Object(_) => {}
            Meaning::Nothing => {}
        }
    }

    fn take_acknowledgement(&mut self, sequence: u32, answer: Acknowledgement<'_>) {
        if answer.errno == 0 {
            let last = *self.sequences.end();
            let awaited = match self.acknowledge {
                Acknowledge::BatchEnd => last,
                Acknowledge::LastMessage => last.saturating_sub(1),
            };
            self.acknowledged |= sequence == awaited;
            return;
        }
        self.refusal.get_or_insert_with(|| Refusal {
            sequence,
            errno: Errno::from_raw(answer.errno),
            offset: answer.offset,
            reason: answer.reason.map(str::to_owned),
        });
    }

    fn outcome(self) -> Outcome {
        if let Some(refusal) = self.refusal {
            return Outcome::Refused(refusal);
        }
        match (self.acknowledge, self.lost) {
            // The end of a batch is acknowledged only after all of it is applied.
            (Acknowledge::BatchEnd, _) if self.acknowledged => Outcome::Applied,
            // The last message is acknowledged even if an earlier one was refused, so all answers
            // are needed.
            (Acknowledge::LastMessage, None) if self.acknowledged => Outcome::Applied,
            (_, Some(error)) => Outcome::Lost(error),
            (_, None) => Outcome::Lost(io::Error::other("no acknowledgement among the answers")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message::{self, Header};

    const NLMSG_ERROR: u16 = 2;

    /// Answers to a batch with the messages 10 (begin) to 13 (end).
    fn answers(acknowledge: Acknowledge) -> Answers {
        Answers::new(10..=13, acknowledge)
    }

    /// Returns a datagram of `nlmsgerr`s with these (sequence, errno).
    fn datagram(acknowledgements: &[(u32, i32)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (sequence, errno) in acknowledgements {
            let header = Header { kind: NLMSG_ERROR, flags: 0, sequence: *sequence };
            let mut body = (-errno).to_ne_bytes().to_vec();
            let refused = Header { kind: 0x0a00, flags: 0, sequence: *sequence };
            message::append(&mut body, refused, &[], |_| {}).unwrap();
            message::append(&mut out, header, &body, |_| {}).unwrap();
        }
        out
    }

    fn outcome(acknowledge: Acknowledge, acknowledgements: &[(u32, i32)]) -> Outcome {
        let mut answers = answers(acknowledge);
        answers.take_datagram(&datagram(acknowledgements));
        answers.outcome()
    }

    #[test]
    fn the_acknowledgement_that_was_asked_for_means_applied() {
        for (acknowledge, sequence) in [(Acknowledge::BatchEnd, 13), (Acknowledge::LastMessage, 12)]
        {
            let outcome = outcome(acknowledge, &[(sequence, 0)]);
            assert!(matches!(outcome, Outcome::Applied), "{acknowledge:?}: {outcome:?}");
        }
    }

    #[test]
    fn the_first_of_several_refusals_is_reported() {
        let outcome = outcome(Acknowledge::BatchEnd, &[(11, 2), (12, 17)]);
        let Outcome::Refused(refusal) = outcome else { panic!("{outcome:?}") };
        assert_eq!((refusal.sequence, refusal.errno), (11, Errno::ENOENT));
    }

    #[test]
    fn a_refusal_overrides_the_acknowledgement_of_the_last_message() {
        let outcome = outcome(Acknowledge::LastMessage, &[(11, 2), (12, 0)]);
        assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    }

    #[test]
    fn answers_to_other_batches_do_not_count() {
        for other in [(9, 0), (9, 2), (14, 0), (14, 1)] {
            let outcome = outcome(Acknowledge::BatchEnd, &[other]);
            assert!(matches!(outcome, Outcome::Lost(_)), "{other:?}: {outcome:?}");
        }
    }

    #[test]
    fn after_lost_answers_only_the_end_of_the_batch_proves_that_it_was_applied() {
        for (acknowledge, sequence) in [(Acknowledge::BatchEnd, 13), (Acknowledge::LastMessage, 12)]
        {
            let mut answers = answers(acknowledge);
            answers.lose(io::Error::other(ReceiveError::Overrun));
            answers.take_datagram(&datagram(&[(sequence, 0)]));
            let applied = matches!(answers.outcome(), Outcome::Applied);
            assert_eq!(applied, acknowledge == Acknowledge::BatchEnd, "{acknowledge:?}");
        }
    }

    #[test]
    fn a_truncated_answer_counts_as_lost() {
        let mut answers = answers(Acknowledge::BatchEnd);
        answers.take_datagram(&datagram(&[(13, 0)])[..20]);
        assert!(matches!(answers.outcome(), Outcome::Lost(_)));
    }
}
