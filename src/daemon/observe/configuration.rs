//! Metrics of the configuration in use: the digest of its file, when it was loaded, and whether the
//! last change of the file was refused.

use std::time::SystemTime;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::names::{Floating, Label, Names, metrics};
use super::times::seconds_since_1970;

metrics! {
    /// Metrics of the configuration file.
    pub struct Configuration(names: &mut Names<'_>) {
        /// Absent without a file.
        info: Family<Label<String>, Gauge> = names.add("configuration_info",
            "The SHA-256 of the configuration file in use");
        loaded_at: Floating = names.add("configuration_last_load_timestamp_seconds",
            "When the configuration in use was loaded");
        refused: Gauge = names.add("configuration_refused",
            "Whether the present configuration file is invalid, so that an earlier one is in use");
    }
}

impl Configuration {
    /// Records that a configuration is in use, with the digest of its file, if there is one.
    pub fn loaded(&self, sha256: Option<&str>) {
        self.refused.set(0);
        let label = sha256.map(|sha256| [("sha256", sha256.to_owned())]);
        let is_known = label.as_ref().is_none_or(|label| self.info.get(label).is_some());
        if self.loaded_at.get() > 0.0 && is_known {
            return;
        }
        self.info.clear();
        if let Some(label) = label {
            self.info.get_or_create(&label).set(1);
        }
        self.loaded_at.set(seconds_since_1970(SystemTime::now()));
    }

    /// Sets whether the present file is refused.
    pub(super) fn refused(&self, is_refused: bool) {
        self.refused.set(is_refused.into());
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refused.get() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::tests::has;
    use crate::observe::Observe;

    #[test]
    fn the_digest_is_that_of_the_last_file_in_use() {
        let observe = Observe::new();
        observe.configuration().loaded(Some("aa"));
        observe.configuration().refused(true);
        let refused = "deltaproxy_configuration_refused";
        let info = |sha256| format!("deltaproxy_configuration_info{{sha256=\"{sha256}\"}} 1");
        has(&observe, &[&info("aa"), &format!("{refused} 1")]);
        observe.configuration().loaded(Some("bb"));
        has(&observe, &[&info("bb"), &format!("{refused} 0")]);
        assert!(!observe.metrics_text().contains("\"aa\""));
    }
}
