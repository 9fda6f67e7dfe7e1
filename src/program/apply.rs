//! `apply`: brings the kernel's tables into the state of the manifests, once.

use std::thread;

use conntrack::{ConntrackError, ConntrackTable};
use daemon::converge::converge;
use daemon::node::UNGUARDED;
use engine::Engine;

use super::clock::now;
use super::failure::Failure;
use super::localhost;
use super::objects::Loaded;
use super::output::{Output, print};
use super::settings::Settings;
use super::summary::Summary;

/// Reads the manifests, sends the differences from the kernel's tables, and prints what was sent.
///
/// # Errors
/// Errors that stop the command. Manifests or services that were left out are an error after all
/// others were applied.
pub fn apply(settings: &Settings, allow_empty: bool, output: Output) -> Result<(), Failure> {
    let mut loaded = Loaded::new(settings, allow_empty)?;
    if settings.are_of_daemon() {
        settings.report(&loaded.engine);
    }
    let Loaded { engine, kernel, problems, .. } = &mut loaded;
    let mut summary = Summary::default();
    let mut converge = |engine: &mut Engine| {
        let add = &mut |transaction: &_, committed: &_| summary.add(transaction, committed);
        converge(engine, kernel, add).map_err(Failure::new)
    };
    converge(engine)?;
    if engine.node().loses_guard {
        tracing::warn!("{UNGUARDED}");
    }
    if let Err(why) = localhost::open(engine) {
        problems.push(why);
        converge(engine)?;
    }
    if settings.config.routing.direct_return.is_some() {
        tracing::warn!("direct return needs a daemon: all packets are translated on this node");
    }
    let stale = clean(engine);
    let mut problems = loaded.left_out();
    problems.extend(stale.err().map(|error| format!("stale flows stay: {error}")));
    match output {
        Output::Text => print(&summary),
        Output::Json => print(&format_args!("{}\n", summary.json(&problems))),
    }
    Failure::of_problems(problems)
}

/// Deletes the flows that became stale, and those that an interrupted run left.
fn clean(engine: &mut Engine) -> Result<(), ConntrackError> {
    let mut conntrack = ConntrackTable::open()?;
    conntrack.delete(&engine.take_stale_flows().into_iter().collect())?;
    if engine.is_settled() {
        let mut flows = conntrack.flows()?;
        if conntrack.unanswered(now())?.1 > 0 {
            thread::sleep(ConntrackTable::ANSWERED_WITHIN);
            flows.extend(conntrack.unanswered(now())?.0);
        }
        conntrack.delete(&engine.stale_among(&flows).into_iter().collect())?;
    }
    Ok(())
}
