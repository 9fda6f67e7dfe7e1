package main

import (
	"fmt"
	"maps"
	"math"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Objects in each list.
const objects = 10

// texts are values of the fields that a proxy reads, by the end of the field's path. A field that
// is not here gets its path as text.
var texts = map[string][]string{
	".ObjectMeta.Namespace":       {"default", "kube-system"},
	".Type":                       {"ClusterIP", "NodePort", "LoadBalancer", "ExternalName", "InternalIP", "Ready"},
	".ClusterIP":                  {"10.96.0.1", "10.96.0.2", "fd00::1", "None"},
	".ClusterIPs":                 {"10.96.0.1", "10.96.0.2", "fd00::1"},
	".ExternalIPs":                {"192.0.2.1", "2001:db8::1", "127.0.0.1"},
	".LoadBalancerIP":             {"198.51.100.7"},
	".LoadBalancerSourceRanges":   {"203.0.113.0/24", " 2001:db8::/32", "10.0.0.0/33"},
	".SessionAffinity":            {"None", "ClientIP"},
	".ExternalTrafficPolicy":      {"Cluster", "Local"},
	".InternalTrafficPolicy":      {"Cluster", "Local"},
	".IPFamilyPolicy":             {"SingleStack", "PreferDualStack"},
	".IPFamilies":                 {"IPv4", "IPv6"},
	".TrafficDistribution":        {"PreferClose", "PreferSameNode", "PreferSameZone"},
	".LoadBalancerClass":          {"example.com/class"},
	".Protocol":                   {"TCP", "UDP", "SCTP"},
	".Ports.Name":                 {"http", "metrics", "dns-tcp"},
	".Ingress.IP":                 {"198.51.100.1", "2001:db8::7"},
	".Ingress.IPMode":             {"VIP", "Proxy"},
	".AddressType":                {"IPv4", "IPv4", "IPv6", "FQDN"},
	".Endpoints.Addresses":        {"10.244.0.1", "10.244.255.254", "fd00:1::1"},
	".NodeName":                   {"node-a", "node-b"},
	".Zone":                       {"zone-a", "zone-b"},
	".ForZones.Name":              {"zone-a", "zone-b", "zone-c"},
	".ForNodes.Name":              {"node-a", "node-b"},
	".PodCIDR":                    {"10.244.1.0/24"},
	".PodCIDRs":                   {"10.244.1.0/24", "fd00:10:244::/64"},
	".Taints.Key":                 {"ToBeDeletedByClusterAutoscaler", "node.kubernetes.io/unschedulable"},
	".Taints.Effect":              {"NoSchedule", "NoExecute"},
	".Status.Addresses.Address":   {"172.18.0.2", "fc00::2", "node-a"},
	".CIDRs":                      {"10.96.0.0/16", "fd00:96::/108"},
	".ObjectMeta.ResourceVersion": {"1", "18446744073709551615", "4711"},
	".ManagedFields.FieldsType":   {"FieldsV1"},
}

// entries are the labels and annotations that a proxy reads.
var entries = map[string][]string{
	"kubernetes.io/service-name":                              {"web", "api"},
	"service.kubernetes.io/headless":                          {""},
	"service.kubernetes.io/service-proxy-name":                {"other"},
	"topology.kubernetes.io/zone":                             {"zone-a", "zone-b"},
	"endpoints.kubernetes.io/last-change-trigger-time":        {"2026-11-21T02:31:15.123456789Z", "yesterday"},
	"node.kubernetes.io/exclude-from-external-load-balancers": {""},
	"deltaproxy.io/scheduler":                                 {"mh", "rr", "?"},
	"deltaproxy.io/weight":                                    {"7", "-1"},
	"deltaproxy.io/weights":                                   {"pod-1=3", "zone-a=0"},
	"deltaproxy.io/weighted":                                  {""},
	"example.com/übrig":                                       {"\u2028\U0001F980\"\\\n<&>"},
}

// filled returns lists of objects by their names: the first object is full, the second is empty, and
// the others have some of their fields.
func filled() map[string]runtime.Object {
	lists := map[string]runtime.Object{}
	add := func(name string, list runtime.Object) {
		items := reflect.ValueOf(list).Elem().FieldByName("Items")
		filler := &filler{random: rand.New(rand.NewSource(36))}
		for i := range objects {
			object := reflect.New(items.Type().Elem()).Elem()
			filler.share = []float64{1, 0, 0.9, 0.6, 0.3}[min(i, 2+i%3)]
			if filler.share > 0 {
				filler.fill(object, object.Type().Name())
			}
			if i%2 == 0 {
				filler.makeUsable(object.Addr().Interface())
			}
			object.FieldByName("ObjectMeta").FieldByName("Name").SetString(fmt.Sprintf("object-%d", i))
			items.Set(reflect.Append(items, object))
		}
		meta := reflect.ValueOf(list).Elem().FieldByName("ListMeta")
		meta.Set(reflect.ValueOf(metav1.ListMeta{ResourceVersion: "4711"}))
		lists[name] = list
	}
	add("filled-services", &corev1.ServiceList{})
	add("filled-endpointslices", &discoveryv1.EndpointSliceList{})
	add("filled-nodes", &corev1.NodeList{})
	add("filled-servicecidrs", &networkingv1.ServiceCIDRList{})
	wrong := corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Name: "wrong-utf-8", Namespace: "default",
		Annotations: map[string]string{"deltaproxy.io/scheduler": "\xff\xfem\xc3h\xe2\x82h\xed\xa0\x80"},
	}, Spec: corev1.ServiceSpec{
		Type: "ClusterIP", ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"},
		Ports: []corev1.ServicePort{{Protocol: "TCP", Port: 80}},
	}}
	lists["wrong-utf-8-services"] = &corev1.ServiceList{
		ListMeta: metav1.ListMeta{ResourceVersion: "4711"}, Items: []corev1.Service{wrong},
	}
	return lists
}

