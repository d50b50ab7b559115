package ui

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gin-gonic/gin"
	"golang.org/x/net/html"
)

// testNow is the time of the clock, testKey the admin key of the settings.
const (
	testNow = 1_794_000_000_000
	testKey = "an admin key of tests"
)

// hostile is a text that tries to be markup, a template and a link.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(2)>'"</td></tr></pre>` +
	`&lt;b&gt; {{.}} javascript:alert(3)`

// A browser requests pages and keeps cookies. It does not follow redirects.
type browser struct {
	t       *testing.T
	ui      *UI
	handler http.Handler
	cookies map[string]string
	// headers are sent with each request. address is the network address and host the Host header; empty
	// means httptest's defaults.
	headers       http.Header
	address, host string
}

// testResources are read once for all tests. They are read-only.
var testResources = sync.OnceValues(readResources)

// options returns Options whose engine and store are the world.
func (w *world) options() Options {
	made := w.Options
	if made.Engine == nil {
		made.Engine = engineFace{w}
	}
	if made.Store == nil {
		made.Store = storeFace{w}
	}
	return made
}

// newBrowser returns a browser for the UI of a world, without a session.
func newBrowser(t *testing.T, w *world) *browser {
	t.Helper()
	k, err := testResources()
	if err != nil {
		t.Fatal(err)
	}
	u, err := newUI(w.options(), k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	if err := engine.SetTrustedProxies(nil); err != nil { // as package web does
		t.Fatal(err)
	}
	engine.NoRoute(u.NotFound)
	u.Register(engine)
	return &browser{t: t, ui: u, handler: engine, cookies: make(map[string]string),
		headers: make(http.Header)}
}

// signedIn returns a browser with a session of the admin key, in UTC.
func signedIn(t *testing.T, w *world) *browser {
	t.Helper()
	b := newBrowser(t, w)
	b.signIn(testKey)
	return b
}

func (b *browser) signIn(key string) {
	b.t.Helper()
	if res := b.post("/ui/sign-in", "key", key, "zone", "UTC"); res.status != http.StatusSeeOther {
		b.t.Fatalf("sign in: %d\n%s", res.status, res.text())
	}
}

// A result is a response with its parsed body.
type result struct {
	t      *testing.T
	path   string
	status int
	header http.Header
	body   string
	doc    *html.Node
}

func (b *browser) do(req *http.Request) result {
	b.t.Helper()
	for name, values := range b.headers {
		req.Header[name] = values
	}
	req.RemoteAddr, req.Host = cmp.Or(b.address, req.RemoteAddr), cmp.Or(b.host, req.Host)
	for name, value := range b.cookies {
		req.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	rec := httptest.NewRecorder()
	b.handler.ServeHTTP(rec, req)
	for _, c := range rec.Result().Cookies() {
		if c.MaxAge < 0 || c.Value == "" {
			delete(b.cookies, c.Name)
		} else {
			b.cookies[c.Name] = c.Value
		}
	}
	doc, err := html.Parse(strings.NewReader(rec.Body.String()))
	if err != nil {
		b.t.Fatal(err)
	}
	return result{b.t, req.URL.RequestURI(), rec.Code, rec.Header(), rec.Body.String(), doc}
}

// get requests a page.
func (b *browser) get(path string) result {
	b.t.Helper()
	return b.do(httptest.NewRequest(http.MethodGet, path, nil))
}

// post sends a form: pairs of a name and a value.
func (b *browser) post(path string, pairs ...string) result {
	b.t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return b.send(path, form)
}

func (b *browser) send(path string, form url.Values) result {
	b.t.Helper()
	req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	return b.do(req)
}

// ok fails the test unless the status is 200.
func (r result) ok() result {
	r.t.Helper()
	if r.status != http.StatusOK {
		r.t.Fatalf("status %d, to %q\n%s", r.status, r.header.Get("Location"), r.text())
	}
	return r
}

// redirects fails the test unless the response redirects to a path.
func (r result) redirects(to string) result {
	r.t.Helper()
	if got := r.header.Get("Location"); r.status != http.StatusSeeOther || got != to {
		r.t.Fatalf("status %d, to %q, want %q\n%s", r.status, got, to, r.text())
	}
	return r
}

// has reports an error unless a matching element contains the text.
func (r result) has(selector, text string) {
	r.t.Helper()
	found := find(r.doc, selector)
	for _, n := range found {
		if strings.Contains(textOf(n), text) {
			return
		}
	}
	r.t.Errorf("none of %d elements %q has the text %q, in\n%s", len(found), selector, text, r.text())
}

// hasNot reports an error if an element matches.
func (r result) hasNot(selector string) {
	r.t.Helper()
	if found := find(r.doc, selector); len(found) > 0 {
		r.t.Errorf("%d elements match %q, want none: %q", len(found), selector, textOf(found[0]))
	}
}

// count returns the number of matching elements.
func (r result) count(selector string) int { return len(find(r.doc, selector)) }

// form returns the values that a browser would send for the page's form.
func (r result) form() url.Values {
	values := url.Values{}
	for _, n := range find(r.doc, "section form") {
		for d := range n.Descendants() {
			name, value := attr(d, "name"), attr(d, "value")
			switch d.Data {
			case "input":
				if kind := attr(d, "type"); kind != "checkbox" || hasAttr(d, "checked") {
					values.Set(name, value)
				}
			case "textarea":
				values.Set(name, strings.ReplaceAll(textOf(d), "\n", "\r\n"))
			case "select":
				for _, o := range find(d, "option[selected]") {
					values.Set(name, attr(o, "value"))
				}
			}
		}
	}
	return values
}

// text returns the text of the page's main part, or the body if it has none.
func (r result) text() string {
	main := find(r.doc, "main")
	if len(main) == 0 {
		return r.body
	}
	return strings.Join(strings.Fields(textOf(main[0])), " ")
}

// pieceOfSelector matches a tag, #id, .class, [attribute] or [attribute=value].
var pieceOfSelector = regexp.MustCompile(`[#.]?[^#.\[]+|\[[^\]]*\]`)

// find returns the matching elements. A selector has parts with spaces between them, each a descendant of the
// previous one. A part is a sequence of pieces.
func find(n *html.Node, selector string) []*html.Node {
	found := []*html.Node{n}
	for _, part := range strings.Fields(selector) {
		pieces := pieceOfSelector.FindAllString(part, -1)
		var next []*html.Node
		seen := make(map[*html.Node]bool)
		for _, from := range found {
			for d := range from.Descendants() {
				if d.Type == html.ElementNode && !seen[d] && matches(d, pieces) {
					seen[d] = true
					next = append(next, d)
				}
			}
		}
		found = next
	}
	return found
}

func matches(n *html.Node, pieces []string) bool {
	for _, piece := range pieces {
		ok := false
		switch piece[0] {
		case '#':
			ok = attr(n, "id") == piece[1:]
		case '.':
			ok = slices.Contains(strings.Fields(attr(n, "class")), piece[1:])
		case '[':
			name, value, valued := strings.Cut(piece[1:len(piece)-1], "=")
			ok = hasAttr(n, name) && (!valued || attr(n, name) == value)
		default:
			ok = n.Data == piece
		}
		if !ok {
			return false
		}
	}
	return true
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func hasAttr(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}

func textOf(n *html.Node) string {
	var out strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			out.WriteString(d.Data)
		}
	}
	return out.String()
}

// newPages returns a UI for tests that send no requests.
func newPages() (*UI, error) { return New(newWorld().options()) }
