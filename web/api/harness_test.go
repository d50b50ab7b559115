package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
)

// nowMS is 2026-11-21T08:00:00.000Z.
const (
	adminKey = "dk_0123456789abcdef"
	nowMS    = 1795248000000
	dayMS    = 86_400_000
)

// face is the API behind a bare router, and what it logged. The test fails when an answer is not as the document says.
type face struct {
	http.Handler
	log *bytes.Buffer
	tb  testing.TB
	// lenient: requests are taken in ways that the document does not promise.
	lenient bool
}

func newFace(t testing.TB, e *engine) face {
	t.Helper()
	return newFaceOf(t, optionsOf(e))
}

// optionsOf has one stub be all parts.
func optionsOf(e *engine) api.Options {
	return api.Options{Engine: e, Store: rows{calledStore{recorder: e.recorder}}, AdminKey: adminKey}
}

func newFaceOf(t testing.TB, o api.Options) face {
	t.Helper()
	var log bytes.Buffer
	o.AdminKey, o.Logger = adminKey, slog.New(slog.NewJSONHandler(&log, nil))
	a, err := api.New(o)
	if err != nil {
		t.Fatal(err)
	}
	router := gin.New()
	router.Use(func(c *gin.Context) {
		c.Next()
		if told, ok := c.Request.Context().Value(routeKey{}).(*matched); ok {
			told.path, told.params = c.FullPath(), c.Params
		}
	})
	a.Register(router)
	return face{Handler: router, log: &log, tb: t}
}

// do makes a request with the admin key, unless the headers have another one. Its answer, and the request where it is
// accepted, are as the document says.
func (f face) do(method, path, body string, header ...string) *httptest.ResponseRecorder {
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

// serve answers a request, which has the admin key unless it has another one.
func (f face) serve(req *http.Request, body string) *httptest.ResponseRecorder {
	if _, given := req.Header["Authorization"]; !given {
		req.Header.Set("Authorization", "Bearer "+adminKey)
	}
	var route matched
	rec := httptest.NewRecorder()
	f.ServeHTTP(rec, req.WithContext(withRoute(req.Context(), &route)))
	if err := conforms(req, body, &route, rec, f.lenient); err != nil {
		f.tb.Errorf("%s %s %.200s: %d %.2000s: %v", req.Method, req.URL, body, rec.Code, rec.Body, err)
	}
	return rec
}

// ask makes a request and decodes the answer, which must have the status.
func (f face) ask(t *testing.T, status int, method, path, body string, header ...string) map[string]any {
	t.Helper()
	rec := f.do(method, path, body, header...)
	var got map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil || rec.Code != status {
		t.Fatalf("%s %s %.80s: %d %s, want %d", method, path, body, rec.Code, rec.Body, status)
	}
	return got
}

// wantProblem checks an answer to be the problem with this status and code, and returns the names of its fields.
func wantProblem(t *testing.T, rec *httptest.ResponseRecorder, status int, code string) []string {
	t.Helper()
	var p client.Problem
	if err := json.Unmarshal(rec.Body.Bytes(), &p); err != nil || rec.Code != status || p.Code != code ||
		rec.Header().Get("Content-Type") != client.ProblemType {
		t.Fatalf("want problem %d %s, got %d %s", status, code, rec.Code, rec.Body)
	}
	var names []string
	for _, e := range p.Errors {
		names = append(names, e.Field)
	}
	return names
}

// refused checks a request to be refused for these fields, in any order.
func (f face) refused(t *testing.T, fields []string, method, path, body string, header ...string) {
	t.Helper()
	got := wantProblem(t, f.do(method, path, body, header...), 422, "invalid")
	slices.Sort(got)
	if slices.Sort(fields); !slices.Equal(got, fields) {
		t.Errorf("%s %s %.80q: refused for %q, want %q", method, path, body, got, fields)
	}
}

// releaseMode is what the server sets too; here it is set before any test runs in parallel.
func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	m.Run()
}
