//! Every pair of doubt and input.

#![allow(clippy::disallowed_methods)] // The first time of each test is any time.

use std::collections::BTreeSet;
use std::num::NonZeroU16;

use nft::{Family, TableFlags, Value};

use super::*;
use crate::direct;
use crate::model::{Change, Event, ObjectName, Resource, Service, ServicePort};
use crate::reconcile::{ElementId, Finding, FoundTables};
use crate::routing::Routing;

/// How much is not certain. A larger extent includes the smaller ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DoubtExtent {
    /// Nothing.
    Nothing,
    /// Elements.
    Keys,
    /// Endpoint lists, after a start on existing tables.
    Lists,
    /// Chains, rules and sets of a table, and perhaps elements.
    Rules,
    /// Sets with more elements than were written.
    Sets,
    /// Everything, but most of it is probably as installed.
    All,
    /// Everything: the tables must be read.
    Tables,
}

impl Doubt {
    fn extent(&self) -> DoubtExtent {
        if self.tables.is_some() {
            DoubtExtent::Tables
        } else if self.is_changed || self.round.is_urgent {
            DoubtExtent::All
        } else if self.search.is_active() {
            DoubtExtent::Sets
        } else if self.parts.have_rules() {
            DoubtExtent::Rules
        } else if self.has_unread_lists {
            DoubtExtent::Lists
        } else if self.parts.are_none() {
            DoubtExtent::Nothing
        } else {
            DoubtExtent::Keys
        }
    }
}

const ALL: [DoubtExtent; 7] = [
    DoubtExtent::Nothing,
    DoubtExtent::Keys,
    DoubtExtent::Lists,
    DoubtExtent::Rules,
    DoubtExtent::Sets,
    DoubtExtent::All,
    DoubtExtent::Tables,
];

fn key(last: u8) -> ElementId {
    let key = Value::new().ip([10, 96, 0, last].into());
    ElementId { family: Family::Ip, set: SetId::ClusterIps, key }
}

/// A doubt of this extent, after a start.
fn doubt(extent: DoubtExtent, now: Instant) -> Doubt {
    let mut doubt = Doubt::new(Duration::ZERO, now);
    if extent == DoubtExtent::Tables {
        return doubt;
    }
    doubt.were_read(false, Duration::ZERO, now);
    doubt.handle(DoubtInput::Committed, now);
    match extent {
        DoubtExtent::Nothing | DoubtExtent::Tables => {}
        DoubtExtent::Keys => doubt.handle(DoubtInput::Elements(vec![key(1)]), now),
        DoubtExtent::Lists => doubt.has_unread_lists = true,
        DoubtExtent::Rules => {
            doubt.handle(DoubtInput::Refused(Refused::Elements(vec![key(1)])), now)
        }
        DoubtExtent::Sets => doubt.search = Search::Due(vec![(Family::Ip, SetId::Endpoints)]),
        DoubtExtent::All => doubt.handle(DoubtInput::Anything, now),
    }
    doubt
}

fn inputs() -> [(&'static str, DoubtInput); 7] {
    [
        ("Elements", DoubtInput::Elements(vec![key(2)])),
        ("Refused", DoubtInput::Refused(Refused::Elements(vec![key(2)]))),
        ("DirectReturn", DoubtInput::DirectReturn),
        ("Anything", DoubtInput::Anything),
        ("ReadNow", DoubtInput::ReadNow),
        ("Failed", DoubtInput::Failed),
        ("Committed", DoubtInput::Committed),
    ]
}

/// Each extent with the extents after the inputs in the order of [`inputs`].
fn every_pair() -> [(DoubtExtent, [DoubtExtent; 7]); ALL.len()] {
    use DoubtExtent::{All, Keys, Lists, Nothing, Rules, Sets, Tables};
    //         Elements Refused DirectReturn Anything ReadNow Failed  Committed
    [
        (Nothing, [Keys, Rules, Rules, All, Tables, Tables, Nothing]),
        (Keys, [Keys, Rules, Rules, All, Tables, Tables, Keys]),
        (Lists, [Lists, Rules, Rules, All, Tables, Tables, Lists]),
        (Rules, [Rules, Rules, Rules, All, Tables, Tables, Rules]),
        (Sets, [Sets, Sets, Sets, All, Tables, Tables, Sets]),
        (All, [All, All, All, All, Tables, Tables, All]),
        (Tables, [Tables; 7]),
    ]
}

#[test]
fn every_pair_of_extent_and_input_leads_to_the_extent_in_this_table() {
    let now = Instant::now();
    assert_eq!(every_pair().map(|(extent, _)| extent), ALL);
    for (extent, expected) in every_pair() {
        for ((name, input), expected) in inputs().into_iter().zip(expected) {
            let mut doubt = doubt(extent, now);
            assert_eq!(doubt.extent(), extent);
            assert_eq!(doubt.reason().is_none(), extent == DoubtExtent::Nothing);
            doubt.handle(input, now);
            assert_eq!(doubt.extent(), expected, "{extent:?} and {name}");
        }
    }
}

#[test]
fn the_drawing_has_every_pair_that_changes_the_extent() {
    let (mut drawn, mut from) = (BTreeSet::new(), "");
    for line in include_str!("mod.rs").lines().take_while(|line| line.starts_with("//!")) {
        let Some((left, right)) = line.split_once("-> ") else { continue };
        let words = |text: &'static str| {
            text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty())
        };
        let mut names: Vec<_> = words(left).collect();
        if ALL.iter().any(|extent| format!("{extent:?}") == names[0]) {
            from = names.remove(0);
        }
        let to = words(right).next().unwrap_or_default();
        drawn.extend(names.into_iter().map(|input| (from.to_owned(), input, to.to_owned())));
    }
    let pairs = every_pair().into_iter().flat_map(|(extent, after)| {
        let changed = inputs().into_iter().zip(after).filter(move |(_, after)| *after != extent);
        changed.map(move |((name, _), after)| (format!("{extent:?}"), name, format!("{after:?}")))
    });
    assert_eq!(drawn, pairs.collect());
}

