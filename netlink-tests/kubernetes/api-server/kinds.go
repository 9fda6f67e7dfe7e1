package main

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

var (
	scheme = runtime.NewScheme()
	v1     = schema.GroupVersion{Version: "v1"}
)

// group is an API group with one version. Its types are the internal ones too.
type group struct {
	version schema.GroupVersion
	add     func(*runtime.Scheme) error
	kinds   []kind
}

type kind struct {
	resource, singular string
	isNamespaced       bool
	object, list       runtime.Object
}

var groups = []group{
	{corev1.SchemeGroupVersion, corev1.AddToScheme, []kind{
		{"services", "service", true, &corev1.Service{}, &corev1.ServiceList{}},
		{"nodes", "node", false, &corev1.Node{}, &corev1.NodeList{}},
		{"namespaces", "namespace", false, &corev1.Namespace{}, &corev1.NamespaceList{}},
	}},
	{discoveryv1.SchemeGroupVersion, discoveryv1.AddToScheme, []kind{
		{"endpointslices", "endpointslice", true,
			&discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{}},
	}},
	{networkingv1.SchemeGroupVersion, networkingv1.AddToScheme, []kind{
		{"servicecidrs", "servicecidr", false,
			&networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{}},
	}},
	{eventsv1.SchemeGroupVersion, eventsv1.AddToScheme, []kind{
		{"events", "event", true, &eventsv1.Event{}, &eventsv1.EventList{}},
	}},
}

// register fills the scheme.
func register() {
	metav1.AddToGroupVersion(scheme, v1)
	check(metav1.AddMetaToScheme(scheme))
	for _, group := range groups {
		check(group.add(scheme))
		internal := schema.GroupVersion{Group: group.version.Group, Version: runtime.APIVersionInternal}
		for _, kind := range group.kinds {
			scheme.AddKnownTypes(internal, kind.object, kind.list)
		}
		check(scheme.SetVersionPriority(group.version))
	}
	// Fields that selectors may name; see newStore.
	keep := func(label, value string) (string, string, error) { return label, value, nil }
	check(scheme.AddFieldLabelConversionFunc(v1.WithKind("Service"), keep))
}

// versions returns the versions in which objects are stored.
func versions() schema.GroupVersions {
	var versions schema.GroupVersions
	for _, group := range groups {
		versions = append(versions, group.version)
	}
	return versions
}

// codec returns the codec of stored objects.
func codec() runtime.Codec {
	codecs := serializer.NewCodecFactory(scheme)
	types := codecs.SupportedMediaTypes()
	protobuf, _ := runtime.SerializerInfoForMediaType(types, runtime.ContentTypeProtobuf)
	decoder := codecs.UniversalDeserializer()
	return codecs.CodecForVersions(protobuf.Serializer, decoder, versions(), runtime.InternalGroupVersioner)
}
