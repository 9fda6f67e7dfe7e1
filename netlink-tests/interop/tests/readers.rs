//! The same tables, read by five libraries that share no code.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use netlink_tests::scenario::{Proxy, objects_for_every_chain, routing};
use netlink_tests::{Net, nft_available};
use netlink_tests_interop::{
    Family, TABLE, by_bindings, by_netfilter, by_nft, by_rustables, by_us,
};

#[test]
fn all_readers_agree_about_both_tables() {
    let net = Net::new();
    let mut proxy = Proxy::start(net.node(), routing());
    let objects = objects_for_every_chain();
    let _ = proxy.apply(&objects.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    for family in [Family::Ip, Family::Ip6] {
        let node = net.node();
        let ours = node.run(|| by_us::read(family, TABLE));
        // Readers that find nothing would agree too.
        assert!(ours.chains.len() > 30 && ours.sets.len() > 10, "{ours:#?}");
        assert_eq!(ours.understood(), (ours.chains.len(), ours.sets.len()));
        assert!(ours.sets.values().flatten().sum::<usize>() > 100, "{ours:#?}");
        assert!(ours.chains.values().filter(|chain| chain.hook.is_some()).count() >= 5);

        let bindings = node.run(|| by_bindings::read(family, TABLE));
        assert_eq!(ours, bindings);
        let netfilter = node.run(|| by_netfilter::read(family, TABLE));
        assert_eq!(ours, netfilter);
        let rustables = node.run(|| by_rustables::read(family, TABLE));
        ours.check(&rustables);
        assert!(family == Family::Ip6 || rustables.understood().0 > 0, "{rustables:#?}");
        if nft_available() {
            let nft = by_nft::read(node, family, TABLE);
            ours.check(&nft);
            assert_eq!(nft.understood().0, ours.chains.len());
        }
    }
}
