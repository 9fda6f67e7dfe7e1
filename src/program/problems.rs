//! `problems`: prints what the running daemon leaves out now, and why.

use std::fmt::Write as _;

use clap::Args;
use engine::printable::Printable;
use serde_json::Value;

use super::failure::Failure;
use super::outcome::Found;
use super::output::DocumentOutput;
use super::running;

/// Exit codes and examples of `problems`, for `--help`.
pub const PROBLEMS_HELP: &str = "\
Kinds:
  invalid       a field of the object cannot be used
  conflict      another Service has the address and port
  limit         over a capacity limit
  refused       the kernel refused it
  closed_port   a health check port, or a node port at [::1], cannot be opened
  missing_node  the cluster has no Node object of this node's name
  overlap       a range of a ServiceCIDR holds addresses of the node, its gateway, the API
                server or pods

Exit codes:
  0  nothing is left out
  1  something is
  2  an error: no daemon runs in this network namespace, or it does not answer

Examples:
  deltaproxy problems
  deltaproxy problems --output json | jq -r '.problems[].object'";

/// The flags of `deltaproxy problems`.
#[derive(Debug, Clone, Args)]
pub struct ProblemsFlags {
    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: DocumentOutput,
}

/// Prints the present problems of the running daemon.
///
/// # Errors
/// No daemon runs in this network namespace, or it does not answer.
pub fn problems(flags: &ProblemsFlags) -> Result<Found, Failure> {
    let answer = running::document("/problems.json")?;
    let problems = answer["problems"].as_array().map(Vec::as_slice).unwrap_or_default();
    flags.output.print(&answer, &listing(problems, &answer["now_ms"]));
    Ok(Found::if_any(!problems.is_empty()))
}

/// Returns two lines for each problem: what it is about, and why.
fn listing(problems: &[Value], now_ms: &Value) -> String {
    if problems.is_empty() {
        return "nothing is left out\n".to_owned();
    }
    let mut text = String::new();
    for problem in problems {
        let field = |name: &str| Printable(problem[name].as_str().unwrap_or_default()).to_string();
        let place = match field("field") {
            field if field.is_empty() => field,
            field => format!(": {field}"),
        };
        let (now, since) = (now_ms.as_u64(), problem["since_ms"].as_u64());
        let seconds = now.zip(since).map_or(0, |(now, since)| now.saturating_sub(since) / 1000);
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            text,
            "{}{place} ({}, for {seconds} s)\n  {}",
            field("object"),
            field("kind"),
            field("message")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_problem_has_object_field_kind_age_and_reason() {
        let problem = json!({
            "kind": "invalid", "object": "Service default/bad\u{1b}", "field": "spec.clusterIP",
            "message": "is wrong", "since_ms": 1_000,
        });
        let node = json!({"kind": "missing_node", "object": "Node n1", "message": "is absent"});
        assert_eq!(
            listing(&[problem, node], &json!(61_500)),
            "Service default/bad\\u{1b}: spec.clusterIP (invalid, for 60 s)\n  is wrong\n\
             Node n1 (missing_node, for 0 s)\n  is absent\n"
        );
        assert_eq!(listing(&[], &json!(1)), "nothing is left out\n");
    }
}
