//! Commands that the documents show exist: our command line, make targets, files and tests.

#![allow(clippy::unwrap_used)] // An unreadable file is a failed test.

use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap::error::ErrorKind;
use daemon::config::kube_proxy::KubeProxyFlags;
use deltaproxy::Cli;

/// Prompts of the blocks that show a dialogue.
const PROMPTS: [&str; 2] = ["# ", "node$ "];

/// Words after which a shell command of ours has ended.
const ENDS: [&str; 6] = ["#", "|", ">", "&", "&&", ";"];

/// Flags of kube-proxy's command line that end the program, and set nothing.
const ENDING: [&str; 4] = ["--help", "--init-only", "--cleanup", "--write-config-to"];

/// Words that stand for a value, and such a value.
const PLACEHOLDERS: [(&str, &str); 4] = [
    ("SERVICE", "default/web"),
    ("ADDRESS:PORT", "192.0.2.1:80"),
    ("ADDRESS", "192.0.2.1"),
    ("CLIENT", "192.0.2.1"),
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn pages() -> Vec<(PathBuf, String)> {
    let of_docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let of_docs = of_docs.filter(|path| path.extension().is_some_and(|it| it == "md"));
    let others = [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "src/nft/README.md",
        ".github/pull_request_template.md",
        ".github/ISSUE_TEMPLATE/bug.yml",
        ".github/ISSUE_TEMPLATE/change.yml",
    ];
    let others = others.map(|it| root().join(it));
    of_docs.chain(others).map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// A command that a page shows.
struct Shown {
    words: Vec<String>,
    /// Quoted in a sentence, which may name a command without its arguments.
    is_in_sentence: bool,
}

fn shown(line: &str, is_in_sentence: bool) -> Shown {
    let words = line.split_whitespace().take_while(|word| !ENDS.contains(word));
    Shown { words: words.map(str::to_owned).collect(), is_in_sentence }
}

/// The commands of a page: the lines of its shell blocks, and what its sentences quote.
fn commands(page: &str) -> Vec<Shown> {
    let page = page.replace("\\\n", " ");
    let mut found = Vec::new();
    let mut block = None;
    for line in page.lines().map(str::trim) {
        match (block, line.strip_prefix("```")) {
            (None, Some(kind)) => block = Some(kind),
            (Some(_), Some(_)) => block = None,
            (None, None) => {
                found.extend(line.split('`').skip(1).step_by(2).map(|it| shown(it, true)));
            }
            (Some("sh"), None) => found.push(shown(line, false)),
            (Some("console"), None) => {
                let typed = PROMPTS.iter().find_map(|prompt| line.strip_prefix(prompt));
                found.extend(typed.map(|it| shown(it, false)));
            }
            (Some(_), None) => {}
        }
    }
    found
}

fn filled_in(word: &str) -> String {
    let value = PLACEHOLDERS.iter().find(|(placeholder, _)| *placeholder == word);
    value.map_or(word, |(_, value)| value).to_owned()
}

/// The reason why our program refuses the command. `None` also for other programs.
fn refusal(command: &Shown) -> Option<String> {
    let program = command.words.iter().position(|word| {
        word == "kube-proxy" || word == "deltaproxy" || word.ends_with("/bin/deltaproxy")
    })?;
    // The first word, or that after `--` of `kubectl exec`.
    if program > 0 && command.words[program - 1] != "--" {
        return None;
    }
    let arguments = command.words[program + 1..].iter();
    let arguments: Vec<_> = arguments.map(|it| filled_in(it)).collect();
    let is_flag = arguments.first().is_some_and(|it| it.starts_with('-'));
    if command.words[program] == "kube-proxy" || is_flag {
        let kept = arguments.into_iter().filter(|it| !ENDING.contains(&&**it));
        return KubeProxyFlags::parse(kept).err().map(|error| error.to_string());
    }
    let line = ["deltaproxy".to_owned()].into_iter().chain(arguments);
    let error = Cli::command().try_get_matches_from(line).err()?;
    let is_incomplete = matches!(
        error.kind(),
        ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    let is_accepted =
        error.kind() == ErrorKind::DisplayHelp || (is_incomplete && command.is_in_sentence);
    (!is_accepted).then(|| error.to_string())
}

/// Whether the file of a test or an example exists.
fn has_file(kind: &str, name: &str) -> bool {
    let folders: &[_] =
        if kind == "--example" { &["examples"] } else { &["tests", "netlink-tests/tests"] };
    folders.iter().any(|folder| root().join(folder).join(format!("{name}.rs")).exists())
}

/// What the command names and the repository lacks: a target of make, a file, a test.
fn missing(command: &Shown, makefile: &str) -> Option<String> {
    let words = &command.words;
    if let [program, target, ..] = &words[..]
        && program == "make"
        && !target.contains('=')
        && !makefile.contains(&format!("\n{target}:"))
    {
        return Some(format!("no target {target}"));
    }
    let words = || words.iter().map(|word| word.trim_start_matches("path/to/deltaproxy/"));
    // tests/documentation.rs checks the paths of sentences.
    let mut paths = words().filter(|word| {
        !command.is_in_sentence
            && ["deploy/", "examples/", "netlink-tests/"].iter().any(|it| word.starts_with(it))
            && !word.contains(['*', '{', '…'])
    });
    if let Some(path) = paths.find(|path| !root().join(path).exists()) {
        return Some(format!("no file {path}"));
    }
    let mut names = words()
        .zip(words().skip(1))
        .filter(|(kind, name)| ["--test", "--example"].contains(kind) && *name != "NAME");
    let (kind, name) = names.find(|(kind, name)| !has_file(kind, name))?;
    Some(format!("no {kind} {name}"))
}

fn wrong(command: &Shown, makefile: &str) -> Option<String> {
    refusal(command).or_else(|| missing(command, makefile))
}

#[test]
fn every_command_that_a_document_shows_exists() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let mut broken = Vec::new();
    let mut of_ours = 0;
    for (page, text) in pages() {
        for command in commands(&text) {
            of_ours += usize::from(command.words.first().is_some_and(|it| it == "deltaproxy"));
            let line = command.words.join(" ");
            let wrong = wrong(&command, &makefile);
            broken.extend(wrong.map(|why| format!("{}: {line}\n  {why}", page.display())));
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
    assert!(of_ours > 50, "{of_ours} commands");
}

#[test]
fn wrong_commands_are_found() {
    let page = "```sh\ndeltaproxy run --no-such-flag\nkubectl exec POD -- /usr/local/bin/deltaproxy \
                veryfy\ndeltaproxy --no-such=1\nmake no-such\ncp deploy/no-such . # yes\n\
                cargo test --test no-such\n```\n\
                ```console\n# deltaproxy show a/b --no-such\noutput deltaproxy --no-such\n```\n\
                See `deltaproxy apply --such`.\n";
    let found: Vec<_> = commands(page).iter().map(|it| wrong(it, "\ntest:").is_some()).collect();
    assert_eq!(found, [true; 8]);
    let page = "```sh\ndeltaproxy run --manifests F & # x\nmake test\ncp deploy/Dockerfile .\n```\n\
                See `deltaproxy config check`.\n";
    assert!(commands(page).iter().all(|it| wrong(it, "\ntest:").is_none()));
}