/// As docs/architecture.md promises for changes of services.
#[test]
fn commits_wait_for_few_elements_for_a_refused_step_and_for_the_tables() {
    let now = Instant::now();
    let waits = ALL.map(|extent| {
        let doubt = doubt(extent, now);
        doubt.must_wait() || doubt.tables_due().is_some()
    });
    //                 Nothing Keys Lists Rules Sets  All    Tables
    assert_eq!(waits, [false, true, false, true, false, false, true]);
}

#[test]
fn the_tables_are_read_before_the_first_commit() {
    let now = Instant::now();
    for (name, input) in inputs() {
        let mut doubt = Doubt::new(Duration::ZERO, now);
        doubt.handle(input, now);
        assert!(doubt.tables_due().is_some(), "{name}");
    }
}

#[test]
fn the_pause_before_the_tables_are_read_doubles_with_each_failure() {
    let now = Instant::now();
    let mut doubt = doubt(DoubtExtent::Nothing, now);
    let pauses = [(); 3].map(|()| {
        doubt.handle(DoubtInput::Failed, now);
        doubt.tables_due().map(|due| (due - now).as_millis())
    });
    assert_eq!(pauses, [Some(50), Some(100), Some(200)]);
    doubt.handle(DoubtInput::Committed, now);
    doubt.handle(DoubtInput::Failed, now);
    assert_eq!(doubt.tables_due(), Some(now + Duration::from_millis(50)));
}

#[test]
fn changes_of_others_begin_a_round_after_a_pause_or_a_reading() {
    let now = Instant::now();
    let due = now + pause_after(Duration::ZERO);
    for (is_known, expected) in [(true, None), (false, Some(due))] {
        let mut doubt = doubt(DoubtExtent::All, now);
        doubt.begin_round(is_known, now);
        assert!(!doubt.is_urgent() && doubt.tables_due().is_none(), "the pause goes on");
        doubt.begin_round(is_known, due);
        assert_eq!((doubt.is_urgent(), doubt.tables_due()), (is_known, expected));
        assert_eq!(doubt.reason(), Some((DoubtCause::OtherProgram, now)));
    }
}

#[test]
fn elements_that_packets_write_are_not_compared() {
    let now = Instant::now();
    let mut doubt = doubt(DoubtExtent::Nothing, now);
    let client = ElementId { set: SetId::AffinityClients, ..key(1) };
    doubt.handle(DoubtInput::Elements(vec![client]), now);
    assert_eq!(doubt.extent(), DoubtExtent::Nothing, "packets write this map");
}

/// An engine that has written a service without endpoints.
fn engine() -> Engine {
    let port = ServicePort::tcp("http", NonZeroU16::MIN);
    let name = ObjectName::namespaced("default", "web");
    let service = Service::new(name, vec![[10, 96, 0, 1].into()]);
    let service = Service { ports: vec![port], ..service };
    let mut engine = Engine::new(Routing::default(), TableFlags::default());
    engine.apply([Event::Service(Change::Is(service))]);
    engine.apply(Resource::ALL.map(Event::Listed));
    engine.replace_installed_state(FoundTables::nothing());
    while engine.next_transaction(usize::MAX).is_some() {
        engine.committed(Duration::ZERO);
    }
    engine
}

