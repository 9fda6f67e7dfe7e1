//! The check at once: another program changes tables without an owner in a way that does not name
//! single elements, and changes of services do not wait until everything is compared.

use nft::TableFlags;

use super::*;

/// More services than a few pieces of the check cover.
const SERVICES: u8 = 200;

/// Requests of the loop that are not about elements: what others did, and both tables' rules twice.
const FIRST_REQUESTS: usize = 7;

/// More requests than a round needs.
const MANY: usize = 10_000;

/// Services with elements in every set, and many more.
fn many_objects() -> Vec<Event> {
    let more = (10..SERVICES).flat_map(|number| with(service(number, 6)));
    objects().into_iter().chain(more).collect()
}

/// A daemon without background check that does not own its tables.
async fn start<K: Shared>(kernel: K) -> Checked<K> {
    let flags = TableFlags::default();
    let mut daemon = Checked::start_with(Duration::ZERO, flags, kernel, many_objects()).await;
    // What was read at the start is checked once.
    daemon.pass(TWO_ROUNDS).await;
    daemon
}

impl<K: Shared> Checked<K> {
    /// The elements of a set with their data.
    fn kernel_elements(&mut self, (family, set): (Family, SetId)) -> Vec<Element> {
        let mut elements = Vec::new();
        let mut each = |read: ElementRead<'_>| {
            if let ElementRead::Element(view) = read {
                let data = view.data.and_then(Value::from_bytes);
                elements.extend(ruleset::stray(&view).map(|key| Element { data, ..key }));
            }
        };
        let table = ruleset::table(family);
        self.kernel.read_elements(&table, set.name(), &mut each).expect("the set can be read");
        elements
    }

    fn tamper(&mut self, operations: Vec<Operation>) {
        self.kernel.commit_by_another(&Transaction { operations });
    }

    /// Answers requests until something holds; returns how many.
    async fn requests_until(&mut self, mut holds: impl FnMut(&mut Self) -> bool) -> usize {
        advance(Duration::from_millis(500)).await;
        for requests in 0..MANY {
            self.poll();
            if holds(self) {
                return requests;
            }
            self.requests.run_next(&mut self.kernel);
        }
        panic!("it never holds");
    }

    async fn has_returned_to(&mut self, expected: &BTreeMap<String, String>) {
        let full_syncs = self.full_syncs();
        self.pass(TWO_ROUNDS).await;
        assert_eq!(contents(&mut self.kernel), *expected);
        assert_eq!(self.full_syncs(), full_syncs, "the tables were read");
        assert_eq!(self.refusals(), 0);
    }
}

fn flush_chain(family: Family) -> Operation {
    Operation::FlushChain(ruleset::table(family), Name::Borrowed("nat-output"))
}

/// Every third element of a set is deleted, with a chain's rules.
async fn delete_many<K: Shared>(daemon: &mut Checked<K>, set: SetId) -> usize {
    let of = (Family::Ip, set);
    let keys: Vec<_> = daemon.keys(of.0, of.1).into_iter().step_by(3).collect();
    let deletions = keys.iter().map(|key| delete(of, key));
    daemon.tamper(deletions.chain([flush_chain(Family::Ip)]).collect());
    keys.len()
}

pub(crate) async fn changes_are_committed_during_the_check(kernel: impl Shared) {
    let mut daemon = start(kernel).await;
    let expected = contents(&mut daemon.kernel);
    daemon.tamper(vec![flush_chain(Family::Ip)]);
    let services = "deltaproxy_check_services_total";
    let before = daemon.metric(services);
    daemon.requests_until(|daemon| daemon.metric(services) > before).await;
    for count in [7, 6] {
        let commits = daemon.commits();
        daemon.send(with(service(20, count)));
        let requests = daemon.requests_until(|daemon| daemon.commits() > commits).await;
        // The piece that was requested before, and the commit.
        assert!(requests <= 2, "{requests} requests until the commit");
    }
    let checked = daemon.metric(services) - before;
    assert!(checked < u64::from(SERVICES), "the round had ended: {checked}");
    daemon.has_returned_to(&expected).await;
    assert!(daemon.metric(services) - before >= u64::from(SERVICES) - 10);
}

pub(crate) async fn rules_are_compared_first(kernel: impl Shared) {
    let mut daemon = start(kernel).await;
    let expected = contents(&mut daemon.kernel);
    daemon.tamper(vec![flush_chain(Family::Ip6)]);
    let commits = daemon.commits();
    let requests = daemon.requests_until(|daemon| daemon.commits() > commits).await;
    assert!(requests <= FIRST_REQUESTS, "{requests} requests");
    assert_eq!(contents(&mut daemon.kernel), expected);
    daemon.has_returned_to(&expected).await;
}

pub(crate) async fn very_many_deleted_elements_are_written_again(kernel: impl Shared) {
    let mut daemon = start(kernel).await;
    let expected = contents(&mut daemon.kernel);
    for set in [SetId::Endpoints, SetId::Services] {
        let before = daemon.differences();
        let deleted = delete_many(&mut daemon, set).await;
        daemon.has_returned_to(&expected).await;
        assert_eq!(daemon.differences()[0], before[0] + deleted as u64, "{set:?}");
    }
}

pub(crate) async fn very_many_added_elements_are_deleted(kernel: impl Shared) {
    let mut daemon = start(kernel).await;
    let expected = contents(&mut daemon.kernel);
    let mut added = Vec::new();
    let sets = [SetId::Endpoints, SetId::ClusterIps, SetId::Services, SetId::RangeServices];
    for of in sets.map(|set| (Family::Ip, set)) {
        let table = daemon.kernel_elements(of);
        let like = table.first().expect("the set has elements");
        for number in 0..300_u32 {
            // The first field: the number of a list, or an address.
            let mut key = like.key.as_bytes().to_vec();
            key[..4].copy_from_slice(&(0x0a61_0000 + number).to_be_bytes());
            let key = Value::from_bytes(&key).expect("a key of the same length");
            added.push(add(of, &Element { key, ..like.clone() }));
        }
    }
    daemon.tamper(added);
    daemon.has_returned_to(&expected).await;
    assert_eq!(daemon.differences(), [0, 0, 1_200, 0, 0]);
}

pub(crate) async fn a_deleted_table_is_read_and_written_at_once(kernel: impl Shared) {
    let mut daemon = start(kernel).await;
    let (expected, full_syncs) = (contents(&mut daemon.kernel), daemon.full_syncs());
    daemon.tamper(vec![Operation::DeleteTable(ruleset::table(Family::Ip))]);
    let requests = daemon.requests_until(|daemon| daemon.full_syncs() > full_syncs).await;
    assert!(requests < 60, "{requests} requests before the tables were written");
    daemon.pass(TWO_ROUNDS).await;
    assert_eq!(contents(&mut daemon.kernel), expected);
}

pub(crate) async fn a_round_ends_beside_continuous_changes(kernel: impl Shared) {
    let mut daemon = start(kernel).await;
    let before = daemon.metric("deltaproxy_check_services_total");
    delete_many(&mut daemon, SetId::Endpoints).await;
    advance(Duration::from_millis(500)).await;
    let all = before + u64::from(SERVICES) - 10;
    for i in 0..MANY {
        let count = if i.is_multiple_of(2) { 1 } else { 2 };
        daemon.send(with(service(5, count)));
        advance(Duration::from_millis(11)).await;
        daemon.poll();
        daemon.requests.run_next(&mut daemon.kernel);
        daemon.poll();
        if daemon.metric("deltaproxy_check_services_total") >= all {
            return;
        }
    }
    panic!("the round never ends");
}
