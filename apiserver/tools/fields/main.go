// Writes the table of fields that the server reads and writes Kubernetes' protobuf messages by.
//
//	cd apiserver/tools/fields && go run . > ../../src/facts/fields.txt
//
// Numbers, names and types come from the published Go types' tags (they are what generated.proto is written from, and
// each is checked against it); how lists and maps are owned comes from the markers in generated.proto; the values of
// enumerations are the constants of the types that are marked as such.
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// The groups and versions that Kubernetes 1.36 serves unless it is told otherwise.
var served = []string{
	"v1", "admissionregistration.k8s.io/v1", "apiextensions.k8s.io/v1", "apiregistration.k8s.io/v1", "apps/v1",
	"authentication.k8s.io/v1", "authorization.k8s.io/v1", "autoscaling/v1", "autoscaling/v2", "batch/v1",
	"certificates.k8s.io/v1", "coordination.k8s.io/v1", "discovery.k8s.io/v1", "events.k8s.io/v1",
	"flowcontrol.apiserver.k8s.io/v1", "networking.k8s.io/v1", "node.k8s.io/v1", "policy/v1",
	"rbac.authorization.k8s.io/v1", "resource.k8s.io/v1", "scheduling.k8s.io/v1", "storage.k8s.io/v1",
}

// The kinds of every group: options of requests, and what answers them.
var everywhere = []any{
	metav1.Status{}, metav1.DeleteOptions{}, metav1.CreateOptions{}, metav1.UpdateOptions{}, metav1.PatchOptions{},
	metav1.WatchEvent{}, metav1.APIVersions{}, metav1.APIGroup{}, metav1.APIGroupList{}, metav1.APIResourceList{},
	metav1.PartialObjectMetadata{}, metav1.PartialObjectMetadataList{},
}

// Messages that are written in JSON in a way of their own, and known by name.
var special = map[string]bool{
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time": true, "k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime": true,
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration": true, "k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1": true,
	"k8s.io/apimachinery/pkg/api/resource.Quantity": true, "k8s.io/apimachinery/pkg/util/intstr.IntOrString": true,
	"k8s.io/apimachinery/pkg/runtime.RawExtension": true, "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON": true,
}

type field struct {
	number                int
	name, proto, form     string
	patchKey, patchMethod string
	enum                  []string
}

type message struct {
	name, pkg string
	fields    []field
}

type table struct {
	messages map[string]*message
	// By package, then by "Message.field" ("Message." for the message itself), then by name.
	markers map[string]map[string]map[string][]string
	// By package, then by type.
	enums map[string]map[string][]string
}

