//! What is not certain about the kernel's tables, and what to read next. Reads no clock and does no
//! I/O.
//!
//! A part is certain if the kernel holds the installed state of the engine there. An input makes
//! parts uncertain. The answer to a request makes them certain again: the finding replaces the
//! installed state, and the usual update writes the difference.
//!
//! ```text
//! Nothing -+- Elements ----------> Keys     looked up at once; commits wait
//!          +- Refused -----------> Rules    then its elements; commits wait
//!          +- DirectReturn ------> Rules    that table is read as a whole; commits wait
//!          +- Anything ----------> All      compared piece by piece, between commits
//!          +- ReadNow, Failed ---> Tables   read as a whole; commits wait
//!
//! Keys ----+- Refused, DirectReturn -> Rules
//!          +- Anything ----------> All
//!          +- ReadNow, Failed ---> Tables
//!
//! Rules ---+- Anything ----------> All
//!          +- ReadNow, Failed ---> Tables
//!
//! Lists ---+- Refused, DirectReturn -> Rules
//!          +- Anything ----------> All
//!          +- ReadNow, Failed ---> Tables
//!
//! Sets ----+- Anything ----------> All
//!          +- ReadNow, Failed ---> Tables
//!
//! All -----+- ReadNow, Failed ---> Tables
//! ```
//!
//! Any other input leaves the extent as it is. A start begins with `Tables`. Their answer may leave
//! `Lists` to be read: services of other lists are committed meanwhile. `Elements` has the effect of
//! `Anything` in two cases: at a start, and while `All` is due.
//! Elements of the map that packets write are dropped. `Refused` with very many elements leads to
//! `Tables`.
//!
//! An answer that does not suffice widens the extent: keys and rules to `Tables`, or to `All` if
//! another program changed them, and very many differences of `All` to `Tables`. A comparison of
//! everything ends with the sizes of the sets, in the background too: those that are too large lead
//! to `Sets`, and are dumped and searched for orphans.
//!
//! The background check looks at all elements, sizes and rules within its period. A difference has
//! the effect of `Anything`, a second later: another program may be in the middle of a change.

mod corrections;
mod input;
mod limits;
mod parts;
mod request;
mod round;
mod search;

pub use corrections::{Corrections, EndedRound};
pub use input::{DoubtCause, DoubtInput};
pub use request::{Reading, Reply, Request, Rules, Size};

use std::time::{Duration, Instant};

use self::limits::{
    AFTER_ERROR, MAX_DIFFERENCES, MAX_REFUSED, SECOND_LOOKUP, backoff, pause_after,
};
use self::parts::{Origin, Parts};
use self::round::Round;
use self::search::Search;
use crate::reconcile::{Changed, Engine, Refused};
use crate::ruleset::SetId;

/// What is not certain about the kernel's tables.
#[derive(Debug)]
pub struct Doubt {
    /// The tables must be read as a whole, not before this time.
    tables: Option<Instant>,
    /// Failures since the last commit; each doubles the pause before the tables are read.
    failures: u32,
    /// The kernel has never held the desired state.
    is_start: bool,
    /// Endpoint lists are not read yet.
    has_unread_lists: bool,
    /// Elements and rules.
    parts: Parts,
    /// Sets with elements that are not installed.
    search: Search,
    /// The comparison of everything: the urgent check or the background check.
    round: Round,
    /// Another program has changed more than single elements since `round` began, or the background
    /// check found a difference.
    is_changed: bool,
    /// Time before which `is_changed` causes no urgent check.
    not_before: Instant,
    /// The origin of the last request.
    asked: Origin,
    cause: DoubtCause,
    since: Instant,
}

impl Doubt {
    /// Returns the doubt of a start at `now`: the tables must be read. Later everything is compared
    /// once per `check_period` in the background; zero turns this off.
    pub fn new(check_period: Duration, now: Instant) -> Self {
        Self {
            tables: Some(now),
            failures: 0,
            is_start: true,
            has_unread_lists: false,
            parts: Parts::default(),
            search: Search::None,
            round: Round::new(Some(check_period).filter(|period| !period.is_zero()), now),
            is_changed: false,
            not_before: now,
            asked: Origin::default(),
            cause: DoubtCause::Start,
            since: now,
        }
    }

