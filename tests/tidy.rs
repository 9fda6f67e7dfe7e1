//! The rules of the source tree that the compiler does not check.

#![allow(clippy::unwrap_used)] // An unreadable file is a failed test.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules that each module may use besides itself, from the bottom to the top.
const LAYERS: &[(&str, &[&str])] = &[
    ("counters", &[]),
    ("family", &[]),
    ("figures", &[]),
    ("flowtable", &[]),
    ("open_files", &[]),
    ("printable", &[]),
    ("yaml", &[]),
    ("netlink", &[]),
    ("schedule", &[]),
    ("model", &["family", "printable"]),
    ("observe", &["family", "open_files"]),
    ("nft", &["family", "netlink"]),
    ("source", &["family", "printable", "yaml", "model"]),
    ("config", &["counters", "family", "flowtable", "model", "yaml"]),
    ("node", &["config"]),
    ("ruleset", &["counters", "family", "flowtable", "model", "nft"]),
    ("desired", &["family", "model", "ruleset"]),
    ("piece", &["family", "nft", "ruleset"]),
    ("diff", &["desired", "family", "model", "nft", "piece", "ruleset"]),
    ("kernel", &["netlink", "nft"]),
    ("conntrack", &["family", "netlink", "model"]),
    ("handover", &["family", "kernel", "nft", "ruleset"]),
    ("other_modes", &["family", "kernel", "netlink", "nft"]),
    (
        "engine",
        &[
            "config",
            "conntrack",
            "counters",
            "desired",
            "diff",
            "family",
            "flowtable",
            "kernel",
            "model",
            "nft",
            "piece",
            "ruleset",
        ],
    ),
    ("read_back", &["diff", "engine", "kernel", "nft", "ruleset"]),
    ("converge", &["engine", "kernel", "nft", "read_back"]),
    (
        "bench",
        &[
            "config",
            "conntrack",
            "converge",
            "engine",
            "figures",
            "kernel",
            "model",
            "netlink",
            "nft",
            "observe",
            "read_back",
            "ruleset",
            "run",
            "source",
        ],
    ),
    ("probe", &["family", "figures", "kernel", "nft", "source"]),
    ("inspect", &["conntrack", "family", "kernel", "model", "nft", "printable", "ruleset"]),
];

/// Modules that may use every other one.
const TOP: &[&str] = &["run", "cli"];

/// Modules that compute the next transaction from events and answers. They do no I/O.
const CORE: [&str; 6] = ["model", "desired", "diff", "piece", "engine", "schedule"];

/// Names that a file of the core does not contain: I/O, tasks, waiting, the log and the kernel.
const NOT_IN_CORE: [&str; 14] = [
    "Kernel",
    "Mutex",
    "RwLock",
    "TcpListener",
    "TcpStream",
    "UdpSocket",
    "UnixStream",
    "async",
    "eprintln",
    "futures",
    "netlink_sys",
    "println",
    "tokio",
    "tracing",
];

/// Modules of the standard library that a file of the core does not use.
const STD_NOT_IN_CORE: [&str; 6] = ["env", "fs", "io", "os", "process", "thread"];

/// What a function of the core may return as an error, with the reason.
const ERRORS_IN_CORE: [(&str, &str, &str); 2] = [
    ("", "Full", "the piece has no room left: the rest goes into the next one"),
    ("src/model/weights.rs", "String", "the reason of a problem: the weights are left out"),
];

/// Modules that read a clock. The others take the time as an argument.
const WITH_CLOCK: [&str; 9] =
    ["bench", "cli", "conntrack", "figures", "kernel", "observe", "probe", "run", "source"];

/// Files that name tables other than ours, with the reason.
const OTHER_TABLES: [(&str, &str); 5] = [
    ("src/nft/", "any table, as bytes and text"),
    ("src/other_modes/", "tables of kube-proxy's other modes, by its names alone"),
    ("src/handover.rs", "the handover tables, which it makes and deletes"),
    ("src/kernel/read.rs", "a table as the kernel reports it"),
    ("src/cli/live_trace.rs", "the table of `explain --trace`, which it makes and deletes"),
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

    /// The module of the crate that the file belongs to, `None` for the crate's roots.
    fn module(&self) -> Option<&str> {
        let first = self.path.strip_prefix("src").ok()?.iter().next()?.to_str()?;
        let module = first.strip_suffix(".rs").unwrap_or(first);
        (!matches!(module, "lib" | "main")).then_some(module)
    }
}