func main() {
	must(apiextensions.AddToScheme(scheme.Scheme))
	must(apiregistration.AddToScheme(scheme.Scheme))
	t := &table{messages: map[string]*message{}, markers: map[string]map[string]map[string][]string{}, enums: map[string]map[string][]string{}}
	var kinds []string
	for _, text := range served {
		version, err := schema.ParseGroupVersion(text)
		must(err)
		types := scheme.Scheme.KnownTypes(version)
		names := make([]string, 0, len(types))
		for name, goType := range types {
			if goType.PkgPath() != "k8s.io/apimachinery/pkg/apis/meta/v1" {
				names = append(names, name)
			}
		}
		sort.Strings(names)
		for _, name := range names {
			kinds = append(kinds, fmt.Sprintf("%s %s %s", text, name, t.add(types[name])))
		}
	}
	for _, value := range everywhere {
		goType := reflect.TypeOf(value)
		kinds = append(kinds, fmt.Sprintf("* %s %s", goType.Name(), t.add(goType)))
	}
	out := bufio.NewWriter(os.Stdout)
	fmt.Fprintln(out, "# Written by tools/fields from k8s.io/api and its siblings v0.36.3. See facts.rs for how to read it.")
	for _, kind := range kinds {
		fmt.Fprintln(out, kind)
	}
	names := make([]string, 0, len(t.messages))
	for name := range t.messages {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		t.write(out, t.messages[name])
	}
	must(out.Flush())
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Names a message by the last two parts of its package.
func short(goType reflect.Type) string {
	full := goType.PkgPath() + "." + goType.Name()
	if special[full] {
		return goType.Name()
	}
	parts := strings.Split(goType.PkgPath(), "/")
	return strings.Join(parts[len(parts)-2:], ".") + "." + goType.Name()
}

func (t *table) add(goType reflect.Type) string {
	name := short(goType)
	full := goType.PkgPath() + "." + goType.Name()
	if special[full] || t.messages[name] != nil {
		return name
	}
	t.read(goType.PkgPath())
	found := &message{name: name, pkg: goType.PkgPath()}
	t.messages[name] = found
	if goType.Kind() == reflect.Slice {
		// A named list, such as ExtraValue: a message whose only field is the list, and a bare list in JSON.
		found.fields = append(found.fields, field{number: 1, name: "-", proto: "items", form: "[]" + t.scalar(goType.Elem(), "bytes")})
		return name
	}
	for i := range goType.NumField() {
		t.field(found, goType.Field(i))
	}
	sort.Slice(found.fields, func(a, b int) bool { return found.fields[a].number < found.fields[b].number })
	return name
}

func (t *table) field(to *message, goField reflect.StructField) {
	tag := strings.Split(goField.Tag.Get("protobuf"), ",")
	if len(tag) < 2 {
		return
	}
	number, err := strconv.Atoi(tag[1])
	must(err)
	json := strings.Split(goField.Tag.Get("json"), ",")
	has := func(option string) bool {
		for _, given := range json[1:] {
			if given == option {
				return true
			}
		}
		return false
	}
	found := field{number: number, name: json[0], proto: goField.Name, patchKey: goField.Tag.Get("patchMergeKey"), patchMethod: goField.Tag.Get("patchStrategy")}
	for _, part := range tag {
		if name, ok := strings.CutPrefix(part, "name="); ok {
			found.proto = name
		}
	}
	if found.name == "-" {
		// Not in JSON: such fields exist for converters only.
		return
	}
	goType := goField.Type
	presence := "?"
	switch {
	case has("inline") || (goField.Anonymous && found.name == ""):
		presence, found.name = "^", "-"
	case found.name == "":
		presence, found.name = "*", "-"
	case goType.Kind() == reflect.Pointer:
		presence = "*"
	case !has("omitempty") && !has("omitzero"):
		presence = "!"
	case goType.Kind() == reflect.Struct && !has("omitzero"):
		presence = "!"
	}
	if goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	switch {
	case goType.Kind() == reflect.Map:
		found.form = presence + "{}" + t.scalar(goType.Elem(), "bytes")
	case goType.Kind() == reflect.Slice && goType.Elem().Kind() != reflect.Uint8 && (goType.PkgPath() == "" || tag[2] == "rep"):
		found.form = presence + "[]" + t.scalar(goType.Elem(), tag[0])
	default:
		found.form = presence + t.scalar(goType, tag[0])
	}
	found.enum = t.enum(goType)
	to.fields = append(to.fields, found)
}

// Lists the values that a field, or each item of it, may have: none if it is no enumeration.
func (t *table) enum(goType reflect.Type) []string {
	for goType.Kind() == reflect.Pointer || goType.Kind() == reflect.Slice || goType.Kind() == reflect.Map {
		goType = goType.Elem()
	}
	if goType.Kind() != reflect.String || goType.PkgPath() == "" {
		return nil
	}
	pkg := goType.PkgPath()
	if t.enums[pkg] == nil {
		t.enums[pkg] = readEnums(pkg)
	}
	return t.enums[pkg][goType.Name()]
}

func (t *table) scalar(goType reflect.Type, wire string) string {
	if goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	switch goType.Kind() {
	case reflect.String:
		return "s"
	case reflect.Bool:
		return "b"
	case reflect.Int32:
		return "i"
	case reflect.Int64, reflect.Int, reflect.Uint32:
		return "l"
	case reflect.Float64:
		return "d"
	case reflect.Slice:
		if goType.Elem().Kind() == reflect.Uint8 {
			return "y"
		}
		return t.add(goType)
	case reflect.Struct:
		return t.add(goType)
	}
	panic(fmt.Sprintf("%v as %s", goType, wire))
}

var (
	opening = regexp.MustCompile(`^message (\w+) \{`)
	inside  = regexp.MustCompile(`^  (?:(?:optional|repeated|required) [\w.]+|map<string, [\w.]+>) (\w+) = (\d+);`)
	marker  = regexp.MustCompile(`^ *// \+(\w+)=(.*)$`)
)

// Reads the markers of a package's generated.proto.
func (t *table) read(pkg string) {
	if t.markers[pkg] != nil {
		return
	}
	found := map[string]map[string][]string{}
	file, err := os.Open(filepath.Join(folder(pkg), "generated.proto"))
	must(err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	current, pending := "", map[string][]string{}
	for lines.Scan() {
		line := lines.Text()
		switch {
		case marker.MatchString(line):
			parts := marker.FindStringSubmatch(line)
			pending[parts[1]] = append(pending[parts[1]], strings.TrimSpace(parts[2]))
		case opening.MatchString(line):
			current = opening.FindStringSubmatch(line)[1]
			found[current+"."] = pending
			pending = map[string][]string{}
		case inside.MatchString(line):
			parts := inside.FindStringSubmatch(line)
			pending["number"] = []string{parts[2]}
			found[current+"."+parts[1]] = pending
			pending = map[string][]string{}
		case strings.TrimSpace(line) == "" || line == "}":
			pending = map[string][]string{}
		}
	}
	must(lines.Err())
	t.markers[pkg] = found
}

func folder(pkg string) string {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", pkg).Output()
	must(err)
	return strings.TrimSpace(string(dir))
}

func (t *table) write(out *bufio.Writer, found *message) {
	own := found.name[strings.LastIndex(found.name, ".")+1:]
	markers := t.markers[found.pkg]
	head := found.name + ":"
	if first(markers[own+"."]["structType"]) == "atomic" || first(markers[own+"."]["mapType"]) == "atomic" {
		head += " atomic"
	}
	fmt.Fprintln(out, head)
	for _, field := range found.fields {
		marks := markers[own+"."+field.proto]
		if number := first(marks["number"]); number != "" && number != strconv.Itoa(field.number) {
			panic(found.name + "." + field.proto + ": " + number)
		}
		line := fmt.Sprintf(" %d %s %s", field.number, field.name, field.form)
		switch kind := first(marks["listType"]); kind {
		case "map":
			line += " keys=" + strings.Join(marks["listMapKey"], ",")
		case "set":
			line += " set"
		}
		if first(marks["mapType"]) == "atomic" || first(marks["structType"]) == "atomic" {
			line += " atomic"
		}
		if field.patchKey != "" {
			line += " merge=" + field.patchKey
		} else if strings.HasPrefix(field.patchMethod, "merge") {
			line += " merge"
		}
		if value := first(marks["default"]); value != "" && !strings.HasPrefix(value, "ref(") {
			line += " default=" + value
		}
		if len(field.enum) > 0 {
			// A blank ends a mark.
			line += " enum=" + strings.ReplaceAll(strings.Join(field.enum, ","), " ", "~")
		}
		fmt.Fprintln(out, line)
	}
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