    /// Applies `input`, which happened at `now`.
    pub fn handle(&mut self, input: DoubtInput, now: Instant) {
        match input {
            DoubtInput::Committed => {
                self.failures = 0;
                self.is_start = false;
            }
            DoubtInput::ReadNow => self.widen_to_tables(DoubtCause::Request, now, now),
            DoubtInput::Failed => {
                self.widen_to_tables(DoubtCause::Commit, now, now);
                self.tables = Some(now + backoff(self.failures));
                self.failures = self.failures.saturating_add(1);
            }
            DoubtInput::Anything => self.note_anything(now),
            DoubtInput::Elements(_) if self.is_start || self.is_changed => self.note_anything(now),
            DoubtInput::Refused(_) | DoubtInput::DirectReturn | DoubtInput::Elements(_)
                if self.tables.is_some() => {}
            DoubtInput::Refused(Refused::DirectReturn) => {
                self.note_cause(DoubtCause::Commit, now);
                self.parts.add_direct_return(Origin::Refused);
            }
            DoubtInput::DirectReturn => {
                self.note_cause(DoubtCause::OtherProgram, now);
                self.parts.add_direct_return(Origin::OtherProgram);
            }
            DoubtInput::Elements(mut keys) => {
                // Packets write this map.
                keys.retain(|it| it.set != SetId::AffinityClients);
                self.note_cause(DoubtCause::OtherProgram, now);
                self.parts.add_keys(keys, Origin::OtherProgram);
            }
            DoubtInput::Refused(Refused::Elements(keys)) if keys.len() > MAX_REFUSED => {
                self.widen_to_tables(DoubtCause::Commit, now, now);
            }
            DoubtInput::Refused(Refused::Elements(keys)) => {
                self.note_cause(DoubtCause::Commit, now);
                self.parts.add_rules(Origin::Refused);
                self.parts.add_keys(keys, Origin::Refused);
            }
        }
    }

    /// Begins the urgent check if there is a reason and the pause is over. `is_known`: no commit
    /// with an unknown outcome is open.
    pub fn begin_round(&mut self, is_known: bool, now: Instant) {
        if !self.is_changed || now < self.not_before || self.round.is_urgent {
            return;
        }
        if self.tables.is_none() && is_known && !self.is_start {
            self.round.restart(true, now);
        } else {
            self.widen_to_tables(self.cause, now, now);
        }
        self.is_changed = false;
    }

    /// Returns why something is not certain, and since when.
    pub fn reason(&self) -> Option<(DoubtCause, Instant)> {
        let is_uncertain = self.tables.is_some() || self.is_changed || self.is_urgent();
        is_uncertain.then_some((self.cause, self.since))
    }

    /// Returns when the tables are to be read as a whole, if they must be. Nothing may be committed
    /// before.
    pub fn tables_due(&self) -> Option<Instant> {
        self.tables
    }

    /// Returns whether commits must wait for the answer to the next request.
    pub fn must_wait(&self) -> bool {
        self.parts.stop_commits()
    }

    /// Returns whether the next request is for what is not certain, and not for the background.
    pub fn is_urgent(&self) -> bool {
        self.round.is_urgent
            || self.search.is_active()
            || self.has_unread_lists
            || !self.parts.are_none()
    }

    /// Returns whether endpoint lists are to be read, although services are committed.
    pub fn has_unread_lists(&self) -> bool {
        self.has_unread_lists
    }

    /// Returns whether endpoint lists are to be read, and nothing before them.
    pub fn has_only_unread_lists(&self) -> bool {
        self.has_unread_lists && self.tables.is_none() && self.parts.are_none()
    }

    /// Returns whether the kernel has never held the desired state.
    pub fn is_start(&self) -> bool {
        self.is_start
    }

    /// Returns whether another program changed more than single elements, which are not compared
    /// yet.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Returns whether the last request was for a dump. Its answer may come later.
    pub fn is_dumping(&self) -> bool {
        self.search.is_dumping()
    }

