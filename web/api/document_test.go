package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/gin-gonic/gin"
	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// A matchedRoute is the route that handled a request.
type matchedRoute struct {
	path   string
	params gin.Params
}

type routeKey struct{}

// document is the OpenAPI document as the API serves it.
var document = sync.OnceValue(func() *openapi3.T {
	router := newTestAPIWith(panics{}, optionsOf(newEngine(world{})))
	rec := httptest.NewRecorder()
	router.ServeHTTP(rec, httptest.NewRequest("GET", "/openapi.yaml", nil))
	doc, err := openapi3.NewLoader().LoadFromData(rec.Body.Bytes())
	if err != nil {
		panic(err)
	}
	return doc
})

// panics is a testing.TB for values that are created once, outside of a test.
type panics struct{ testing.TB }

func (panics) Helper()           {}
func (panics) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

func (panics) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// strictDocument is the document for checks of responses. Its responses must not have undocumented members. A
// schema without a type also allows null, which the library would reject.
var strictDocument = sync.OnceValue(func() *openapi3.T {
	doc := document()
	schemasOf := func(content openapi3.Content) map[*openapi3.Schema]bool {
		seen := map[*openapi3.Schema]bool{}
		for _, media := range content {
			if err := media.Schema.WalkSubtree(func(_ string, s *openapi3.SchemaRef) error {
				seen[s.Value] = true
				return nil
			}); err != nil {
				panic(err)
			}
		}
		for s := range seen {
			if s.Type == nil && len(s.AllOf)+len(s.AnyOf)+len(s.OneOf) == 0 && s.Const == nil {
				s.Type = &openapi3.Types{"null", "boolean", "number", "integer", "string", "array", "object"}
			}
		}
		return seen
	}
	answers := map[*openapi3.Schema]bool{}
	for _, path := range doc.Paths.Map() {
		for _, op := range path.Operations() {
			if op.RequestBody != nil {
				schemasOf(op.RequestBody.Value.Content)
			}
			for _, answer := range op.Responses.Map() {
				maps.Copy(answers, schemasOf(answer.Value.Content))
			}
		}
	}
	for s := range answers {
		for _, part := range s.AllOf {
			answers[part.Value] = false
		}
	}
	for s, whole := range answers {
		more := &s.AdditionalProperties
		if whole && len(s.Properties) > 0 && more.Has == nil && more.Schema == nil {
			more.Has = new(len(s.AllOf) > 0)
		}
	}
	return doc
})

// pathParam matches a path parameter of the router.
var pathParam = regexp.MustCompile(`[:*]([a-z_]+)`)

// documented returns a route's path as the document writes it.
func documented(path string) string { return pathParam.ReplaceAllString(path, "{$1}") }

// timeFormat validates times as the API does: RFC 3339 allows "t" and "z" for "T" and "Z".
var timeFormat = openapi3.WithStringFormatValidator("date-time",
	openapi3.NewCallbackValidator(func(text string) error {
		if _, ok := query.ParseTime(text); !ok {
			return errors.New(query.BadTime)
		}
		return nil
	}))

// known caches checked responses, because most responses occur many times.
var known sync.Map

// checkDocument checks a response against the document. If the request was accepted it checks the request
// too, unless lenient is true.
func checkDocument(
	req *http.Request, body string, route *matchedRoute, rec *httptest.ResponseRecorder, lenient bool,
) error {
	doc := strictDocument()
	path := documented(route.path)
	if path == "/v1/lanes/{lane}" { // the router has one path for all routes of a lane
		path += req.URL.Path[strings.LastIndexByte(req.URL.Path, '/'):]
	}
	item := doc.Paths.Value(path)
	if item == nil || item.GetOperation(req.Method) == nil {
		if rec.Code != 404 && rec.Code != 405 {
			return fmt.Errorf("the document has no %s %s", req.Method, path)
		}
		return nil
	}
	what := fmt.Sprint(req.Method, path, rec.Code, rec.Header().Get("Content-Type"), rec.Body)
	if rec.Code < 300 {
		what += req.URL.RawQuery + body
	}
	if _, before := known.LoadOrStore(what, nil); before {
		return nil
	}
	params := map[string]string{}
	for _, p := range route.params {
		params[p.Key] = p.Value
	}
	sent := req.Clone(context.Background())
	sent.Body = http.NoBody
	if body != "" {
		sent.Header.Set("Content-Type", "application/json")
		sent.Body = io.NopCloser(strings.NewReader(body))
	}
	in := &openapi3filter.RequestValidationInput{
		Request: sent, PathParams: params,
		Route: &routers.Route{
			Spec: doc, Path: path, PathItem: item, Method: req.Method,
			Operation: item.GetOperation(req.Method),
		},
		Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, SkipSettingDefaults: true,
			IncludeResponseStatus: true, RejectWhenRequestBodyNotSpecified: true,
			SchemaValidationOptions: []openapi3.SchemaValidationOption{timeFormat},
		},
	}
	if rec.Code < 207 && !lenient {
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			return fmt.Errorf("the request was accepted, but does not match the document: %s", reason(err))
		}
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: rec.Code, Header: rec.Header(), Options: in.Options,
	}
	out.SetBodyBytes(rec.Body.Bytes())
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		return fmt.Errorf("the response does not match the document: %s", reason(err))
	}
	return nil
}

