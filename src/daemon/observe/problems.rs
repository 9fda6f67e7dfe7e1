//! Problems of objects: those that are present, and the latest of all, each once.
//!
//! A present problem has an owner: the part of the program that found it, and the object. Each
//! report of an owner replaces its former problems, so a problem is over once its owner no longer
//! reports it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::SystemTime;

use engine::model;
use serde_json::{Value, json};

use super::times::since_1970_ms;

/// Most latest problems, and most present ones in the document of the status page: enough for an
/// ordinary cluster.
const SHOWN: usize = 200;

/// Most present problems. Authors of objects control their number; further ones are counted only
/// as reported.
const PRESENT: usize = 10_000;

/// Most bytes of a text. The texts come from objects, so their authors control them.
const TEXT: usize = 512;

/// An object, or a part of it, that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeftOut {
    /// The kind of problem.
    pub kind: &'static str,
    /// Kind and name of the object, or a place in a file.
    pub object: String,
    /// Path of the field; empty if it is the object itself.
    pub field: String,
    /// Actual value and expectation.
    pub message: String,
}

impl From<&model::Problem> for LeftOut {
    fn from(problem: &model::Problem) -> Self {
        Self {
            kind: problem.kind.name(),
            object: problem.object.to_string(),
            field: problem.field.clone(),
            message: problem.message.clone(),
        }
    }
}

impl LeftOut {
    fn limited(mut self) -> Self {
        for text in [&mut self.object, &mut self.field, &mut self.message] {
            text.truncate(text.floor_char_boundary(TEXT));
        }
        self
    }
}

/// The part of the program that finds a problem, and ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finder {
    /// The reader of API objects or manifests: the object has a content that cannot be used.
    Source,
    /// The engine: a service cannot be served as its object says.
    Engine,
    /// The servers of health check ports.
    HealthCheckPort,
    /// The proxy for node ports at `[::1]`.
    LocalhostPort,
    /// The loop: this node has no Node object.
    OwnNode,
    /// The loop: nodes claim the same address.
    OtherNodes,
    /// The removal of other proxy modes: they are there again.
    OtherKubeProxy,
    /// The reader of the configuration file: it refuses the present file.
    Configuration,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Problems {
    latest: VecDeque<Problem>,
    present: BTreeMap<(Finder, String), Vec<Present>>,
    /// The number of problems in `present`.
    count: usize,
}

#[derive(Clone, Debug)]
struct Problem {
    left_out: LeftOut,
    at: SystemTime,
    count: u64,
}

#[derive(Clone, Debug)]
struct Present {
    left_out: LeftOut,
    since: SystemTime,
}

impl Problems {
    /// Adds a problem with the time `at`; drops the oldest if there are too many.
    pub(super) fn add(&mut self, left_out: LeftOut, at: SystemTime) {
        let left_out = left_out.limited();
        let known = self.latest.iter().position(|it| it.left_out == left_out);
        let known = known.and_then(|place| self.latest.remove(place));
        if self.latest.len() == SHOWN {
            self.latest.pop_front();
        }
        let count = known.map_or(1, |known| known.count + 1);
        self.latest.push_back(Problem { left_out, at, count });
    }

    /// Replaces the present problems of an owner. Returns the kinds of the former ones and those of
    /// the new ones.
    pub(super) fn replace(
        &mut self,
        (finder, object): (Finder, &str),
        problems: Vec<LeftOut>,
        at: SystemTime,
    ) -> [Vec<&'static str>; 2] {
        let owner = (finder, object.to_owned());
        let former = self.present.remove(&owner).unwrap_or_default();
        self.count -= former.len();
        let room = PRESENT - self.count;
        let present = problems.into_iter().take(room).map(|left_out| {
            let left_out = left_out.limited();
            let known = former.iter().find(|it| it.left_out == left_out);
            Present { since: known.map_or(at, |known| known.since), left_out }
        });
        let present = present.collect::<Vec<_>>();
        self.count += present.len();
        let kinds = |list: &[Present]| list.iter().map(|it| it.left_out.kind).collect();
        let changed = [kinds(&former), kinds(&present)];
        if !present.is_empty() {
            self.present.insert(owner, present);
        }
        changed
    }

    /// Returns a copy of the problems to show: the first present ones, and all of the latest.
    pub(super) fn shown(&self) -> Shown {
        let are_present: HashSet<_> = self.all().map(|it| &it.left_out).collect();
        let latest = self.latest.iter().rev();
        let solved = latest.clone().filter(|it| !are_present.contains(&it.left_out)).cloned();
        let counts: HashMap<_, _> = latest.map(|it| (&it.left_out, it.count)).collect();
        let present = self.all().take(SHOWN).map(|Present { left_out, since }| Problem {
            left_out: left_out.clone(),
            at: *since,
            count: counts.get(left_out).copied().unwrap_or(1),
        });
        Shown { present: present.collect(), count: self.count, solved: solved.collect() }
    }

