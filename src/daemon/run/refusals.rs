//! The log lines of refused transactions.

use engine::printable::Printable;
use engine::{Answer, Cause};
use nft::kernel::CommitError;

/// Logs a refusal by what follows from it.
pub(super) fn log_refusal(answer: &Answer, error: &CommitError) {
    match answer {
        Answer::ReadBack(Cause::Suspected(service)) => {
            let service = Printable(service);
            tracing::warn!("Service {service}: {error}; looking its elements up and trying again");
        }
        // Reported as a problem of the services.
        Answer::ReadBack(Cause::Excluded(_) | Cause::NoForwarding) => {}
        Answer::ReadBack(Cause::NoFlowtables) => {
            tracing::warn!(
                "this kernel has no flowtables (modules nf_flow_table, nf_flow_table_inet and \
                 nft_flow_offload): established packets pass all chains"
            );
        }
        Answer::ReadBack(Cause::Unattributed) => {
            tracing::warn!("{error}; trying again with smaller transactions or fewer services");
        }
        Answer::Devices { is_left_out: true } => {
            tracing::warn!("a device is left out of the flowtable: {error}");
        }
        Answer::Devices { is_left_out: false } => {
            tracing::debug!("{error}; trying again with fewer devices");
        }
        // Reported with the table.
        Answer::Blocked(_) => {}
        Answer::ReadBack(Cause::Unknown | Cause::Table(_)) | Answer::Applied => {
            tracing::error!("{error}; reading the tables and trying again");
        }
    }
}
