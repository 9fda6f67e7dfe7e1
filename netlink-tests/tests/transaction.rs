//! Transactions on the real kernel: applied whole or not at all, and the culprit is named.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use daemon::writer::Writer;
use nft::expression::{CounterExpression, Immediate};
use nft::kernel::{
    CommitError, ElementRead, Extent, Kernel, MAX_ANSWER_BYTES, Nftables, Notifications, OpenError,
    ReadError, Release,
};
use nft::{
    Chain, Destroyed, Element, ElementView, Family, Flowtable, Object, Operation, Rule, Set, Table,
    TableFlags, TableRef, Transaction, Type, Value, Verdict,
};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use socket2::{SockFilter, SockRef};

/// Runs `test` in a thread with a new network namespace, which ends with it.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let isolated = move || {
        unshare(CloneFlags::CLONE_NEWNET).expect(
            "run as root, or: sh netlink-tests/in-namespaces cargo test --offline --workspace \
             --no-default-features --test transaction",
        );
        test();
    };
    thread::spawn(isolated).join().unwrap();
}

fn reference() -> TableRef {
    TableRef::new(Family::Ip, "kube-proxy")
}

fn table_with(flags: TableFlags) -> Operation {
    Operation::AddTable(Table { flags, ..Table::new(Family::Ip, "kube-proxy") })
}

fn table() -> Operation {
    table_with(TableFlags::default())
}

fn owned_table() -> Operation {
    table_with(TableFlags { owner: true, persist: true })
}

const FRONTEND: &str = "ipv4_addr . inet_proto . inet_service";

fn frontend() -> Vec<Type> {
    vec![Type::Ipv4Addr, Type::InetProto, Type::InetService]
}

fn service_ips() -> Arc<Set> {
    Arc::new(Set { name: "service-ips".into(), key: frontend(), ..Set::default() })
}

fn endpoints() -> Arc<Set> {
    let data = vec![Type::Ipv4Addr, Type::InetService];
    Arc::new(Set { name: "endpoints".into(), key: frontend(), data, ..Set::default() })
}

fn key(number: u32) -> Value {
    let address = Ipv4Addr::from(0x0a60_0000 + number);
    Value::new().ip(IpAddr::V4(address)).proto(6).port(80)
}

fn element(number: u32) -> Element {
    Element { comment: Some("default/web:http".into()), ..Element::new(key(number)) }
}

fn slot(number: u32, port: u16) -> Element {
    let data = Value::new().ip(IpAddr::V4(Ipv4Addr::new(10, 244, 0, 1))).port(port);
    Element::with_value(key(number), data)
}

fn add(set: &Arc<Set>, elements: Vec<Element>) -> Operation {
    Operation::AddElements(reference(), set.clone(), elements.into())
}

fn chain() -> Chain {
    Chain::new("services")
}

fn transaction(operations: Vec<Operation>) -> Transaction {
    Transaction { operations }
}

/// The kernel with a table of two empty sets.
fn prepared() -> Nftables {
    let mut nftables = Nftables::open().unwrap();
    let sets = [service_ips(), endpoints()].map(|set| Operation::AddSet(reference(), set));
    let operations = [table()].into_iter().chain(sets).collect();
    nftables.commit(&transaction(operations)).unwrap();
    nftables
}

/// The keys in a set, sorted.
fn keys(nftables: &mut Nftables, set: &str) -> Result<Vec<Vec<u8>>, ReadError> {
    let mut keys = Vec::new();
    nftables.read_elements(&reference(), set, &mut |read| match read {
        ElementRead::Start => keys.clear(),
        ElementRead::Element(element) => keys.push(element.key.to_vec()),
    })?;
    keys.sort();
    Ok(keys)
}

fn expected_keys(numbers: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    numbers.map(|number| key(number).as_bytes().to_vec()).collect()
}

