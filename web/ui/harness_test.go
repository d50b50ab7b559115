package ui

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
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

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// testNow is the clock's time in tests, testKey the settings' admin key.
const (
	testNow = 1_794_000_000_000
	testKey = "an admin key of tests"
)

// hostile is what somebody might put wherever they can write.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(2)>'"</td></tr></pre>&lt;b&gt; {{.}} javascript:alert(3)`

// A clock that stands still, of a process that is well.
type stillClock struct{ health dispatch.Health }

func (c stillClock) Now() int64                             { return testNow }
func (c stillClock) Health(context.Context) dispatch.Health { return c.health }

// memSessions keeps sessions in memory.
type memSessions struct {
	mu   sync.Mutex
	rows map[string]store.Session
	err  error
	puts int
}

func (m *memSessions) Session(_ context.Context, token string, now int64) (store.Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return store.Session{}, m.err
	}
	s, ok := m.rows[token]
	if !ok || s.ExpiresAt <= now {
		return store.Session{}, store.ErrNotFound
	}
	return s, nil
}

func (m *memSessions) PutSession(_ context.Context, s store.Session) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.puts++
	if m.rows == nil {
		m.rows = make(map[string]store.Session)
	}
	m.rows[s.Token] = s
	return m.err
}

func (m *memSessions) DeleteSession(_ context.Context, token string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.rows, token)
	return m.err
}

// keyRing knows keys by their text.
type keyRing struct {
	mu   sync.Mutex
	keys map[string]store.Key
}

func (k *keyRing) AuthenticateHash(_ context.Context, hash [sha256.Size]byte) (store.Key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for text, key := range k.keys {
		if sha256.Sum256([]byte(text)) == hash {
			return key, nil
		}
	}
	return store.Key{}, store.ErrNotFound
}

func (k *keyRing) revoke(text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.keys, text)
}

// projectRows has the default project and some others.
type projectRows struct {
	ids     []string
	paused  int64
	because string
	err     error
}

func (p projectRows) Project(_ context.Context, id string) (store.Project, error) {
	if p.err != nil {
		return store.Project{}, p.err
	}
	for _, known := range append([]string{store.DefaultProject}, p.ids...) {
		if known == id {
			return store.Project{ID: id, PausedUntil: p.paused, PauseReason: p.because}, nil
		}
	}
	return store.Project{}, store.ErrNotFound
}

func (p projectRows) Projects(context.Context, string, int) ([]store.Project, error) {
	all := []store.Project{{ID: store.DefaultProject}}
	for _, id := range p.ids {
		all = append(all, store.Project{ID: id})
	}
	return all, p.err
}

// fakes are what a test has the pages ask. Each answers for one part; one that a test leaves alone has nothing.
type fakes struct {
	// Options may have an engine or a store of the test's own, in the place of the fakes.
	Options
	rows
	engines
}

// rows stand for the store.
type rows struct {
	*memSessions
	projectRows
	overviewRows
	callbackRows
	endpointRows
	redriveRows
	deadRows
	bookRows
	auditRows
	schemaRows
}

// engines stand for the engine.
type engines struct {
	stillClock
	*keyRing
	callbackEngine
	endpointEngine
	laneRows
	pollEngine
	scheduleRows
	scheduleEngine
	redriveEngine
	indexEngine
	systemEngine
}

// parts are fakes of a process that is well.
func parts() fakes {
	return fakes{
		Options: Options{AdminKey: testKey, Version: "test"},
		rows:    rows{memSessions: &memSessions{}},
		engines: engines{stillClock: stillClock{dispatch.Health{Ready: true}}, keyRing: &keyRing{}},
	}
}

// options are those of pages that ask the fakes.
func (o *fakes) options() Options {
	made := o.Options
	if made.Engine == nil {
		made.Engine = &o.engines
	}
	if made.Store == nil {
		made.Store = &o.rows
	}
	return made
}

// A browser asks for pages, keeps cookies, and follows no redirect by itself.
type browser struct {
	t       *testing.T
	ui      *UI
	fakes   *fakes
	handler http.Handler
	cookies map[string]string
	// headers are sent with each request.
	headers http.Header
}

// testKit is read once for all tests: it never changes.
var testKit = sync.OnceValues(readKit)

