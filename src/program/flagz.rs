//! The flags of a command line with their values, for `/flagz`.

use clap::{ArgMatches, Command};

/// Returns the flags of the subcommand in `matches`, which `command` parsed. An absent flag has its
/// default, or else an empty value.
pub fn listed_flags(command: &Command, matches: &ArgMatches) -> Vec<(String, String)> {
    let Some((name, matches)) = matches.subcommand() else { return Vec::new() };
    let arguments = command.find_subcommand(name).into_iter().flat_map(Command::get_arguments);
    let flags = arguments.filter_map(|it| Some((it.get_long()?, it.get_id())));
    let value = |id: &str| {
        let values = matches.try_get_raw(id).ok().flatten().into_iter().flatten();
        values.map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(",")
    };
    flags.map(|(name, id)| (name.to_owned(), value(id.as_str()))).collect()
}

#[cfg(test)]
mod tests {
    use clap::{Arg, ArgAction};

    use super::*;

    #[test]
    fn flags_have_the_given_value_the_default_or_none() {
        let run = Command::new("run")
            .arg(Arg::new("a").long("aa").default_value("1"))
            .arg(Arg::new("b").long("bb").action(ArgAction::Append))
            .arg(Arg::new("c").long("cc"));
        let command = Command::new("program").subcommand(run);
        let matches =
            command.clone().get_matches_from(["program", "run", "--bb", "2", "--bb", "3"]);
        let listed = listed_flags(&command, &matches);
        let expected = [("aa", "1"), ("bb", "2,3"), ("cc", "")];
        assert_eq!(listed, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
