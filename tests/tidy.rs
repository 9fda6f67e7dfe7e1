//! The rules of the source tree that the compiler does not check.

#![allow(clippy::unwrap_used)] // An unreadable file is a failed test.

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/twins.rs"]
mod twins;
#[path = "tidy/types.rs"]
mod types;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A crate, and each of its modules with those that it may use.
type Layers = (&'static str, &'static [(&'static str, &'static [&'static str])]);

/// Modules of a crate that each of its modules may use besides itself, from the bottom to the top.
/// `Cargo.toml` of a crate names the other crates that it may use.
const LAYERS: &[Layers] = &[
    (
        "engine",
        &[
            ("named", &[]),
            ("setting_error", &[]),
            ("counters", &["named", "setting_error"]),
            ("flowtable", &["setting_error"]),
            ("columns", &[]),
            ("printable", &[]),
            ("schedule", &[]),
            ("model", &["named", "printable"]),
            ("flow", &["model"]),
            ("routing", &["counters", "flowtable", "model", "setting_error"]),
            ("ruleset", &["counters", "flowtable", "model", "named"]),
            ("stable_hash", &["model"]),
            ("desired", &["model", "ruleset", "stable_hash"]),
            ("piece", &["ruleset"]),
            ("diff", &["desired", "model", "piece", "ruleset"]),
            ("direct", &["desired", "diff", "model", "named", "routing", "ruleset", "stable_hash"]),
            (
                "reconcile",
                &[
                    "counters",
                    "desired",
                    "diff",
                    "direct",
                    "flow",
                    "flowtable",
                    "model",
                    "piece",
                    "routing",
                    "ruleset",
                ],
            ),
        ],
    ),
    (
        "daemon",
        &[
            ("child_process", &[]),
            ("named_file", &[]),
            ("open_files", &[]),
            ("protobuf_message", &[]),
            ("rate_limit", &[]),
            ("yaml", &[]),
            ("writer", &[]),
            ("links", &[]),
            ("handover", &[]),
            ("other_modes", &["child_process"]),
            ("conntrack", &[]),
            ("read_back", &[]),
            ("converge", &["read_back"]),
            ("observe", &["open_files", "protobuf_message"]),
            ("source", &["child_process", "named_file", "rate_limit", "yaml"]),
            ("direct", &["source"]),
            ("localhost_proxy", &["observe", "source"]),
            ("config", &["named_file", "yaml"]),
            ("node", &["config"]),
            ("node_readiness", &["config", "observe", "source"]),
            (
                "run",
                &[
                    "direct",
                    "conntrack",
                    "handover",
                    "localhost_proxy",
                    "node",
                    "observe",
                    "read_back",
                    "source",
                    "writer",
                ],
            ),
        ],
    ),
    ("measure", &[("figures", &[]), ("bench", &["figures"]), ("probe", &["figures"])]),
];

/// Crates that the engine does not use: they do I/O, wait, log or know Kubernetes.
const NOT_IN_ENGINE: [&str; 6] = ["k8s-openapi", "kube", "netlink-sys", "nix", "tokio", "tracing"];

/// Names that a file of the engine does not contain: I/O, tasks and waiting.
const NOT_IN_CORE: [&str; 11] = [
    "Kernel",
    "Mutex",
    "RwLock",
    "TcpListener",
    "TcpStream",
    "UdpSocket",
    "UnixStream",
    "async",
    "await",
    "eprintln",
    "println",
];

/// Modules of the standard library that a file of the engine does not use.
const STD_NOT_IN_CORE: [&str; 6] = ["env", "fs", "io", "os", "process", "thread"];

/// What a function of the engine may return as an error, with the reason.
const ERRORS_IN_CORE: [(&str, &str, &str); 6] = [
    ("", "Full", "the piece has no room left: further changes go into the next one"),
    ("", "SettingError", "the text of a setting is wrong"),
    ("src/engine/direct/", "Obstacle", "the reason of a problem: packets are translated"),
    ("src/engine/ruleset/slots.rs", "E", "the error of the caller's lookup"),
    (
        "src/engine/model/port_ranges.rs",
        "String",
        "the reason of a problem: the ranges are left out",
    ),
    ("src/engine/model/weights.rs", "String", "the reason of a problem: the weights are left out"),
];

/// Modules that read a clock. The others take the time as an argument.
const WITH_CLOCK: [&str; 10] = [
    "daemon/conntrack",
    "daemon/node_readiness",
    "daemon/observe",
    "daemon/run",
    "daemon/source",
    "measure/bench",
    "measure/figures",
    "measure/probe",
    "nft/kernel",
    "program",
];

/// Files that name tables other than ours, with the reason.
const OTHER_TABLES: [(&str, &str); 6] = [
    ("src/nft/", "any table, as bytes and text"),
    ("src/daemon/other_modes/", "tables of kube-proxy's other modes, by its names alone"),
    ("src/engine/direct/", "table direct-return, which it writes"),
    ("src/engine/reconcile/tables.rs", "the tables that it names alone"),
    ("src/daemon/handover/tables.rs", "the handover tables, which it names and deletes"),
    ("src/program/live_trace.rs", "the table of `explain --trace`, which it makes and deletes"),
];

/// Folders with Rust files, without those that builds fill.
const RUST_FOLDERS: [&str; 15] = [
    "benches",
    "examples",
    "fake-kernel",
    "fuzz/fuzz_targets",
    "manual",
    "netlink-tests/benches",
    "netlink-tests/hosts",
    "netlink-tests/interop/src",
    "netlink-tests/interop/tests",
    "netlink-tests/interop/writers/src",
    "netlink-tests/messages",
    "netlink-tests/src",
    "netlink-tests/tests",
    "src",
    "tests",
];

/// Lines that a file may have before its tests.
const LINE_LIMIT: usize = 500;

/// A source file, by its path from the root of the repository.
struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    /// The code before the file's tests; empty for a file that is a test.
    fn product(&self) -> &str {
        let is_test = self.path.iter().any(|part| part == "tests" || part == "tests.rs");
        if is_test { "" } else { &self.text[..start_of_tests(&self.text)] }
    }

    /// The code before the file's tests without comments.
    fn code(&self) -> String {
        without_comments(self.product())
    }

    fn is_below(&self, path: &str) -> bool {
        self.path.to_str().unwrap().starts_with(path)
    }

    /// The crate that the file belongs to: a folder of `src`.
    fn package(&self) -> Option<&str> {
        self.path.strip_prefix("src").ok()?.iter().next()?.to_str()
    }

    /// The module of the crate that the file belongs to, `None` for the crate's roots.
    fn module(&self) -> Option<&str> {
        let part = self.path.strip_prefix("src").ok()?.iter().nth(1)?.to_str()?;
        let module = part.strip_suffix(".rs").unwrap_or(part);
        (!matches!(module, "lib" | "main")).then_some(module)
    }

    /// The crate and, if that crate has layers or is `nft`, the module.
    fn room(&self) -> String {
        let package = self.package().unwrap_or_default();
        let has_rooms = package == "nft" || LAYERS.iter().any(|(name, _)| *name == package);
        let module = self.module().filter(|_| has_rooms);
        module.map_or(package.to_owned(), |module| format!("{package}/{module}"))
    }
}

/// Where the module of a file's tests begins: at its attributes.
fn start_of_tests(text: &str) -> usize {
    let starts = text.match_indices("#[cfg(test)]\n").map(|(start, _)| start);
    let begins_module = |start: &usize| {
        let mut lines = text[*start..].lines().skip_while(|line| line.starts_with("#["));
        lines.next().is_some_and(|line| line.starts_with("mod "))
    };
    starts.into_iter().find(begins_module).unwrap_or(text.len())
}

fn without_comments(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The names in code: words of letters, digits and underscores.
fn names(code: &str) -> impl Iterator<Item = &str> {
    code.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// All Rust files under the folders, of which some may be absent.
fn sources(folders: &[&str]) -> Vec<Source> {
    let root = root();
    let mut left: Vec<_> = folders.iter().map(|folder| root.join(folder)).collect();
    let mut found = Vec::new();
    while let Some(path) = left.pop() {
        // A workspace of its own may hold what was built there.
        if path.join("CACHEDIR.TAG").exists() {
            continue;
        }
        if path.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push(Source { path: path.strip_prefix(root).unwrap().to_owned(), text });
        }
    }
    found
}

/// Panics with one line for each broken rule.
#[track_caller]
fn check(broken: &[String]) {
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// The modules named by paths that start at the crate, outside of comments.
fn used_modules(text: &str) -> Vec<String> {
    let code = without_comments(text);
    let after = code.split("crate::").skip(1);
    after.flat_map(first_names).filter(|name| name.starts_with(char::is_lowercase)).collect()
}

/// The first name of a path, or those of a group of paths in braces.
fn first_names(path: &str) -> Vec<String> {
    let name = |path: &str| -> String {
        path.trim_start()
            .chars()
            .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
            .collect()
    };
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let mut depth = 0;
    let mut ends_item = |letter| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        (letter == ',' && depth == 0) || depth < 0
    };
    let mut names = Vec::new();
    let mut rest = group;
    while let Some(end) = rest.find(&mut ends_item) {
        names.push(name(&rest[..end]));
        if rest[end..].starts_with('}') {
            break;
        }
        rest = &rest[end + 1..];
    }
    names
}

#[test]
fn modules_use_only_lower_layers() {
    let mut broken = Vec::new();
    for source in sources(&["src"]) {
        let layers = LAYERS.iter().find(|(package, _)| Some(*package) == source.package());
        let (Some((_, layers)), Some(module)) = (layers, source.module()) else { continue };
        let path = source.path.display();
        let Some((_, allowed)) = layers.iter().find(|(name, _)| *name == module) else {
            broken.push(format!("{path}: {module} is not in the table of layers"));
            continue;
        };
        let used = used_modules(source.product());
        let upward = used.iter().filter(|used| *used != module && !allowed.contains(&&***used));
        broken.extend(upward.map(|used| format!("{path}: {module} may not use {used}")));
    }
    check(&broken);
}

#[test]
fn the_engine_has_no_crate_for_io_logs_or_kubernetes() {
    let door = fs::read_to_string(root().join("src/engine/Cargo.toml")).unwrap();
    let (_, dependencies) = door.split_once("[dependencies]").unwrap();
    let mut used = dependencies.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    assert!(used.clone().any(|name| name == "nft"));
    assert_eq!(used.find(|name| NOT_IN_ENGINE.contains(name)), None);
}

#[test]
fn the_engine_does_no_io_and_does_not_wait() {
    let mut broken = Vec::new();
    for source in sources(&["src/engine"]) {
        let code = source.code();
        let mut used: BTreeSet<_> =
            names(&code).filter(|name| NOT_IN_CORE.contains(name)).map(str::to_owned).collect();
        let of_std = code.split("std::").skip(1).flat_map(first_names);
        used.extend(of_std.filter(|name| STD_NOT_IN_CORE.contains(&name.as_str())));
        broken.extend(used.iter().map(|name| format!("{}: {name}", source.path.display())));
    }
    check(&broken);
}

#[test]
fn the_engine_returns_no_error() {
    let mut broken = Vec::new();
    for source in sources(&["src/engine"]) {
        let code = source.code();
        for returned in code.split("-> ").skip(1) {
            let returned = returned.split(['{', ';', '\n']).next().unwrap().trim();
            let Some((_, error)) = returned.split_once("Result<") else { continue };
            let error = error.rsplit(", ").next().unwrap().trim_end_matches(['>', ',']);
            if !ERRORS_IN_CORE
                .iter()
                .any(|(path, name, _): &(&str, &str, &str)| source.is_below(path) && *name == error)
            {
                broken.push(format!("{}: -> {returned}", source.path.display()));
            }
        }
    }
    check(&broken);
}

#[test]
fn only_named_modules_read_a_clock() {
    let reads = ["Instant::now", "SystemTime::now", "Timestamp::now", ".elapsed()"];
    let readers = sources(&["src"]).into_iter().filter(|source| {
        let code = source.code();
        reads.iter().any(|read| code.contains(read))
    });
    let readers: BTreeSet<_> = readers.map(|source| source.room()).collect();
    assert!(readers.iter().eq(&WITH_CLOCK), "{readers:?}");
}

/// The libraries with the types of Kubernetes.
#[test]
fn kubernetes_types_exist_in_source_only() {
    let libraries = ["k8s_openapi", "kube", "kube_client", "kube_core", "kube_runtime"];
    let mut broken = Vec::new();
    let mut users = 0;
    for source in sources(&["src"]) {
        let code = without_comments(&source.text);
        let uses = |library: &&&str| {
            let path = format!("{library}::");
            // A path that goes on before it leads to our module `source::kube`.
            let starts = |(start, _): (usize, &str)| {
                let before = code[..start].chars().next_back().unwrap_or(' ');
                !before.is_alphanumeric() && !"_:".contains(before)
            };
            code.match_indices(&path).any(starts)
        };
        let used: Vec<_> = libraries.iter().filter(uses).collect();
        users += usize::from(!used.is_empty());
        if !used.is_empty() && !source.is_below("src/daemon/source") {
            broken.push(format!("{}: {used:?}", source.path.display()));
        }
    }
    check(&broken);
    assert!(users > 5, "the libraries are not found any more");
}

#[test]
fn only_named_files_act_on_tables_that_are_not_ours() {
    let mut broken = Vec::new();
    for source in sources(&["src"]) {
        let code = source.code();
        let count =
            |texts: &[&str]| -> usize { texts.iter().map(|it| code.matches(it).count()).sum() };
        let made = count(&[
            "TableRef { ",
            "TableRef::new(",
            " Table { family",
            " Table::new(",
            "..Table::new(",
        ]);
        let of_ours = count(&["TableRef::new(family, TABLE)", "..Table::new(family, TABLE)"]);
        let is_named = OTHER_TABLES.iter().any(|(path, _)| source.is_below(path));
        if made != of_ours && !is_named {
            broken.push(format!("{}: a table by another name", source.path.display()));
        }
    }
    check(&broken);
}

#[test]
fn tests_with_attributes_are_no_product() {
    let source = Source {
        path: "src/engine/a.rs".into(),
        text: "#[cfg(test)]\nmod other;\n".replace("mod", "use")
            + "fn f() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n thread::sleep();",
    };
    assert!(source.product().ends_with("fn f() {}\n"));
    assert!(!names(&source.code()).any(|name| name == "thread"));
}

#[test]
fn every_file_starts_with_a_description() {
    let folders = ["src", "tests", "benches", "manual", "netlink-tests", "fuzz/fuzz_targets"];
    let silent = sources(&folders).into_iter().filter(|source| !source.text.starts_with("//! "));
    let broken: Vec<_> =
        silent.map(|source| format!("{}: no `//!` at its start", source.path.display())).collect();
    check(&broken);
}

/// A name that begins with `is_` is a value, a method or a function. A closure of that name is read
/// as a value where it is passed on.
#[test]
fn no_closure_is_named_as_a_value() {
    let mut broken = Vec::new();
    for source in sources(&RUST_FOLDERS) {
        let lines: Vec<_> = source.text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let next = lines.get(number + 1).copied().unwrap_or_default();
            if names_closure_as_value(line, next) {
                broken.push(format!("{}:{}: {}", source.path.display(), number + 1, line.trim()));
            }
        }
    }
    check(&broken);
    assert!(names_closure_as_value("    let is_due = move |it: &u8| *it > 0;", ""));
    assert!(names_closure_as_value("    let is_due =", "        |it: &u8| *it > 0;"));
    assert!(!names_closure_as_value("    let is_due = value.is_some_and(|it| it > 0);", ""));
}

/// Judges a line; its value may stand in the next one.
fn names_closure_as_value(line: &str, next: &str) -> bool {
    let named = line.trim_start().strip_prefix("let is_").and_then(|rest| rest.split_once(" ="));
    named.is_some_and(|(_, value)| {
        let value = if value.is_empty() { next } else { value };
        value.trim_start().trim_start_matches("move ").starts_with('|')
    })
}

#[test]
fn no_file_is_too_long_to_be_read() {
    let mut broken = Vec::new();
    for source in sources(&["src", "manual/src", "netlink-tests/src"]) {
        let lines = source.product().lines().count();
        if lines > LINE_LIMIT {
            let path = source.path.display();
            broken.push(format!("{path}: {lines} lines before its tests, of {LINE_LIMIT}"));
        }
    }
    check(&broken);
}

#[test]
fn the_tree_is_found_where_it_is_looked_for() {
    assert!(sources(&["src"]).iter().any(|source| source.package() == Some("nft")));
    assert!(sources(&["fuzz/fuzz_targets"]).len() > 1);
}

#[test]
fn all_ways_to_name_a_module_are_seen() {
    let text = "
        //! See crate::comment.
        use crate::one::Type;
        pub(crate) use crate::{two, three::{self, deep}, four as other};
        fn f() -> crate::five::Type {}
        use crate::Type;";
    assert_eq!(used_modules(text), ["one", "two", "three", "four", "five"]);
}

/// `make test` names the tests to run, some of them in network namespaces: one name must not
/// stand for a test of either kind.
#[test]
fn no_two_tests_have_one_name() {
    let names = |folder: &str| -> Vec<_> {
        let files =
            fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
        files.filter(|name| name.to_string_lossy().ends_with(".rs")).collect()
    };
    let others = names("netlink-tests/tests");
    assert!(others.len() > 10);
    let twice: Vec<_> = names("tests").into_iter().filter(|name| others.contains(name)).collect();
    assert!(twice.is_empty(), "{twice:?}");
}
