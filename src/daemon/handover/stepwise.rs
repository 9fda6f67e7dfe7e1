//! A handover in steps, so that changes of services can be committed between any two of them.
//!
//! The elements are listed first, over another socket. Up to the end of the copy our table is
//! unchanged, and a change makes the copy useless. Later the kernel's side commits changes to the
//! handover table, which serves, and to the new table ([`nft::kernel::Replacement`]).

use engine::ruleset::table;
use nft::kernel::{
    CopyProgress, CopySource, CopyTableError, Definition, Kernel, ListedElements, Nftables,
    Replacement,
};
use nft::{Family, Operation, Rule, TableFamily, TableFlags, Transaction};

use super::tables::{
    BESIDE_CHANGES, KUBE_PROXY_PRIORITY, PieceSizes, TRANSLATING, delete_base_chains,
    flags_of_ours, handover_table, handover_target, new_table, precedence, remove, witness,
};

/// The progress of a handover after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Our table serves, unchanged. The handover ends without harm if no step follows; a part of
    /// the handover table may exist.
    Copied,
    /// The handover table serves, or has just served. All other steps must follow.
    Serving,
    /// Our table has the flags and serves; the handover table is gone.
    Done,
}

/// A handover of a table to one with other flags.
pub struct Stepwise {
    own: Definition,
    elements: ListedElements,
    first_rules: Vec<Rule>,
    flags: TableFlags,
    pieces: PieceSizes,
    stage: Stage,
}

enum Stage {
    /// The handover table of an earlier handover goes.
    Removal,
    /// The handover table is created.
    Copy(CopyProgress),
    /// The base chains of our table go.
    Retirement,
    /// The new table is created.
    Replacement,
    /// The base chains of the handover table go, which take no time, and then its elements.
    End { has_base_chains: bool },
}

/// Lists our table of a family for its handover; `None` if it has these flags, or if another program
/// created it. Changes nothing.
///
/// # Errors
/// See [`CopyTableError`]; [`CopyTableError::Interrupted`] soon after `is_interrupted` returns true.
pub fn list(
    kernel: &mut Nftables,
    family: Family,
    flags: TableFlags,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Option<Stepwise>, CopyTableError> {
    let table = table(family);
    let found = flags_of_ours(kernel, &table)?.filter(|found| found.persist != flags.persist);
    let definition = found.map(|_| kernel.read_definition(&table)).transpose()?.flatten();
    let Some(own) = definition else { return Ok(None) };
    Stepwise::new(kernel, own, flags, BESIDE_CHANGES, is_interrupted).map(Some)
}

impl Stepwise {
    /// Lists the elements of our table.
    pub(super) fn new(
        kernel: &mut Nftables,
        own: Definition,
        flags: TableFlags,
        pieces: PieceSizes,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, CopyTableError> {
        let elements = kernel.list_elements(&own, is_interrupted)?;
        let first_rules = precedence(&own)?;
        Ok(Self { own, elements, first_rules, flags, pieces, stage: Stage::Removal })
    }

    /// Creates the handover table, which ends when the next program translates. `is_interrupted` is called before each step.
    pub(super) fn copy(
        &mut self,
        kernel: &mut Nftables,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<(), CopyTableError> {
        while matches!(self.stage, Stage::Removal | Stage::Copy(_)) {
            if is_interrupted() {
                return Err(CopyTableError::Interrupted);
            }
            self.step(kernel)?;
        }
        kernel.commit(&witness(&self.own))?;
        Ok(())
    }

    /// Removes the base chains of our table, after [`Stepwise::copy`].
    pub(super) fn retire(&mut self, kernel: &mut Nftables) -> Result<(), CopyTableError> {
        self.step(kernel).map(drop)
    }

    /// Creates the new table, after [`Stepwise::retire`]. The handover table stays. `progress` is
    /// called before each step, and its result does not matter: nothing can interrupt this.
    pub(super) fn replace(
        &mut self,
        kernel: &mut Nftables,
        progress: &dyn Fn() -> bool,
    ) -> Result<(), CopyTableError> {
        while matches!(self.stage, Stage::Replacement) {
            progress();
            self.step(kernel)?;
        }
        Ok(())
    }

    /// Gives the next program precedence over the handover table, and our chains the priority of
    /// kube-proxy. Until another program adds chains, they still come before its.
    pub(super) fn make_way(&self, kernel: &mut Nftables) -> Result<(), CopyTableError> {
        let after = (&TRANSLATING[..], KUBE_PROXY_PRIORITY + 1);
        kernel.move_chains(&self.own, after, &self.first_rules, &handover_target())?;
        let same = (&TRANSLATING[..], KUBE_PROXY_PRIORITY);
        kernel.move_chains(&self.own, same, &[], &new_table(&self.own, self.flags))
    }

    /// Performs the next step. Nothing may have changed the table between its listing and the first
    /// [`Step::Serving`].
    ///
    /// # Errors
    /// See [`CopyTableError`]. Our table is unchanged, or the handover table serves.
    pub fn step(&mut self, kernel: &mut Nftables) -> Result<Step, CopyTableError> {
        let family = self.own.table.family;
        match &mut self.stage {
            Stage::Removal => {
                remove(kernel, &handover_table(family))?;
                self.stage = Stage::Copy(CopyProgress::default());
                Ok(Step::Copied)
            }
            Stage::Copy(sent) => {
                let source = CopySource {
                    elements: &self.elements,
                    replaces: false,
                    piece: self.pieces.copy,
                    first_rules: &self.first_rules,
                    completes: true,
                };
                if kernel.copy_piece(&self.own, &source, &handover_target(), sent)? {
                    self.stage = Stage::Retirement;
                }
                Ok(Step::Copied)
            }
            Stage::Retirement => {
                delete_base_chains(kernel, &self.own)?;
                kernel.begin_replacement(Replacement {
                    definition: self.own.clone(),
                    elements: std::mem::take(&mut self.elements),
                    target: new_table(&self.own, self.flags),
                    serving: handover_table(family),
                    piece: self.pieces.replacement,
                });
                self.stage = Stage::Replacement;
                Ok(Step::Serving)
            }
            Stage::Replacement => {
                if kernel.replacement_step()? {
                    self.stage = Stage::End { has_base_chains: true };
                }
                Ok(Step::Serving)
            }
            Stage::End { has_base_chains } => {
                let is_first = std::mem::take(has_base_chains);
                end(kernel, family, is_first)
            }
        }
    }
}

fn end(
    kernel: &mut Nftables,
    family: TableFamily,
    has_base_chains: bool,
) -> Result<Step, CopyTableError> {
    let table = handover_table(family);
    if !has_base_chains {
        kernel.commit(&Transaction { operations: vec![Operation::DeleteTable(table)] })?;
        return Ok(Step::Done);
    }
    if let Some(definition) = kernel.read_definition(&table)? {
        delete_base_chains(kernel, &definition)?;
    }
    Ok(Step::Serving)
}