// makeUsable corrects the fields without which a proxy leaves out the whole object.
func (f *filler) makeUsable(object any) {
	switch it := object.(type) {
	case *corev1.Service:
		delete(it.Labels, "service.kubernetes.io/service-proxy-name")
		it.Spec.Type = pick(f, []corev1.ServiceType{"ClusterIP", "NodePort", "LoadBalancer"})
		it.Spec.ClusterIP = "10.96.0.1"
		it.Spec.ClusterIPs = []string{"10.96.0.1", "fd00::1"}
		it.Spec.IPFamilies = []corev1.IPFamily{"IPv4", "IPv6"}
		for i := range it.Spec.Ports {
			it.Spec.Ports[i].Port, it.Spec.Ports[i].NodePort = int32(65533+i), int32(30000+i)
			it.Spec.Ports[i].Protocol = pick(f, []corev1.Protocol{"TCP", "UDP", "SCTP"})
		}
	case *discoveryv1.EndpointSlice:
		delete(it.Labels, "service.kubernetes.io/service-proxy-name")
		delete(it.Labels, "service.kubernetes.io/headless")
		metav1.SetMetaDataLabel(&it.ObjectMeta, "kubernetes.io/service-name", "web")
		it.AddressType = "IPv4"
		for i := range it.Endpoints {
			it.Endpoints[i].Addresses = []string{fmt.Sprintf("10.244.0.%d", i), "10.244.1.1"}
		}
		for i := range it.Ports {
			*ptr(&it.Ports[i].Port) = int32(8080 + i)
			*ptr(&it.Ports[i].Protocol) = "SCTP"
		}
	}
}

// ptr sets a pointer that is nil, and returns it.
func ptr[T any](field **T) *T {
	if *field == nil {
		*field = new(T)
	}
	return *field
}

type filler struct {
	random *rand.Rand
	// share is the part of the fields that are set.
	share float64
}

// fill sets a value and all in it.
func (f *filler) fill(value reflect.Value, path string) {
	if value.Kind() != reflect.Struct && f.random.Float64() >= f.share {
		return
	}
	switch it := value.Addr().Interface().(type) {
	case *metav1.TypeMeta:
		return
	case *metav1.Time:
		// The last one is the latest time that the crate jiff has.
		seconds := []int64{0, 1, -14182940, 1795228275, 253402207200}
		*it = metav1.NewTime(time.Unix(pick(f, seconds), 0).UTC())
		return
	case *metav1.FieldsV1:
		it.Raw = []byte(`{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:ports":{"k:{\"port\":80}":{}}}}`)
		return
	case *resource.Quantity:
		*it = resource.MustParse(pick(f, []string{"110", "0", "32Gi", "250m"}))
		return
	case *intstr.IntOrString:
		choices := []intstr.IntOrString{intstr.FromInt32(0), intstr.FromInt32(65535),
			intstr.FromString(""), intstr.FromString("http")}
		*it = pick(f, choices)
		return
	}
	switch value.Kind() {
	case reflect.Struct:
		for i := range value.NumField() {
			f.fill(value.Field(i), path+"."+value.Type().Field(i).Name)
		}
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		f.fill(value.Elem(), path)
	case reflect.Slice:
		for range f.random.Intn(3) + 1 {
			item := reflect.New(value.Type().Elem()).Elem()
			f.fill(item, path)
			value.Set(reflect.Append(value, item))
		}
	case reflect.Map:
		f.fillMap(value, path)
	case reflect.String:
		value.SetString(f.text(path))
	case reflect.Bool:
		value.SetBool(f.random.Intn(2) > 0)
	case reflect.Int32, reflect.Int64, reflect.Int:
		value.SetInt(f.number(value, path))
	default:
		fail("cannot fill " + path)
	}
}

func (f *filler) fillMap(value reflect.Value, path string) {
	value.Set(reflect.MakeMap(value.Type()))
	set := func(key string, item reflect.Value) {
		value.SetMapIndex(reflect.ValueOf(key).Convert(value.Type().Key()), item)
	}
	if !strings.Contains(path, "ObjectMeta") {
		for _, key := range []string{"b", "a"} {
			item := reflect.New(value.Type().Elem()).Elem()
			f.fill(item, path)
			set(key, item)
		}
		return
	}
	for _, key := range sortedKeys(entries) {
		// A proxy leaves out an object with one of these labels.
		rare := strings.HasPrefix(key, "service.kubernetes.io/") && f.random.Intn(4) > 0
		if !rare && f.random.Float64() < f.share {
			set(key, reflect.ValueOf(pick(f, entries[key])))
		}
	}
}

func (f *filler) text(path string) string {
	longest := ""
	for end := range texts {
		if strings.HasSuffix(path, end) && len(end) > len(longest) {
			longest = end
		}
	}
	if longest == "" {
		return path
	}
	return pick(f, texts[longest])
}

func (f *filler) number(value reflect.Value, path string) int64 {
	if strings.HasSuffix(path, "Port") {
		return pick(f, []int64{1, 80, 30080, 65535, 65536, 0, -1})
	}
	if value.Kind() == reflect.Int32 {
		return pick(f, []int64{0, 1, 10800, math.MaxInt32, math.MinInt32})
	}
	return pick(f, []int64{0, 1, 127, 128, math.MaxInt64, math.MinInt64})
}

func pick[T any](f *filler, choices []T) T {
	return choices[f.random.Intn(len(choices))]
}

func sortedKeys[T any](entries map[string]T) []string {
	return slices.Sorted(maps.Keys(entries))
}
