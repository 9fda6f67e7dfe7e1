//! Problems of objects: in the log, in the metrics, on the status page and as Events.

use engine::model::Problem;
use nft::kernel::Kernel;

use super::Run;
use crate::observe::LeftOut;
use crate::source::notice::Notice;

impl<K: Kernel + Send + 'static> Run<K> {
    pub(super) fn report(&self, problems: &[Problem]) {
        for problem in problems {
            self.observe.left_out(left_out(problem));
            tracing::warn!("{problem}");
            if let Some(listener) = &self.notices {
                // Drops the notice when the channel is full.
                let _ = listener.try_send(Notice::LeftOut(problem.clone()));
            }
        }
    }
}

/// Returns a problem in the form of the metrics and the status page.
pub fn left_out(problem: &Problem) -> LeftOut {
    LeftOut {
        kind: problem.kind.name(),
        object: problem.object.to_string(),
        field: problem.field.clone(),
        message: problem.message.clone(),
    }
}
