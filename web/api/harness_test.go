package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
	"github.com/seed-ff5a32d8/dispatcher/web/webtest"
)

// nowMS is 2026-11-21T08:00:00.000Z.
const (
	adminKey = "dk_0123456789abcdef"
	nowMS    = 1795248000000
	dayMS    = 86_400_000
)

// A testAPI is the API behind a bare router, and its log. The test fails if a response does not match the
// document.
type testAPI struct {
	http.Handler
	log *bytes.Buffer
	tb  testing.TB
	// lenient: requests may be accepted that do not match the document.
	lenient bool
}

func newTestAPI(t testing.TB, e *engine) testAPI {
	t.Helper()
	return newTestAPIWith(t, optionsOf(e))
}

// optionsOf returns options in which one stub is both the engine and the store.
func optionsOf(e *engine) api.Options {
	return api.Options{
		Engine: e, Store: rows{calledStore{recorder: e.recorder}}, AdminKey: adminKey, ReportTexts: reports(),
	}
}

// reports returns the writers of reports that the server has.
func reports() map[string]func(*control.Report) []byte {
	texts, err := webtest.ReportTexts()
	if err != nil {
		panic(err) // a catalogue is broken: its own test says where
	}
	return texts
}

func newTestAPIWith(t testing.TB, o api.Options) testAPI {
	t.Helper()
	var log bytes.Buffer
	o.AdminKey, o.ReportTexts = adminKey, reports()
	o.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	a, err := api.New(o)
	if err != nil {
		t.Fatal(err)
	}
	router := gin.New()
	router.Use(func(c *gin.Context) {
		c.Next()
		if route, ok := c.Request.Context().Value(routeKey{}).(*matchedRoute); ok {
			route.path, route.params = c.FullPath(), c.Params
		}
	})
	a.Register(router)
	return testAPI{Handler: router, log: &log, tb: t}
}

// do sends a request with the admin key, unless the headers have another one.
func (f testAPI) do(method, path, body string, header ...string) *httptest.ResponseRecorder {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req := httptest.NewRequest(method, path, r)
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return f.serve(req, body)
}

// serve handles a request. It adds the admin key unless the request has another one, and checks the response
// against the document.
func (f testAPI) serve(req *http.Request, body string) *httptest.ResponseRecorder {
	if _, given := req.Header["Authorization"]; !given {
		req.Header.Set("Authorization", "Bearer "+adminKey)
	}
	var route matchedRoute
	rec := httptest.NewRecorder()
	f.ServeHTTP(rec, req.WithContext(context.WithValue(req.Context(), routeKey{}, &route)))
	if err := checkDocument(req, body, &route, rec, f.lenient); err != nil {
		f.tb.Errorf("%s %s %.200s: %d %.2000s: %v", req.Method, req.URL, body, rec.Code, rec.Body, err)
	}
	return rec
}

// call sends a request and decodes the response, which must have the status.
func (f testAPI) call(t *testing.T, status int, method, path, body string, header ...string) map[string]any {
	t.Helper()
	rec := f.do(method, path, body, header...)
	var got map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil || rec.Code != status {
		t.Fatalf("%s %s %.80s: %d %s, want %d", method, path, body, rec.Code, rec.Body, status)
	}
	return got
}

// wantProblem checks that a response is a problem with this status and code. It returns the names of the
// invalid fields.
func wantProblem(t *testing.T, rec *httptest.ResponseRecorder, status int, code string) []string {
	t.Helper()
	var p client.Problem
	err := json.Unmarshal(rec.Body.Bytes(), &p)
	isProblem := err == nil && rec.Header().Get("Content-Type") == client.ProblemType
	if !isProblem || rec.Code != status || p.Code != code {
		t.Fatalf("want problem %d %s, got %d %s", status, code, rec.Code, rec.Body)
	}
	var names []string
	for _, e := range p.Errors {
		names = append(names, e.Field)
	}
	return names
}

// refused checks that a request is rejected for these fields, in any order.
func (f testAPI) refused(t *testing.T, fields []string, method, path, body string, header ...string) {
	t.Helper()
	got := wantProblem(t, f.do(method, path, body, header...), 422, "invalid")
	slices.Sort(got)
	slices.Sort(fields)
	if !slices.Equal(got, fields) {
		t.Errorf("%s %s %.80q: refused for %q, want %q", method, path, body, got, fields)
	}
}

// TestMain sets global state before tests run in parallel: gin's mode as in the server, and decoders for
// responses in text.
func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	for _, kind := range []string{"text/csv", "application/yaml"} {
		openapi3filter.RegisterBodyDecoder(kind, openapi3filter.PlainBodyDecoder)
	}
	m.Run()
}

// names replaces values that differ in every run by names.
type names struct {
	name, value map[string]string
	last        map[string]int
}

// put names a value after its kind and a number.
func (n names) put(kind, value string, number int) {
	name := fmt.Sprintf("%s_%d", kind, number)
	n.name[value], n.value[name], n.last[kind] = name, value, number
}

