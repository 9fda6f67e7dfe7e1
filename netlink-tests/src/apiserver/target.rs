//! The objects that a path names.

use super::kind::Kind;

/// A list of objects, or one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) kind: Kind,
    /// `None` for objects without a namespace, and for those of all namespaces.
    pub(super) namespace: Option<String>,
    /// `None` for a list.
    pub(super) name: Option<String>,
    /// The subresource `status` of the object.
    pub(super) is_status: bool,
}

impl Target {
    /// The objects of a path; `None` if the server does not have it.
    pub(super) fn of(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let (prefix, rest) = match parts[..] {
            ["api", version, ref rest @ ..] => (format!("/api/{version}"), rest),
            ["apis", group, version, ref rest @ ..] => (format!("/apis/{group}/{version}"), rest),
            _ => return None,
        };
        let (rest, is_status) = match *rest {
            [ref object @ .., "status"] if object.len() > 1 => (object, true),
            ref rest => (rest, false),
        };
        let (namespace, plural, name) = match *rest {
            ["namespaces", namespace, plural] => (Some(namespace), plural, None),
            ["namespaces", namespace, plural, name] => (Some(namespace), plural, Some(name)),
            [plural] => (None, plural, None),
            [plural, name] => (None, plural, Some(name)),
            _ => return None,
        };
        let kind = Kind::of_path(&format!("{prefix}/{plural}"))?;
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Some(Self { kind, namespace: owned(namespace), name: owned(name), is_status })
    }

    /// The resource in rules of RBAC.
    pub(super) fn resource(&self) -> String {
        format!("{}{}", self.kind.plural(), if self.is_status { "/status" } else { "" })
    }

    /// The key of the object in the store.
    pub(super) fn key(&self) -> Option<String> {
        let name = self.name.as_ref()?;
        Some(match &self.namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_objects_are_found_in_and_outside_of_namespaces() {
        let of = |path: &str| {
            Target::of(path).map(|target| (target.kind, target.namespace, target.name))
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(of("/api/v1/services"), Some((Kind::Service, None, None)));
        assert_eq!(
            of("/api/v1/namespaces/a/services/web"),
            Some((Kind::Service, text("a"), text("web")))
        );
        assert_eq!(of("/api/v1/namespaces"), Some((Kind::Namespace, None, None)));
        assert_eq!(of("/api/v1/namespaces/a"), Some((Kind::Namespace, None, text("a"))));
        assert_eq!(
            of("/apis/discovery.k8s.io/v1/namespaces/a/endpointslices"),
            Some((Kind::EndpointSlice, text("a"), None))
        );
        assert_eq!(of("/apis/events.k8s.io/v1/namespaces/a/events"), None);
        assert_eq!(of("/apis"), None);
        let resource = |path: &str| Target::of(path).map(|target| target.resource());
        assert_eq!(resource("/api/v1/nodes/a/status"), text("nodes/status"));
        assert_eq!(resource("/api/v1/nodes/status"), text("nodes"));
    }
}
