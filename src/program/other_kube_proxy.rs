//! Another kube-proxy in mode iptables or ipvs: its chains are removed once, and reported if they are
//! there afterwards.

use std::time::Duration;

use daemon::observe::{Finder, LeftOut, Observe};
use daemon::other_modes;
use engine::model::ProblemKind;

/// Time between two looks. kube-proxy itself looks for its chains every 30 s.
const INTERVAL: Duration = Duration::from_secs(10);

/// Removes the leftovers of other modes; returns whether there were any. From then on, a task reports
/// those that are there.
pub(super) async fn remove(observe: Observe) -> bool {
    let has_removed = other_modes::remove_in_background().await;
    tokio::spawn(report(observe));
    has_removed
}

async fn report(observe: Observe) {
    let mut reported = Vec::new();
    loop {
        tokio::time::sleep(INTERVAL).await;
        // The task fails only by a panic, which is logged.
        let found = tokio::task::spawn_blocking(other_modes::serving).await.unwrap_or_default();
        if found == reported {
            continue;
        }
        let problems: Vec<_> = found.iter().map(|place| problem(place)).collect();
        for problem in &problems {
            tracing::warn!("{}: {}", problem.object, problem.message);
            observe.left_out(problem.clone());
        }
        if problems.is_empty() {
            tracing::info!("no other kube-proxy in mode iptables or ipvs serves beside this one");
        }
        observe.present(Finder::OtherKubeProxy, "", problems);
        reported = found;
    }
}

fn problem(place: &str) -> LeftOut {
    let message = "has chains of a kube-proxy in mode iptables or ipvs: it runs beside this one, or \
                   they could not be removed; connections may go to either";
    LeftOut {
        kind: ProblemKind::Conflict.name(),
        object: place.to_owned(),
        field: String::new(),
        message: message.to_owned(),
    }
}
