package main

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const head = `// The messages that the API server of the tests sends, written by traces/kubernetes/generate from the
// types of Kubernetes %s.
//
// Go's encoder writes a required field even if it is empty, and an optional one only if it is set.
`

// Types with an encoder of their own, and the type with the tags of their message.
var written = map[reflect.Type]reflect.Type{
	reflect.TypeFor[metav1.Time]():       reflect.TypeFor[metav1.Timestamp](),
	reflect.TypeFor[resource.Quantity](): reflect.TypeFor[quantity](),
}

// quantity is the message of a Quantity, which the option embed of quantity.go defines.
type quantity struct {
	String string `protobuf:"bytes,1,opt,name=string"`
}

// definitions returns the definitions of all messages, by the tags of the Go types.
func definitions(release string) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, head, release)
	queue := []reflect.Type{
		reflect.TypeFor[corev1.ServiceList](), reflect.TypeFor[discoveryv1.EndpointSliceList](),
		reflect.TypeFor[corev1.NodeList](), reflect.TypeFor[networkingv1.ServiceCIDRList](),
		reflect.TypeFor[metav1.Status](), reflect.TypeFor[metav1.WatchEvent](),
		reflect.TypeFor[runtime.Unknown](),
	}
	seen := map[string]reflect.Type{}
	for len(queue) > 0 {
		message := queue[0]
		queue = queue[1:]
		if other, found := seen[message.Name()]; found {
			if other != message {
				fail("two messages named " + message.Name())
			}
			continue
		}
		seen[message.Name()] = message
		queue = append(queue, define(&out, message)...)
	}
	return out.Bytes()
}

type field struct {
	number int
	text   string
}

// define writes the definition of a message and returns the messages that it contains.
func define(out *bytes.Buffer, message reflect.Type) []reflect.Type {
	var fields []field
	var inner []reflect.Type
	like := message
	if other, found := written[message]; found {
		like = other
	}
	for i := range like.NumField() {
		tag := like.Field(i).Tag.Get("protobuf")
		if tag == "" || tag == "-" {
			continue
		}
		name, number := parse(tag)
		kind, label, contained := kindOf(like.Field(i).Type)
		fields = append(fields, field{number, fmt.Sprintf("%s%s %s = %d;", label, kind, name, number)})
		if contained != nil {
			inner = append(inner, contained)
		}
	}
	slices.SortFunc(fields, func(a, b field) int { return a.number - b.number })
	fmt.Fprintf(out, "\nmessage %s {\n", message.Name())
	for _, field := range fields {
		fmt.Fprintf(out, "  %s\n", field.text)
	}
	fmt.Fprint(out, "}\n")
	return inner
}

// parse returns name and number of a tag such as "bytes,1,opt,name=metadata".
func parse(tag string) (string, int) {
	parts := strings.Split(tag, ",")
	number, err := strconv.Atoi(parts[1])
	check(err)
	for _, part := range parts {
		if name, found := strings.CutPrefix(part, "name="); found {
			return name, number
		}
	}
	fail("no name in the tag " + tag)
	return "", 0
}

// kindOf returns kind and label of a field, and the message in it.
func kindOf(kind reflect.Type) (string, string, reflect.Type) {
	switch kind.Kind() {
	case reflect.Pointer:
		name, _, inner := kindOf(kind.Elem())
		return name, "optional ", inner
	case reflect.Slice:
		if kind.Elem().Kind() == reflect.Uint8 {
			return "bytes", "optional ", nil
		}
		name, _, inner := kindOf(kind.Elem())
		return name, "repeated ", inner
	case reflect.Map:
		name, _, inner := kindOf(kind.Elem())
		return fmt.Sprintf("map<string, %s>", name), "", inner
	case reflect.Struct:
		return kind.Name(), "required ", kind
	case reflect.Int, reflect.Int64:
		return "int64", "required ", nil
	case reflect.Int32, reflect.String, reflect.Bool:
		return kind.Kind().String(), "required ", nil
	default:
		fail("no kind of fields: " + kind.String())
		return "", "", nil
	}
}