#[test]
fn a_transaction_is_applied_and_read_back() {
    in_namespace(|| {
        let mut nftables = prepared();
        let expressions = vec![Immediate::verdict(Verdict::Return)];
        let rule = Rule { chain: chain().name, expressions, comment: None };
        let committed = nftables
            .commit(&transaction(vec![
                Operation::AddChain(reference(), chain()),
                Operation::AddRule(reference(), rule),
                add(&service_ips(), (0..3).map(element).collect()),
            ]))
            .unwrap();
        assert_eq!(committed.messages.values().sum::<usize>(), 3);
        let contents = nftables.read_table(&reference()).unwrap().unwrap();
        assert_eq!(contents.generation, nftables.generation().unwrap());
        assert_eq!(contents.owner, None);
        assert_eq!(contents.chains, [chain()]);
        assert_eq!(contents.rules.len(), 1);
        assert_eq!(contents.sets.len(), 2);
        assert_eq!(keys(&mut nftables, "service-ips").unwrap(), expected_keys(0..3));
    });
}

/// Both ways of acknowledging: that of 6.10 and later, and that of older kernels.
#[test]
fn a_refusal_names_the_element_and_applies_nothing() {
    for last_message in [false, true] {
        in_namespace(move || {
            let mut nftables = prepared();
            if last_message {
                nftables.acknowledge_last_message();
            }
            nftables.commit(&transaction(vec![add(&endpoints(), vec![slot(5, 8080)])])).unwrap();
            let refused = nftables.commit(&transaction(vec![
                add(&service_ips(), (0..10).map(element).collect()),
                add(&endpoints(), vec![slot(4, 8080), slot(5, 9090), slot(6, 8080)]),
                Operation::AddChain(reference(), chain()),
            ]));
            let Err(CommitError::Refused { operation, element, errno, what, .. }) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!((operation, element, errno), (Some(1), Some(1), Errno::EEXIST));
            assert!(what.contains("10.96.0.5 . tcp . 80"), "{what}");
            assert!(!what.contains("10.96.0.4"), "{what}");
            assert!(keys(&mut nftables, "service-ips").unwrap().is_empty());
            assert_eq!(keys(&mut nftables, "endpoints").unwrap().len(), 1);
        });
    }
}

