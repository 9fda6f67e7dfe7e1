//! Fields of our own whose values are words that YAML may read as booleans.

use serde_json::Value;

use super::{Reader, shortened};
use crate::config::ConfigError;
use crate::counters::{Counters, CountersError};
use crate::flowtable::Offload;

const COUNTERS: &str = "deltaproxy.counters";
const FLOWTABLE: &str = "deltaproxy.flowtable";
const TABLE_OWNERSHIP: &str = "deltaproxy.tableOwnership";

impl Reader<'_> {
    pub(super) fn counters(&self) -> Result<Counters, ConfigError> {
        match self.value(COUNTERS) {
            // YAML parses `off` without quotes as false.
            None | Some(Value::Bool(false)) => Ok(Counters::Off),
            Some(Value::String(word)) => {
                word.parse().map_err(|error: CountersError| self.error(COUNTERS, error.to_string()))
            }
            Some(other) => {
                let message =
                    format!("is {}; expected off, services or endpoints", shortened(other));
                Err(self.error(COUNTERS, message))
            }
        }
    }

    /// Returns the settings of the flowtable; `None` if it is off.
    pub(super) fn flowtable(&self) -> Result<Option<Offload>, ConfigError> {
        let is_on = self.switch(FLOWTABLE, false)?;
        // Both are checked even if they have no effect.
        let after = self.parsed("deltaproxy.flowtableAfter", str::parse)?.unwrap_or_default();
        let devices = self.parsed("deltaproxy.flowtableDevices", str::parse)?.unwrap_or_default();
        Ok(is_on.then_some(Offload { after, devices }))
    }

    pub(super) fn table_ownership(&self) -> Result<bool, ConfigError> {
        self.switch(TABLE_OWNERSHIP, true)
    }

    /// Reads `on` or `off`, which YAML parses as booleans where they have no quotes.
    fn switch(&self, field: &'static str, default: bool) -> Result<bool, ConfigError> {
        match self.value(field) {
            None => Ok(default),
            Some(Value::Bool(is_on)) => Ok(*is_on),
            Some(Value::String(word)) if word == "on" => Ok(true),
            Some(Value::String(word)) if word == "off" => Ok(false),
            Some(other) => {
                let message = format!("is {}; expected off or on", shortened(other));
                Err(self.error(field, message))
            }
        }
    }
}
