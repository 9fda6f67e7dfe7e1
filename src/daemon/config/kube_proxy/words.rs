//! Splits a command line into flags and values, as pflag does.

use std::iter::Peekable;

use super::super::ConfigError;
use super::super::options::OptionKind;
use super::flags::{self, Flag};

/// Iterator over the flags of a command line.
pub(super) struct FlagWords<I: Iterator> {
    words: Peekable<I>,
}

impl<I: Iterator<Item = String>> FlagWords<I> {
    pub(super) fn new(words: impl IntoIterator<IntoIter = I>) -> Self {
        Self { words: words.into_iter().peekable() }
    }

    /// Parses the flag in `word`; takes its value from the next word if need be.
    fn read(&mut self, word: &str) -> Result<(Flag, String), ConfigError> {
        let shown = || word.split('=').next().unwrap_or(word).to_owned();
        let (name, value) = split(word).ok_or_else(|| no_flag(word))?;
        let Some(flag) = flags::find(&name) else {
            // The next word may be its value, which is no second error.
            let _ = self.words.next_if(|next| value.is_none() && !next.starts_with('-'));
            return Err(ConfigError::Flag { flag: shown(), message: unknown(&name) });
        };
        let value = match (value, flag.kind) {
            (Some(value), _) => value.to_owned(),
            (None, OptionKind::Flag | OptionKind::Version) => "true".to_owned(),
            (None, _) => self.words.next().ok_or_else(|| ConfigError::Flag {
                flag: shown(),
                message: "has no value; expected one after it".to_owned(),
            })?,
        };
        Ok((flag, value))
    }
}

impl<I: Iterator<Item = String>> Iterator for FlagWords<I> {
    type Item = Result<(Flag, String), ConfigError>;

    fn next(&mut self) -> Option<Self::Item> {
        // As in kube-proxy, an empty word has no meaning.
        let word = match self.words.find(|word| !word.is_empty())? {
            // FlagWords after `--` are not flags.
            word if word == "--" => self.words.find(|word| !word.is_empty())?,
            word => return Some(self.read(&word)),
        };
        Some(Err(no_flag(&word)))
    }
}

fn no_flag(word: &str) -> ConfigError {
    let message = "is not a flag; kube-proxy accepts only flags".to_owned();
    ConfigError::Flag { flag: format!("{word:?}"), message }
}

/// Splits a word into the name of a flag and its value. Replaces underscores in the name by dashes.
/// `-v` and `-h` are the only short flags.
fn split(word: &str) -> Option<(String, Option<&str>)> {
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        return (!name.is_empty()).then(|| (name.replace('_', "-"), value));
    }
    let short = word.strip_prefix('-').filter(|short| !short.is_empty())?;
    if short == "h" {
        return Some(("help".to_owned(), None));
    }
    match short.strip_prefix('v') {
        Some("") => Some(("v".to_owned(), None)),
        Some(value) => Some(("v".to_owned(), Some(value.strip_prefix('=').unwrap_or(value)))),
        None => Some((short.to_owned(), None)),
    }
}

/// Returns an error message with the nearest flag, if one is near.
fn unknown(name: &str) -> String {
    let distance = |flag: &Flag| strsim::damerau_levenshtein(flag.name, name);
    let nearest = flags::all().min_by_key(distance);
    match nearest.filter(|flag| distance(flag) <= name.len() / 3) {
        Some(flag) => format!("is not a flag of kube-proxy; did you mean --{}?", flag.name),
        None => "is not a flag of kube-proxy; --help lists them".to_owned(),
    }
}
