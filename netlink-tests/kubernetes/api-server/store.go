package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
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
func newStore(kind kind, version schema.GroupVersion, getter generic.RESTOptionsGetter) rest.Storage {
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

// strategy accepts every object.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	isNamespaced bool
}

func (s strategy) NamespaceScoped() bool                                          { return s.isNamespaced }
func (strategy) AllowCreateOnUpdate() bool                                        { return true }
func (strategy) AllowUnconditionalUpdate() bool                                   { return true }
func (strategy) Canonicalize(runtime.Object)                                      {}
func (strategy) PrepareForCreate(context.Context, runtime.Object)                 {}
func (strategy) PrepareForUpdate(context.Context, runtime.Object, runtime.Object) {}

func (strategy) Validate(context.Context, runtime.Object) field.ErrorList  { return nil }
func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

func (strategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}

func (strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
