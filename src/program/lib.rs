//! One file per command.
//!
//! A command prints its result on standard output and errors on standard error, one line each. Its
//! exit code is 0 only if everything requested was done; `plan` and `verify` use those of diff(1).

#[cfg(feature = "api-server")]
mod api_server;
#[cfg(not(feature = "api-server"))]
#[path = "no_api_server.rs"]
mod api_server;
mod apply;
#[cfg(feature = "measure")]
mod bench;
mod canary;
mod check_config;
mod cleanup;
mod client;
mod clock;
mod command_line;
mod comparison;
mod counts;
#[cfg(feature = "inspect")]
mod cut_output;
#[cfg(feature = "inspect")]
mod explain;
mod failure;
mod flagz;
#[cfg(feature = "inspect")]
mod history;
mod kube_proxy;
mod kubectl;
#[cfg(feature = "inspect")]
mod left_to_others;
mod line_queue;
#[cfg(feature = "inspect")]
mod live_trace;
mod localhost;
#[cfg(feature = "inspect")]
mod localhost_listeners;
mod log;
mod log_rates;
mod manifests;
mod node;
#[cfg(feature = "inspect")]
mod node_endpoints;
mod objects;
mod other_kube_proxy;
mod outcome;
mod output;
mod plan;
#[cfg(feature = "measure")]
mod probe;
#[cfg(feature = "inspect")]
mod problems;
#[cfg(feature = "inspect")]
mod read_services;
mod reload;
mod run;
mod running;
mod search;
mod service_manager;
mod settings;
#[cfg(feature = "inspect")]
mod show;
mod summary;
mod threads;
#[cfg(feature = "inspect")]
mod top;
mod verify;

pub use api_server::is_in_pod;
pub use apply::apply;
#[cfg(feature = "measure")]
pub use bench::{BENCH_ROWS, BenchFlags, bench};
pub use check_config::{CheckFlags, check_config};
pub use cleanup::{CleanupFlags, cleanup};
pub use command_line::{Cli, Command, ConfigCommand};
#[cfg(feature = "inspect")]
pub use explain::{EXPLAIN_CODES, ExplainFlags, explain};
pub use failure::Failure;
pub use flagz::listed_flags;
#[cfg(feature = "inspect")]
pub use history::{HISTORY_HELP, HistoryFlags, history};
pub use kube_proxy::kube_proxy;
pub use kubectl::kubectl;
pub use log::{Log, noted};
pub use outcome::{APPLY_CODES, CHECK_CODES, CLEANUP_CODES, Exit, Found, PLAN_CODES, VERIFY_CODES};
pub use output::{Output, print_help};
pub use plan::{PlanView, plan};
#[cfg(feature = "measure")]
pub use probe::{PROBE_HELP, ProbeFlags, probe};
#[cfg(feature = "inspect")]
pub use problems::{PROBLEMS_HELP, ProblemsFlags, problems};
pub use reload::{Load, restart};
pub use run::{End, run};
pub use settings::{Origin, Settings};
#[cfg(feature = "inspect")]
pub use show::{SHOW_HELP, ShowFlags, show};
pub use summary::Summary;
#[cfg(feature = "inspect")]
pub use top::{TOP_HELP, TopFlags, top};
pub use verify::verify;
