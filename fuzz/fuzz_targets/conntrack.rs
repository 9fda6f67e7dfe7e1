//! No conntrack dump causes a panic, and the request to delete a decoded entry is one whole
//! message.

#![no_main]

use conntrack::delete_request;
use libfuzzer_sys::fuzz_target;
use nft::netlink::attr::Attrs;
use nft::netlink::message::{Meaning, Messages};

/// `IPCTNL_MSG_CT_NEW` of `NFNL_SUBSYS_CTNETLINK`.
const ENTRY: u16 = 0x100;

/// Length of `struct nfgenmsg`, which precedes the attributes.
const OBJECT_HEADER: usize = 4;

fuzz_target!(|datagram: &[u8]| {
    for message in Messages::new(datagram).map_while(Result::ok) {
        if let Ok(Meaning::Object(object)) = message.meaning() {
            check(object.kind, object.payload);
        }
    }
    check(ENTRY, datagram);
});

fn check(kind: u16, payload: &[u8]) {
    let Some(request) = delete_request(kind, payload) else { return };
    assert_eq!(kind, ENTRY);
    let mut messages = Messages::new(&request);
    let message = messages.next().expect("a message").expect("a whole one");
    assert!(messages.next().is_none());
    let attributes = Attrs::new(&message.payload[OBJECT_HEADER..]);
    let count = attributes.map(|attribute| attribute.expect("written by us")).count();
    assert!((1..=3).contains(&count), "{count} attributes");
}
