//! Programs that record their calls, for scripts under test.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Writes a program that adds its name and arguments as a line to the file `calls` of the folder
/// `world`, and then runs `text`, commands of sh that know the folder as `$world`.
pub(crate) fn add_program(program: &Path, world: &Path, text: &str) {
    let name = program.file_name().unwrap().to_str().unwrap();
    let text = format!(
        "#!/bin/sh\nset -eu\nworld={}\necho \"{name} $*\" >>\"$world/calls\"\n{text}",
        world.display()
    );
    let source = world.join("program");
    fs::write(&source, text).unwrap();
    // A copy by another process. A file that this one wrote may still be open in a child of another
    // thread, and cannot be run then.
    let install = Command::new("install").arg("-m755").arg(&source).arg(program).status().unwrap();
    assert!(install.success());
    fs::remove_file(source).unwrap();
}

/// Returns the calls of all programs, a line each.
pub(crate) fn calls(world: &Path) -> String {
    fs::read_to_string(world.join("calls")).unwrap_or_default()
}
