package api_test

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// TestDocsPage: the page of the document and its files are served to all, and nothing of it is loaded from elsewhere:
// no address in it leads outside, and its policy would not let it.
func TestDocsPage(t *testing.T) {
	t.Parallel()
	f := newFace(t, &engine{})
	get := func(path string) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		f.ServeHTTP(rec, httptest.NewRequest("GET", path, nil))
		return rec
	}
	rec := get("/docs")
	page, policy := rec.Body.String(), rec.Header().Get("Content-Security-Policy")
	if rec.Code != 200 || !strings.HasPrefix(rec.Header().Get("Content-Type"), "text/html") ||
		!strings.Contains(page, `"/openapi.yaml"`) || get("/docs/").Body.String() != page {
		t.Fatalf("%d %v %s", rec.Code, rec.Header(), page)
	}
	loaded := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1)
	if len(loaded) != 5 {
		t.Errorf("the page loads %q", loaded)
	}
	for _, file := range loaded {
		if rec := get(file[1]); rec.Code != 200 || rec.Body.Len() == 0 || !strings.HasPrefix(file[1], "/docs/") {
			t.Errorf("%s: %d, %d bytes", file[1], rec.Code, rec.Body.Len())
		}
	}
	for _, other := range []string{"/docs/oauth2-redirect.html", "/docs/../openapi.yaml", "/docs/x"} {
		wantProblem(t, get(other), 404, "no_route")
	}
	if strings.Contains(page, " style=") || regexp.MustCompile(` on[a-z]+=`).MatchString(page) {
		t.Error("the page has what no policy allows by its hash")
	}
	for _, part := range regexp.MustCompile(`(?s)<(?:script|style)>(.*?)</`).FindAllStringSubmatch(page, -1) {
		sum := sha256.Sum256([]byte(part[1]))
		if hash := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(policy, hash) {
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
