//! Fields of our own whose values are words that YAML may read as booleans.

use engine::counters::{Counters, CountersError};
use engine::flowtable::Offload;
use serde_json::Value;

use super::{Reader, shortened};

const COUNTERS: &str = "deltaproxy.counters";
const FLOWTABLE: &str = "deltaproxy.flowtable";
const TABLE_OWNERSHIP: &str = "deltaproxy.tableOwnership";

impl Reader<'_> {
    pub(super) fn counters(&self) -> Counters {
        match self.value(COUNTERS) {
            // YAML parses `off` without quotes as false.
            None | Some(Value::Bool(false)) => Counters::Off,
            Some(Value::String(word)) => {
                let report = |error: CountersError| {
                    self.report(COUNTERS, error.to_string());
                    Counters::Off
                };
                word.parse().unwrap_or_else(report)
            }
            Some(other) => {
                let expected = "expected off, services or endpoints";
                self.report(COUNTERS, format!("is {}; {expected}", shortened(other)));
                Counters::Off
            }
        }
    }

    /// Returns the settings of the flowtable; `None` if it is off.
    pub(super) fn flowtable(&self) -> Option<Offload> {
        let is_on = self.switch(FLOWTABLE, false);
        // Both are checked even if they have no effect.
        let after = self.parsed("deltaproxy.flowtableAfter", str::parse).unwrap_or_default();
        let devices = self.parsed("deltaproxy.flowtableDevices", str::parse).unwrap_or_default();
        is_on.then_some(Offload { after, devices })
    }

    pub(super) fn table_ownership(&self) -> bool {
        self.switch(TABLE_OWNERSHIP, true)
    }

    /// Reads `on` or `off`, which YAML parses as booleans where they have no quotes.
    fn switch(&self, field: &'static str, default: bool) -> bool {
        match self.value(field) {
            None => default,
            Some(Value::Bool(is_on)) => *is_on,
            Some(Value::String(word)) if word == "on" => true,
            Some(Value::String(word)) if word == "off" => false,
            Some(other) => {
                self.report(field, format!("is {}; expected off or on", shortened(other)));
                default
            }
        }
    }
}
