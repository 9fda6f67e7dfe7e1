//! Lookups in sets and maps, and elements that packets add to them.

use nft::expression::{Data, Dynset, Lookup, Reg};
use nft::{AnyElement, key};

use super::evaluate::{End, Evaluation, MOST_DRAWN, Next, Within, goes_on};
use super::packet::{known, unknown};
use super::registers::Draw;
use super::rules::{Facts, LookupResult};
use super::state::{State, merge_by};
use super::step::Event;

impl<F: Facts> Evaluation<'_, F> {
    pub(super) fn look_up(&mut self, lookup: &Lookup, mut within: Within) -> Vec<Next> {
        let Lookup { set, from, to, flags } = lookup;
        let (from, to, negated) = (*from, *to, flags & key::LOOKUP_INVERTED != 0);
        let Some(length) = self.table.sets.get(set).map(|set| set.key_length) else {
            return self.unknown_expression(&format!("lookup in @{set}"), within);
        };
        if let Some(draw) = within.registers.drawn(from, length) {
            return self.look_up_drawn(set, from, to, (within, draw));
        }
        let key: Option<Vec<u8>> = within.registers.read(from, length).into_iter().collect();
        let found = self.find_known(set, key.as_deref(), &within.state);
        match found {
            LookupResult::Unknown(why) => {
                self.unknown(&format!("whether @{set} has the key: {why}"));
                if let Some(to) = to {
                    within.registers.write(to, &unknown(16));
                }
                if to == Some(Reg::VERDICT) {
                    let state = within.state.perhaps();
                    vec![Next::End(state.clone(), End::NoMatch), Next::End(state, End::Unknown)]
                } else {
                    goes_on(within, None)
                }
            }
            LookupResult::Missing => {
                self.note_missing(set, key);
                goes_on(within, Some(negated))
            }
            LookupResult::Element(element) => {
                self.note_found(set, key, &element);
                if negated {
                    goes_on(within, Some(false))
                } else {
                    self.load_data(to, element, within)
                }
            }
        }
    }

    fn note_missing(&mut self, set: &str, key: Option<Vec<u8>>) {
        let (set, key) = (set.to_owned(), key.unwrap_or_default());
        self.step.note(Event::Missing { set, key });
    }

    fn note_found(&mut self, set: &str, key: Option<Vec<u8>>, element: &AnyElement) {
        let (data, comment) = (element.data.clone(), element.comment().map(str::to_owned));
        let (set, key) = (set.to_owned(), key.unwrap_or_default());
        self.step.note(Event::Found { set, key, data, comment });
    }

    /// Loads the data of a map, or follows its verdict.
    fn load_data(&mut self, to: Option<Reg>, element: AnyElement, mut within: Within) -> Vec<Next> {
        match (to, element.data) {
            (Some(Reg::VERDICT), Some(Data::Verdict(verdict))) => {
                self.verdict(within.state, verdict)
            }
            (Some(Reg::VERDICT), _) => self.unknown_expression("verdict", within),
            (Some(to), Some(Data::Value(value))) => {
                within.registers.write(to, &known(&value));
                vec![Next::On(within)]
            }
            (Some(_), _) => self.unknown_expression("data of a map", within),
            (None, _) => vec![Next::On(within)],
        }
    }

    /// Looks up every possible random number. Merges equal results.
    fn look_up_drawn(
        &mut self,
        set: &str,
        from: Reg,
        to: Option<Reg>,
        (within, draw): (Within, Draw),
    ) -> Vec<Next> {
        if self.is_sparse(set, draw) {
            self.note_missing(set, None);
            return goes_on(within, Some(false));
        }
        if !(1..=MOST_DRAWN).contains(&draw.modulus) {
            self.unknown("a number is drawn below so many that the outcomes are not followed");
            return goes_on(within, None);
        }
        let length = self.table.sets.get(set).map_or(0, |set| set.key_length);
        let results = (0..draw.modulus).map(|number| {
            let registers = within.registers.with(draw, number);
            let key: Option<Vec<u8>> = registers.read(from, length).into_iter().collect();
            (self.find_known(set, key.as_deref(), &within.state), 1_u32)
        });
        let results = merge_by(results, |(found, _)| data_key(found), |(_, count), _| *count += 1);
        let missing = results.iter().find(|(found, _)| *found == LookupResult::Missing);
        let hits = draw.modulus - missing.map_or(0, |(_, count)| *count);
        self.step.note(Event::Drawn { set: set.to_owned(), of: draw.modulus, hits });
        let mut nexts = Vec::new();
        for (found, count) in results {
            let share = f64::from(count) / f64::from(draw.modulus);
            let part = Within { state: within.state.part(share), ..within.clone() };
            nexts.extend(match found {
                LookupResult::Element(element) => self.load_data(to, element, part),
                LookupResult::Missing => vec![Next::End(part.state, End::NoMatch)],
                LookupResult::Unknown(why) => {
                    self.unknown(&why);
                    goes_on(part, None)
                }
            });
        }
        nexts
    }

    /// Returns whether a set has an element for few of the possible numbers: packets write it, and
    /// its elements expire.
    fn is_sparse(&self, set: &str, draw: Draw) -> bool {
        let size = self.table.sets.get(set).filter(|set| set.is_dynamic()).and_then(|set| set.size);
        size.is_some_and(|size| draw.modulus / FEW > size)
    }

    fn find_known(&mut self, set: &str, key: Option<&[u8]>, state: &State) -> LookupResult {
        let unknown = || LookupResult::Unknown("the key is not known".to_owned());
        key.map_or_else(unknown, |key| self.find(set, key, state))
    }

    /// Looks up a key, including elements that the packet itself wrote.
    fn find(&mut self, set: &str, key: &[u8], state: &State) -> LookupResult {
        let written = (self.id.name.clone(), set.to_owned(), key.to_vec());
        match state.key.written.get(&written) {
            Some(Some(data)) => {
                let data = Some(Data::Value(data.clone().into()));
                return LookupResult::Element(AnyElement { data, ..AnyElement::new(key) });
            }
            Some(None) => return LookupResult::Missing,
            None => {}
        }
        match self.table.sets.get(set) {
            Some(set) => self.facts.element(self.id, set, key),
            None => LookupResult::Unknown("there is no such set".to_owned()),
        }
    }

    /// Evaluates a change of an element. With conditions, whether the rule goes on is not known.
    pub(super) fn dynset(&mut self, dynset: &Dynset, mut within: Within) -> Vec<Next> {
        if dynset.expression.is_some() || dynset.expressions.is_some() {
            return self.limited(&format!("update @{}", dynset.set), within);
        }
        if dynset.flags & key::DYNSET_INVERTED != 0 || dynset.operation > key::DYNSET_DELETE {
            return self.unknown_expression(&format!("dynset @{}", dynset.set), within);
        }
        self.write_element(dynset, &mut within);
        vec![Next::On(within)]
    }

    /// Records an element that a rule writes, for later rules. An existing element keeps its data.
    fn write_element(&mut self, dynset: &Dynset, within: &mut Within) {
        let set = &*dynset.set;
        let lengths = self.table.sets.get(set).map(|set| (set.key_length, set.data_length));
        let Some((key_length, data_length)) = lengths else { return };
        let bytes = |register, length| -> Option<Vec<u8>> {
            within.registers.read(register, length).into_iter().collect()
        };
        let draw = within.registers.drawn(dynset.key, key_length);
        if draw.is_some_and(|draw| self.is_sparse(set, draw)) {
            return;
        }
        let Some(key) = bytes(dynset.key, key_length) else {
            return self.unknown(&format!("@{set} gets an element whose key is not known"));
        };
        let data = match dynset.data {
            Some(data) => bytes(data, data_length),
            None => Some(Vec::new()),
        };
        let is_there = matches!(self.find(set, &key, &within.state), LookupResult::Element(_));
        let written = (self.id.name.clone(), set.to_owned(), key);
        match (dynset.operation, data) {
            (key::DYNSET_DELETE, _) => {
                within.state.key.written.insert(written, None);
            }
            (_, Some(data)) if !is_there => {
                within.state.key.written.insert(written, Some(data));
            }
            (_, Some(_)) => {}
            (_, None) => {
                self.unknown(&format!("@{set} gets an element whose data is not known"));
            }
        }
    }
}

/// Possible numbers for each element of a set in which a number is taken for missing.
const FEW: u32 = 100;

/// Returns the key for merging results of a lookup; ignores comment and key of the element.
fn data_key(found: &LookupResult) -> String {
    match found {
        LookupResult::Element(element) => format!("{:?}", element.data),
        LookupResult::Missing => "missing".to_owned(),
        LookupResult::Unknown(why) => format!("unknown {why}"),
    }
}
