//! Why the tables lack a service: the running daemon may leave it to other programs.

use daemon::config::command_flags::VerifyFlags;
use engine::model::ObjectName;
use engine::routing::ServedServices;
use inspect::show::Selector;

use super::running::Running;

/// Returns a continuation of the sentence that a selected service is missing; `None` if no setting
/// of the running daemon tells why.
pub(super) fn reason(selector: &Selector) -> Option<String> {
    let Selector::Service { name, .. } = selector else { return None };
    let (namespace, name) = name.split_once('/')?;
    let services = settings()?;
    if let Some(exception) = services.exception(&ObjectName::namespaced(namespace, name)) {
        let setting = "deltaproxy.services.except";
        return Some(format!(
            ": the running daemon leaves it to other programs ({setting}: {exception})"
        ));
    }
    (services.proxy_name.is_some() || !services.labels.is_empty()).then(|| {
        let selector = services.label_selector();
        format!(": the running daemon serves only Services with the labels {selector}")
    })
}

/// Returns which services the running daemon serves; `None` without one that answers.
fn settings() -> Option<ServedServices> {
    let running = Running::find().ok()??;
    let loaded = VerifyFlags::default().load(Some(&running.configuration)).ok()?;
    Some(loaded.config.routing.services)
}
