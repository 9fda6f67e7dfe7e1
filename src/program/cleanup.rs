//! `cleanup`: removes what deltaproxy left on the node, also while another kube-proxy runs.

use std::path::PathBuf;

use clap::Args;
use daemon::config::kube_proxy::KubeProxyFlags;
use daemon::config::{ConfigError, Loaded};
use daemon::handover::{self, hand_over, is_of_deltaproxy, remains, remove_handover_tables};
use daemon::node::UNGUARDED;
use daemon::other_modes;
use engine::direct::is_own;
use engine::ruleset::base::has_guard;
use engine::ruleset::table;
use nft::kernel::{Contents, Kernel, Nftables};
use nft::{Family, Operation, TableRef, Transaction};

use super::api_server;
use super::failure::Failure;
use super::output::print;

/// What is removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct CleanupFlags {
    /// Also remove tables of kube-proxy's mode nftables, and leftovers of its modes iptables and
    /// ipvs. Not while a kube-proxy runs
    #[arg(long)]
    pub all: bool,
    /// Remove nothing: free the tables of a killed daemon for another kube-proxy. Their rules work
    /// until it has written its own
    #[arg(long, conflicts_with = "all")]
    pub keep_serving: bool,
    /// Also remove the condition that a daemon with this KubeProxyConfiguration file writes to the
    /// Node
    #[arg(long, value_name = "FILE", conflicts_with = "keep_serving")]
    pub config: Option<PathBuf>,
    /// Name of this machine's Node object, if it is not the host name
    #[arg(long, value_name = "NAME", requires = "config")]
    pub hostname_override: Option<String>,
}

/// Removes tables, or makes them free for another kube-proxy.
///
/// # Errors
/// nftables cannot be used, a running daemon owns a table, or something cannot be removed.
pub fn cleanup(flags: CleanupFlags) -> Result<(), Failure> {
    let CleanupFlags { all, keep_serving, config, hostname_override } = flags;
    if keep_serving {
        return self::keep_serving(&mut Nftables::open().map_err(Failure::new)?);
    }
    let of_file = |file| KubeProxyFlags::of_file(file).with_node(hostname_override).load();
    cleanup_node(all, config.map(of_file))
}

/// Removes the tables, and the condition of the Node if the configuration has it.
pub(super) fn cleanup_node(
    all: bool,
    configuration: Option<Result<Loaded, ConfigError>>,
) -> Result<(), Failure> {
    let mut kernel = Nftables::open().map_err(Failure::new)?;
    let mut is_clean = true;
    let removed = remove(&mut kernel, all)?;
    for line in &removed {
        is_clean = false;
        print(line);
    }
    let mut errors = if all { remove_other_modes(&mut is_clean) } else { Vec::new() };
    match configuration.map(remove_condition) {
        Some(Ok(Some(line))) => {
            is_clean = false;
            print(&line);
        }
        Some(Err(error)) => errors.push(error.to_string()),
        Some(Ok(None)) | None => {}
    }
    if is_clean && errors.is_empty() {
        print(&"nothing to remove\n");
    }
    Failure::of_problems(errors)
}

/// Removes the tables, the handover tables last: these translate packets while the others are
/// removed. Returns a line for each removal.
pub(super) fn remove(kernel: &mut Nftables, all: bool) -> Result<Vec<String>, Failure> {
    let mut removed = Vec::new();
    let (mut whole, mut transaction) = (Vec::new(), Transaction::default());
    let mut was_guarded = false;
    for family in Family::ALL {
        let table = table(family);
        let Some(contents) = kernel.read_table(&table).map_err(Failure::new)? else { continue };
        let operations = removal(&contents, all);
        let deleted = operations.iter().filter(|it| !matches!(it, Operation::FlushChain(..)));
        removed.push(match (operations.as_slice(), deleted.count()) {
            ([], _) => format!("table {table} stays: it is of another kube-proxy\n"),
            ([removal @ Operation::DeleteTable(_)], _) => format!("{removal}\n"),
            (_, deleted) => format!(
                "delete {deleted} chains and sets of deltaproxy in table {table}, which stays: it is \
                 of another kube-proxy\n"
            ),
        });
        was_guarded |= has_guard(&contents.rules);
        match *operations {
            [Operation::DeleteTable(_)] => whole.push(table),
            _ => transaction.operations.extend(operations),
        }
    }
    // Before the tables that translate what this node keeps.
    let direct = engine::direct::ruleset::table();
    if kernel.read_table(&direct).map_err(Failure::new)?.is_some_and(|it| is_own(&it)) {
        removed.push(format!("delete table {direct}\n"));
        let operations = vec![Operation::DeleteTable(direct)];
        kernel.commit(&Transaction { operations }).map_err(Failure::new)?;
    }
    if daemon::direct::remove_tunnel().map_err(Failure::new)? {
        removed.push(format!("delete device {}\n", daemon::direct::TUNNEL_DEVICE));
    }
    kernel.commit(&transaction).map_err(Failure::new)?;
    for table in whole {
        handover::remove(kernel, &table).map_err(Failure::new)?;
    }
    let handover = remove_handover_tables(kernel).map_err(Failure::new)?;
    removed.extend(handover.iter().map(|table| format!("delete table {table}\n")));
    if was_guarded {
        removed.push(format!("{UNGUARDED}\n"));
    }
    Ok(removed)
}

/// Returns the operations that remove what is ours in a table.
fn removal(contents: &Contents, all: bool) -> Vec<Operation> {
    let table: TableRef = contents.table.reference();
    let is_ours = is_of_deltaproxy(contents);
    let remains = remains(contents);
    if all || is_ours && remains.is_none() {
        return vec![Operation::DeleteTable(table)];
    }
    remains.unwrap_or_default()
}

/// Returns a line if the Node had the condition.
fn remove_condition(configuration: Result<Loaded, ConfigError>) -> Result<Option<String>, Failure> {
    let loaded = configuration.map_err(|error| Failure::of_config(&error))?;
    api_server::remove_node_condition(&loaded.config)
}

fn keep_serving(kernel: &mut Nftables) -> Result<(), Failure> {
    let freed = hand_over(kernel, [None, None], &|| false).map_err(Failure::new)?;
    for family in freed {
        print(&format_args!("table {} has no flags now\n", table(family)));
    }
    print(&"another kube-proxy can take over\n");
    Ok(())
}

fn remove_other_modes(is_clean: &mut bool) -> Vec<String> {
    let other_modes::Removal { removed, errors } = other_modes::remove();
    for removed in &removed {
        *is_clean = false;
        print(&format_args!("removed {removed}\n"));
    }
    errors.iter().map(ToString::to_string).collect()
}
