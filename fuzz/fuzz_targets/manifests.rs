//! No manifest makes the reader panic or loop, and reading it twice says the same.

#![no_main]

use deltaproxy::source::files;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let update = files::read(text);
    for problem in &update.problems {
        assert!(!problem.to_string().is_empty());
    }
    let again = files::read(text);
    assert_eq!(format!("{:?}", update.events), format!("{:?}", again.events));
    assert_eq!(update.problems.len(), again.problems.len());
});