#[test]
fn the_culprit_is_found_in_a_later_message_of_a_long_element_list() {
    in_namespace(|| {
        let mut nftables = prepared();
        nftables.commit(&transaction(vec![add(&endpoints(), vec![slot(4321, 1)])])).unwrap();
        let slots = (0..5000).map(|number| slot(number, 8080)).collect();
        let refused = nftables.commit(&transaction(vec![table(), add(&endpoints(), slots)]));
        let Err(CommitError::Refused { operation, element, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((operation, element), (Some(1), Some(4321)));
    });
}

#[test]
fn a_set_that_does_not_exist_is_named() {
    in_namespace(|| {
        let mut nftables = prepared();
        let missing = Operation::DeleteSet(reference(), "nonsense".into());
        let refused = nftables.commit(&transaction(vec![table(), missing]));
        let Err(CommitError::Refused { operation, errno, what, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((operation, errno), (Some(1), Errno::ENOENT));
        assert!(what.contains("nonsense"), "{what}");
    });
}

#[test]
fn a_batch_longer_than_the_send_buffer_is_not_sent() {
    in_namespace(|| {
        let mut nftables = prepared();
        nftables.socket_mut().set_send_buffer(10_000).unwrap();
        let most = nftables.max_batch();
        let elements = (0..2000).map(element).collect();
        let refused = nftables.commit(&transaction(vec![add(&service_ips(), elements)]));
        assert!(matches!(refused, Err(CommitError::NotSent(_))), "{refused:?}");
        assert!(keys(&mut nftables, "service-ips").unwrap().is_empty());
        // The computed limit is the kernel's: it refuses one byte more.
        let error = nftables.socket_mut().send(&vec![0; most + 1]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::EMSGSIZE as i32));
        nftables.socket_mut().send(&vec![0; most]).unwrap();
    });
}

#[test]
fn a_hundred_thousand_elements_go_in_and_are_read_back_complete() {
    in_namespace(|| {
        let mut nftables = prepared();
        // All at once, except where the send buffer cannot be forced larger: an element with its
        // comment takes less than 80 bytes.
        let elements: Vec<_> = (0..120_000).map(element).collect();
        let mut messages = 0;
        for part in elements.chunks(nftables.max_batch() / 80) {
            let committed = nftables.commit(&transaction(vec![add(&service_ips(), part.to_vec())]));
            messages += committed.unwrap().messages.values().sum::<usize>();
        }
        assert!(messages > 50, "{messages}");
        let found = keys(&mut nftables, "service-ips").unwrap();
        assert!(found == expected_keys(0..120_000), "{} elements differ", found.len());
    });
}

#[test]
fn the_structure_of_a_table_is_read_without_its_hundred_thousand_elements() {
    in_namespace(|| {
        let mut nftables = prepared();
        for part in 0..10 {
            let elements = (part * 10_000..(part + 1) * 10_000).map(element).collect();
            nftables.commit(&transaction(vec![add(&service_ips(), elements)])).unwrap();
        }
        // Less than one datagram of a dump.
        nftables.set_max_answer(16 << 10);
        let mut read = |elements| nftables.whole_table(Family::Ip.into(), "kube-proxy", elements);
        let table = read(Extent::Structure).unwrap().unwrap();
        let set = table.set("service-ips").unwrap();
        assert_eq!((set.set.types(), set.elements.len()), (FRONTEND.to_owned(), 0));
        assert_eq!((table.sets.len(), table.generation), (2, None));
        let error = read(Extent::Whole).unwrap_err().to_string();
        assert!(error.contains("the elements of service-ips"), "{error}");
    });
}

#[test]
fn only_changes_of_other_programs_to_watched_tables_are_reported() {
    in_namespace(|| {
        let mut ours = prepared();
        let mut theirs = Nftables::open().unwrap();
        let add_one = |number| transaction(vec![add(&service_ips(), vec![element(number)])]);
        theirs.commit(&add_one(1)).unwrap();
        assert!(!ours.tampered(), "nothing is watched yet");
        ours.watch_others(&[reference()]).unwrap();
        ours.commit(&add_one(2)).unwrap();
        assert!(!ours.tampered(), "our own commit");
        let other = Table::new(Family::Ip, "other");
        theirs.commit(&transaction(vec![Operation::AddTable(other.clone())])).unwrap();
        theirs.commit(&transaction(vec![Operation::DeleteTable(other.reference())])).unwrap();
        assert!(!ours.tampered(), "another table");
        theirs.commit(&add_one(3)).unwrap();
        assert!(ours.tampered() && !ours.tampered());
        // More notifications than the receive buffer holds.
        for part in 0..40 {
            let elements = (0..5_000).map(|number| element(10 + part * 5_000 + number)).collect();
            theirs.commit(&transaction(vec![add(&service_ips(), elements)])).unwrap();
        }
        assert!(ours.tampered() && !ours.tampered());
        theirs.commit(&transaction(vec![Operation::DeleteTable(reference())])).unwrap();
        assert!(ours.tampered());
        ours.ignore_others();
        theirs.commit(&transaction(vec![table()])).unwrap();
        assert!(!ours.tampered());
    });
}

/// Reads a set of so many elements while another socket changes another one after each `pause`, and
/// checks each reading.
fn check_readings(
    (watch, elements, pause): (bool, u32, Duration),
    check: fn(Result<Vec<Vec<u8>>, ReadError>, u32),
) {
    in_namespace(move || {
        let mut ours = prepared();
        ours.commit(&transaction(vec![add(&service_ips(), (0..elements).map(element).collect())]))
            .unwrap();
        if watch {
            ours.watch_others(&[reference()]).unwrap();
        }
        let mut theirs = Nftables::open().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        let writer = thread::spawn(move || {
            let added = add(&endpoints(), vec![slot(1, 1)]);
            let deleted =
                Operation::DeleteElements(reference(), endpoints(), [Element::new(key(1))].into());
            while !flag.load(Ordering::Relaxed) {
                for operation in [&added, &deleted] {
                    theirs.commit(&transaction(vec![operation.clone()])).unwrap();
                    thread::sleep(pause);
                }
            }
        });
        for _ in 0..20 {
            check(keys(&mut ours, "service-ips"), elements);
        }
        is_over.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        check(keys(&mut ours, "service-ips"), elements);
    });
}

#[test]
fn reading_while_another_socket_writes_returns_complete_sets_or_an_error() {
    check_readings((false, 2_000, Duration::from_millis(1)), |read, elements| match read {
        Ok(keys) => assert_eq!(keys.len(), elements as usize),
        Err(error) => assert!(matches!(error, ReadError::Changing { .. }), "{error}"),
    });
}

#[test]
fn a_set_is_read_whole_while_others_are_watched_and_never_stop_to_change_another_one() {
    check_readings((true, 20_000, Duration::ZERO), |read, elements| {
        assert_eq!(read.unwrap().len(), elements as usize);
    });
}

#[test]
fn an_owned_table_refuses_other_sockets_and_is_adopted_after_its_owner() {
    in_namespace(|| {
        let mut owner = Nftables::open().unwrap();
        if !owner.supports_ownership() {
            return;
        }
        let add_chain = transaction(vec![Operation::AddChain(reference(), chain())]);
        owner.commit(&transaction(vec![owned_table()])).unwrap();
        let contents = owner.read_table(&reference()).unwrap().unwrap();
        assert_eq!(contents.owner, Some(owner.port()));

        let mut other = Nftables::open().unwrap();
        let refused = other.commit(&add_chain);
        let Err(CommitError::Owned { table, port }) = refused else { panic!("{refused:?}") };
        assert_eq!((table, port), (reference(), owner.port()));

        drop(owner);
        let orphan = other.read_table(&reference()).unwrap().unwrap();
        assert_eq!((orphan.owner, orphan.table.flags.persist), (None, true));
        other.commit(&transaction(vec![owned_table()])).unwrap();
        other.commit(&add_chain).unwrap();
        let adopted = other.read_table(&reference()).unwrap().unwrap();
        assert_eq!(adopted.owner, Some(other.port()));
    });
}

#[test]
fn a_table_without_owner_cannot_become_an_owned_one() {
    in_namespace(|| {
        let mut nftables = prepared();
        if !nftables.supports_ownership() {
            return;
        }
        let refused = nftables.commit(&transaction(vec![owned_table()]));
        let Err(CommitError::Refused { errno, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(errno, Errno::EOPNOTSUPP);
    });
}

/// Everything that can be destroyed, in the order in which the kernel lets it go.
fn destroyed() -> Vec<Destroyed> {
    vec![
        Destroyed::Rule(chain().name, 1_000),
        Destroyed::Chain(chain().name),
        Destroyed::Elements(service_ips(), vec![element(1), element(9)].into()),
        Destroyed::Set("endpoints".into()),
        Destroyed::Object(Object::COUNTER, "web".into()),
        Destroyed::Flowtable("fast".into()),
    ]
}

#[test]
fn what_may_not_exist_is_destroyed_and_kernels_before_6_3_refuse_it() {
    in_namespace(|| {
        let mut nftables = prepared();
        let destroy = |what| Operation::Destroy(reference(), what);
        let errno = |outcome| match outcome {
            Err(CommitError::Refused { errno, operation: Some(0), .. }) => errno,
            outcome => panic!("{outcome:?}"),
        };
        if nftables.release().unwrap() < Release::DESTROY {
            for what in destroyed().into_iter().chain([Destroyed::Table]) {
                let refused = nftables.commit(&transaction(vec![destroy(what)]));
                assert_eq!(errno(refused), Errno::EINVAL);
            }
            return;
        }
        let missing = transaction(destroyed().into_iter().map(destroy).collect());
        nftables.commit(&missing).unwrap();
        // All of it but a rule: the kernel chooses its handle.
        nftables
            .commit(&transaction(vec![
                Operation::AddChain(reference(), chain()),
                add(&service_ips(), (0..3).map(element).collect()),
                Operation::AddSet(reference(), endpoints()),
            ]))
            .unwrap();
        let fast = Operation::AddFlowtable(reference(), Flowtable::new("fast"));
        let has_flowtables = match nftables.commit(&transaction(vec![fast])) {
            Ok(_) => true,
            refused => {
                // A kernel without them.
                assert_eq!(errno(refused), Errno::ENOENT);
                false
            }
        };
        let mut table =
            nftables.whole_table(Family::Ip.into(), "kube-proxy", Extent::Whole).unwrap().unwrap();
        let state = CounterExpression { bytes: 0, packets: 0 }.into();
        table.objects.push(Object::new("web", Object::COUNTER, state));
        nftables.update(&table).unwrap();
        let mut notifications = Notifications::open().unwrap();
        nftables.commit(&missing).unwrap();
        let left =
            nftables.whole_table(Family::Ip.into(), "kube-proxy", Extent::Whole).unwrap().unwrap();
        assert_eq!((left.chains.len(), left.objects.len(), left.flowtables.len()), (0, 0, 0));
        assert_eq!(left.sets.len(), 1);
        assert_eq!(keys(&mut nftables, "service-ips").unwrap().len(), 2);
        let changes = notifications.take_changes().unwrap();
        assert_eq!(changes.len(), 4 + usize::from(has_flowtables), "{changes:?}");
        assert!(changes.iter().all(|change| change.is_deleted), "{changes:?}");

        nftables.commit(&transaction(vec![destroy(Destroyed::Table)])).unwrap();
        assert_eq!(nftables.read_table(&reference()).unwrap(), None);
        nftables.commit(&transaction(vec![destroy(Destroyed::Table)])).unwrap();
        // What is in a table that does not exist is an error.
        for what in destroyed() {
            let refused = nftables.commit(&transaction(vec![destroy(what)]));
            assert_eq!(errno(refused), Errno::ENOENT);
        }
    });
}

#[test]
fn a_rule_is_destroyed_by_its_handle_and_only_once() {
    in_namespace(|| {
        let mut nftables = prepared();
        if nftables.release().unwrap() < Release::DESTROY {
            return;
        }
        let expressions = vec![Immediate::verdict(Verdict::Return)];
        let rule = Rule { chain: chain().name, expressions, comment: None };
        let added =
            [Operation::AddChain(reference(), chain()), Operation::AddRule(reference(), rule)];
        nftables.commit(&transaction(added.to_vec())).unwrap();
        let handle = nftables.rules(&reference()).unwrap()[0].handle;
        let what = Destroyed::Rule(chain().name, handle);
        let destroy = transaction(vec![Operation::Destroy(reference(), what)]);
        nftables.commit(&destroy).unwrap();
        assert!(nftables.rules(&reference()).unwrap().is_empty());
        nftables.commit(&destroy).unwrap();
    });
}

#[test]
fn a_missing_table_reads_as_none_and_a_missing_set_as_missing() {
    in_namespace(|| {
        let mut nftables = Nftables::open().unwrap();
        assert_eq!(nftables.read_table(&reference()).unwrap(), None);
        assert!(keys(&mut nftables, "service-ips").unwrap_err().is_missing());
        assert_eq!(nftables.commit(&Transaction::default()).unwrap().bytes, 0);
    });
}

#[test]
fn truncated_answers_are_an_error_and_the_next_read_works() {
    in_namespace(|| {
        let mut nftables = prepared();
        let elements = (0..2000).map(element).collect();
        nftables.commit(&transaction(vec![add(&service_ips(), elements)])).unwrap();
        nftables.socket_mut().set_max_receive(100);
        let error = keys(&mut nftables, "service-ips").unwrap_err();
        assert!(matches!(error, ReadError::Receive { .. }), "{error}");
        nftables.socket_mut().set_max_receive(1 << 18);
        assert_eq!(keys(&mut nftables, "service-ips").unwrap().len(), 2000);
    });
}

/// The kernel starts no second dump on a socket before the first one ends: it answers EBUSY.
#[test]
fn after_an_answer_that_is_too_long_reads_and_commits_work_and_the_owner_stays() {
    in_namespace(|| {
        let mut nftables = Nftables::open().unwrap();
        let is_owned = nftables.supports_ownership();
        let table = if is_owned { owned_table() } else { table() };
        let sets = [service_ips(), endpoints()].map(|set| Operation::AddSet(reference(), set));
        let elements = add(&service_ips(), (0..20_000).map(element).collect());
        let operations = [table].into_iter().chain(sets).chain([elements]).collect();
        nftables.commit(&transaction(operations)).unwrap();
        for number in 1..=3 {
            nftables.set_max_answer(200_000);
            let error = keys(&mut nftables, "service-ips").unwrap_err();
            assert!(matches!(error, ReadError::Endless { .. }), "{error}");
            let slots = add(&endpoints(), vec![slot(number, 80)]);
            nftables.commit(&transaction(vec![slots])).unwrap();
            let found = keys(&mut nftables, "endpoints").unwrap();
            assert_eq!(u32::try_from(found.len()), Ok(number));
            nftables.set_max_answer(MAX_ANSWER_BYTES);
            assert_eq!(keys(&mut nftables, "service-ips").unwrap().len(), 20_000);
        }
        let owner = is_owned.then(|| nftables.port());
        assert_eq!(nftables.owner(&reference()).unwrap(), owner);
    });
}

/// The acknowledgement is cut off, and so is the generation that could decide. With a chain in the
/// transaction, no element is looked up over another socket.
#[test]
fn a_lost_acknowledgement_leaves_the_outcome_unknown() {
    in_namespace(|| {
        let mut nftables = prepared();
        nftables.socket_mut().set_max_receive(20);
        let add_chain = Operation::AddChain(reference(), chain());
        let elements = add(&service_ips(), vec![element(1)]);
        let lost = nftables.commit(&transaction(vec![add_chain, elements]));
        assert!(matches!(lost, Err(CommitError::Unknown(_))), "{lost:?}");
        nftables.socket_mut().set_max_receive(1 << 18);
        assert_eq!(keys(&mut nftables, "service-ips").unwrap().len(), 1);
    });
}

/// A socket filter drops the answers to batches.
#[test]
fn a_transaction_without_answer_is_looked_up_by_its_elements() {
    in_namespace(|| {
        let mut nftables = prepared();
        let add = |number| add(&service_ips(), vec![element(number)]);
        let delete = |number| {
            Operation::DeleteElements(reference(), service_ips(), [element(number)].into())
        };
        nftables.commit(&transaction(vec![add(1)])).unwrap();
        drop_answers_to_batches(&mut nftables);
        nftables.commit(&transaction(vec![delete(1), add(2)])).unwrap();
        // Only the elements decide: the generation is read before commits of other objects alone.
        let lost = nftables.commit(&transaction(vec![add(3), delete(9)]));
        assert!(matches!(lost, Err(CommitError::Unknown(_))), "{lost:?}");
        // Neither the elements nor a chain decide.
        let chain = Operation::AddChain(reference(), chain());
        for (other, operations) in [(5, vec![add(3), delete(9)]), (6, vec![chain])] {
            // The generation does not decide either.
            Nftables::open().unwrap().commit(&transaction(vec![add(other)])).unwrap();
            let lost = nftables.commit(&transaction(operations));
            assert!(matches!(lost, Err(CommitError::Unknown(_))), "{lost:?}");
        }
        assert_eq!(keys(&mut nftables, "service-ips").unwrap().len(), 3);
    });
}

/// Drops each `NLMSG_ERROR` that answers the end of a batch or, before Linux 6.10, its last message.
fn drop_answers_to_batches(nftables: &mut Nftables) {
    const NLMSG_ERROR: u16 = 2;
    const NFNL_MSG_BATCH_END: u16 = 0x11;
    const NFT_MSG_NEWCHAIN: u16 = 0xa03;
    const NFT_MSG_NEWSETELEM: u16 = 0xa0c;
    const NFT_MSG_DELSETELEM: u16 = 0xa0e;
    // The filter loads numbers in network byte order, and netlink writes them in that of the host.
    let kind = |kind: u16| u32::from(u16::from_be_bytes(kind.to_ne_bytes()));
    let filter = [
        SockFilter::new(0x28, 0, 0, 4), // ldh [4]: the kind of the answer
        SockFilter::new(0x15, 0, 6, kind(NLMSG_ERROR)), // jne accept
        SockFilter::new(0x28, 0, 0, 24), // ldh [24]: the kind of the message it answers
        SockFilter::new(0x15, 3, 0, kind(NFNL_MSG_BATCH_END)), // jeq drop
        SockFilter::new(0x15, 2, 0, kind(NFT_MSG_NEWCHAIN)), // jeq drop
        SockFilter::new(0x15, 1, 0, kind(NFT_MSG_NEWSETELEM)), // jeq drop
        SockFilter::new(0x15, 0, 1, kind(NFT_MSG_DELSETELEM)), // jne accept
        SockFilter::new(0x06, 0, 0, 0), // drop: ret #0
        SockFilter::new(0x06, 0, 0, u32::MAX), // accept: ret #-1
    ];
    let socket = SockRef::from(&*nftables.socket_mut());
    socket.attach_filter(&filter).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
}

/// The kernel drops a damaged batch without a word (`nfnetlink_rcv_batch`), so does the test: it
/// cuts the refusal off.
#[test]
fn a_lost_refusal_is_known_not_to_be_applied_by_the_generation() {
    in_namespace(|| {
        let mut nftables = prepared();
        // A refusal with its reason is longer than the answer about the generation.
        nftables.socket_mut().set_max_receive(56);
        let missing = Operation::DeleteSet(reference(), "nonsense".into());
        let lost = nftables.commit(&transaction(vec![missing]));
        assert!(
            matches!(lost, Err(CommitError::NotSent(_) | CommitError::Refused { .. })),
            "{lost:?}"
        );
    });
}

#[test]
fn many_refusals_on_a_tiny_receive_buffer_still_name_the_first() {
    in_namespace(|| {
        let mut nftables = prepared();
        nftables.socket_mut().set_receive_buffer(1).unwrap();
        let missing = (0..1000).map(|_| Operation::DeleteSet(reference(), "nonsense".into()));
        let refused = nftables.commit(&transaction(missing.collect()));
        let Err(CommitError::Refused { operation, errno, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((operation, errno), (Some(0), Errno::ENOENT));
    });
}

/// Runs itself again in a user namespace that has no power over the network namespace.
#[test]
fn without_the_capability_opening_names_it() {
    const NAME: &str = "without_the_capability_opening_names_it";
    const CHILD: &str = "DELTAPROXY_TEST_WITHOUT_CAPABILITY";
    if std::env::var_os(CHILD).is_some() {
        let error = Nftables::open().expect_err("opened without CAP_NET_ADMIN");
        assert!(matches!(error, OpenError::NoPermission), "{error:?}");
        assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
        return;
    }
    let program = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .arg("--user")
        .arg(program)
        .args(["--exact", NAME])
        .env(CHILD, "1")
        .output()
        .expect("the program unshare of util-linux is needed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
}

#[test]
fn the_writer_thread_commits_and_answers() {
    in_namespace(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let writer = Writer::spawn(prepared()).unwrap();
        runtime.block_on(async {
            let sent = transaction(vec![add(&service_ips(), vec![element(1)])]);
            let (given_back, committed) = writer.commit(sent.clone()).await.unwrap();
            assert_eq!(given_back, sent);
            assert!(committed.is_ok());
            let found = writer.run(|kernel| keys(kernel, "service-ips")).await.unwrap().unwrap();
            assert_eq!(found, expected_keys(1..2));
        });
    });
}

#[test]
fn elements_are_found_by_their_keys_up_to_the_first_that_is_missing() {
    in_namespace(|| {
        let mut nftables = prepared();
        let elements = [0, 1, 3].map(element).into();
        nftables.commit(&transaction(vec![add(&service_ips(), elements)])).unwrap();
        let mut find = |numbers: &[u32]| {
            let asked: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
            let mut keys = Vec::new();
            let mut each = |element: ElementView<'_>| keys.push(element.key.to_vec());
            let count = nftables.find_elements(&reference(), "service-ips", &asked, &mut each);
            assert_eq!(count.unwrap(), keys.len());
            keys
        };
        assert_eq!(find(&[0, 1]), expected_keys(0..2));
        assert_eq!(find(&[3, 2, 1]), expected_keys(3..4));
        assert!(find(&[2, 3]).is_empty() && find(&[]).is_empty());
        let many: Vec<_> = (0..500).map(|_| 1).collect();
        assert_eq!(find(&many).len(), 500);
        let mut none = |_: ElementView<'_>| panic!("there is no such set");
        let found = nftables.find_elements(&reference(), "nothing", &[key(0)], &mut none);
        assert_eq!(found.unwrap(), 0);
    });
}
