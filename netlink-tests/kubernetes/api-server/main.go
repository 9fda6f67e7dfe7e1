// Command api-server is an API server of Kubernetes' own library, with the objects that a proxy
// reads and writes. It has no admission and validates nothing. Its token is "test".
package main

import (
	"flag"
	"net"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/registry/rest"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/klog/v2"
)

func main() {
	klog.InitFlags(nil)
	etcd := flag.String("etcd", "http://127.0.0.1:2379", "address of etcd")
	port := flag.Int("port", 6443, "port of 127.0.0.1")
	certificates := flag.String("certificates", "", "folder for a self-signed certificate")
	flag.Parse()

	register()
	config := genericserver.NewConfig(serializer.NewCodecFactory(scheme))
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	store(config, *etcd)
	serve(config, *certificates, *port)
	config.Authentication.Authenticator = authenticator.RequestFunc(authenticate)
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	server, err := config.Complete(nil).New("test", genericserver.NewEmptyDelegate())
	check(err)
	for _, group := range groups {
		install(server, config, group)
	}
	check(server.PrepareRun().RunWithContext(genericserver.SetupSignalContext()))
}

// store keeps objects as protobuf in etcd.
func store(config *genericserver.Config, address string) {
	storage := storagebackend.NewDefaultConfig("/registry", codec())
	storage.Transport.ServerList = []string{address}
	storage.EncodeVersioner = versions()
	check(options.NewEtcdOptions(storage).ApplyTo(config))
}

func serve(config *genericserver.Config, certificates string, port int) {
	serving := options.NewSecureServingOptions()
	serving.BindAddress, serving.BindPort = net.IPv4(127, 0, 0, 1), port
	serving.ServerCert.CertDirectory, serving.ServerCert.PairName = certificates, "server"
	check(serving.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{serving.BindAddress}))
	check(serving.WithLoopback().ApplyToConfig(config))
}

func authenticate(request *http.Request) (*authenticator.Response, bool, error) {
	if request.Header.Get("Authorization") != "Bearer test" {
		return nil, false, nil
	}
	info := &user.DefaultInfo{Name: "test", Groups: []string{user.SystemPrivilegedGroup}}
	return &authenticator.Response{User: info}, true, nil
}

// install serves a group. GenericAPIServer.InstallAPIGroups needs definitions of OpenAPI, so the
// types of managed fields are deduced here from the objects.
func install(server *genericserver.GenericAPIServer, config *genericserver.Config, group group) {
	codecs := serializer.NewCodecFactory(scheme)
	parameters := runtime.NewParameterCodec(scheme)
	info := genericserver.NewDefaultAPIGroupInfo(group.version.Group, scheme, parameters, codecs)
	stores := map[string]rest.Storage{}
	for _, kind := range group.kinds {
		store := newStore(kind, group.version, config.RESTOptionsGetter)
		stores[kind.resource] = store
		if kind.resource == "nodes" {
			stores["nodes/status"] = newNodeStatus(store)
		}
	}
	root := genericserver.APIGroupPrefix
	if group.version.Group == "" {
		root = genericserver.DefaultLegacyAPIPrefix
	}
	version := genericapi.APIGroupVersion{
		Root: root, GroupVersion: group.version, Storage: stores, OptionsExternalVersion: &v1,
		Serializer: info.NegotiatedSerializer, ParameterCodec: parameters,
		Typer: scheme, Creater: scheme, Convertor: scheme, ConvertabilityChecker: scheme,
		Defaulter: scheme, UnsafeConvertor: runtime.UnsafeObjectConvertor(scheme),
		Namer: runtime.Namer(meta.NewAccessor()), TypeConverter: managedfields.NewDeducedTypeConverter(),
		EquivalentResourceRegistry: config.EquivalentResourceRegistry,
		Authorizer:                 config.Authorization.Authorizer, Admit: admission.NewChainHandler(),
		MaxRequestBodyBytes: config.MaxRequestBodyBytes,
	}
	_, _, err := version.InstallREST(server.Handler.GoRestfulContainer)
	check(err)
}

func check(err error) {
	if err != nil {
		klog.Fatal(err)
	}
}
