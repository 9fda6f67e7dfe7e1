package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
)

// newStore returns the store of a kind, with a watch cache.
func newStore(kind kind, version schema.GroupVersion, getter generic.RESTOptionsGetter) *registry.Store {
	strategy := strategy{scheme, names.SimpleNameGenerator, kind.isNamespaced}
	resource := schema.GroupResource{Group: version.Group, Resource: kind.resource}
	store := &registry.Store{
		NewFunc:                   func() runtime.Object { return empty(kind.object) },
		NewListFunc:               func() runtime.Object { return empty(kind.list) },
		DefaultQualifiedResource:  resource,
		SingularQualifiedResource: schema.GroupResource{Group: version.Group, Resource: kind.singular},
		CreateStrategy:            strategy,
		UpdateStrategy:            strategy,
		DeleteStrategy:            strategy,
		TableConvertor:            rest.NewDefaultTableConvertor(resource),
	}
	options := &generic.StoreOptions{RESTOptions: getter}
	if kind.resource == "services" {
		options.AttrFunc = serviceFields
	}
	check(store.CompleteWithOptions(options))
	return store
}

// serviceFields returns what selectors of services compare.
func serviceFields(object runtime.Object) (labels.Set, fields.Set, error) {
	service := object.(*corev1.Service)
	return service.Labels, fields.Set{
		"metadata.name": service.Name, "metadata.namespace": service.Namespace,
		"spec.clusterIP": service.Spec.ClusterIP, "spec.type": string(service.Spec.Type),
	}, nil
}

func empty(object runtime.Object) runtime.Object {
	kinds, _, err := scheme.ObjectKinds(object)
	check(err)
	made, err := scheme.New(kinds[0])
	check(err)
	return made
}

// nodeStatus is the subresource of a Node, which changes nothing but the status.
type nodeStatus struct{ store *registry.Store }

func newNodeStatus(nodes *registry.Store) rest.Storage {
	store := *nodes
	store.UpdateStrategy = statusStrategy{nodes.UpdateStrategy.(strategy)}
	return &nodeStatus{&store}
}

func (s *nodeStatus) New() runtime.Object { return s.store.New() }
func (s *nodeStatus) Destroy()            {}

func (s *nodeStatus) Get(c context.Context, name string, o *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(c, name, o)
}

func (s *nodeStatus) Update(c context.Context, name string, object rest.UpdatedObjectInfo,
	create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool,
	o *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return s.store.Update(c, name, object, create, update, false, o)
}

type statusStrategy struct{ strategy }

func (statusStrategy) AllowCreateOnUpdate() bool { return false }

func (statusStrategy) PrepareForUpdate(_ context.Context, object, old runtime.Object) {
	object.(*corev1.Node).Spec = old.(*corev1.Node).Spec
}

// strategy accepts every object.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	isNamespaced bool
}

func (s strategy) NamespaceScoped() bool                          { return s.isNamespaced }
func (strategy) AllowCreateOnUpdate() bool                        { return true }
func (strategy) AllowUnconditionalUpdate() bool                   { return true }
func (strategy) Canonicalize(runtime.Object)                      {}
func (strategy) PrepareForCreate(context.Context, runtime.Object) {}

// PrepareForUpdate keeps the status of a Node, which has a subresource of its own.
func (strategy) PrepareForUpdate(_ context.Context, object, old runtime.Object) {
	if node, isNode := object.(*corev1.Node); isNode {
		node.Status = old.(*corev1.Node).Status
	}
}

func (strategy) Validate(context.Context, runtime.Object) field.ErrorList  { return nil }
func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

func (strategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}

func (strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
