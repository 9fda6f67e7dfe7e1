//! Summary of the messages sent to the kernel, as text and JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use nft::kernel::Committed;
use nft::{MessageKind, Operation, Transaction};
use serde::Serialize;
use serde_json::{Value, json};

/// Messages of several transactions.
#[derive(Debug, Default)]
pub struct Summary {
    transactions: usize,
    bytes: usize,
    kernel_time: Duration,
    messages: BTreeMap<MessageKind, usize>,
    elements: BTreeMap<String, ChangeCounts>,
}

/// Additions and removals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct ChangeCounts {
    pub(super) added: usize,
    pub(super) removed: usize,
}

impl fmt::Display for ChangeCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{} -{}", self.added, self.removed)
    }
}

impl Summary {
    /// Adds a committed transaction.
    pub fn add(&mut self, transaction: &Transaction, committed: &Committed) {
        self.transactions += 1;
        self.bytes += committed.bytes;
        self.kernel_time += committed.kernel_time;
        for (kind, count) in &committed.messages {
            *self.messages.entry(*kind).or_default() += count;
        }
        for operation in &transaction.operations {
            if let Operation::AddElements(table, set, elements) = operation {
                self.counts(format!("{table} {}", set.name)).added += elements.len();
            } else if let Operation::DeleteElements(table, set, elements) = operation {
                self.counts(format!("{table} {}", set.name)).removed += elements.len();
            }
        }
    }

    /// Returns one JSON object; `kernel_us` is the time in the kernel in microseconds.
    pub fn json(&self, problems: &[String]) -> Value {
        let messages = self.messages.iter().map(|(kind, count)| (kind.to_string(), json!(count)));
        json!({
            "transactions": self.transactions,
            "messages": messages.collect::<serde_json::Map<_, _>>(),
            "elements": self.elements,
            "bytes": self.bytes,
            "kernel_us": self.kernel_time.as_micros(),
            "problems": problems,
        })
    }

    fn counts(&mut self, set: String) -> &mut ChangeCounts {
        self.elements.entry(set).or_default()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.transactions == 0 {
            return writeln!(f, "nothing to do: the tables are as desired");
        }
        writeln!(
            f,
            "{} in {}, {} bytes, {} us in the kernel",
            plural(self.messages.values().sum(), "message"),
            plural(self.transactions, "transaction"),
            self.bytes,
            self.kernel_time.as_micros()
        )?;
        for (kind, count) in &self.messages {
            writeln!(f, "  {kind:<12} {count}")?;
        }
        for (set, counts) in &self.elements {
            writeln!(f, "  elements of {set}: {counts}")?;
        }
        Ok(())
    }
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