// of returns the name of a value. A new value gets the next number of its kind.
func (n names) of(kind, value string) string {
	if n.name[value] == "" {
		n.put(kind, value, n.last[kind]+1)
	}
	return n.name[value]
}

var (
	namedForm  = regexp.MustCompile(`\b(cb|ep|ev|key|rd|sc|al|au|id|dk|whsec|whsk|whpk|cursor)([_:])(\d+)\b`)
	idForm     = regexp.MustCompile(`\b(?:(cb|ep|ev|key|rd|sc|al)_)?([0-7][0-9A-HJKMNP-TV-Z]{25})\b`)
	tokenForm  = regexp.MustCompile(`\b(dk|whsec|whsk|whpk)_[A-Za-z0-9+/=_-]{24,}`)
	cursorForm = regexp.MustCompile(`(next_cursor":"|cursor=)([A-Za-z0-9_-]{24,})`)
	timeForm   = regexp.MustCompile(
		`\b\d{4}-\d\d-\d\dT[\d:.]+Z|"age_ms": ?\d+|"hash": ?"[0-9a-f]{64}"|"hint": ?"[^"]*"|` +
			`"alert-sink:[0-9a-f]{32}"`)
)

// real replaces names in a text by their values.
func (n names) real(text string) string {
	return namedForm.ReplaceAllStringFunc(text, func(s string) string {
		part := namedForm.FindStringSubmatch(s)
		value, known := n.value[part[1]+"_"+part[3]]
		switch {
		case !known:
			return s
		case part[2] == "_" && len(value) == 26 && part[1] != "au" && part[1] != "id":
			return part[1] + "_" + value
		}
		return value
	})
}

// hide replaces values that differ in every run by names. If times is true it also hides times.
func (n names) hide(text string, times bool) string {
	text = cursorForm.ReplaceAllStringFunc(text, func(s string) string {
		part := cursorForm.FindStringSubmatch(s)
		return part[1] + n.of("cursor", part[2])
	})
	text = tokenForm.ReplaceAllStringFunc(text, func(s string) string {
		kind, _, _ := strings.Cut(s, "_")
		return n.of(kind, s)
	})
	text = idForm.ReplaceAllStringFunc(text, func(s string) string {
		part := idForm.FindStringSubmatch(s)
		if part[1] != "" {
			return n.of(part[1], part[2])
		}
		return strings.Replace(n.of("id", part[2]), "_", ":", 1)
	})
	if times {
		text = timeForm.ReplaceAllString(text, "(varies)")
	}
	return text
}

// callText formats a call and its arguments.
func callText(call string, args ...any) string {
	words := []string{call}
	for _, arg := range args {
		if a, ok := arg.(store.Actor); ok {
			words = append(words, actorText(a))
			continue
		}
		var b strings.Builder
		if v := reflect.ValueOf(arg); v.Kind() != reflect.String {
			write(&b, v)
		} else if v.Len() == 0 {
			b.WriteString(`""`)
		} else {
			b.WriteString(printable(v.String()))
		}
		words = append(words, b.String())
	}
	return strings.Join(words, " ")
}

func actorText(a store.Actor) string {
	text := "by " + a.Name
	if a.Address != "192.0.2.1" {
		text += fmt.Sprintf(" from %q", a.Address)
	}
	if a.Reason != "" {
		text += fmt.Sprintf(" because %q", a.Reason)
	}
	return text
}

// write formats a value without its zero fields. & marks a pointer.
func write(b *strings.Builder, v reflect.Value) {
	if !v.IsValid() {
		b.WriteString("nil")
		return
	}
	if v.CanInterface() {
		switch x := v.Interface().(type) {
		case time.Duration, netip.Addr, *time.Location:
			fmt.Fprint(b, x)
			return
		case []byte:
			switch {
			case len(x) > 200:
				fmt.Fprintf(b, "(%d bytes)", len(x))
			case printable(string(x)) == string(x):
				fmt.Fprintf(b, "`%s`", x)
			default:
				fmt.Fprintf(b, "%q", x)
			}
			return
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			b.WriteString("nil")
			return
		}
		b.WriteByte('&')
		write(b, v.Elem())
	case reflect.Struct:
		b.WriteByte('{')
		before := b.Len()
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				continue
			}
			if b.Len() > before {
				b.WriteByte(' ')
			}
			b.WriteString(v.Type().Field(i).Name + ":")
			if v.Type().Field(i).Name == "Fingerprint" {
				fmt.Fprintf(b, "(%d bytes)", v.Field(i).Len())
				continue
			}
			write(b, v.Field(i))
		}
		b.WriteByte('}')
	case reflect.Slice, reflect.Array:
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteByte(' ')
			}
			write(b, v.Index(i))
		}
		b.WriteByte(']')
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		b.WriteByte('{')
		for i, key := range keys {
			if i > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(b, "%s:", key.String())
			write(b, v.MapIndex(key))
		}
		b.WriteByte('}')
	case reflect.String:
		fmt.Fprintf(b, "%q", v.String())
	default:
		fmt.Fprint(b, v)
	}
}
