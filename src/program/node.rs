//! Settings of the node beyond the tables. Failures do not stop the daemon.

use std::time::Duration;

use conntrack::ConntrackTable;
use daemon::config::{Config, ConntrackSettings};
use daemon::node::{NotLoaded, SysctlError, set_conntrack, set_oom_score_adj};

/// Pause before the second attempt to set conntrack's sysctls; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Longest pause between two attempts, each of which reads a few files. The first transaction loads
/// nf_conntrack, but nothing limits the time until then.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Applies the settings of the node. Returns whether those of conntrack are applied; if not, the
/// kernel has no nf_conntrack yet.
pub(super) fn set_up_node(config: &Config) -> bool {
    if let Some(score) = config.oom_score_adj
        && let Err(error) = set_oom_score_adj(score)
    {
        tracing::info!("/proc/self/oom_score_adj stays as it is, expected {score}: {error}");
    }
    // The sysctls exist once nf_conntrack is loaded.
    let loaded = ConntrackTable::load();
    match set_conntrack(&config.conntrack) {
        Ok(errors) => {
            report(&errors);
            true
        }
        Err(NotLoaded) => {
            let reason = loaded.err().map_or_else(String::new, |error| format!(": {error}"));
            tracing::warn!("the kernel has no nf_conntrack yet: its settings wait{reason}");
            false
        }
    }
}

/// Applies conntrack's settings as soon as the kernel has loaded nf_conntrack.
pub(super) async fn set_conntrack_later(settings: ConntrackSettings) {
    report(&once_loaded(|| set_conntrack(&settings)).await);
    tracing::info!("nf_conntrack is loaded now: its settings are applied");
}

/// Calls `set` with pauses until the module is loaded.
async fn once_loaded(
    mut set: impl FnMut() -> Result<Vec<SysctlError>, NotLoaded>,
) -> Vec<SysctlError> {
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        match set() {
            Ok(errors) => return errors,
            Err(NotLoaded) => pause = (pause * 2).min(LONGEST_PAUSE),
        }
    }
}

/// Logs one line for all, as on a read-only `/proc/sys`.
fn report(errors: &[SysctlError]) {
    if !errors.is_empty() {
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        tracing::warn!("{}", errors.join("; "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn settings_of_conntrack_are_tried_again_ever_more_rarely_until_it_is_loaded() {
        let start = tokio::time::Instant::now();
        let mut tries = Vec::new();
        let errors = once_loaded(|| {
            tries.push(start.elapsed().as_secs());
            if tries.len() < 9 { Err(NotLoaded) } else { Ok(Vec::new()) }
        });
        assert!(errors.await.is_empty());
        assert_eq!(tries, [1, 3, 7, 15, 31, 63, 123, 183, 243]);
    }
}