/// Where the module of a file's tests begins: at its attributes.
fn start_of_tests(text: &str) -> usize {
    let starts = text.match_indices("#[cfg(test)]\n").map(|(start, _)| start);
    let is_module = |start: &usize| {
        let mut lines = text[*start..].lines().skip_while(|line| line.starts_with("#["));
        lines.next().is_some_and(|line| line.starts_with("mod "))
    };
    starts.into_iter().find(is_module).unwrap_or(text.len())
}

fn without_comments(text: &str) -> String {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    text.lines().filter(is_code).collect::<Vec<_>>().join("\n")
}

/// The names in code: words of letters, digits and underscores.
fn names(code: &str) -> impl Iterator<Item = &str> {
    code.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
}

/// All Rust files under the folders, of which some may be absent.
fn sources(folders: &[&str]) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut left: Vec<_> = folders.iter().map(|folder| root.join(folder)).collect();
    let mut found = Vec::new();
    while let Some(path) = left.pop() {
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
        let is_name = |letter: &char| letter.is_alphanumeric() || *letter == '_';
        path.trim_start().chars().take_while(is_name).collect()
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
        let Some(module) = source.module().filter(|module| !TOP.contains(module)) else { continue };
        let path = source.path.display();
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == module) else {
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
fn the_core_does_no_io_and_does_not_wait_log_or_read_a_clock() {
    let mut broken = Vec::new();
    for source in sources(&["src"]) {
        if !source.module().is_some_and(|module| CORE.contains(&module)) {
            continue;
        }
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
fn the_core_returns_no_error() {
    let mut broken = Vec::new();
    for source in sources(&["src"]) {
        if !source.module().is_some_and(|module| CORE.contains(&module)) {
            continue;
        }
        let code = source.code();
        for returned in code.split("-> ").skip(1) {
            let returned = returned.split(['{', ';']).next().unwrap().trim();
            let Some((_, error)) = returned.split_once("Result<") else { continue };
            let error = error.rsplit(", ").next().unwrap().trim_end_matches('>');
            let is_known =
                |(path, name, _): &(&str, &str, &str)| source.is_below(path) && *name == error;
            if !ERRORS_IN_CORE.iter().any(is_known) {
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
    let readers: BTreeSet<_> =
        readers.map(|source| source.module().unwrap_or("main").to_owned()).collect();
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
            let is_start = |(start, _): (usize, &str)| {
                let before = code[..start].chars().next_back().unwrap_or(' ');
                !before.is_alphanumeric() && !"_:".contains(before)
            };
            code.match_indices(&path).any(is_start)
        };
        let used: Vec<_> = libraries.iter().filter(uses).collect();
        users += usize::from(!used.is_empty());
        if !used.is_empty() && source.module() != Some("source") {
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
        let made = ["TableRef { ", " Table { family"].map(|made| code.matches(made).count());
        let of_ours =
            ["TableRef { family, name: TABLE.into() }", " Table { family, name: TABLE.into(),"]
                .map(|made| code.matches(made).count());
        let is_named = OTHER_TABLES.iter().any(|(path, _)| source.is_below(path));
        if made != of_ours && !is_named {
            broken.push(format!("{}: a table by another name", source.path.display()));
        }
    }
    check(&broken);
}

/// The documents list the modules of the core as this file does.
#[test]
fn documents_name_the_modules_of_the_core() {
    let names = CORE.map(|module| format!("`{module}`"));
    let list = format!("{} and {}", names[..5].join(", "), names[5]);
    for page in ["docs/architecture.md", "CONTRIBUTING.md", "src/lib.rs"] {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
        assert!(text.contains(&list), "{page} does not name {list}");
    }
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
    assert!(sources(&["src"]).iter().any(|source| source.module() == Some("nft")));
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
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        files.filter(|name| name.to_string_lossy().ends_with(".rs")).collect()
    };
    let others = names("netlink-tests/tests");
    assert!(others.len() > 10);
    let twice: Vec<_> = names("tests").into_iter().filter(|name| others.contains(name)).collect();
    assert!(twice.is_empty(), "{twice:?}");
}
