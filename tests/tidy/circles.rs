//! Circles between files of one folder: a file names things of another, which names things of the
//! first, perhaps through more files.
//!
//! The files of a folder are its `mod.rs` (or the file beside it with its name), the others, and
//! each folder inside it as a whole. A file names another by a path that starts at `super`, `self`
//! or `crate`, or by the name of a module inside it. A module's line `pub use` names the module.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, check, names, sources, without_comments};

/// A module: the names from the root of its crate.
type Module = Vec<String>;

/// Roots of the crates whose files are checked.
const CRATES: &[&str] = &[
    "netlink-tests/src",
    "src/conntrack",
    "src/daemon",
    "src/engine",
    "src/inspect",
    "src/measure",
    "src/network",
    "src/nft",
    "src/program",
];

#[test]
fn files_of_a_folder_have_no_circles() {
    let mut broken = Vec::new();
    for root in CRATES {
        let files = sources(&[root]);
        assert!(files.len() > 1, "{root} is empty");
        broken.extend(circles(&modules(root, &files)).into_iter().map(|(folder, circle)| {
            let folder = std::iter::once((*root).to_owned()).chain(folder).collect::<Vec<_>>();
            format!("{}: a circle of {}", folder.join("/"), circle.join(", "))
        }));
    }
    check(&broken);
}

/// The modules of a crate with their code, without tests.
fn modules(root: &str, files: &[Source]) -> BTreeMap<Module, String> {
    let of_tests = |source: &&Source| source.path.ends_with("tests.rs");
    let of_file = |source: &Source| {
        let path = source.path.strip_prefix(root).unwrap().with_extension("");
        let mut module: Module =
            path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
            module.pop();
        }
        (module, product(&source.text))
    };
    files.iter().filter(|source| !of_tests(source)).map(of_file).collect()
}

/// The code before the module of tests, without the scope of `pub(in crate::folder)`.
fn product(text: &str) -> String {
    let begins_tests = |start: &usize| {
        let mut lines = text[*start..].lines().skip_while(|line| line.starts_with("#["));
        lines.next().is_some_and(|line| line.contains("mod ") && line.ends_with('{'))
    };
    let mut starts = text.match_indices("#[cfg(test)]\n").map(|(start, _)| start);
    let end = starts.find(begins_tests).unwrap_or(text.len());
    let mut code = without_comments(&text[..end]);
    while let Some(start) = code.find("pub(in ") {
        let end = code[start..].find(')').unwrap();
        code.replace_range(start + 3..=start + end, "");
    }
    code.replace("pub(super)", "pub").replace("pub(crate)", "pub")
}

/// The circles in each folder, by the names of its files.
fn circles(modules: &BTreeMap<Module, String>) -> Vec<(Module, Vec<String>)> {
    let named: Vec<_> =
        modules.iter().map(|(module, code)| (module, named_in(module, code, modules))).collect();
    let folders: BTreeSet<Module> = modules.keys().filter_map(parent).collect();
    let mut found = Vec::new();
    for folder in folders {
        let mut edges: BTreeMap<&[String], BTreeSet<&[String]>> = BTreeMap::new();
        let node = |module: &'_ Module| module.starts_with(&folder).then_some(module.len());
        for (from, to) in &named {
            let Some(length) = node(from) else { continue };
            let from = &from[..length.min(folder.len() + 1)];
            for to in to {
                let Some(length) = node(to) else { continue };
                let to = &to[..length.min(folder.len() + 1)];
                if to != from {
                    edges.entry(from).or_default().insert(to);
                }
            }
        }
        let reached: BTreeMap<_, _> =
            edges.keys().map(|from| (*from, reachable(from, &edges))).collect();
        let in_circle = reached.iter().filter(|(from, reached)| reached.contains(*from));
        let circle: Vec<_> = in_circle
            .map(|(file, _)| file.get(folder.len()).map_or("mod.rs", String::as_str).to_owned())
            .collect();
        if !circle.is_empty() {
            found.push((folder, circle));
        }
    }
    found
}

