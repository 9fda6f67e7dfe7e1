//! `history`: prints the latest commits of the running daemon.

use std::fmt;
use std::time::Duration;

use clap::Args;
use daemon::config::duration;
use engine::printable::Printable;
use serde_json::{Value, json};

use super::failure::Failure;
use super::output::{DocumentOutput, warn};
use super::running::document;

/// Columns, exit codes and examples of `history`, for `--help`.
pub const HISTORY_HELP: &str = "\
Columns:
  TIME      when the kernel applied the transaction, in UTC
  CAUSE     what waited when it was made: start (the first lists), event (an object changed),
            addresses (of this node), other-program (it changed the tables), check (the background
            check found a difference), refusal (the kernel refused a transaction), unused (elements
            that no packet can need any more), connections (counted for scheduler lc), devices (of
            the flowtable came or went), handover (a table was replaced by one with other flags),
            reload (the first lists after the configuration changed)
  VERSION   resourceVersion of the last object that changed before
  ADDED     elements, or devices, that it added to the table; REMOVED those that it deleted
  TOOK      encoding and the kernel's time
  SERVICES  the first four services, and the number of the others

Exit codes:
  0  done, also if nothing was found
  1  an error: no daemon runs in this network namespace, or this user may not ask it

Examples:
  deltaproxy history --since 10m
  deltaproxy history --service default/web --output json";

/// The flags of `deltaproxy history`.
#[derive(Debug, Args)]
pub struct HistoryFlags {
    /// Show only commits of the last time, such as 10m or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    since: Option<Duration>,
    /// Show only commits that name this service
    #[arg(long, value_name = "NAMESPACE/NAME")]
    service: Option<String>,
    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: DocumentOutput,
}

/// Prints the commits that the daemon remembers, oldest first.
///
/// # Errors
/// No daemon runs in this network namespace, or it does not answer.
pub fn history(flags: &HistoryFlags) -> Result<(), Failure> {
    let mut history = document("/history.json")?;
    let unnamed = select(&mut history, flags);
    flags.output.print(&history, &Table(&history));
    if let (Some(service), true) = (&flags.service, unnamed > 0) {
        let which = "commits of more services than the history names may have changed";
        warn(&format_args!("{unnamed} {which} {} too\n", Printable(service)));
    }
    Ok(())
}

/// Keeps the commits that the flags select, oldest first. Returns the number of those of which it is
/// not known.
fn select(history: &mut Value, flags: &HistoryFlags) -> usize {
    let now = history["now_ms"].as_u64().unwrap_or_default();
    let since = flags.since.map_or(u128::MAX, |since| since.as_millis());
    let mut unnamed = 0;
    let Some(commits) = history["commits"].as_array_mut() else { return 0 };
    commits.reverse();
    commits.retain(|commit| {
        let ago = now.saturating_sub(commit["at_ms"].as_u64().unwrap_or_default());
        if u128::from(ago) > since {
            return false;
        }
        let Some(service) = &flags.service else { return true };
        let is_named = names(commit).any(|name| name == service);
        unnamed += usize::from(!is_named && count(commit, "services") > names(commit).count());
        is_named
    });
    history["unnamed"] = json!(unnamed);
    unnamed
}

fn names(commit: &Value) -> impl Iterator<Item = &str> {
    commit["names"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn count(commit: &Value, field: &str) -> usize {
    commit[field].as_u64().and_then(|count| count.try_into().ok()).unwrap_or_default()
}

/// The commits as a table.
struct Table<'a>(&'a Value);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (time, cause, family) = ("TIME", "CAUSE", "FAMILY");
        writeln!(
            f,
            "{time:<24}  {cause:<11}  {:>10}  {family:<6}  {:>7}  {:>7}  {:>9}  SERVICES",
            "VERSION", "ADDED", "REMOVED", "TOOK"
        )?;
        for commit in self.0["commits"].as_array().into_iter().flatten() {
            let text = |field: &str| commit[field].as_str().unwrap_or("-");
            let causes = commit["causes"].as_array().into_iter().flatten();
            let causes: Vec<_> = causes.filter_map(Value::as_str).collect();
            let took = duration::text(Duration::from_micros(count(commit, "took_us") as u64));
            writeln!(
                f,
                "{:<24}  {:<11}  {:>10}  {:<6}  {:>7}  {:>7}  {took:>9}  {}",
                text("at"),
                causes.join(","),
                text("resource_version"),
                text("family"),
                count(commit, "added"),
                count(commit, "removed"),
                Services(commit)
            )?;
        }
        Ok(())
    }
}

/// The services of a commit.
struct Services<'a>(&'a Value);

impl fmt::Display for Services<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = names(self.0).map(|name| Printable(name).to_string()).collect();
        let more = count(self.0, "services").saturating_sub(names.len());
        match (names.is_empty(), more) {
            (true, _) => f.write_str("-"),
            (false, 0) => f.write_str(&names.join(", ")),
            (false, _) => write!(f, "{} and {more} more", names.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(at_ms: u64, services: usize, names: &[&str]) -> Value {
        json!({
            "at": "2026-11-25T03:02:11.123Z", "at_ms": at_ms, "causes": ["event"],
            "resource_version": "7", "family": "IPv4", "added": 2, "removed": 1,
            "took_us": 1500, "services": services, "names": names,
        })
    }

    fn selected(since: Option<u64>, service: Option<&str>) -> (Vec<u64>, usize) {
        let commits =
            [commit(900, 9, &["a/b"]), commit(800, 1, &["a/c"]), commit(100, 1, &["a/b"])];
        let mut history = json!({ "now_ms": 1_000, "commits": commits });
        let since = since.map(Duration::from_millis);
        let service = service.map(str::to_owned);
        let flags = HistoryFlags { since, service, output: DocumentOutput::Text };
        let unnamed = select(&mut history, &flags);
        let commits = history["commits"].as_array().unwrap().iter();
        (commits.map(|commit| commit["at_ms"].as_u64().unwrap()).collect(), unnamed)
    }

    #[test]
    fn commits_are_selected_by_time_and_service_and_the_oldest_is_first() {
        assert_eq!(selected(None, None), (vec![100, 800, 900], 0));
        assert_eq!(selected(Some(200), None), (vec![800, 900], 0));
        assert_eq!(selected(None, Some("a/b")), (vec![100, 900], 0));
        assert_eq!(selected(None, Some("a/c")), (vec![800], 1), "one may have changed it");
        assert_eq!(selected(Some(150), Some("a/c")), (vec![], 1));
    }

    #[test]
    fn a_table_has_a_line_for_each_commit() {
        let commits = [commit(1, 2, &["a/b", "a/c"]), commit(1, 6, &["a/b"]), commit(1, 0, &[])];
        let expected = "\
TIME                      CAUSE           VERSION  FAMILY    ADDED  REMOVED       TOOK  SERVICES
2026-11-25T03:02:11.123Z  event                 7  IPv4          2        1      1.5ms  a/b, a/c
2026-11-25T03:02:11.123Z  event                 7  IPv4          2        1      1.5ms  a/b and 5 more
2026-11-25T03:02:11.123Z  event                 7  IPv4          2        1      1.5ms  -
";
        assert_eq!(Table(&json!({ "commits": commits })).to_string(), expected);
    }
}
