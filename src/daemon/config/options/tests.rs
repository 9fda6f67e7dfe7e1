//! The table is consistent, and docs/options.md and the example file are made from it
//! (`UPDATE_DOCS=1` writes them).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::config::fields::IPVS_SCHEDULER;

#[test]
fn every_option_is_there_once_and_has_one_object_of_options_around_it() {
    for (i, setting) in SETTINGS.iter().enumerate() {
        let earlier = &SETTINGS[..i];
        assert!(earlier.iter().all(|other| other.field != setting.field), "{}", setting.field);
        let path = setting.path("nftables");
        if let Some((parent, _)) = path.rsplit_once('.') {
            assert_eq!(kind_of(parent), Some(OptionKind::Object), "{path}");
        }
    }
}

#[test]
fn the_default_of_the_table_is_that_of_the_configuration() {
    let config = Values::default().config;
    for setting in SETTINGS.iter().filter(|it| !it.default.is_empty()) {
        let Some(written) = setting.written(&config) else { continue };
        if setting.kind == OptionKind::Gate {
            assert_eq!(written.to_string(), setting.default);
            continue;
        }
        let shown = setting.kind.shown(setting.default);
        assert_eq!(written, setting.kind.read(&shown).unwrap(), "{}", setting.field);
    }
}

#[test]
fn options_with_an_effect_are_described() {
    for setting in SETTINGS.iter().filter(|it| it.has_effect() || it.kube_proxy.is_some()) {
        assert!(setting.about.len() > 10 && !setting.about.ends_with('.'), "{}", setting.field);
    }
}

const EXAMPLE: &str = "examples/kube-proxy-config.yaml";
const PAGE: &str = "docs/options.md";

/// Lines before the first option of the example.
const HEAD: &str = "\
# A kube-proxy configuration that deltaproxy accepts unchanged: deltaproxy run --config FILE
# deltaproxy accepts every field of the API; those below have an effect.
# It uses a changed file within some seconds. It logs an invalid one and keeps the previous configuration.
";

/// Values of the example that are not the default.
fn example_of(setting: &Setting) -> &str {
    match setting.field {
        "clientConnection.kubeconfig" => "/var/lib/kube-proxy/kubeconfig.conf",
        "mode" => "nftables",
        "detectLocalMode" => "ClusterCIDR",
        "clusterCIDR" => "10.244.0.0/16,fd00:10:244::/56",
        "nodePortAddresses" => "primary",
        _ => setting.default,
    }
}

