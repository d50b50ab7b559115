package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// noCommand are the operations that no command reaches, with the reason.
var noCommand = map[string]string{
	"getOpenAPI": "the document is for browsers and generators",
	"relay":      "relays call it",
}

// noFlag are the fields and parameters that no flag sets, of all operations or of one, with the reason.
var noFlag = map[string]string{
	"payload":                 "body_base64 has the same bytes, and keeps a newline at the end",
	"body":                    "body_base64 has the same bytes",
	"cursor":                  "the flag --cursor needs a real one; the transcripts have it",
	"putEndpoint.external_id": "it is in the path",
	"getSecret.endpoint":      "endpoint secret calls getEndpointSecret",
	"reencryptSecrets.from":   "the command repeats the call until the end",
	"verifyAudit.from":        "the command repeats the call until the end",
}

// TestEveryOperationHasACommand runs testdata/api.commands against a real server and compares the requests
// with the OpenAPI document: each operation, each query parameter and each field of a request body must
// occur.
func TestEveryOperationHasACommand(t *testing.T) {
	t.Parallel()
	document := readDocument(t)
	s := apptest.Start(t, apptest.Settings(t))
	calls := &recordedCalls{document: document, seen: map[string]map[string]bool{}, n: map[string]int{}}
	lets := map[string]string{"URL": "http://127.0.0.1:1/", "DIR": t.TempDir(),
		"TODAY": time.Now().UTC().Format(time.DateOnly),
		"SOON":  time.Now().Add(24 * time.Hour).Format(time.RFC3339)}
	for _, name := range []string{"refs", "items.csv", "callbacks.ndjson", "endpoints.ndjson"} {
		text := map[string]string{
			"refs":             "r1\nr9\n",
			"items.csv":        "ref,topic\nr1,payment.a\nr9\n",
			"callbacks.ndjson": `{"url":"http://127.0.0.1:1/","payload":1,"ref":"r2","delay":"1h"}` + "\n",
			"endpoints.ndjson": `{"external_id":"m2","url":"http://127.0.0.1:1/"}` + "\n",
		}[name]
		if err := os.WriteFile(filepath.Join(lets["DIR"], name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"pay", "ship", "stock", "refund", "gone"} {
		in := client.RelayBatch{Holder: "relay-1", Origin: "db1/" + name, Release: name == "gone"}
		if _, err := s.Client.Call(t.Context(), "POST", "/v1/relay/"+name, in, nil); err != nil {
			t.Fatal(err)
		}
	}
	named := map[string]bool{}
	script, err := os.ReadFile("testdata/api.commands")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(script)) {
		operation, command, _ := strings.Cut(strings.TrimSpace(line), " ")
		if operation == "" || operation == "#" {
			continue
		}
		command, keep, _ := strings.Cut(strings.TrimSpace(command), " = ")
		args := cmdtest.Arguments(os.Expand(command, func(name string) string { return lets[name] }))
		if keep != "" {
			args = append(args, "--json")
		}
		code := console.ExitOK
		if strings.HasPrefix(args[0], "!") {
			code, args[0] = console.ExitFailed, args[0][1:]
		}
		term := program.Terminal()
		term.Transport = calls
		before := calls.count(operation)
		term.Ends(t, code, append(args, s.Flags()...)...)
		if calls.count(operation) == before {
			t.Errorf("%q does not call %s", command, operation)
		}
		named[operation] = true
		if keep != "" {
			var made struct{ ID string }
			if err := json.Unmarshal(term.Stdout.Bytes(), &made); err != nil || made.ID == "" {
				t.Fatalf("%q: no id in %s", command, term.Stdout.String())
			}
			lets[keep] = made.ID
		}
	}
	for _, name := range slices.Sorted(maps.Keys(document)) {
		if noCommand[name] == "" && !named[name] {
			t.Errorf("no command calls %s: add one to testdata/api.commands", name)
			continue
		}
		for _, field := range document[name].fields {
			if !calls.seen[name][field] && noFlag[field]+noFlag[name+"."+field]+noCommand[name] == "" {
				t.Errorf("no command gives %s its %s", name, field)
			}
		}
	}
}

// operation is an operation of the OpenAPI document.
type operation struct {
	method string
	path   *regexp.Regexp
	// fields are the names of its query parameters and of the members of its body.
	fields []string
}

// document is the part of the OpenAPI document that the test reads.
type document struct {
	Paths      map[string]map[string]any
	Components map[string]map[string]any
}

// readDocument returns the operations of the OpenAPI document by their ids.
func readDocument(t *testing.T) map[string]operation {
	t.Helper()
	text, err := os.ReadFile("../../web/api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	parameter := regexp.MustCompile(`\\\{[^/]+\\\}`)
	operations := map[string]operation{}
	for path, methods := range d.Paths {
		pattern := parameter.ReplaceAllString(regexp.QuoteMeta(path), "[^/?]+")
		for method, about := range methods {
			about, ok := about.(map[string]any)
			if !ok { // the parameters of all methods
				continue
			}
			o := operation{method: strings.ToUpper(method), path: regexp.MustCompile("^" + pattern + "$")}
			list, _ := about["parameters"].([]any)
			for _, p := range list {
				if p := d.resolve(p); p["in"] == "query" {
					o.fields = append(o.fields, strings.TrimSuffix(p["name"].(string), "NAME"))
				}
			}
			o.fields = append(o.fields, d.members(d.resolve(about["requestBody"]))...)
			operations[about["operationId"].(string)] = o
		}
	}
	return operations
}

// resolve returns an object, or the one that its $ref names.
func (d *document) resolve(v any) map[string]any {
	object, _ := v.(map[string]any)
	ref, ok := object["$ref"].(string)
	if !ok {
		return object
	}
	words := strings.Split(strings.TrimPrefix(ref, "#/components/"), "/")
	return d.resolve(d.Components[words[0]][words[1]])
}

// members returns the names of the members of a request body's JSON object.
func (d *document) members(requestBody map[string]any) (names []string) {
	content, _ := requestBody["content"].(map[string]any)
	media, _ := content["application/json"].(map[string]any)
	var walk func(schema map[string]any)
	walk = func(schema map[string]any) {
		properties, _ := schema["properties"].(map[string]any)
		names = slices.AppendSeq(names, maps.Keys(properties))
		all, _ := schema["allOf"].([]any)
		for _, part := range all {
			walk(d.resolve(part))
		}
	}
	walk(d.resolve(media["schema"]))
	return names
}

// recordedCalls is a transport that counts the calls of each operation and notes their fields.
type recordedCalls struct {
	document map[string]operation

	mu   sync.Mutex
	n    map[string]int
	seen map[string]map[string]bool
}

// count returns the number of calls of an operation.
func (r *recordedCalls) count(operation string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n[operation]
}

// RoundTrip implements http.RoundTripper.
func (r *recordedCalls) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		body, err = io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	var members map[string]json.RawMessage
	if len(body) > 0 {
		if err := json.Unmarshal(body, &members); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, o := range r.document {
		if o.method != req.Method || !o.path.MatchString(req.URL.EscapedPath()) {
			continue
		}
		r.n[name]++
		if r.seen[name] == nil {
			r.seen[name] = map[string]bool{}
		}
		for field := range req.URL.Query() {
			if strings.HasPrefix(field, "label.") {
				field = "label."
			}
			r.seen[name][field] = true
		}
		for field := range members {
			r.seen[name][field] = true
		}
	}
	return http.DefaultTransport.RoundTrip(req)
}