    /// Returns when the next request is due, other than that for the tables.
    pub fn due(&self) -> Option<Instant> {
        if self.tables.is_some() || self.search.is_dumping() {
            None
        } else if self.search.is_active() || self.has_unread_lists || !self.parts.are_none() {
            Some(self.since)
        } else if self.is_changed && !self.round.is_urgent {
            // The urgent check compares everything soon.
            None
        } else {
            self.round.due()
        }
    }

    /// Returns the next request; `None` if a step needs none. The answer goes to
    /// [`Doubt::answer`]. `elements` is the number of all installed elements.
    pub fn next(&mut self, engine: &mut Engine, elements: usize, now: Instant) -> Option<Request> {
        let (request, origin) = if let Some(next) = self.parts.next() {
            next
        } else if let Some((family, lists)) = engine.next_lists() {
            (Request::Lists(family, lists), Origin::Search)
        } else if self.search.is_active() {
            (self.next_of_search(engine, now)?, Origin::Search)
        } else {
            self.round.next(engine, elements, now)
        };
        self.asked = origin;
        Some(request)
    }

    /// Returns endpoint lists to be requested before the answer to the last request is processed, so
    /// that the kernel is read meanwhile; `None` if something else is to be read first.
    pub fn next_lists(&mut self, engine: &mut Engine) -> Option<Request> {
        if !self.has_only_unread_lists() {
            return None;
        }
        let (family, lists) = engine.next_lists()?;
        self.asked = Origin::Search;
        Some(Request::Lists(family, lists))
    }

    fn next_of_search(&mut self, engine: &Engine, now: Instant) -> Option<Request> {
        if let Some(sets) = self.search.begin() {
            return Some(Request::Dump(sets));
        }
        let orphans = self.search.compare(engine.diff())?;
        if orphans.len() > MAX_DIFFERENCES {
            self.widen_to_tables(self.cause, now, now);
        } else {
            self.parts.add_keys(orphans, Origin::Search);
        }
        None
    }

    /// Processes the answer to the last request of [`Doubt::next`], and corrects the installed
    /// state.
    pub fn answer(&mut self, reply: Reply, engine: &mut Engine, now: Instant) -> Corrections {
        let mut corrections = Corrections::default();
        let is_enough = match reply {
            Reply::Tables(reading) => {
                let Reading { tables, is_torn, took, .. } = *reading;
                engine.replace_installed_state(tables);
                self.were_read(is_torn, took, now);
                self.has_unread_lists = !engine.diff().has_read_lists();
                // Lists may have been read after the tables.
                engine.diff().may_have_all_lists()
            }
            Reply::DirectReturn(found) => {
                let differed = engine.replace_direct_return(found);
                if self.asked == Origin::Refused {
                    self.failures = 0;
                } else {
                    corrections.direct_return = differed;
                }
                true
            }
            Reply::Lists(read) => {
                let is_known = engine.read_lists(read);
                self.has_unread_lists = !engine.diff().has_read_lists();
                is_known
            }
            Reply::Failed if self.asked == Origin::Background => {
                self.round.pause(now + AFTER_ERROR);
                true
            }
            Reply::Failed => false,
            Reply::Dump(found) => {
                self.search = Search::Comparing(found, Vec::new());
                true
            }
            Reply::Rules(rules) => self.compare_rules(&rules, engine, &mut corrections, now),
            Reply::Keys(found) => self.compare_elements(&found, engine, &mut corrections, now),
            Reply::Sizes(sizes) => self.note_sizes(&sizes, &mut corrections, now),
        };
        if !is_enough {
            self.did_not_suffice(now);
        }
        let began = self.round.began();
        corrections.ended = self.round.end(now);
        if let Some(EndedRound::Urgent { .. }) = corrections.ended {
            self.not_before = now + pause_after(now - began);
        }
        corrections
    }

    fn were_read(&mut self, is_torn: bool, time: Duration, now: Instant) {
        self.tables = None;
        self.forget();
        // A torn reading is used, and checked later: if changes never stop, every reading is torn.
        self.is_changed = is_torn;
        self.not_before = now + pause_after(time);
        self.round.restart(false, now);
    }

