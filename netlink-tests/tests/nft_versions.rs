//! Every version of nft lists our tables, also beside those of other programs. From 1.0.6 on it loads
//! what it or an older one has listed.
//!
//! `make test-nft` fetches the versions and names their directories, the oldest first and separated
//! by colons, in the variable `DELTAPROXY_NFT_VERSIONS`. Without it these tests are left out.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use engine::counters::Counters;
use engine::direct::ruleset as direct_ruleset;
use engine::routing::Routing;
use netlink_tests::reader::{Family, Table};
use netlink_tests::scenario::{Proxy, Sent, objects_for_every_chain, routing};
use netlink_tests::{Finished, Host, Net, direct_table, in_user_namespace, kernel_has_owners};
use nft::MessageKind;
use nft::kernel::{Kernel as _, Nftables};
use tempfile::NamedTempFile;

const VERSIONS: &str = "DELTAPROXY_NFT_VERSIONS";

/// The program nft of one version.
#[derive(Debug)]
struct Nft(PathBuf);

impl Nft {
    /// Its version.
    fn name(&self) -> String {
        let directory = self.0.parent().and_then(|directory| directory.file_name());
        directory.unwrap().to_string_lossy().into_owned()
    }

    /// Whether it prints our tables so that they can be loaded.
    fn prints_them_loadable(&self) -> bool {
        let name = self.name();
        let parts: Vec<u32> = name.split('.').map(|part| part.parse().unwrap()).collect();
        parts >= vec![1, 0, 6]
    }

    /// The listing of each of these tables.
    #[track_caller]
    fn list_tables(&self, host: &Host, tables: &[[&str; 2]]) -> Vec<String> {
        let list = |[family, name]: &[&str; 2]| {
            host.output(&self.0, &["list", "table", family, name]).ok()
        };
        tables.iter().map(list).collect()
    }

    #[track_caller]
    fn list(&self, host: &Host) -> String {
        host.output(&self.0, &["list", "ruleset"]).ok()
    }

    #[track_caller]
    fn load(&self, host: &Host, script: &str) {
        let _ = self.try_load(host, &[], script).ok();
    }

    #[track_caller]
    fn try_load(&self, host: &Host, options: &[&str], script: &str) -> Finished {
        let file = NamedTempFile::new().unwrap();
        fs::write(file.path(), script).unwrap();
        let load = ["-f", file.path().to_str().unwrap()];
        host.output(&self.0, &[options, &load].concat())
    }
}

/// The versions to test; if there are none, a line on the terminal reports it.
fn versions() -> Vec<Nft> {
    let reason = match env::var(VERSIONS) {
        // It sends a script as one message, which an ordinary user's send buffer does not hold.
        Ok(_) if in_user_namespace() => "nft loads whole tables for root only".to_owned(),
        Ok(directories) => {
            let program = |directory: &str| Nft(PathBuf::from(directory).join("nft"));
            return directories.split(':').map(program).collect();
        }
        Err(_) => format!("{VERSIONS} is not set: make test-nft"),
    };
    // The test runner captures the output of the macros, but not this.
    let _ = writeln!(io::stderr(), "versions of nft are left out: {reason}");
    Vec::new()
}

/// The versions whose listings can be loaded.
fn loading_versions() -> Vec<Nft> {
    versions().into_iter().filter(Nft::prints_them_loadable).collect()
}

fn counting() -> Routing {
    Routing { counters: Counters::Endpoints, ..routing() }
}

fn apply_all(proxy: &mut Proxy) -> Sent {
    let objects = objects_for_every_chain();
    let objects: Vec<_> = objects.iter().map(AsRef::as_ref).collect();
    proxy.apply(&objects)
}

/// Both tables, without handles.
fn tables(host: &Host) -> [Table; 2] {
    [Family::Ip, Family::Ip6].map(|family| {
        let mut table = host.read_table(family).expect("a table");
        for rule in table.chains.values_mut().flat_map(|chain| &mut chain.rules) {
            rule.handle = 0;
            // For an interval set nft converts the byte order of the protocol, a single byte.
            rule.expressions.retain(|name| name != "byteorder");
        }
        table
    })
}

