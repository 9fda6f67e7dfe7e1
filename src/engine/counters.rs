//! Which elements of the tables count new connections.

use std::fmt;
use std::str::FromStr;

use crate::setting_error::SettingError;

/// Which elements of the tables count new connections; each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counters {
    /// No elements.
    #[default]
    Off,
    /// Elements of frontends.
    Services,
    /// Elements of endpoints too.
    Endpoints,
}

impl Counters {
    /// All values, in ascending order.
    pub const ALL: [Self; 3] = [Self::Off, Self::Services, Self::Endpoints];

    /// Returns the word of the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Services => "services",
            Self::Endpoints => "endpoints",
        }
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Counters {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let named = Self::ALL.into_iter().find(|it| it.word() == text);
        named
            .ok_or_else(|| SettingError(format!("{text:?} is not one of off, services, endpoints")))
    }
}
