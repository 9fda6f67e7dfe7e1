//! The latest problems, each once.

use std::collections::VecDeque;
use std::time::SystemTime;

use serde_json::{Value, json};

use super::times::since_1970_ms;

/// Most problems that are kept: enough for an ordinary cluster.
const PROBLEMS: usize = 200;

/// Most bytes of a text. The texts come from objects, so their authors control them.
const TEXT: usize = 512;

/// An object, or a part of it, that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
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

#[derive(Clone, Debug, Default)]
pub(super) struct Problems(VecDeque<Problem>);

#[derive(Clone, Debug)]
struct Problem {
    left_out: LeftOut,
    at: SystemTime,
    count: u64,
}

impl Problems {
    /// Adds a problem with the time `at`; drops the oldest if there are too many.
    pub(super) fn add(&mut self, mut left_out: LeftOut, at: SystemTime) {
        for text in [&mut left_out.object, &mut left_out.field, &mut left_out.message] {
            text.truncate(text.floor_char_boundary(TEXT));
        }
        let known = self.0.iter().position(|it| it.left_out == left_out);
        let known = known.and_then(|place| self.0.remove(place));
        if self.0.len() == PROBLEMS {
            self.0.pop_front();
        }
        let count = known.map_or(1, |known| known.count + 1);
        self.0.push_back(Problem { left_out, at, count });
    }

    /// Returns the problems, newest first.
    pub(super) fn document(&self) -> Value {
        let problems = self.0.iter().rev().map(|Problem { left_out, at, count }| {
            json!({
                "kind": left_out.kind,
                "object": left_out.object,
                "field": left_out.field,
                "message": left_out.message,
                "at_ms": since_1970_ms(*at),
                "count": count,
            })
        });
        problems.collect()
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
        for n in 0..PROBLEMS + 5 {
            problems.add(left_out(&format!("Service a/{n}")), SystemTime::UNIX_EPOCH);
        }
        problems.add(left_out("Service a/7"), SystemTime::now());
        let document = problems.document();
        assert_eq!(document.as_array().unwrap().len(), PROBLEMS);
        assert_eq!(
            (&document[0]["object"], &document[0]["count"]),
            (&json!("Service a/7"), &json!(2))
        );
        assert_eq!(document[PROBLEMS - 1]["object"], "Service a/5");
        assert_eq!(document[0]["message"].as_str().unwrap().len(), TEXT);
    }
}
