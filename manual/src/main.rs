//! Writes the manual pages and the shell completions of deltaproxy to a folder.
//!
//! They are generated from the command line definition of the program only.

use std::path::Path;
use std::{env, fs, io};

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use deltaproxy::Cli;

const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Fish, Shell::Zsh];

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: manual FOLDER"))?;
    write(&Cli::command(), Path::new(&folder))
}

/// Writes a page for each command to `man`, and a file for each shell to `completions`.
fn write(command: &Command, folder: &Path) -> io::Result<()> {
    let [pages, completions] = ["man", "completions"].map(|name| folder.join(name));
    fs::create_dir_all(&pages)?;
    fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(command.clone(), &pages)?;
    for shell in SHELLS {
        clap_complete::generate_to(shell, &mut command.clone(), command.get_name(), &completions)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process;

    use tempfile::TempDir;

    use super::*;

    /// Each command's words, with its options and subcommands.
    fn commands(command: &Command, words: &str) -> Vec<(String, Vec<String>)> {
        let shown = command.get_arguments().filter(|it| !it.is_hide_set());
        let options = shown.filter_map(|it| it.get_long());
        let below = command.get_subcommands().map(|it| it.get_name().to_owned());
        let own = options.map(|it| format!("--{it}")).chain(below).collect();
        let below = command.get_subcommands();
        let below = below.flat_map(|it| commands(it, &format!("{words} {}", it.get_name())));
        [(words.to_owned(), own)].into_iter().chain(below).collect()
    }

    fn all_commands() -> Vec<(String, Vec<String>)> {
        commands(&Cli::command(), "deltaproxy")
    }

    fn written() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        write(&Cli::command(), folder.path()).unwrap();
        folder
    }

    #[track_caller]
    fn read(folder: &TempDir, path: &str) -> String {
        let text = fs::read_to_string(folder.path().join(path));
        text.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The completions of bash after the words of a command.
    fn offered(folder: &TempDir, command: &str) -> Vec<String> {
        let script = format!(
            "source completions/deltaproxy.bash; COMP_WORDS=({command} ''); \
             COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _deltaproxy deltaproxy '' ''; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let mut bash = process::Command::new("bash");
        let output = bash.args(["-c", &script]).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn every_command_has_a_manual_page_with_all_its_options() {
        let folder = written();
        assert_eq!(fs::read_dir(folder.path().join("man")).unwrap().count(), all_commands().len());
        for (command, words) in all_commands() {
            let page = format!("man/{}.1", command.replace(' ', "-"));
            // Without the escapes of roff.
            let text = read(&folder, &page).replace('\\', "");
            for word in words {
                assert!(text.contains(&word), "{page} lacks {word}");
            }
        }
    }

    #[test]
    fn bash_completes_every_command_and_option() {
        let folder = written();
        for (command, words) in all_commands() {
            let offered = offered(&folder, &command);
            for word in words {
                assert!(offered.contains(&word), "after {command}, {word} is not in {offered:?}");
            }
        }
    }

    #[test]
    fn fish_and_zsh_have_every_command_and_option() {
        let folder = written();
        let fish = read(&folder, "completions/deltaproxy.fish").replace("-l ", "--");
        let zsh = read(&folder, "completions/_deltaproxy");
        for (command, words) in all_commands() {
            for word in words {
                assert!(fish.contains(&word), "fish lacks {word} of {command}");
                assert!(zsh.contains(&word), "zsh lacks {word} of {command}");
            }
        }
    }
}
