//! `plan`: shows the changes that `apply`, or a daemon with another configuration, would make,
//! without making them.

mod planned;

use daemon::config::changes::FieldChange;
use engine::printable::Printable;
use serde_json::json;

use self::planned::Planned;
use super::comparison::changes;
use super::failure::Failure;
use super::objects::Loaded;
use super::outcome::Found;
use super::output::{Output, print};
use super::settings::Settings;

/// What `plan` prints.
#[derive(Clone, Copy, Debug)]
pub struct PlanView {
    /// Format.
    pub output: Output,
    /// Each command as text.
    pub commands: bool,
}

/// Prints the number of changes by kind and by service, or each change in the syntax of nft(8), with
/// `+` for an addition and `-` for a removal: one line each, or all in one JSON document. `fields`
/// are those in which the running daemon's configuration would change.
///
/// # Errors
/// Like `apply`, except that nothing is sent.
pub fn plan(
    settings: &Settings,
    fields: Option<&[FieldChange]>,
    allow_empty: bool,
    view: PlanView,
) -> Result<Found, Failure> {
    let mut loaded = Loaded::new(settings, allow_empty)?;
    settings.report(&loaded.engine);
    let mut planned = Planned::new(view.output);
    changes(&mut loaded, settings, |_, _| (), &mut |(change, service)| {
        planned.add(&change, service);
        if view.commands && view.output == Output::Text {
            print(&format_args!("{} {}\n", change.sign, change.command));
        }
    })?;
    let problems = loaded.left_out();
    match view.output {
        Output::Text => {
            fields.iter().for_each(|fields| print_fields(fields));
            if !view.commands || planned.is_empty() {
                print(&planned);
            }
        }
        Output::Json => {
            let mut document = planned.json(&problems);
            document["settings"] = settings.json(&loaded.engine);
            document["configuration"] =
                fields.map(|it| it.iter().map(json).collect::<Vec<_>>()).into();
            print(&format_args!("{document}\n"));
        }
    }
    let is_equal = planned.is_empty() && fields.is_none_or(<[_]>::is_empty);
    Failure::of_problems(problems).map(|()| Found::if_any(!is_equal))
}

fn print_fields(fields: &[FieldChange]) {
    if fields.is_empty() {
        print(&"the running daemon has this configuration: it would not restart\n");
        return;
    }
    print(&"the running daemon would restart in its process; its tables serve meanwhile\n");
    for FieldChange { field, from, to, is_of_tables } in fields {
        let effect = if *is_of_tables { "tables" } else { "daemon" };
        print(&format_args!("  {field}: {} -> {} ({effect})\n", Printable(from), Printable(to)));
    }
}

fn json(change: &FieldChange) -> serde_json::Value {
    let FieldChange { field, from, to, is_of_tables } = change;
    let effect = if *is_of_tables { "tables" } else { "daemon" };
    json!({ "field": field, "from": from, "to": to, "effect": effect })
}
