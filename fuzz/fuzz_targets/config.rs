//! No configuration file causes a panic, and every accepted one is usable.

#![no_main]

use daemon::config::Loaded;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Loaded::parse(text) {
        Ok(Loaded { config, notes, .. }) => {
            assert!(!config.node_name.trim().is_empty());
            assert!(config.routing.masquerade_mark().is_power_of_two());
            assert!(notes.lines().iter().all(|line| !line.is_empty()));
        }
        Err(error) => assert!(error.to_string().contains("config"), "{error}"),
    }
});