/// An answer as installed, and one that does not suffice; `None` if there is no such answer to the
/// request.
fn answers(request: &Request, engine: &Engine) -> [Option<Reply>; 2] {
    match request {
        Request::Keys(places) => {
            let as_installed =
                |place: &ElementId| Changed { place: place.clone(), finding: Finding::Missing };
            let mut installed = Vec::new();
            engine
                .diff()
                .each_installed_element(engine.diff().services_after(None, 1).first(), &mut |it| {
                    installed.push(it)
                });
            let strange =
                |it| Changed { place: ElementId::of_element(it), finding: Finding::Present(None) };
            let as_installed = places.iter().map(as_installed).collect();
            [
                Some(Reply::Keys(as_installed)),
                Some(Reply::Keys(installed.iter().map(strange).collect())),
            ]
        }
        // The table is gone. Its rules as installed are in the tests with a kernel.
        Request::Rules(family) => {
            [None, Some(Reply::Rules(Rules { family: *family, contents: None, port: 0 }))]
        }
        Request::Dump(_) => [Some(Reply::Dump(Vec::new())), None],
        Request::DirectReturn => [Some(Reply::DirectReturn(direct::Found::default())), None],
        Request::Tables | Request::TablesWithoutLists | Request::Lists(..) | Request::Sizes(_) => {
            panic!("not the first request")
        }
    }
}

#[test]
fn every_answer_leads_to_the_extent_in_this_table() {
    use DoubtExtent::{All, Keys, Nothing, Rules, Sets, Tables};
    //        as installed, insufficient, failed
    let table = [
        (Keys, [Some(Nothing), Some(All), Some(All)]),
        (Rules, [None, Some(Tables), Some(Tables)]),
        (Sets, [Some(Nothing), None, Some(Tables)]),
        (All, [None, Some(Tables), Some(Tables)]),
    ];
    let now = Instant::now();
    for (extent, expected) in table {
        let after = [0, 1, 2].map(|i| {
            let (mut engine, mut doubt) = (engine(), doubt(extent, now));
            doubt.hurry(now);
            doubt.begin_round(true, now);
            let request = doubt.next(&mut engine, 0, now)?;
            let [certain, insufficient] = answers(&request, &engine);
            let reply = [certain, insufficient, Some(Reply::Failed)].into_iter().nth(i)??;
            doubt.answer(reply, &mut engine, now);
            while doubt.search.is_active() && !doubt.is_dumping() {
                assert_eq!(doubt.next(&mut engine, 0, now), None);
            }
            Some(doubt.extent())
        });
        assert_eq!(after, expected, "{extent:?}");
    }
}

/// Each difference of the background check is confirmed: another program may be in the middle of a
/// change.
#[test]
fn a_difference_in_the_background_begins_the_urgent_check_a_second_later() {
    let (now, mut engine) = (Instant::now(), engine());
    let mut doubt = Doubt::new(Duration::from_secs(60), now);
    doubt.were_read(false, Duration::ZERO, now);
    doubt.handle(DoubtInput::Committed, now);
    doubt.hurry(now);
    let request = doubt.next(&mut engine, 0, now).unwrap();
    let [_, different] = answers(&request, &engine);
    let corrections = doubt.answer(different.unwrap(), &mut engine, now);
    assert_eq!(corrections, Corrections::default());
    assert_eq!(
        (doubt.extent(), doubt.due()),
        (DoubtExtent::All, None),
        "the background check stops"
    );
    for (after, is_urgent) in [(999, false), (1_000, true)] {
        doubt.begin_round(true, now + Duration::from_millis(after));
        assert_eq!(doubt.is_urgent(), is_urgent, "after {after} ms");
    }
}

#[test]
fn the_tables_are_read_after_a_refusal_of_very_many_elements() {
    let now = Instant::now();
    for (count, expected) in [(1_024, DoubtExtent::Rules), (1_025, DoubtExtent::Tables)] {
        let address = |number: u32| Value::new().ip((0x0a60_0000 + number).to_be_bytes().into());
        let refused = (0..count).map(|number| ElementId { key: address(number), ..key(1) });
        let mut doubt = doubt(DoubtExtent::Nothing, now);
        doubt.handle(DoubtInput::Refused(Refused::Elements(refused.collect())), now);
        assert_eq!(doubt.extent(), expected, "{count}");
    }
}
