//! The watched resources as the client names them.

use engine::model::Resource;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;

/// Returns group, version, kind and plural of a resource.
pub(super) fn api_resource(resource: Resource) -> ApiResource {
    let version = resource.api_versions()[0];
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, resource.kind()))
}

#[cfg(test)]
mod tests {
    use kube::Resource as _;
    use kube::api::DynamicObject;

    use super::*;

    #[test]
    fn a_resource_has_its_path_in_the_api() {
        let paths = Resource::ALL.map(|it| DynamicObject::url_path(&api_resource(it), None));
        let expected = [
            "/api/v1/services",
            "/apis/discovery.k8s.io/v1/endpointslices",
            "/api/v1/nodes",
            "/apis/networking.k8s.io/v1/servicecidrs",
        ];
        assert_eq!(paths, expected);
    }
}
