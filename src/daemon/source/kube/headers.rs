//! Headers of requests that say who the client is.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::kubeconfig::{Fault, Impersonated};

/// Returns the value of `Authorization` for basic authentication.
pub(super) fn basic(name: &str, password: &str) -> HeaderValue {
    let text = format!("Basic {}", STANDARD.encode(format!("{name}:{password}")));
    let mut value = HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

/// Returns the value of `Authorization` for a token.
///
/// # Errors
/// A header cannot have this token.
pub(super) fn bearer(what: &str, token: &str) -> Result<HeaderValue, Fault> {
    let mut value = header(what, &format!("Bearer {token}"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn header(what: &str, text: &str) -> Result<HeaderValue, Fault> {
    // As in Go, blanks at the end are not sent.
    HeaderValue::from_bytes(text.trim_end_matches([' ', '\t']).as_bytes())
        .map_err(|_| Fault::new(what, "it has a character that no header can have"))
}

/// Adds the headers that name another user.
pub(super) fn impersonate(
    headers: &mut HeaderMap,
    user: &Impersonated,
    of_user: &dyn Fn(&str) -> String,
) -> Result<(), Fault> {
    /// Characters of a header's name other than letters and digits.
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'!')
        .remove(b'#')
        .remove(b'$')
        .remove(b'&')
        .remove(b'\'')
        .remove(b'*')
        .remove(b'+')
        .remove(b'-')
        .remove(b'.')
        .remove(b'^')
        .remove(b'_')
        .remove(b'`')
        .remove(b'|')
        .remove(b'~');
    let fixed = |field: &'static str, name: &str, value: &String| {
        (field, format!("impersonate-{name}"), value.clone())
    };
    let one = [fixed("as", "user", &user.name), fixed("as-uid", "uid", &user.uid)];
    let groups = user.groups.iter().map(|group| fixed("as-groups", "group", group));
    let extra = user.extra.iter().flat_map(|(key, values)| {
        let name = format!("extra-{}", utf8_percent_encode(key, ESCAPED));
        values.iter().map(move |value| fixed("as-user-extra", &name, value))
    });
    let one = one.into_iter().filter(|(_, _, value)| !value.is_empty());
    for (field, name, value) in one.chain(groups).chain(extra) {
        let what = of_user(field);
        let name = HeaderName::try_from(name).map_err(|error| Fault::new(&what, error))?;
        headers.append(name, header(&what, &value)?);
    }
    Ok(())
}