    /// Lets the next urgent check begin without a pause.
    pub fn hurry(&mut self, now: Instant) {
        self.not_before = now;
    }

    fn compare_rules(
        &mut self,
        Rules { family, contents, port }: &Rules,
        engine: &mut Engine,
        corrections: &mut Corrections,
        now: Instant,
    ) -> bool {
        let contents = contents.as_ref();
        engine.observe_devices(*family, contents);
        match self.asked {
            Origin::Refused => {}
            _ if engine.are_rules_as_desired(*family, contents) => return true,
            Origin::Background => {
                self.confirm(now);
                return true;
            }
            Origin::Urgent | Origin::Search | Origin::OtherProgram => {
                corrections.rules = Some(*family);
            }
        }
        engine.replace_installed_rules(*family, contents, *port)
    }

    /// Corrects differences at once, or lets them be confirmed in the background.
    fn compare_elements(
        &mut self,
        found: &[Changed],
        engine: &mut Engine,
        corrections: &mut Corrections,
        now: Instant,
    ) -> bool {
        let mut owners = Vec::new();
        match self.asked {
            Origin::Refused => {
                self.failures = 0;
                return engine.undo_step(found);
            }
            Origin::Search | Origin::OtherProgram => {}
            Origin::Background | Origin::Urgent => {
                owners = self.round.owners();
                corrections.checked = self.round.services().len();
                corrections.outdated = engine.update_outdated(self.round.services());
            }
        }
        if self.asked == Origin::Background {
            if found.iter().any(|it| engine.diff().differs(it)) {
                self.confirm(now);
            }
            return true;
        }
        corrections.elements = engine.correct_elements(found, &owners);
        if self.asked == Origin::Urgent {
            self.round.differences += corrections.elements.differences.len();
        }
        !corrections.elements.is_insufficient && self.round.differences <= MAX_DIFFERENCES
    }

    /// Lets the urgent check look at a difference of the background check again.
    fn confirm(&mut self, now: Instant) {
        self.note_cause(DoubtCause::Check, now);
        if !std::mem::replace(&mut self.is_changed, true) {
            self.not_before = self.not_before.max(now + SECOND_LOOKUP);
        }
    }

    /// Searches sets with too many elements. Returns false if elements are missing that no service
    /// has.
    fn note_sizes(&mut self, sizes: &[Size], corrections: &mut Corrections, now: Instant) -> bool {
        let (sets, wrong) = self.round.wrong_sizes(sizes);
        let is_enough = wrong.iter().all(|(_, _, excess)| *excess > 0);
        corrections.sizes = wrong;
        if is_enough && !sets.is_empty() {
            self.note_cause(DoubtCause::Check, now);
            self.search = Search::Due(sets);
        }
        is_enough
    }

    fn note_anything(&mut self, now: Instant) {
        self.note_cause(DoubtCause::OtherProgram, now);
        self.is_changed = true;
        if self.round.is_urgent {
            // Packets pass rules first.
            self.parts.add_rules(Origin::Search);
        }
    }

    /// Widens the extent after an answer that does not suffice.
    fn did_not_suffice(&mut self, now: Instant) {
        // The answer may be that of a dump, requested before.
        if self.asked == Origin::OtherProgram && !self.search.is_dumping() {
            self.parts.forget();
            self.note_anything(now);
        } else {
            self.widen_to_tables(self.cause, now, now);
        }
    }

    fn widen_to_tables(&mut self, cause: DoubtCause, due: Instant, now: Instant) {
        self.note_cause(cause, now);
        self.tables.get_or_insert(due);
        self.forget();
    }

    /// Forgets what the tables, once they are read, make certain.
    fn forget(&mut self) {
        self.parts.forget();
        self.has_unread_lists = false;
        self.search = Search::None;
        self.round.is_urgent = false;
    }

    fn note_cause(&mut self, cause: DoubtCause, now: Instant) {
        if self.reason().is_none() {
            (self.cause, self.since) = (cause, now);
        }
    }
}

#[cfg(test)]
mod tests;
