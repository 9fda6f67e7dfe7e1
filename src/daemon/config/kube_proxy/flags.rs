//! All flags of kube-proxy 1.36 (`cmd/kube-proxy/app/options.go`).

use super::super::options::{OptionKind, SETTINGS, Setting};

/// A flag of kube-proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flag {
    /// Name, with dashes.
    pub(super) name: &'static str,
    pub(super) kind: OptionKind,
    pub(super) meaning: Meaning,
    /// Value of an absent flag; empty if no text is the default.
    default: &'static str,
    /// What it sets or does.
    about: &'static str,
}

/// Effect of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Sets a field of the configuration. A `*` in its path is the section of the mode.
    Field {
        path: &'static str,
        has_effect: bool,
    },
    /// Sets the port of an address; 0 disables the server.
    Port(&'static str),
    Config,
    NodeName,
    Server,
    Verbosity,
    LogFormat,
    WriteConfig,
    Cleanup,
    InitOnly,
    Version,
    Help,
    /// No effect.
    Nothing,
}

impl Flag {
    /// Returns kube-proxy's flag of an option.
    fn of(setting: &'static Setting) -> Option<Self> {
        let (name, path) = setting.kube_proxy?;
        let meaning = match setting.field {
            "hostnameOverride" => Meaning::NodeName,
            "logging.format" => Meaning::LogFormat,
            "logging.verbosity" => Meaning::Verbosity,
            _ => Meaning::Field { path, has_effect: setting.has_effect() },
        };
        let default = if setting.kind == OptionKind::Gate { "" } else { setting.default };
        Some(Self { name, kind: setting.kind, meaning, default, about: setting.about })
    }

    /// Returns the flag with a description.
    const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    /// Returns the value of the absent flag.
    pub(super) fn default(&self) -> String {
        self.kind.shown(self.default)
    }

    /// Returns the flag's lines of `--help`.
    pub(super) fn usage(&self) -> String {
        let value = match self.kind {
            OptionKind::Flag | OptionKind::Version => "",
            OptionKind::Whole => " INT",
            OptionKind::Number => " NUMBER",
            OptionKind::Duration => " DURATION",
            OptionKind::Texts => " LIST",
            OptionKind::Text
            | OptionKind::Gate
            | OptionKind::Object
            | OptionKind::Opaque
            | OptionKind::Any => " TEXT",
        };
        let default = match self.default {
            "" => String::new(),
            _ => format!(" (default {})", self.default()),
        };
        let mark = if self.has_effect() { "" } else { " *" };
        format!("      --{}{value}{mark}\n            {}{default}\n", self.name, self.about)
    }

    /// Returns whether the flag has an effect, in one mode at least.
    pub(super) fn has_effect(&self) -> bool {
        !matches!(self.meaning, Meaning::Nothing | Meaning::Field { has_effect: false, .. })
    }
}

const fn flag(
    name: &'static str,
    kind: OptionKind,
    default: &'static str,
    meaning: Meaning,
) -> Flag {
    Flag { name, kind, meaning, default, about: "" }
}

/// Returns all flags.
pub(super) fn all() -> impl Iterator<Item = Flag> {
    OTHERS.iter().copied().chain(SETTINGS.iter().filter_map(Flag::of))
}

/// Finds a flag by its name.
pub(super) fn find(name: &str) -> Option<Flag> {
    all().find(|flag| flag.name == name)
}

/// Flags that are not options, in the order of options.go.
#[rustfmt::skip]
static OTHERS: &[Flag] = &[
    flag("config", OptionKind::Text, "", Meaning::Config)
        .about("Read this KubeProxyConfiguration file; it replaces all other flags but --hostname-override, --master and those of the log"),
    flag("write-config-to", OptionKind::Text, "", Meaning::WriteConfig)
        .about("Write the configuration with all defaults to this file, and exit"),
    flag("cleanup", OptionKind::Flag, "false", Meaning::Cleanup)
        .about("Remove the tables and the leftovers of kube-proxy's other modes, and exit"),
    flag("init-only", OptionKind::Flag, "false", Meaning::InitOnly)
        .about("Check nftables, apply the settings of the node, remove leftovers of other modes, and exit"),
    flag("master", OptionKind::Text, "", Meaning::Server)
        .about("Address of the API server; replaces that of --kubeconfig"),
    flag("healthz-port", OptionKind::Whole, "10256", Meaning::Port("healthzBindAddress"))
        .about("Port of --healthz-bind-address, if that has none; 0 serves nothing"),
    flag("metrics-port", OptionKind::Whole, "10249", Meaning::Port("metricsBindAddress"))
        .about("Port of --metrics-bind-address, if that has none; 0 serves nothing"),
    flag("log-flush-frequency", OptionKind::Duration, "5s", Meaning::Nothing)
        .about("Time between two writes of the log; each line is written at once"),
    flag("vmodule", OptionKind::Text, "", Meaning::Nothing)
        .about("Verbosity of the log by source file of kube-proxy"),
    flag("log-text-split-stream", OptionKind::Flag, "false", Meaning::Nothing)
        .about("Write errors to standard error and all else to standard output"),
    flag("log-text-info-buffer-size", OptionKind::Text, "0", Meaning::Nothing)
        .about("Buffer of the text log in bytes"),
    flag("log-json-split-stream", OptionKind::Flag, "false", Meaning::Nothing)
        .about("Write errors to standard error and all else to standard output, as JSON"),
    flag("log-json-info-buffer-size", OptionKind::Text, "0", Meaning::Nothing)
        .about("Buffer of the JSON log in bytes"),
    flag("version", OptionKind::Version, "false", Meaning::Version)
        .about("Print the version, with =raw the properties of the build too, and exit"),
    flag("machine-id-file", OptionKind::Text, "/etc/machine-id,/var/lib/dbus/machine-id", Meaning::Nothing)
        .about("Files with the machine's id"),
    flag("boot-id-file", OptionKind::Text, "/proc/sys/kernel/random/boot_id", Meaning::Nothing)
        .about("Files with the id of the boot"),
    flag("help", OptionKind::Flag, "false", Meaning::Help)
        .about("Print this text, and exit"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::options;

    #[test]
    fn flags_are_unique_and_their_fields_exist() {
        let flags: Vec<_> = all().collect();
        assert_eq!(flags.len(), 60);
        for (i, flag) in flags.iter().enumerate() {
            assert!(flags[..i].iter().all(|other| other.name != flag.name), "{}", flag.name);
            assert!(!flag.name.contains('_'), "{}", flag.name);
            if let Meaning::Field { path, .. } | Meaning::Port(path) = flag.meaning {
                let path = path.replace('*', "nftables");
                assert!(options::kind_of(&path).is_some(), "{}", flag.name);
            }
            assert!(flag.default.is_empty() || flag.kind.read(flag.default).is_ok());
            assert!(flag.about.len() > 10 && !flag.about.ends_with('.'), "{}", flag.name);
        }
    }
}