    /// Returns all present problems, by finder and object.
    pub(super) fn present(&self) -> Value {
        let document = |it: &Present| {
            let mut document = it.left_out.document();
            document["since_ms"] = since_1970_ms(it.since).into();
            document
        };
        self.all().map(document).collect()
    }

    /// Returns why all objects of a resource cannot be used, or may be of an earlier time.
    pub(super) fn of_all_objects(&self) -> Option<String> {
        let mut of_all = self.all().filter(|it| it.left_out.object.ends_with(" *"));
        of_all.next().map(|it| it.left_out.message.clone())
    }

    fn all(&self) -> impl Iterator<Item = &Present> {
        self.present.values().flatten()
    }
}

/// Problems of the status page.
pub(super) struct Shown {
    present: Vec<Problem>,
    /// Number of all present problems.
    pub(super) count: usize,
    /// The latest problems that are no longer present, newest first.
    solved: Vec<Problem>,
}

impl Shown {
    /// Returns the present problems, then the solved ones.
    pub(super) fn document(&self) -> Value {
        let present = self.present.iter().map(|it| it.document(true));
        present.chain(self.solved.iter().map(|it| it.document(false))).collect()
    }
}

impl Problem {
    fn document(&self, is_present: bool) -> Value {
        let mut document = self.left_out.document();
        document["present"] = is_present.into();
        document["at_ms"] = since_1970_ms(self.at).into();
        document["count"] = self.count.into();
        document
    }
}

impl LeftOut {
    fn document(&self) -> Value {
        json!({
            "kind": self.kind,
            "object": self.object,
            "field": self.field,
            "message": self.message,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_out(object: &str) -> LeftOut {
        let (field, message) = ("spec".to_owned(), "ä".repeat(TEXT));
        LeftOut { kind: "invalid", object: object.to_owned(), field, message }
    }

    #[test]
    fn the_newest_problems_are_kept_each_once() {
        let mut problems = Problems::default();
        for n in 0..SHOWN + 5 {
            problems.add(left_out(&format!("Service a/{n}")), SystemTime::UNIX_EPOCH);
        }
        problems.add(left_out("Service a/7"), SystemTime::now());
        let document = problems.shown().document();
        assert_eq!(document.as_array().unwrap().len(), SHOWN);
        assert_eq!(
            (&document[0]["object"], &document[0]["count"]),
            (&json!("Service a/7"), &json!(2))
        );
        assert_eq!(document[SHOWN - 1]["object"], "Service a/5");
        assert_eq!(document[0]["message"].as_str().unwrap().len(), TEXT);
    }

    #[test]
    fn a_problem_is_present_until_its_owner_no_longer_reports_it() {
        let (early, late) = (SystemTime::UNIX_EPOCH, SystemTime::now());
        let mut problems = Problems::default();
        let web = left_out("Service a/web");
        problems.add(web.clone(), early);
        let source = (Finder::Source, "Service a/web");
        assert_eq!(problems.replace(source, vec![web.clone()], early), [vec![], vec!["invalid"]]);
        let other = (Finder::Engine, "Service a/web");
        assert!(problems.replace(other, Vec::new(), late).concat().is_empty());
        problems.replace(source, vec![left_out("Service a/web/2"), web.clone()], late);
        let shown = problems.shown().document();
        assert_eq!(shown.as_array().unwrap().len(), 2, "present, so not repeated: {shown}");
        assert_eq!(shown[1]["at_ms"], 0, "it keeps its time");
        assert_eq!(problems.replace(source, Vec::new(), late), [vec!["invalid"; 2], vec![]]);
        let shown = problems.shown().document();
        assert_eq!((&shown[0]["present"], shown.as_array().unwrap().len()), (&json!(false), 1));
        assert_eq!(problems.present(), json!([]));
    }

    #[test]
    fn present_problems_have_a_limit() {
        let mut problems = Problems::default();
        let many = |count| vec![left_out("Service a/web"); count];
        problems.replace((Finder::Source, "a"), many(PRESENT - 1), SystemTime::UNIX_EPOCH);
        let [_, kept] = problems.replace((Finder::Source, "b"), many(2), SystemTime::UNIX_EPOCH);
        assert_eq!((kept.len(), problems.shown().count), (1, PRESENT));
        problems.replace((Finder::Source, "a"), Vec::new(), SystemTime::UNIX_EPOCH);
        assert_eq!(problems.shown().count, 1);
    }
}
