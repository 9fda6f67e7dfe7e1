//! No manifest causes a panic or an endless loop, and a second read returns the same.

#![no_main]

use daemon::source::files;
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
