//! The reaction to refused transactions, and their log lines.

use engine::printable::Printable;
use engine::{Answer, Cause};
use nft::Transaction;
use nft::family::Family;
use nft::kernel::{CommitError, Kernel};

use super::Run;
use crate::read_back::look_up_changed;
use crate::writer::WriterGone;

impl<K: Kernel + Send + 'static> Run<K> {
    /// Looks up the elements of a refused transaction, so that the tables need not be read. Returns
    /// false if they must be.
    pub(super) async fn undo(
        &mut self,
        cause: &Cause,
        transaction: &Transaction,
    ) -> Result<bool, WriterGone> {
        let is_possible = cause.is_about_services() && !self.commits.is_initial_sync;
        let places = self.engine.places_of_refused(transaction).filter(|_| is_possible);
        let Some(places) = places else { return Ok(false) };
        for family in Family::ALL {
            // Without a chain or a set, the next transaction would be refused too.
            if !self.read_rules(family).await? {
                return Ok(false);
            }
        }
        let changed = self.writer.run(move |kernel| look_up_changed(kernel, &places)).await?;
        Ok(changed.is_some_and(|changed| self.engine.undo_step(&changed)))
    }
}

/// Logs a refusal by what follows from it.
pub(super) fn log_refusal(answer: &Answer, error: &CommitError) {
    match answer {
        Answer::ReadBack(Cause::Suspected(service)) => {
            let service = Printable(service);
            tracing::warn!("Service {service}: {error}; looking its elements up and trying again");
        }
        // Reported as a problem of the service.
        Answer::ReadBack(Cause::Excluded(_)) => {}
        Answer::ReadBack(Cause::NoFlowtables) => {
            tracing::warn!(
                "this kernel has no flowtables (modules nf_flow_table, nf_flow_table_inet and \
                 nft_flow_offload): established packets pass all chains"
            );
        }
        Answer::ReadBack(Cause::Unattributed) => {
            tracing::warn!("{error}; trying again with smaller transactions or fewer services");
        }
        // Reported with the family.
        Answer::Blocked(_) => {}
        Answer::ReadBack(Cause::Unknown | Cause::Table(_)) | Answer::Applied => {
            tracing::error!("{error}; reading the tables and trying again");
        }
    }
}
