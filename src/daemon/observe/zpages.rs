//! Pages about the running daemon: `/configz`, `/flagz`, `/statusz`, in the format of Kubernetes
//! components (`k8s.io/component-base/zpages`, KEP-4827, KEP-4828).

use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::{Value, json};

/// Configuration and flags of the daemon's start.
#[derive(Debug, Default)]
pub struct Startup {
    /// The effective KubeProxyConfiguration.
    pub configuration: Value,
    /// All flags, by name without dashes; empty value if the flag is absent and has no default.
    pub flags: Vec<(String, String)>,
}

/// Paths of the metrics port.
const PATHS: &str = "/configz /flagz /healthz /metrics /proxyMode /statusz";

const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no \
                       formatting compatibility guarantees and is for debugging purposes only.";

impl Startup {
    pub(super) fn configz(&self) -> String {
        json!({ "kubeproxy.config.k8s.io": self.configuration }).to_string()
    }

    /// Returns the document for commands.
    pub(super) fn document(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        json!({ "version": version, "configuration": self.configuration }).to_string()
    }

    pub(super) fn flagz(&self) -> String {
        let mut flags: Vec<_> = self.flags.iter().collect();
        flags.sort();
        let lines = flags.iter().map(|(name, value)| format!("{name}={}\n", value.escape_debug()));
        format!("\ndeltaproxy flags\n{WARNING}\n\n{}", lines.collect::<String>())
    }
}

/// Returns the page of a daemon that was started at `started`.
pub(super) fn statusz(started: SystemTime, now: SystemTime) -> String {
    let date =
        Timestamp::try_from(started).unwrap_or_default().strftime("%a %b %e %H:%M:%S UTC %Y");
    let up = now.duration_since(started).unwrap_or_default().as_secs();
    let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "\ndeltaproxy statusz\n{WARNING}\n\n\
         Started: {date}\n\
         Up: {hours} hr {minutes:02} min {seconds:02} sec\n\
         Binary version: {version}\n\
         Paths: {PATHS}\n"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn statusz_has_start_and_up_time() {
        let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_323_045);
        let page = statusz(started, started + Duration::from_secs(3_600 * 30 + 61));
        assert!(page.starts_with("\ndeltaproxy statusz\nWarning: "), "{page}");
        let version = concat!("Binary version: ", env!("CARGO_PKG_VERSION"));
        for line in ["Started: Fri Jan  2 03:04:05 UTC 2026", "Up: 30 hr 01 min 01 sec", version] {
            assert!(page.lines().any(|it| it == line), "no {line} in {page}");
        }
        let page = statusz(started, started - Duration::from_secs(1));
        assert!(page.contains("Up: 0 hr 00 min 00 sec"), "the clock was set back: {page}");
    }

    #[test]
    fn flagz_is_sorted_and_each_flag_is_a_line() {
        let flag = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let flags = vec![flag("v", "2"), flag("config", "a\nb"), flag("master", "")];
        let page = Startup { flags, ..Startup::default() }.flagz();
        assert!(page.starts_with("\ndeltaproxy flags\nWarning: "), "{page}");
        assert!(page.ends_with("\n\nconfig=a\\nb\nmaster=\nv=2\n"), "{page}");
    }

    #[test]
    fn configz_has_the_configuration_under_its_group() {
        let startup = Startup { configuration: json!({"mode": "nftables"}), ..Startup::default() };
        assert_eq!(startup.configz(), r#"{"kubeproxy.config.k8s.io":{"mode":"nftables"}}"#);
    }
}
