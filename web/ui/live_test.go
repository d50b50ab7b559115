package ui

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A listener reads a stream.
type listener struct {
	t      *testing.T
	status int
	header http.Header
	events chan seen
	end    context.CancelFunc
}

// seen is one event: its name and the JSON of its regions.
type seen struct{ name, regions string }

// has reports whether the event has a region.
func (e seen) has(name string) bool { return strings.Contains(e.regions, `"region":"`+name+`"`) }

// listen opens the stream of a page with the browser's cookies.
func (b *browser) listen(server *httptest.Server, page string) *listener {
	b.t.Helper()
	ctx, end := context.WithCancel(context.Background())
	b.t.Cleanup(end)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+link("/live", "page", page), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for name, value := range b.cookies {
		req.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	res, err := server.Client().Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	l := &listener{t: b.t, status: res.StatusCode, header: res.Header, events: make(chan seen, 1000),
		end: end}
	go func() {
		defer close(l.events)
		defer func() { _ = res.Body.Close() }() // the stream has ended
		lines := bufio.NewReader(res.Body)
		name := ""
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if rest, ok := strings.CutPrefix(line, "event: "); ok {
				name = strings.TrimSpace(rest)
			}
			if rest, ok := strings.CutPrefix(line, "data: "); ok {
				l.events <- seen{name, rest}
			}
		}
	}()
	return l
}

// next returns the next event. more is false at the end of the stream.
func (l *listener) next(what string) (e seen, more bool) {
	l.t.Helper()
	select {
	case e, more = <-l.events:
	case <-time.After(60 * time.Second):
		l.t.Fatalf("no event within a minute: %s", what)
	}
	return e, more
}

// until waits for an event.
func (l *listener) until(what string, ok func(e seen) bool) {
	l.t.Helper()
	for {
		e, more := l.next(what)
		if !more {
			l.t.Fatalf("the stream ended before: %s", what)
		}
		if ok(e) {
			return
		}
	}
}

// waitEnd waits for the end of the stream.
func (l *listener) waitEnd() {
	l.t.Helper()
	for more := true; more; {
		_, more = l.next("the end of the stream")
	}
}

// liveBrowser returns a signed-in browser and a server for streams.
func liveBrowser(t *testing.T, w *world) (*browser, *httptest.Server) {
	t.Helper()
	b := signedIn(t, w)
	server := httptest.NewServer(b.handler)
	t.Cleanup(server.Close)
	t.Cleanup(b.ui.Close) // runs before server.Close, which waits for the streams
	return b, server
}

// isFirst reports whether an event is the first of a page.
func isFirst(e seen) bool { return e.has("rows") }

// TestWatchersShareOneRendering opens one page in 20 browsers and counts the renderings.
func TestWatchersShareOneRendering(t *testing.T) {
	t.Parallel()
	w := newWorld()
	b, server := liveBrowser(t, w)
	var all []*listener
	for range 20 {
		l := b.listen(server, "/ui/callbacks?state=scheduled")
		l.until("the state at the beginning", isFirst)
		all = append(all, l)
	}
	before := w.count("List")
	w.update("callbacks 1")
	began := time.Now()
	all[0].until("a new row", func(e seen) bool {
		if e.has("banner") {
			t.Error("the event has an unchanged region")
		}
		return strings.Contains(e.regions, "order-0001")
	})
	for _, l := range all[:3] {
		for range 2 {
			l.until("a heartbeat", func(e seen) bool { return e.name == "regions" })
		}
	}
	ticks := int(time.Since(began)/renderEvery) + 2
	if n := w.count("List") - before; n > ticks {
		t.Errorf("a page with 20 watchers was rendered %d times in %d intervals", n, ticks)
	}
	for _, l := range all {
		l.end()
	}
	testserver.Until(t, "the view ends with its last watcher", func() bool {
		b.ui.hub.mu.Lock()
		defer b.ui.hub.mu.Unlock()
		return len(b.ui.hub.views) == 0 && b.ui.hub.watchers == 0
	})
}

// TestStreamsEnd checks that a stream ends when its key is revoked and when the UI closes.
func TestStreamsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld()
	b, server := liveBrowser(t, w)
	b.signIn("reader")
	first := b.listen(server, "/ui/callbacks")
	first.until("the state at the beginning", func(e seen) bool {
		return strings.Contains(e.regions, "No callbacks yet")
	})
	w.revoke("reader")
	first.until("a reload event", func(e seen) bool { return e.name == "reload" })
	first.waitEnd()
	b.signIn(testKey)
	second := b.listen(server, "/ui/callbacks")
	second.until("the state at the beginning", isFirst)
	b.ui.Close()
	second.waitEnd()
	if l := b.listen(server, "/ui/callbacks"); l.status != http.StatusServiceUnavailable {
		t.Errorf("a stream after Close: status %d", l.status)
	}
}