// reason returns an error without the schema and the value at its end.
func reason(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\nSchema:")
	return text
}

// TestDocument checks that the document is valid, and that its calls, scopes and calls for the admin key are
// those of the routes.
func TestDocument(t *testing.T) {
	t.Parallel()
	doc := document()
	if err := doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	want, got := map[string]string{"GET /openapi.yaml": ""}, map[string]string{}
	for _, r := range routes(t) {
		want[r.Method+" "+documented(r.Path)] = string(r.Scope)
		if wants()[name(r)].root {
			want[r.Method+" "+documented(r.Path)] = "root"
		}
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			scope, _ := op.Extensions["x-scope"].(string)
			if root, _ := op.Extensions["x-root"].(bool); root {
				scope = "root"
			}
			got[method+" "+path] = scope
			for _, tag := range op.Tags {
				if doc.Tags.Get(tag) == nil {
					t.Errorf("%s has the tag %s, which is not in the list", op.OperationID, tag)
				}
			}
			if op.OperationID == "" || path != "/openapi.yaml" && op.Responses.Status(429) == nil {
				t.Errorf("%s %s has no operationId, or no 429", method, path)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-routes +document):\n%s", diff)
	}
	for name, known := range map[string]any{
		"Class": store.Classes, "State": store.States, "BlockCode": control.BlockCodes,
		"TerminalReason": store.Reasons,
	} {
		if got := fmt.Sprint(doc.Components.Schemas[name].Value.Enum); got != fmt.Sprint(known) {
			t.Errorf("%s: the document has %s, want %s", name, got, known)
		}
	}
}

// TestDocsPage checks that the page of the document and its files need no key, and that the page loads
// nothing from another host: it links to none, and its policy forbids it.
func TestDocsPage(t *testing.T) {
	t.Parallel()
	f := newTestAPI(t, newEngine(world{}))
	get := func(path string) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		f.ServeHTTP(rec, httptest.NewRequest("GET", path, nil))
		return rec
	}
	rec := get("/docs")
	page, policy := rec.Body.String(), rec.Header().Get("Content-Security-Policy")
	isHTML := rec.Code == 200 && strings.HasPrefix(rec.Header().Get("Content-Type"), "text/html")
	if !isHTML || !strings.Contains(page, `"/openapi.yaml"`) || get("/docs/").Body.String() != page {
		t.Fatalf("%d %v %s", rec.Code, rec.Header(), page)
	}
	loaded := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1)
	if len(loaded) != 5 {
		t.Errorf("the page loads %q", loaded)
	}
	for _, file := range loaded {
		rec := get(file[1])
		if rec.Code != 200 || rec.Body.Len() == 0 || !strings.HasPrefix(file[1], "/docs/") {
			t.Errorf("%s: %d, %d bytes", file[1], rec.Code, rec.Body.Len())
		}
	}
	for _, other := range []string{"/docs/oauth2-redirect.html", "/docs/../openapi.yaml", "/docs/x"} {
		wantProblem(t, get(other), 404, "no_route")
	}
	if strings.Contains(page, " style=") || regexp.MustCompile(` on[a-z]+=`).MatchString(page) {
		t.Error("the page has inline attributes, which a policy cannot allow by a hash")
	}
	for _, part := range regexp.MustCompile(`(?s)<(?:script|style)>(.*?)</`).FindAllStringSubmatch(page, -1) {
		sum := sha256.Sum256([]byte(part[1]))
		hash := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		if !strings.Contains(policy, hash) {
			t.Errorf("the policy %s does not allow %s", policy, part[1])
		}
	}
	directives := regexp.MustCompile(`'sha256-[^']*'`).ReplaceAllString(policy, "#")
	const want = "default-src 'none'; script-src 'self' # #; style-src 'self' #; img-src 'self' data:; " +
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	if directives != want {
		t.Errorf("the policy is %s, want %s", directives, want)
	}
}
