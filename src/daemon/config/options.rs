//! The table of options: for each its field, its flags, its default, its effect and its text.
//!
//! File, flags, `config check`, both `--help`, docs/options.md and the example file come from it.

mod kind;
mod setting;
mod table;
#[cfg(test)]
mod tests;
mod values;

pub(super) use self::kind::OptionKind;
pub(super) use self::setting::{OptionScope, Setting};
pub(super) use self::table::SETTINGS;
pub(super) use self::values::{Values, shortened};

use super::gates::is_without_effect;

/// Finds the option of the field at `path`.
pub(super) fn find(path: &str) -> Option<&'static Setting> {
    let mut sections = SECTIONS.iter();
    let masquerade = sections.find_map(|section| path.strip_prefix(section));
    let masquerade = masquerade.map(|key| format!("*{key}"));
    let fields = [Some(path), masquerade.as_deref()];
    SETTINGS.iter().find(|setting| fields.contains(&Some(setting.field)))
}

/// Returns the type of the field at `path`; an object if it has fields.
pub(super) fn kind_of(path: &str) -> Option<OptionKind> {
    let prefix = format!("{path}.");
    let has_fields = SETTINGS.iter().any(|setting| setting.field.starts_with(&prefix));
    let is_gate = path.strip_prefix("featureGates.").is_some_and(is_without_effect);
    let kind = find(path).map(|setting| setting.kind).or(is_gate.then_some(OptionKind::Flag));
    kind.or(has_fields.then_some(OptionKind::Object))
}

/// Returns the flag of `run` that sets the field at `path`, or the path.
pub(super) fn own_flag(path: &str) -> String {
    let flag = find(path).and_then(|setting| setting.flag);
    flag.map_or_else(|| path.to_owned(), |(name, _)| format!("--{name}"))
}

/// The sections with the masquerade fields of a mode.
pub(super) const SECTIONS: [&str; 2] = ["iptables", "nftables"];
