package browser

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cdppage "github.com/chromedp/cdproto/page"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

func TestMain(m *testing.M) { harness.Main(m, func() error { return endChromium() }) }

// The story of testdata/day.txt, with a mouse, with keys alone, and without scripts.
func TestBrowserOperatorsDay(t *testing.T) {
	for i, c := range []struct {
		name string
		on   harness.Combination
		user
	}{
		{"mouse on postgres+redis", harness.PostgresRedis, user{}},
		{"mouse on sqlite+embedded", harness.SQLiteEmbedded, user{}},
		{"keys", harness.SQLiteEmbedded, user{keys: true}},
		{"without scripts", harness.SQLiteEmbedded, user{plain: true}},
	} {
		if i > 0 && !testserver.Full() {
			continue // make test plays the story once
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var reopened atomic.Bool
			s := newScene(t, c.on, func(a *harness.Arrival) harness.Reply {
				if !reopened.Load() && strings.HasPrefix(a.Path, "/shop") {
					return harness.Reply{Status: 503, Body: "closed for maintenance"}
				}
				return harness.Reply{Body: "success"}
			})
			s.does["reopen the shop"] = func() { reopened.Store(true) }
			c.tab = newTab(t, s.Base)
			c.scripts(!c.plain)
			s.windows[""] = c.user
			s.play("day.txt")
		})
	}
}

func TestBrowserListsArePaged(t *testing.T) {
	t.Parallel()
	s := newScene(t, harness.SQLiteEmbedded, nil)
	s.play("one.txt", "many.txt")
	for _, plain := range []bool{false, true} {
		b := newTab(t, s.Base)
		b.scripts(!plain)
		b.signIn(harness.AdminKey)
		s.windows[""] = user{b, false, plain}
		rows := func() []string {
			return ask[[]string](b,
				`[...document.querySelectorAll("tbody tr[data-id]")].map((e) => e.dataset.id)`)
		}
		var first []string
		s.does["remember the rows"] = func() { first = rows() }
		s.does["see other rows"] = func() {
			b.eventually("other rows are shown", func() error {
				second := rows()
				if len(first) == 0 || len(second) == 0 ||
					slices.ContainsFunc(second, func(id string) bool { return slices.Contains(first, id) }) {
					return fmt.Errorf("the page has %v", second)
				}
				return nil
			})
		}
		s.does["see the rows again"] = func() {
			b.eventually("the first page is back", func() error {
				if again := rows(); b.where() != "/ui/callbacks" || !slices.Equal(again, first) {
					return fmt.Errorf("at %s are %v", b.where(), again)
				}
				return nil
			})
		}
		s.play("list.txt")
	}
}

// awayProblems matches the errors that a browser reports while a server is down.
const awayProblems = `net::ERR_(CONNECTION_REFUSED|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE|` +
	`CONNECTION_RESET|CONNECTION_CLOSED|NETWORK_CHANGED|SOCKET_NOT_CONNECTED)|status of 503`

func TestBrowserLiveUpdatesComeBack(t *testing.T) {
	for _, c := range []struct {
		name       string
		away, back func(*scene, *harness.Proxy)
	}{
		{"the connection is cut", func(_ *scene, x *harness.Proxy) {
			x.Refuse()
		}, func(_ *scene, x *harness.Proxy) { x.Pass() }},
		{"nothing comes any more", func(_ *scene, x *harness.Proxy) {
			x.Hang()
		}, func(_ *scene, x *harness.Proxy) {
			x.Cut() // late data would only confuse the page
			x.Pass()
		}},
		{"the server is killed", func(s *scene, _ *harness.Proxy) {
			s.Kill()
		}, func(s *scene, x *harness.Proxy) {
			s.Process = harness.Serve(s, harness.Launch{On: s.on})
			x.Mu.Lock()
			x.Server = hostOf(s.Base)
			x.Mu.Unlock()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, harness.SQLiteEmbedded, nil)
			x := harness.StartProxy(t, hostOf(s.Base))
			b := newTab(t, "http://"+x.Address)
			b.allow(awayProblems)
			b.speedUpTimers()
			b.signIn(harness.AdminKey)
			b.forget()
			s.windows[""] = user{tab: b}
			s.does["go away"] = func() { c.away(s, x) }
			s.does["come back"] = func() { c.back(s, x) }
			s.play("comeback.txt")
		})
	}
}

// hostOf returns the host and port of a server's address.
func hostOf(base string) string { return strings.TrimPrefix(base, "http://") }

// speedUpTimers runs timers of a minute and more fifteen times as fast, in every new page. A page waits that
// long before it treats a silent server as down.
func (t *tab) speedUpTimers() {
	t.Helper()
	script := cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: `{
		const real = window.setTimeout;
		window.setTimeout = (what, ms, ...args) => real(what, ms >= 60000 ? ms / 15 : ms, ...args);
	}`}
	call(t, cdppage.AddScriptToEvaluateOnNewDocument, script)
}

