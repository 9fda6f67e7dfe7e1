//! Any bytes, decoded as attributes, encoded and decoded again, give the same attributes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nft::netlink::attr::{AttrWriter, Attrs};

fuzz_target!(|bytes: &[u8]| {
    // The attributes before the first error; after it the iterator must be at its end.
    let mut attrs = Attrs::new(bytes);
    let read: Vec<_> = attrs.by_ref().map_while(Result::ok).collect();
    assert!(attrs.next().is_none(), "an attribute follows the error");
    for attr in &read {
        let _ = (attr.u8(), attr.be16(), attr.be32(), attr.be64(), attr.str());
        attr.nested().for_each(drop);
    }

    let mut written = Vec::new();
    let mut writer = AttrWriter::new(&mut written);
    for attr in &read {
        writer.bytes(attr.kind, attr.payload);
    }
    writer.finish().expect("every length was read from a 16-bit field");
    let again: Vec<_> = Attrs::new(&written).map(|attr| attr.expect("written above")).collect();
    assert_eq!(again.len(), read.len());
    for (left, right) in read.iter().zip(&again) {
        assert_eq!((left.kind, left.payload), (right.kind, right.payload));
    }
});
