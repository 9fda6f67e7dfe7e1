//! The interfaces whose changes a version number announces are as recorded: commands, flags, exit
//! codes, and fields of the configuration. `docs/releases.md` has the promise.
//!
//! `metric_names` compares the metrics, and `json_outputs` in `netlink-tests` the JSON outputs.

#![allow(clippy::unwrap_used)] // An unreadable file is a failed test.

#[path = "promises/record.rs"]
mod record;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};
use daemon::config::kube_proxy::KubeProxyFlags;
use deltaproxy::Cli;
use engine::ruleset::LAYOUT;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// All commands with the words that select them, without `help`.
fn commands() -> Vec<(String, Command)> {
    let mut program = Cli::command();
    program.build();
    let mut left: Vec<_> = program.get_subcommands().map(|it| (String::new(), it)).collect();
    let mut found = Vec::new();
    while let Some((before, command)) = left.pop() {
        if command.get_name() == "help" {
            continue;
        }
        let words = format!("{before}{}", command.get_name());
        left.extend(command.get_subcommands().map(|it| (format!("{words} "), it)));
        found.push((words, command.clone()));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// A flag or an argument with its values and its default.
fn described(argument: &Arg) -> String {
    let mut words = Vec::new();
    words.extend(argument.get_short().map(|short| format!("-{short}")));
    words.extend(argument.get_long().map(|long| format!("--{long}")));
    if argument.get_action().takes_values() {
        let names = argument.get_value_names().unwrap_or_default();
        words.extend(names.iter().map(ToString::to_string));
        let values: Vec<_> = argument.get_possible_values();
        let values: Vec<_> = values.iter().map(|it| it.get_name()).collect();
        words.extend((!values.is_empty()).then(|| format!("({})", values.join("|"))));
        let defaults = argument.get_default_values().iter().map(|it| it.to_string_lossy());
        words.extend(defaults.map(|default| format!("default {default}")));
    }
    words.extend(argument.is_required_set().then(|| "required".to_owned()));
    words.join(" ")
}

#[test]
fn commands_and_flags_are_as_recorded() {
    let mut lines = Vec::new();
    for (words, command) in commands() {
        lines.push(words.clone());
        let arguments =
            command.get_arguments().filter(|it| it.get_id() != "help" && !it.is_hide_set());
        let mut arguments: Vec<_> =
            arguments.map(|it| format!("{words} {}", described(it))).collect();
        arguments.sort();
        lines.extend(arguments);
    }
    assert!(lines.len() > 100, "{lines:#?}");
    record::compare("command-line", &lines);
}

#[test]
fn flags_of_kube_proxy_are_as_recorded() {
    let help = KubeProxyFlags::help();
    let mut lines: Vec<_> = Vec::new();
    for line in help.lines() {
        if let Some(flag) = line.strip_prefix("      --") {
            lines.push(format!("--{flag}"));
        } else if let (Some((_, default)), Some(last)) =
            (line.rsplit_once(" (default "), lines.last_mut())
        {
            *last += &format!(" default {}", default.trim_end_matches(')'));
        }
    }
    lines.sort();
    assert!(lines.len() > 50, "{lines:#?}");
    record::compare("kube-proxy-flags", &lines);
}

/// The lines of a help text below its line `Exit codes:`, up to an empty one.
fn exit_codes(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| !line.starts_with("Exit codes"));
    lines.skip(1).take_while(|line| !line.is_empty()).map(str::trim).collect()
}

#[test]
fn exit_codes_are_as_recorded() {
    let mut lines = Vec::new();
    for (words, command) in commands() {
        let helps = [command.get_after_help(), command.get_after_long_help()];
        let help = helps.into_iter().flatten().map(ToString::to_string).collect::<String>();
        lines.extend(exit_codes(&help).into_iter().map(|code| format!("{words}: {code}")));
    }
    let of: BTreeSet<_> = lines.iter().filter_map(|it| Some(it.split_once(':')?.0)).collect();
    assert!(of.len() > 8, "{of:?}");
    record::compare("exit-codes", &lines);
}

#[test]
fn exit_codes_are_found_in_a_help_text() {
    let help = "Columns:\n  A  a\n\nExit codes, as those:\n  0  yes\n  1  no\n\nExamples:\n  x\n";
    assert_eq!(exit_codes(help), ["0  yes", "1  no"]);
    assert!(exit_codes("Examples:\n  x\n").is_empty());
}

/// The tables of `docs/options.md` come from the table of options; its effects are texts for people.
#[test]
fn fields_of_the_configuration_are_as_recorded() {
    let page = fs::read_to_string(root().join("docs/options.md")).unwrap();
    let rows =
        page.lines().filter(|line| line.starts_with("| `") && line.matches(" |").count() == 5);
    let described = |row: &str| {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [field, default, of_run, of_kube_proxy, _] = cells[..] else { panic!("{row}") };
        let parts = [("", field), ("default ", default), ("run ", of_run)];
        let parts = parts.into_iter().chain([("kube-proxy ", of_kube_proxy)]);
        let parts = parts.filter(|(_, cell)| !cell.is_empty());
        let words = parts.map(|(before, cell)| format!("{before}{}", cell.replace('`', "")));
        words.collect::<Vec<_>>().join(" ")
    };
    let lines: Vec<_> = rows.map(described).collect();
    assert!(lines.len() > 40, "{lines:#?}");
    record::compare("configuration", &lines);
}

/// A version is tested on the tables of each layout that a version had.
#[test]
fn every_former_layout_has_its_listing() {
    let folder = root().join("netlink-tests/tests/fixtures");
    let test = fs::read_to_string(root().join("netlink-tests/tests/layouts.rs")).unwrap();
    for layout in 1..LAYOUT {
        for name in [format!("layout-{layout}.nft"), format!("layout-{layout}-examples.nft")] {
            assert!(folder.join(&name).exists(), "{name} is missing");
            assert!(test.contains(&format!("\"fixtures/{name}\"")), "{name} is not tested");
        }
    }
}