/// Loads with each version the listings of it and older versions: both must be the same, to nft and to
/// the reader. 1.0.6 does not load listings of later ones: it has no names of priorities at the
/// output hook.
#[track_caller]
fn check_round_trips(routing: &Routing) {
    let versions = loading_versions();
    if versions.is_empty() {
        return;
    }
    let net = Net::new();
    let _ = apply_all(&mut Proxy::start(net.node(), routing.clone()));
    for (nth, lister) in versions.iter().enumerate() {
        let listed = lister.list(net.node());
        for loader in &versions[nth..] {
            let pair = format!("listed by {}, loaded by {}", lister.name(), loader.name());
            let copy = Net::new();
            loader.load(copy.node(), &listed);
            // 1.0.6 crashes when it lists tables that a later one has loaded.
            let [here, there] = [&net, &copy].map(|net| loader.list(net.node()));
            assert!(here == there, "{pair}: not listed as before");
            for (copied, table) in tables(copy.node()).iter().zip(tables(net.node())) {
                assert_eq!(copied.sets, table.sets, "{pair}");
                assert_eq!(copied.chains, table.chains, "{pair}");
            }
        }
    }
}

#[test]
fn every_nft_loads_listings_of_itself_and_older_ones() {
    check_round_trips(&routing());
}

#[test]
fn every_nft_loads_what_it_or_an_older_one_lists_with_counters() {
    check_round_trips(&counting());
}

/// 0.9.8 of Debian 11 too.
#[test]
fn every_nft_lists_the_counters_of_elements() {
    let net = Net::new();
    let _ = apply_all(&mut Proxy::start(net.node(), counting()));
    for nft in versions() {
        let listed = nft.list(net.node());
        let elements = listed.matches("counter packets 0 bytes 0").count();
        assert!(elements > 20, "{}: {elements}", nft.name());
    }
}

#[test]
fn every_nft_loads_listings_of_itself_and_older_ones_with_other_settings() {
    let everywhere = "0.0.0.0/0,::/0".parse().unwrap();
    check_round_trips(&Routing {
        node_port_addresses: everywhere,
        masquerade_all: true,
        ..routing()
    });
}

/// 1.0.6 knows no names of priorities at the output hook.
#[test]
fn nft_1_0_6_loads_listings_of_later_ones_once_the_priority_at_hook_output_is_a_number() {
    let versions = loading_versions();
    let Some(old) = versions.iter().find(|nft| nft.name() == "1.0.6") else { return };
    let net = Net::new();
    let _ = apply_all(&mut Proxy::start(net.node(), routing()));
    for lister in versions.iter().filter(|nft| nft.name() != old.name()) {
        let listed = lister.list(net.node());
        let copy = Net::new();
        let refused = old.try_load(copy.node(), &[], &listed);
        assert!(refused.stderr.contains("invalid priority expression"), "{}", refused.stderr);
        let numbered = listed
            .replace("hook output priority dstnat - 2;", "hook output priority -102;")
            .replace("hook output priority dstnat - 10;", "hook output priority -110;");
        old.load(copy.node(), &numbered);
        assert_eq!(tables(copy.node()).map(|it| it.sets), tables(net.node()).map(|it| it.sets));
    }
}

/// If a version can, docs/limits.md has to name it.
#[test]
fn no_nft_loads_our_tables_from_its_json() {
    let net = Net::new();
    let _ = apply_all(&mut Proxy::start(net.node(), routing()));
    for nft in loading_versions() {
        let listed =
            net.node().output(&nft.0, &["--json", "list", "table", "ip", "kube-proxy"]).ok();
        let refused = nft.try_load(Net::new().node(), &["--json"], &listed);
        let reason = if nft.name() == "1.0.6" { "Invalid map type" } else { "Invalid jhash" };
        assert!(refused.stderr.contains(reason), "{}: {}", nft.name(), refused.stderr);
    }
}

/// The owner of a table that nft has loaded is nft, which ends. 1.0.6 does not know `persist`, and
/// prints `flags` alone for it.
#[test]
fn tables_of_a_listing_with_an_owner_are_nfts_own() {
    if !kernel_has_owners() {
        return;
    }
    let versions = loading_versions();
    let old = versions.iter().find(|nft| nft.name() == "1.0.6");
    for nft in &versions {
        let net = Net::new();
        let listed =
            |flags| format!("table ip kube-proxy {{\n\tflags {flags}\n\tchain x {{\n\t}}\n}}\n");
        nft.load(net.node(), &listed("owner"));
        assert!(net.node().read_table(Family::Ip).is_none(), "{}", nft.name());
        if nft.name() != "1.0.6" {
            nft.load(net.node(), &listed("owner,persist"));
            assert!(net.node().read_table(Family::Ip).is_some(), "{}", nft.name());
            let Some(old) = old else { continue };
            let refused = old.try_load(Net::new().node(), &[], &old.list(net.node()));
            assert!(refused.stderr.contains("unexpected newline"), "{}", refused.stderr);
        }
    }
}

