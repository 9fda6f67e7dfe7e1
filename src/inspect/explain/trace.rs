//! Compares the prediction with the kernel's trace of a real packet.

use nft::{TableRef, TraceEvent, TraceKind};

use super::report::line;
use super::step::{ChainId, Prediction, RuleStep, Step};
use super::walk::INGRESS;

/// Rules that a packet matched, and rules that it was predicted to match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Every rule that the packet matched, or was certainly predicted to match, in order.
    pub lines: Vec<Line>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Position of the rule.
    pub place: ChainId,
    /// Handle of the rule.
    pub handle: u64,
    /// The rule as nft(8) writes it, if it was read.
    pub text: Option<String>,
    /// The packet was predicted to match it, with certainty or not.
    pub predicted: bool,
    /// The kernel reported a match.
    pub traced: bool,
}

/// Compares the prediction with the steps of one packet; ignores steps in the table `ignored`. Of two
/// possible orders, the trace shows the true one.
pub fn compare(prediction: &Prediction, events: &[TraceEvent], ignored: &TableRef) -> Comparison {
    let comparison = compare_steps(&prediction.steps, events, ignored);
    if comparison.difference().is_none() {
        return comparison;
    }
    let other = compare_steps(&prediction.steps_in_other_order, events, ignored);
    if other.difference().is_none() { other } else { comparison }
}

fn compare_steps(steps: &[Step], events: &[TraceEvent], ignored: &TableRef) -> Comparison {
    let predicted: Vec<_> = traced(steps).collect();
    let mut comparison = Comparison::default();
    let mut next = 0;
    for event in events {
        let TraceKind::Rule { handle, .. } = event.kind else { continue };
        if event.table == *ignored {
            continue;
        }
        let place = ChainId { table: event.table.clone(), chain: event.chain.clone() };
        let mut rest = predicted.iter().skip(next);
        let found = rest.position(|it| it.place == place && it.handle == handle);
        let found = found.map(|found| next + found);
        if let Some(found) = found {
            comparison.skip(predicted.get(next..found).unwrap_or_default());
            next = found + 1;
        }
        let text = found.and_then(|found| predicted.get(found)).map(|it| it.text.clone());
        comparison.lines.push(Line {
            place,
            handle,
            text,
            predicted: found.is_some(),
            traced: true,
        });
    }
    comparison.skip(predicted.get(next..).unwrap_or_default());
    comparison
}

impl Comparison {
    /// Returns the first difference: a rule that the packet matched and that was not predicted, or one
    /// that it did not match and that was certainly predicted.
    pub fn difference(&self) -> Option<String> {
        let line = self.lines.iter().find(|line| line.predicted != line.traced)?;
        let what = if line.traced {
            "matched but was not predicted"
        } else {
            "was predicted but did not match"
        };
        Some(format!("the rule with handle {} in {} {what}", line.handle, line.place))
    }

    /// Records rules without a trace. Rules that only some packets match are no difference.
    fn skip(&mut self, skipped: &[&RuleStep]) {
        const ALWAYS: f64 = 0.999_999;
        let always = skipped.iter().filter(|rule| rule.matched > ALWAYS && rule.is_certain);
        self.lines.extend(always.map(|rule| Line {
            place: rule.place.clone(),
            handle: rule.handle,
            text: Some(rule.text.clone()),
            predicted: true,
            traced: false,
        }));
    }
}

impl std::fmt::Display for Comparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "predicted  kernel  rule")?;
        for it in &self.lines {
            let mark = |is_set| if is_set { "yes" } else { "no" };
            let text = it.text.as_deref().unwrap_or("(not read)");
            let ChainId { table, chain } = &it.place;
            let (predicted, traced) = (mark(it.predicted), mark(it.traced));
            line(f, format_args!("{predicted:9}  {traced:6}  {table} {chain}: {text}"))?;
        }
        match self.difference() {
            Some(difference) => line(f, format_args!("first difference: {difference}")),
            None => writeln!(f, "no difference: the kernel did as predicted"),
        }
    }
}

/// Returns the rules that packets match, without those at ingress, which comes before the hook where a
/// packet is traced.
fn traced(steps: &[Step]) -> impl Iterator<Item = &RuleStep> {
    let mut is_ingress = false;
    let traced = steps.iter().filter(move |step| {
        if let Step::Hook { name, .. } = step {
            is_ingress = *name == INGRESS;
        }
        !is_ingress
    });
    traced.filter_map(Step::rule).filter(|rule| rule.matched > 0.0)
}