/// Returns `text` as a comment of lines of at most 100 characters.
fn comment(text: &str, indentation: &str) -> String {
    let mut lines = vec![format!("{indentation}#")];
    for word in format!("{text}.").split(' ') {
        let line = lines.last_mut().unwrap();
        if line.len() + 1 + word.len() > 100 {
            lines.push(format!("{indentation}# {word}"));
        } else {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.join("\n") + "\n"
}

fn needs_no_quotes(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-.:/,".contains(letter)
}

fn scalar(setting: &Setting) -> String {
    let text = example_of(setting);
    if setting.kind == OptionKind::Texts {
        return format!("[{text}]");
    }
    let is_plain = !text.is_empty() && text.chars().all(needs_no_quotes);
    if is_plain { text.to_owned() } else { format!("{text:?}") }
}

fn example() -> String {
    let mut page = HEAD.to_owned();
    let mut open: Vec<String> = Vec::new();
    for setting in SETTINGS.iter().filter(|it| it.has_effect() && it.field != IPVS_SCHEDULER) {
        let path = setting.path("nftables");
        let mut parents: Vec<_> = path.split('.').map(str::to_owned).collect();
        let key = parents.pop().unwrap();
        let shared = open.iter().zip(&parents).take_while(|(open, own)| open == own).count();
        let is_head = ["apiVersion", "kind"].contains(&setting.field);
        page.push_str(if shared > 0 || is_head { "" } else { "\n" });
        for (depth, parent) in parents.iter().enumerate().skip(shared) {
            let is_own = parent == "deltaproxy";
            page.push_str(if is_own { "# Fields that kube-proxy does not have.\n" } else { "" });
            page.push_str(&format!("{}{parent}:\n", "  ".repeat(depth)));
        }
        let indentation = "  ".repeat(parents.len());
        if !is_head {
            page.push_str(&comment(setting.about, &indentation));
        }
        page.push_str(&format!("{indentation}{key}: {}\n", scalar(setting)));
        open = parents;
    }
    page
}

/// Returns a table of the options with an effect whose field is one of ours, or kube-proxy's.
fn table(is_own: bool) -> String {
    let head = "| field | default | flag of `run` | flag of `kube-proxy` | effect |\n\
                |---|---|---|---|---|\n";
    let settings = SETTINGS.iter().filter(|it| it.has_effect());
    let settings = settings.filter(|it| it.field.starts_with("deltaproxy.") == is_own);
    settings.fold(head.to_owned(), |page, setting| {
        let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
        let flag =
            |flag: Option<(&str, _)>| flag.map_or(String::new(), |(it, _)| format!("`--{it}`"));
        let about = setting.about.replace("docs/flowtable.md", "[flowtable.md](flowtable.md)");
        let path = setting.path("nftables");
        let (own, kube_proxy) = (flag(setting.flag), flag(setting.kube_proxy));
        let default = code(setting.default);
        format!("{page}| `{path}` | {default} | {own} | {kube_proxy} | {about} |\n")
    })
}

/// Returns `page` with the tables between their marks.
fn page(page: &str) -> String {
    [("fields", false), ("own fields", true)].into_iter().fold(
        page.to_owned(),
        |page, (name, own)| {
            let (begin, end) =
                (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->\n"));
            let (before, rest) = page.split_once(&begin).expect("a mark before the table");
            let (_, after) = rest.split_once(&end).expect("a mark after the table");
            format!("{before}{begin}{}{end}{after}", table(own))
        },
    )
}

#[test]
fn page_and_example_are_those_of_the_table() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| fs::read_to_string(root.join(Path::new(path))).unwrap();
    let committed = read(PAGE);
    for (path, made, committed) in
        [(EXAMPLE, example(), read(EXAMPLE)), (PAGE, page(&committed), committed)]
    {
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(root.join(path), made).unwrap();
            continue;
        }
        let differs = made.lines().zip(committed.lines()).find(|(made, there)| made != there);
        assert_eq!(differs, None, "{path}: set UPDATE_DOCS=1 and run this test again");
        assert_eq!(made.len(), committed.len(), "{path}: set UPDATE_DOCS=1");
    }
}

#[test]
fn a_part_of_settings_that_are_off_is_checked_and_has_no_effect() {
    use super::values::put_part;
    use crate::config::direct_return::{connections, of_mode, or_default};

    let mut off: Option<engine::routing::DirectReturn> = None;
    assert_eq!(put_part(&mut off, |it| &mut it.connections, connections(2_048)), Ok(()));
    assert!(put_part(&mut off, |it| &mut it.connections, connections(1)).is_err());
    assert_eq!(off, None);
    let mut on = of_mode("annotated").unwrap();
    assert_eq!(put_part(&mut on, |it| &mut it.connections, connections(2_048)), Ok(()));
    assert_eq!(or_default(on.as_ref()).connections, 2_048);
}

#[test]
fn the_time_of_ended_endpoints_is_bounded_in_each_mode() {
    use super::values::put_part;
    use crate::config::ended_connections::{of_mode, remember, remembered};

    let mut settings = of_mode("reset").unwrap();
    let time = remember(Duration::from_hours(24));
    assert_eq!(put_part(&mut settings, |it| &mut it.remember, time), Ok(()));
    assert_eq!(remembered(settings), Duration::from_hours(24));
    for mut settings in [None, settings] {
        let mut put = |time| put_part(&mut settings, |it| &mut it.remember, remember(time));
        let error = put(Duration::from_secs(59)).unwrap_err();
        assert_eq!(error, ["is 59s; expected 1m0s to 24h0m0s"]);
        assert!(put(Duration::from_hours(25)).is_err());
    }
}
