package client_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// document reads the OpenAPI document. It returns the query parameters of each operation.
func document(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../web/api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			names := []string{}
			for _, p := range operation.Parameters {
				if p.Value.In == "query" {
					names = append(names, p.Value.Name)
				}
			}
			all[method+" "+path] = names
		}
	}
	return all
}

// filled returns a value in which each text is "a/b", and every other field has a value too.
func filled(of reflect.Type) reflect.Value {
	v := reflect.New(of).Elem()
	switch {
	case of == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1795248000, 0)))
	case of == reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte(`"a/b"`))
	case of == reflect.TypeFor[time.Duration]():
		v.SetInt(int64(time.Second))
	case of.Kind() == reflect.String:
		v.SetString("a/b")
	case of.Kind() == reflect.Bool:
		v.SetBool(true)
	case of.Kind() == reflect.Int:
		v.SetInt(1)
	case of.Kind() == reflect.Pointer:
		v.Set(reflect.New(of.Elem()))
		v.Elem().Set(filled(of.Elem()))
	case of.Kind() == reflect.Slice:
		v.Set(reflect.Append(v, filled(of.Elem())))
	case of == reflect.TypeFor[map[string]string]():
		v.Set(reflect.ValueOf(map[string]string{"NAME": "a/b"}))
	case of.Kind() == reflect.Struct:
		for i := range of.NumField() {
			if of.Field(i).IsExported() {
				v.Field(i).Set(filled(of.Field(i).Type))
			}
		}
	}
	return v
}

// calls calls a method with a value for each argument, and a list's Page.
func calls(t *testing.T, name string, method reflect.Value) {
	t.Helper()
	args := []reflect.Value{}
	for i := range method.Type().NumIn() {
		in := method.Type().In(i)
		if in == reflect.TypeFor[context.Context]() {
			args = append(args, reflect.ValueOf(t.Context()))
			continue
		}
		args = append(args, filled(in))
	}
	out := method.Call(args)
	if page := out[0].MethodByName("Page"); len(out) == 1 && page.IsValid() {
		calls(t, name, page)
		return
	}
	if out[0].Kind() == reflect.Func { // an iterator of values and errors
		for _, err := range out[0].Seq2() {
			if !err.IsNil() {
				t.Errorf("%s: %v", name, err)
			}
			return
		}
	}
	if err := out[len(out)-1]; !err.IsNil() {
		t.Errorf("%s: %v", name, err)
	}
}

// TestMethodsAreTheOperations calls each method and compares its request with the OpenAPI document: each
// operation has a method, each method an operation, and each query parameter can be sent. A text argument has
// a slash, which a path must escape.
func TestMethodsAreTheOperations(t *testing.T) {
	var asked *http.Request
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r
		io.WriteString(w, `{"results":[{}],"data":[{}],"next_cursor":"c"}`)
	})
	documented := document(t)
	parameter := regexp.MustCompile(`\{[a-z_]+\}`)
	templates := map[string]string{}
	for operation := range documented {
		templates[parameter.ReplaceAllString(operation, "a%2Fb")] = operation
	}
	sent := map[string]map[string]bool{}
	value := reflect.ValueOf(c)
	for i := range value.NumMethod() {
		name := value.Type().Method(i).Name
		if name == "Call" || name == "CloseIdleConnections" {
			continue
		}
		asked = nil
		calls(t, name, value.Method(i))
		if asked == nil {
			t.Errorf("%s sends no request", name)
			continue
		}
		operation, ok := templates[asked.Method+" "+asked.URL.EscapedPath()]
		if !ok {
			t.Errorf("%s requests %s %s, which is not in the document", name, asked.Method, asked.URL)
			continue
		}
		if sent[operation] == nil {
			sent[operation] = map[string]bool{}
		}
		for parameter := range asked.URL.Query() {
			sent[operation][parameter] = true
		}
	}
	for operation, names := range documented {
		if sent[operation] == nil {
			t.Errorf("%s has no method", operation)
			continue
		}
		// A Go program reads the callbacks themselves, and no table of them.
		names = slices.DeleteFunc(names, func(name string) bool { return name == "format" })
		slices.Sort(names)
		if got := slices.Sorted(maps.Keys(sent[operation])); !slices.Equal(got, names) {
			t.Errorf("%s is sent with the parameters %s, want %s", operation,
				strings.Join(got, " "), strings.Join(names, " "))
		}
	}
}

// TestCodesAreThoseOfTheServer compares the codes with those that the server's tests have seen.
func TestCodesAreThoseOfTheServer(t *testing.T) {
	problems, err := os.ReadFile("../web/httperr/testdata/problems.txt")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("error.go")
	if err != nil {
		t.Fatal(err)
	}
	list := func(pattern string, text []byte) []string {
		set := map[string]bool{}
		for _, match := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			set[string(match[1])] = true
		}
		return slices.Sorted(maps.Keys(set))
	}
	server := list(`"code":"([a-z_]+)"`, problems)
	if ours := list(`Code = "([a-z_]+)"`, source); !slices.Equal(ours, server) || len(ours) < 20 {
		t.Errorf("codes\n%v, the server has\n%v", ours, server)
	}
	missing := &client.Error{Problem: client.Problem{Code: "not_found"}}
	if !missing.Is(client.CodeNotFound) || missing.Is(client.CodeInvalid) || missing.Is(io.EOF) {
		t.Error("an error matches the wrong code")
	}
}
