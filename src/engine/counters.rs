//! Which elements of the tables count new connections.

use std::fmt;
use std::str::FromStr;

use crate::setting_error::SettingError;

crate::named! {
    /// Which elements of the tables count new connections; each includes those before it.
    #[derive(Default, PartialOrd, Ord)]
    pub enum Counters {
        /// No elements.
        #[default]
        Off = "off",
        /// Elements of frontends.
        Services = "services",
        /// Elements of endpoints too.
        Endpoints = "endpoints",
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Counters {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let named = Self::ALL.into_iter().find(|it| it.name() == text);
        named
            .ok_or_else(|| SettingError(format!("{text:?} is not one of off, services, endpoints")))
    }
}
