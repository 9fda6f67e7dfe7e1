//! `plan`: shows the changes that `apply`, or a daemon with another configuration, would make,
//! without making them.

mod planned;

use daemon::config::changes::FieldChange;
use engine::Engine;
use engine::printable::Printable;
use nft::TableFlags;
use nft::kernel::Nftables;
use serde_json::json;

use self::planned::Planned;
use super::api_server::Followed;
use super::comparison::Comparison;
use super::failure::Failure;
use super::localhost;
use super::objects::load_objects;
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
    let mut kernel = Nftables::open().map_err(Failure::new)?;
    let routing = settings.config.routing.clone();
    let mut engine = Engine::new(routing, TableFlags::default());
    engine.suit_kernel(kernel.release());
    let (followed, mut problems) = load_objects(&mut engine, &settings.config, allow_empty)?;
    settings.report(&engine);
    problems.extend(localhost::check(&mut engine).err());
    let mut planned = Planned::new(view.output);
    let mut comparison = Comparison {
        engine: &mut engine,
        kernel: &mut kernel,
        direct_return: settings.config.routing.direct_return.as_ref(),
        accept: |_, _| (),
    };
    comparison.changes(&mut |(change, service)| {
        planned.add(&change, service);
        if view.commands && view.output == Output::Text {
            print(&format_args!("{} {}\n", change.sign, change.command));
        }
    })?;
    problems.extend(followed.into_iter().flat_map(Followed::left_out));
    problems.extend(engine.take_problems().iter().map(ToString::to_string));
    match view.output {
        Output::Text => {
            fields.iter().for_each(|fields| print_fields(fields));
            if !view.commands || planned.is_empty() {
                print(&planned);
            }
        }
        Output::Json => {
            let mut document = planned.json(&problems);
            document["settings"] = settings.json(&engine);
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
