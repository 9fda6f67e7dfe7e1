//! The tables before the first commit: whether a daemon for some services alone may replace them.

use daemon::config::Config;
use daemon::handover::remains;
use engine::ruleset::table;
use nft::family::Family;
use nft::kernel::Kernel;

use super::failure::Failure;

/// Returns whether there are tables of an earlier daemon or of kube-proxy.
///
/// Refuses tables that kube-proxy's mode nftables uses, which has the same names for its tables, to a
/// daemon that serves the services of a proxy name alone: it would close all others.
///
/// # Errors
/// kube-proxy uses such a table, or it cannot be read.
pub(super) fn check_tables(config: &Config, kernel: &mut impl Kernel) -> Result<bool, Failure> {
    let mut has_tables = false;
    for family in Family::ALL {
        let table = table(family);
        let Some(contents) = kernel.read_table(&table).map_err(Failure::new)? else { continue };
        has_tables = true;
        if config.routing.services.proxy_name.is_some() && remains(&contents).is_some() {
            return Err(Failure::new(format!(
                "deltaproxy.services.proxyName: kube-proxy in mode nftables uses the table {table}, \
                 which this daemon would replace: use mode iptables or ipvs for kube-proxy on this \
                 node, or delete the table if kube-proxy has ended"
            )));
        }
    }
    Ok(has_tables)
}