fn parent(module: &Module) -> Option<Module> {
    let (_, parent) = module.split_last()?;
    Some(parent.to_vec())
}

fn reachable<'a>(
    from: &[String],
    edges: &BTreeMap<&'a [String], BTreeSet<&'a [String]>>,
) -> BTreeSet<&'a [String]> {
    let mut reached = BTreeSet::new();
    let mut left: Vec<&[String]> = vec![from];
    while let Some(from) = left.pop() {
        for to in edges.get(from).into_iter().flatten() {
            if reached.insert(*to) {
                left.push(to);
            }
        }
    }
    reached
}

/// The modules that the code of a module names.
fn named_in(module: &Module, code: &str, modules: &BTreeMap<Module, String>) -> BTreeSet<Module> {
    let mut named = BTreeSet::new();
    let mut add = |base: &[String], path: &str| {
        for item in paths(path) {
            let mut target: Module = base.to_vec();
            target.extend(item.split("::").filter(|name| !name.is_empty()).map(str::to_owned));
            while !modules.contains_key(&target) && target.pop().is_some() {}
            named.insert(target);
        }
    };
    let starts_path = |start: usize| {
        !code[..start].ends_with(|it: char| it.is_alphanumeric() || it == '_' || it == ':')
    };
    for (start, _) in code.match_indices("crate::").filter(|(start, _)| starts_path(*start)) {
        add(&[], &code[start + "crate::".len()..]);
    }
    for (start, _) in code.match_indices("super::").filter(|(start, _)| starts_path(*start)) {
        let mut rest = &code[start..];
        let mut base = &module[..];
        while let Some(after) = rest.strip_prefix("super::") {
            (rest, base) = (after, &base[..base.len().saturating_sub(1)]);
        }
        add(base, rest);
    }
    let children = modules.keys().filter(|it| parent(it).as_ref() == Some(module));
    for child in children {
        let path = format!("{}::", child.last().unwrap());
        let mut uses = code.match_indices(&path).map(|(start, _)| start);
        if uses.any(|start| starts_path(start) || code[..start].ends_with("self::")) {
            named.insert(child.clone());
        }
    }
    named.remove(module);
    named
}

/// The paths in a path that may end with a group in braces, without what follows them.
fn paths(path: &str) -> Vec<String> {
    let plain = |path: &str| -> String {
        path.trim_start()
            .chars()
            .take_while(|letter| letter.is_alphanumeric() || "_:".contains(*letter))
            .collect()
    };
    let first = plain(path);
    let Some(group) = path[first.len()..].strip_prefix('{') else { return vec![first] };
    let mut depth = 0;
    let mut ends = |letter| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        (letter == ',' && depth == 0) || depth < 0
    };
    let (mut found, mut rest) = (Vec::new(), group);
    while let Some(end) = rest.find(&mut ends) {
        let item = plain(rest);
        if names(&item).any(|name| !name.is_empty()) {
            found.push(format!("{first}{item}"));
        }
        if rest[end..].starts_with('}') {
            break;
        }
        rest = &rest[end + 1..];
    }
    found
}

#[test]
fn a_circle_through_the_parent_and_one_between_two_files_are_seen() {
    let module = |path: &str| path.split('/').map(str::to_owned).collect::<Module>();
    let files = [
        ("a", "mod b; mod c; mod d;\npub use c::C;"),
        ("a/b", "use super::{C, d::D};"),
        ("a/c", "use crate::a::b;"),
        ("a/d", "use std::fmt;"),
        ("e", "pub(in crate::a) fn f() {}"),
    ];
    let files = files.map(|(path, code)| (module(path), product(code)));
    let found = circles(&files.into_iter().collect());
    let circle = ["mod.rs", "b", "c"].map(str::to_owned).to_vec();
    assert_eq!(found, [(module("a"), circle)]);
}
