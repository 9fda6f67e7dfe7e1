//! The files of the packages agree with the program, the DaemonSet and docs/install.md, and their
//! scripts stop, keep and remove what they should. `make test-packages` installs the packages.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use clap::Parser;
use daemon::config::Source;
use tempfile::TempDir;

use super::{Run, folder, pod, recorder};

const FOLDER: &str = "deploy/packages";

/// Where the package installs its configuration file.
const CONFIGURATION: &str = "/etc/deltaproxy/config.yaml";

fn text(name: &str) -> String {
    fs::read_to_string(folder(FOLDER).join(name)).unwrap()
}

/// The value of a directive of the unit, which it must have once.
#[track_caller]
fn directive(name: &str) -> String {
    let unit = text("deltaproxy.service");
    let mut values = unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let value = values.next().unwrap_or_else(|| panic!("the unit lacks {name}"));
    assert_eq!(values.next(), None, "{name}");
    value.to_owned()
}

#[test]
fn the_unit_starts_the_program_with_the_configuration_of_the_package() {
    let start = directive("ExecStart");
    let mut words = start.split(' ');
    assert_eq!(words.next(), Some("/usr/bin/deltaproxy"));
    let mut flags = Run::try_parse_from(words).unwrap().flags;
    assert_eq!(flags.node.config.take().unwrap(), Path::new(CONFIGURATION));

    flags.node.config = Some(folder(FOLDER).join("config.yaml"));
    let loaded = flags.load().unwrap();
    assert_eq!(loaded.notes.lines(), Vec::<String>::new());
    let credential = directive("LoadCredential");
    let (name, file) = credential.split_once(':').unwrap();
    assert_eq!(file, directive("AssertPathExists"));
    let kubeconfig = format!("/run/credentials/deltaproxy.service/{name}");
    assert_eq!(loaded.config.source, Source::Kubeconfig(kubeconfig.into()));
    let score = loaded.config.oom_score_adj.unwrap();
    assert_eq!(directive("OOMScoreAdjust"), score.to_string());
}

#[test]
fn the_unit_has_the_one_capability_and_the_memory_of_the_pod() {
    let (_, container) = pod();
    let capabilities = container.security_context.unwrap().capabilities.unwrap();
    let added = capabilities.add.unwrap().iter().map(|it| format!("CAP_{it}")).collect::<Vec<_>>();
    for name in ["AmbientCapabilities", "CapabilityBoundingSet"] {
        assert_eq!(directive(name), added.join(" "));
    }
    let limit = &container.resources.unwrap().limits.unwrap()["memory"].0;
    assert_eq!(format!("{}i", directive("MemoryMax")), *limit);
    assert_eq!(directive("Type"), "notify");
    assert_eq!(directive("DynamicUser"), "yes");
}

#[test]
fn the_documented_directives_are_those_of_the_unit() {
    let page = fs::read_to_string(folder("docs/install.md")).unwrap();
    let (_, section) = page.split_once("\n## Without a DaemonSet\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let quoted = section.split('`').skip(1).step_by(2).filter_map(|it| it.split_once('='));
    let directives: Vec<_> =
        quoted.filter(|(name, _)| name.starts_with(char::is_uppercase)).collect();
    assert!(directives.len() > 5, "{directives:?}");
    for (name, value) in directives {
        assert_eq!(directive(name), value, "{name}");
    }
}

/// A root folder with a program that is installed, and the `systemctl` that its scripts find.
struct Node(TempDir);

impl Node {
    fn new() -> Self {
        let node = Self(tempfile::tempdir().unwrap());
        for path in ["usr/bin", "run/systemd/system", "etc/systemd/system/multi-user.target.wants"]
        {
            fs::create_dir_all(node.path(path)).unwrap();
        }
        for program in ["usr/bin/deltaproxy", "systemctl"] {
            recorder::add_program(&node.path(program), node.0.path(), "");
        }
        node
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.0.path().join(path)
    }

    fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Runs a script as dpkg does. Returns what it called.
    #[track_caller]
    fn run(&self, script: &str, arguments: &[&str]) -> Vec<String> {
        let path = format!("{}:{}", self.0.path().display(), env::var("PATH").unwrap());
        let mut sh = Command::new("sh");
        sh.arg(folder(FOLDER).join(script)).args(arguments);
        let output = sh.env("PATH", path).env("DPKG_ROOT", self.0.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let calls = recorder::calls(self.0.path());
        let _ = fs::remove_file(self.path("calls"));
        calls.lines().map(str::to_owned).collect()
    }
}

const KEPT: &str = "var/lib/deltaproxy/deltaproxy";

#[test]
fn an_installation_starts_nothing_and_an_update_restarts_what_runs() {
    let node = Node::new();
    assert_eq!(node.run("postinst", &["configure", ""]), ["systemctl daemon-reload"]);
    let update = node.run("postinst", &["configure", "0.1.0-1"]);
    let restart = "systemctl try-restart --no-block deltaproxy.service";
    assert_eq!(update, ["systemctl daemon-reload", restart]);
    assert!(node.run("prerm", &["upgrade", "0.2.0-1"]).is_empty() && !node.has(KEPT));
    assert!(node.run("postrm", &["upgrade", "0.2.0-1"]).is_empty());
}

#[test]
fn a_removal_keeps_the_tables_and_what_a_purge_needs_to_remove_them() {
    let node = Node::new();
    let link = "etc/systemd/system/multi-user.target.wants/deltaproxy.service";
    std::os::unix::fs::symlink("/usr/lib/systemd/system/deltaproxy.service", node.path(link))
        .unwrap();
    assert_eq!(node.run("prerm", &["remove"]), ["systemctl stop deltaproxy.service"]);
    assert_eq!(node.run("postrm", &["remove"]), ["systemctl daemon-reload"]);
    assert!(node.has(KEPT) && fs::symlink_metadata(node.path(link)).is_ok());
    assert_eq!(node.run("postrm", &["purge"]), ["deltaproxy cleanup"]);
    assert!(!node.has("var/lib/deltaproxy") && fs::symlink_metadata(node.path(link)).is_err());
    // dpkg may purge twice.
    assert!(node.run("postrm", &["purge"]).is_empty());

    node.run("prerm", &["remove"]);
    node.run("postinst", &["configure", ""]);
    assert!(!node.has("var/lib/deltaproxy"), "a new installation needs no kept program");
}

#[test]
fn a_root_folder_without_a_service_manager_keeps_the_tables_of_its_host() {
    let node = Node::new();
    fs::remove_dir(node.path("run/systemd/system")).unwrap();
    for (script, argument) in
        [("postinst", "configure"), ("prerm", "remove"), ("postrm", "remove"), ("postrm", "purge")]
    {
        assert_eq!(node.run(script, &[argument]), Vec::<String>::new(), "{script}");
    }
    assert!(!node.has("var/lib/deltaproxy"));
}

#[test]
fn the_configuration_is_a_conffile_of_both_packages() {
    let build = text("build");
    assert!(build.contains(&format!("echo {CONFIGURATION} >\"$root/DEBIAN/conffiles\"")));
    assert!(text("deltaproxy.spec").contains(&format!("%config(noreplace) {CONFIGURATION}\n")));
}