func TestBrowserALateResponseHidesNothing(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	s := newScene(t, harness.SQLiteEmbedded, func(a *harness.Arrival) harness.Reply {
		if a.Nth == 1 {
			return harness.Reply{Status: 503}
		}
		<-gate
		return harness.Reply{}
	})
	t.Cleanup(open) // must run before the receiver's cleanup, which waits for its requests
	b := s.window("", s.Base)
	s.does["let the receiver answer"] = open
	s.does["hold answers back"] = func() {
		ask[bool](b, `{
			const real = window.fetch;
			window.fetch = async (...args) => {
				const response = await real(...args), body = await response.text();
				await new Promise((go) => { window.__letArrive = go; });
				return { url: response.url, text: async () => body };
			};
			true }`)
	}
	s.does["await the answer"] = func() {
		b.eventually("the answer is drawn", func() error {
			if !ask[bool](b, `Boolean(window.__letArrive)`) {
				return errors.New("the response has not arrived")
			}
			return nil
		})
	}
	s.play("late.txt")
}

// Scripts that need only a window.
func TestBrowserPagesAreLive(t *testing.T) {
	for _, file := range []string{"two.txt", "typed.txt"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			s, _ := filledScene(t)
			s.play(file)
		})
	}
}

// A page leaves when its session ends: after its key was revoked it shows nothing more. The page learns of it
// through its stream, or when it reconnects.
func TestBrowserRevokedKeyLeavesThePage(t *testing.T) {
	for name, down := range map[string]bool{"by its stream": false, "while the stream is down": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, harness.SQLiteEmbedded, nil)
			x := harness.StartProxy(t, hostOf(s.Base))
			key, err := s.CreateKey(t.Context(),
				client.KeyRequest{Name: "a reader", Scopes: []client.Scope{"read"}})
			harness.Check(t, err)
			b := newTab(t, "http://"+x.Address)
			b.allow(`status of 401`)
			b.signIn(key.Text)
			b.forget()
			b.open("/ui/callbacks")
			b.streams()
			if down {
				b.allow(awayProblems)
				x.Refuse()
				b.see("#livestate", "interrupted")
			}
			began := time.Now()
			_, err = s.RevokeKey(t.Context(), key.ID, "it left")
			harness.Check(t, err)
			x.Pass()
			b.arrive("/ui/sign-in")
			t.Logf("a page windowsOf key was revoked was left after %s",
				time.Since(began).Round(100*time.Millisecond))
		})
	}
}

// A list with a filter without an index is searched in steps. The page continues until the user stops it, and
// again on request. All steps are one entry in the history. Here no callback matches.
func TestBrowserSearchContinues(t *testing.T) {
	t.Parallel()
	tr := harness.NewTrial(t, "pageVerbs on")
	tr.UseBackend(harness.NewBackend(t, harness.SQLiteEmbedded))
	shape := func(_ int, ref string) harness.Submission { return tr.Callback("plain", ref) }
	tr.Seed(tr.Serve(), harness.Seeding{N: 20_000, Lanes: 100, Shape: shape})
	p := tr.Serve()
	x := harness.StartProxy(t, hostOf(p.Base))
	b := newTab(t, "http://"+x.Address)
	b.signIn(harness.AdminKey)
	b.open("/ui/callbacks")
	entries := ask[int](b, `history.length`)
	b.mark()

	x.Slow(2 * time.Second) // so that the search can be stopped before its last step
	b.fill("#ff-topic", "nothing")
	b.click(".filters button", "Filter")
	b.see(".empty time", "")
	b.click(".empty button", "Stop searching")
	b.see(".empty a", "Keep searching")
	x.Slow(0)
	stopped := b.where()
	harness.Eventually(t, 5*time.Minute, "the search ends", func() error {
		// The page stops after half a minute.
		at := b.where()
		if b.count("main:not([aria-busy]) .empty a", "Keep searching") > 0 {
			b.click(".empty a", "Keep searching")
			b.eventually("the search continues", func() error {
				if b.where() == at {
					return errors.New(at)
				}
				return nil
			})
		}
		if b.count(".empty:not(:has(a))", "No matches") == 0 {
			return errors.New(b.where())
		}
		return nil
	})
	if at := b.where(); at == stopped || !strings.Contains(at, "cursor=") {
		t.Errorf("the search was stopped at %s, and ended at %s", stopped, at)
	}
	if n := ask[int](b, `history.length`) - entries; n != 1 {
		t.Errorf("the filter and the continued search created %d entries in the history", n)
	}
	b.marked("the continued search")
	b.streams() // the page that is arrived at is up to date
}
