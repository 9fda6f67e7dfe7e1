// Command generator writes objects, lists, events and errors as protobuf and JSON with the
// serializers of Kubernetes, and the definitions of their messages.
//
// usage: generator TRACES FOLDER DEFINITIONS VERSION
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

var (
	scheme = runtime.NewScheme()
	codecs = serializer.NewCodecFactory(scheme)
)

func main() {
	if len(os.Args) != 5 {
		fail("usage: generator TRACES FOLDER DEFINITIONS VERSION")
	}
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme,
	} {
		check(add(scheme))
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	traces, folder := os.Args[1], os.Args[2]
	paths, err := filepath.Glob(filepath.Join(traces, "*.http"))
	check(err)
	if len(paths) == 0 {
		fail("no traces in " + traces)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		check(err)
		_, body, _ := bytes.Cut(text, []byte("\r\n\r\n"))
		name := strings.TrimSuffix(filepath.Base(path), ".http")
		write(folder, name+".protobuf", encode(name, body))
	}
	for name, list := range filled() {
		write(folder, name+".json", encodeObject(list, runtime.ContentTypeJSON))
		write(folder, name+".protobuf", encodeObject(list, runtime.ContentTypeProtobuf))
	}
	check(os.WriteFile(os.Args[3], definitions(os.Args[4]), 0o644))
}

// encode returns the body of a recorded answer in JSON as protobuf.
func encode(name string, body []byte) []byte {
	if !strings.HasPrefix(name, "watch") {
		return encodeObject(decode(body), runtime.ContentTypeProtobuf)
	}
	var out bytes.Buffer
	stream := media(runtime.ContentTypeProtobuf).StreamSerializer
	framer := stream.Framer.NewFrameWriter(&out)
	for line := range bytes.Lines(body) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var event metav1.WatchEvent
		check(json.Unmarshal(line, &event))
		object := decode(event.Object.Raw)
		event.Object.Raw = encodeObject(object, runtime.ContentTypeProtobuf)
		check(stream.Serializer.Encode(&event, framer))
	}
	return out.Bytes()
}

// decode reads an object from JSON. Managed fields keep their text, so their keys are sorted and
// space is removed before, as the encoder of the tests does it.
func decode(text []byte) runtime.Object {
	reader := json.NewDecoder(bytes.NewReader(text))
	reader.UseNumber()
	var value any
	check(reader.Decode(&value))
	var sorted bytes.Buffer
	writer := json.NewEncoder(&sorted)
	writer.SetEscapeHTML(false)
	check(writer.Encode(value))
	object, _, err := codecs.UniversalDeserializer().Decode(sorted.Bytes(), nil, nil)
	check(err)
	return object
}

// encodeObject writes an object like the API server: with its kind and version.
func encodeObject(object runtime.Object, mediaType string) []byte {
	kinds, _, err := scheme.ObjectKinds(object)
	check(err)
	encoder := codecs.EncoderForVersion(media(mediaType).Serializer, kinds[0].GroupVersion())
	var out bytes.Buffer
	check(encoder.Encode(object, &out))
	return out.Bytes()
}

func media(mediaType string) runtime.SerializerInfo {
	info, found := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	if !found {
		fail("no serializer for " + mediaType)
	}
	return info
}

func write(folder, name string, content []byte) {
	check(os.WriteFile(filepath.Join(folder, name), content, 0o644))
}

func check(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, "generator:", text)
	os.Exit(1)
}