// TestPanicEndsOnlyItsStreams: a live page panics outside of any request. That must not end the process or
// the streams of other pages.
func TestPanicEndsOnlyItsStreams(t *testing.T) {
	t.Parallel()
	var log testserver.Log
	w := newWorld()
	w.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	b, server := liveBrowser(t, w)
	broken := b.listen(server, "/ui/redrives?x=query-value")
	broken.until("the state at the beginning", isFirst)
	sound := b.listen(server, "/ui/callbacks?state=scheduled")
	sound.until("the state at the beginning", isFirst)
	w.update("fail Redrives panic")
	broken.waitEnd()
	w.update("callbacks 1")
	sound.until("a new row", func(e seen) bool { return strings.Contains(e.regions, "order-0001") })
	text := log.String()
	for _, want := range []string{"out of cheese", "world_test.go", `"page":"/ui/redrives"`} {
		if strings.Count(text, want) == 0 {
			t.Errorf("the log does not contain %q: %s", want, text)
		}
	}
	if n := strings.Count(text, "panicked"); n != 1 {
		t.Errorf("%d log lines for one panic, want 1", n)
	}
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(testKey)))
	for _, secret := range []string{b.cookies[sessionCookie], hash, "query-value"} {
		if strings.Contains(text, secret) {
			t.Errorf("the log contains %q", secret)
		}
	}
	w.update("fail Redrives nothing")
	b.listen(server, "/ui/redrives?x=query-value").until("the page is rendered again", isFirst)
}

// TestStreamsOfAKeyAreBounded opens streams of several pages with one key until the bound. After one ends,
// another can open.
func TestStreamsOfAKeyAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld()
	b, server := liveBrowser(t, w)
	var all []*listener
	for i := range 20 {
		l := b.listen(server, "/ui/callbacks?ref="+strconv.Itoa(i%3))
		if l.status != http.StatusOK {
			t.Fatalf("stream %d: status %d", i+1, l.status)
		}
		all = append(all, l)
	}
	for _, page := range []string{"/ui/callbacks?ref=0", "/ui/callbacks?ref=another"} {
		l := b.listen(server, page)
		if l.status != http.StatusTooManyRequests || l.header.Get("Retry-After") == "" {
			t.Errorf("a stream beyond the bound: status %d, %v", l.status, l.header)
		}
		b.get(page).ok()
	}
	other := newBrowser(t, w)
	other.ui, other.handler = b.ui, b.handler
	other.signIn("reader")
	if l := other.listen(server, "/ui/callbacks?ref=0"); l.status != http.StatusOK {
		t.Errorf("a stream of another key: status %d", l.status)
	}
	all[7].end()
	testserver.Until(t, "a stream opens after another has ended", func() bool {
		return b.listen(server, "/ui/callbacks?ref=0").status == http.StatusOK
	})
}

func TestHubIsBounded(t *testing.T) {
	t.Parallel()
	h := newHub(slog.New(slog.DiscardHandler))
	defer h.close()
	nothing := func(context.Context) (map[string]string, error) { return nil, nil }
	watch := func(owner, key int) (func(), error) {
		_, leave, err := h.watch(testID(owner), "/ui/", testID(key), nothing)
		return leave, err
	}
	var leave []func()
	for i := range maxViews {
		end, err := watch(i, i)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, end)
	}
	if _, err := watch(maxViews, maxViews); !errors.Is(err, errFull) {
		t.Errorf("a view beyond the bound: %v", err)
	}
	for i := range maxWatchers - maxViews {
		if _, err := watch(i%maxViews, i%maxViews); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := watch(0, 0); !errors.Is(err, errFull) {
		t.Errorf("a watcher beyond the bound: %v", err)
	}
	for range 3 { // only the first call counts
		leave[0]()
	}
	if _, err := watch(0, 0); err != nil {
		t.Errorf("after one has left: %v", err)
	}
	if _, err := watch(0, 0); !errors.Is(err, errFull) {
		t.Errorf("a second watcher after one has left: %v", err)
	}
}

// TestRevokedKeyEndsStream is case 55. A revoked key ends its streams within sessionCheckEvery, even while a
// page renders slowly. The end of the session does so too.
func TestRevokedKeyEndsStream(t *testing.T) {
	t.Parallel()
	w := newWorld()
	b := newBrowser(t, w)
	b.signIn("reader")
	if sessionCheckEvery > time.Minute {
		t.Errorf("streams check their session every %s", sessionCheckEvery)
	}
	req := httptest.NewRequest(http.MethodGet, "/ui/live", nil)
	req.AddCookie(&http.Cookie{Name: sessionCookie, Value: b.cookies[sessionCookie]})
	r := &request{http: req}
	if b.ui.sessionEnded(r) {
		t.Fatal("a valid session counts as ended")
	}
	w.revoke("reader")
	if !b.ui.sessionEnded(r) {
		t.Error("the stream of a revoked key does not end")
	}
}

func TestTimeless(t *testing.T) {
	t.Parallel()
	b := base{zone: utc, lang: &language{texts: map[string]string{"time.ago": "{d} ago"}}, now: testNow}
	first := "<p>" + string(b.Time(testNow-5000)) + "</p>" + string(b.Time(testNow-9000))
	b.now += 1000
	second := "<p>" + string(b.Time(testNow-5000)) + "</p>" + string(b.Time(testNow-9000))
	if first == second || timeless(first) != timeless(second) {
		t.Errorf("%q\n%q", timeless(first), timeless(second))
	}
}

// TestSystemPageIsStable: two renderings without a change have the same regions, so the stream sends nothing.
func TestSystemPageIsStable(t *testing.T) {
	t.Parallel()
	b := signedIn(t, newWorld("processes 2", `stats {"Delayed":1}`))
	first, second := regions(b.get("/ui/system").ok().body), regions(b.get("/ui/system").ok().body)
	if len(first) < 4 {
		t.Errorf("%d regions, want at least 4", len(first))
	}
	for name := range first {
		if first[name] != second[name] {
			t.Errorf("the region %s differs without a change", name)
		}
	}
}