// open makes the pages of the parts, with somebody before them who has not signed in.
func open(t *testing.T, o fakes) *browser {
	t.Helper()
	k, err := testKit()
	if err != nil {
		t.Fatal(err)
	}
	u, err := newUI(o.options(), k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	if err := engine.SetTrustedProxies(nil); err != nil { // as the server does
		t.Fatal(err)
	}
	engine.NoRoute(u.NotFound)
	u.Register(engine)
	return &browser{t: t, ui: u, fakes: &o, handler: engine, cookies: make(map[string]string), headers: make(http.Header)}
}

// signedIn is open for who has signed in with the admin key, in UTC.
func signedIn(t *testing.T, o fakes) *browser {
	t.Helper()
	b := open(t, o)
	b.signIn(testKey)
	return b
}

func (b *browser) signIn(key string) {
	b.t.Helper()
	if res := b.post("/ui/sign-in", "key", key, "zone", "UTC"); res.status != http.StatusSeeOther {
		b.t.Fatalf("sign in: %d\n%s", res.status, res.text())
	}
}

// refuses posts a form, which must come back with what is wrong where the selector says.
func (b *browser) refuses(path, where, says string, pairs ...string) result {
	b.t.Helper()
	res := b.post(path, pairs...)
	if res.status != http.StatusUnprocessableEntity {
		b.t.Errorf("%s %q: status %d", path, pairs, res.status)
	}
	res.has(where, says)
	checkPage(b.t, res)
	return res
}

// A pageCase is a page in one of its states. Every page has at least empty, one, many, hostile and error.
type pageCase struct {
	// name is PAGE/STATE. path is empty for /ui/PAGE.
	name, path string
	set        func(o *fakes)
	// status is what is answered; zero: 200, and 500 in a state of error.
	status int
	// want are selectors with a text that must be in what matches.
	// unwanted are selectors of which nothing may match.
	want     wants
	unwanted []string
}

// wants are selectors, each with a text.
type wants [][2]string

// threeStates are the cases of a page with one thing, with hostile text, and with a database that fails.
func threeStates(name, path string, one, evil, broken func(*fakes), want ...[2]string) []pageCase {
	return []pageCase{
		{name: name + "/one", path: path, set: one, want: want},
		{name: name + "/hostile", path: path, set: evil},
		{name: name + "/error", path: path, set: broken},
	}
}

// errBroken is an error of the database that no page expects.
var errBroken = errors.New("connect to postgres://bob:hunter2@db: it is on fire")

// A result is an answer that has been read.
type result struct {
	t      *testing.T
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
	return result{b.t, rec.Code, rec.Header(), rec.Body.String(), doc}
}

// get asks for a page.
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
	req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	return b.do(req)
}

// ok demands that there is a page.
func (r result) ok() result {
	r.t.Helper()
	if r.status != http.StatusOK {
		r.t.Fatalf("status %d, to %q\n%s", r.status, r.header.Get("Location"), r.text())
	}
	return r
}

// leads demands a redirect.
func (r result) leads(to string) result {
	r.t.Helper()
	if got := r.header.Get("Location"); r.status != http.StatusSeeOther || got != to {
		r.t.Fatalf("status %d, to %q, want %q\n%s", r.status, got, to, r.text())
	}
	return r
}

// has demands an element that matches, with the text in it.
func (r result) has(selector, text string) {
	r.t.Helper()
	found := find(r.doc, selector)
	for _, n := range found {
		if strings.Contains(textOf(n), text) {
			return
		}
	}
	r.t.Errorf("no %q has the text %q; %d match the selector, in\n%s", selector, text, len(found), r.text())
}

// lacks demands that nothing matches.
func (r result) lacks(selector string) {
	r.t.Helper()
	if found := find(r.doc, selector); len(found) > 0 {
		r.t.Errorf("%q is there %d times: %q", selector, len(found), textOf(found[0]))
	}
}

// count is how many elements match.
func (r result) count(selector string) int { return len(find(r.doc, selector)) }

// text is what the page says.
func (r result) text() string {
	main := find(r.doc, "main")
	if len(main) == 0 {
		return r.body
	}
	return strings.Join(strings.Fields(textOf(main[0])), " ")
}

// pieceOfSelector is a tag, #id, .class, [attribute] or [attribute=value].
var pieceOfSelector = regexp.MustCompile(`[#.]?[^#.\[]+|\[[^\]]*\]`)

// find returns the elements that match: parts with spaces between them, each below the one before, of pieces.
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

// rowOf is the row with the id, or what a store says that has none.
func rowOf[T any](all []T, err error, is func(T) bool) (row T, _ error) {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i], err
	}
	if err == nil {
		err = store.ErrNotFound
	}
	return row, err
}

// A diary has a line for each thing that was done.
type diary struct{ done *[]string }

func (d diary) note(format string, args ...any) {
	if d.done != nil {
		*d.done = append(*d.done, fmt.Sprintf(format, args...))
	}
}

// testID makes the n-th id of tests.
func testID(n int) string {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	id := []byte("01KAZZZZZZ0000000000000000")
	for i := len(id) - 1; n > 0; i-- {
		id[i], n = digits[n%32], n/32
	}
	return string(id)
}

// newPages makes pages of which nothing is asked.
func newPages() (*UI, error) {
	o := parts()
	return New(o.options())
}