/// nft compiles some rules otherwise though it lists them the same.
#[test]
fn a_start_on_tables_loaded_by_any_nft_writes_at_most_some_rules_again() {
    let versions = loading_versions();
    let settings = [routing(), counting()];
    for (nft, routing) in versions.iter().flat_map(|nft| settings.iter().map(move |it| (nft, it))) {
        let net = Net::new();
        let _ = apply_all(&mut Proxy::start(net.node(), routing.clone()));
        let copy = Net::new();
        nft.load(copy.node(), &nft.list(net.node()));
        let mut proxy = Proxy::start(copy.node(), routing.clone());
        let sent = apply_all(&mut proxy);
        let rules = [MessageKind::NewRule, MessageKind::DelRule];
        let kinds: Vec<_> = sent.messages.keys().collect();
        let of = nft.name();
        assert!(kinds.iter().all(|kind| rules.contains(kind)), "{of}: {}", sent.script());
        // One for each family.
        assert!(sent.transactions.len() <= 2, "{of}: {}", sent.script());
        assert_eq!(tables(copy.node()), tables(net.node()), "{of}");
        assert!(proxy.resync().transactions.is_empty(), "{of}");
        assert_eq!(nft.list(copy.node()), nft.list(net.node()), "{of}");
        let _ = writeln!(io::stderr(), "{of}: {} lines sent", sent.script().lines().count());
    }
}

const OURS: [[&str; 2]; 2] = [["ip", "kube-proxy"], ["ip6", "kube-proxy"]];

/// The tables of [`OTHERS`].
const THEIRS: [[&str; 2]; 3] = [["inet", "firewalld"], ["ip", "calico"], ["ip", "docker-bridges"]];

const OTHERS: &str = include_str!("nft_versions/others.nft");

/// 0.9.8 of Debian 11 too, which aborts at keys whose parts it knows no length of.
#[test]
fn every_nft_lists_our_tables_and_those_of_other_programs_as_if_they_were_alone() {
    for nft in versions() {
        let of = nft.name();
        let [ours, theirs, both] = [(); 3].map(|()| Net::new());
        let _ = apply_all(&mut Proxy::start(ours.node(), routing()));
        nft.load(theirs.node(), OTHERS);
        nft.load(both.node(), OTHERS);
        let _ = apply_all(&mut Proxy::start(both.node(), routing()));
        let whole = nft.list(both.node());
        let named = [&OURS[..], &THEIRS].concat();
        for [family, name] in &named {
            assert!(whole.contains(&format!("table {family} {name} {{")), "{of}: {name}");
        }
        let alone = [nft.list_tables(ours.node(), &OURS), nft.list_tables(theirs.node(), &THEIRS)];
        assert_eq!(nft.list_tables(both.node(), &named), alone.concat(), "{of}");

        let before = tables(both.node());
        for [family, name] in &THEIRS {
            let _ = both.node().output(&nft.0, &["delete", "table", family, name]).ok();
        }
        assert_eq!(tables(both.node()), before, "{of}");
        assert_eq!(nft.list(both.node()), nft.list(ours.node()), "{of}");
    }
}

/// Loads the listings of table direct-return by each version with it and later ones.
#[test]
fn every_nft_loads_listings_of_table_direct_return_of_itself_and_older_ones() {
    let versions = loading_versions();
    if versions.is_empty() {
        return;
    }
    let net = direct_table::node();
    let elements = direct_table::elements(direct_table::index_of(net.node(), "eth1"));
    let base = direct_ruleset::base(&direct_table::settings());
    let table = direct_table::transaction(&base, &elements);
    net.node().run(|| Nftables::open().unwrap().commit(&table).unwrap());
    for (nth, lister) in versions.iter().enumerate() {
        let listed = lister.list(net.node());
        for loader in &versions[nth..] {
            let pair = format!("listed by {}, loaded by {}", lister.name(), loader.name());
            let copy = direct_table::node();
            loader.load(copy.node(), &listed);
            let [here, there] = [&net, &copy].map(|net| loader.list(net.node()));
            assert!(here == there, "{pair}: not listed as before");
        }
    }
}
