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

// The day of testdata/day.txt, with a mouse, by keys alone, and without scripts.
func TestBrowserOperatorsDay(t *testing.T) {
	for i, c := range []struct {
		name string
		on   harness.Combination
		hands
	}{
		{"mouse on postgres+redis", harness.PostgresRedis, hands{}},
		{"mouse on sqlite+embedded", harness.SQLiteEmbedded, hands{}},
		{"keys", harness.SQLiteEmbedded, hands{keys: true}},
		{"without scripts", harness.SQLiteEmbedded, hands{plain: true}},
	} {
		if i > 0 && !testserver.Full() {
			continue // make test tells the story once
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
			s.windows[""] = c.hands
			s.play("day.txt")
		})
	}
}

func TestBrowserListsAreWalkedThrough(t *testing.T) {
	t.Parallel()
	s := newScene(t, harness.SQLiteEmbedded, nil)
	s.play("one.txt", "many.txt")
	for _, plain := range []bool{false, true} {
		b := newTab(t, s.Base)
		b.scripts(!plain)
		b.signIn(harness.AdminKey)
		s.windows[""] = hands{b, false, plain}
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
					return fmt.Errorf("they are %v", second)
				}
				return nil
			})
		}
		s.does["see the rows again"] = func() {
			b.eventually("one comes back to the first page", func() error {
				if again := rows(); b.where() != "/ui/callbacks" || !slices.Equal(again, first) {
					return fmt.Errorf("at %s are %v", b.where(), again)
				}
				return nil
			})
		}
		s.play("list.txt")
	}
}

// awayComplaints is what a browser says of a server that is away.
const awayComplaints = `net::ERR_(CONNECTION_REFUSED|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE|CONNECTION_RESET|` +
	`CONNECTION_CLOSED|NETWORK_CHANGED|SOCKET_NOT_CONNECTED)|status of 503`

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
			x.Cut() // what was sent into it is late by more than anybody waits
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
			b.forgive(awayComplaints)
			b.hurry()
			b.signIn(harness.AdminKey)
			b.forget()
			s.windows[""] = hands{tab: b}
			s.does["go away"] = func() { c.away(s, x) }
			s.does["come back"] = func() { c.back(s, x) }
			s.play("comeback.txt")
		})
	}
}

// hostOf is the host and port of a server's address.
func hostOf(base string) string { return strings.TrimPrefix(base, "http://") }

// hurry has timers of a minute and more run fifteen times as fast, in every page from now on: a page waits
// that long before it believes that a silent server is gone.
func (t *tab) hurry() {
	t.Helper()
	call(t, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: `
		{ const real = window.setTimeout; window.setTimeout = (what, ms, ...args) => real(what, ms >= 60000 ? ms / 15 : ms, ...args); }`})
}

func TestBrowserALateAnswerHidesNothing(t *testing.T) {
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
	t.Cleanup(open) // before the receiver is closed, which waits for its requests
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
				return errors.New("it is not")
			}
			return nil
		})
	}
	s.play("late.txt")
}

// Scripts that need nothing but a window.
func TestBrowserPagesAreLive(t *testing.T) {
	for _, file := range []string{"two.txt", "typed.txt"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			s, _ := lit(t)
			s.play(file)
		})
	}
}

// A page leaves by itself when its session has ended: who holds a key that is revoked sees nothing more,
// whether the page is told so by its stream or finds out when that comes back.
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
			b.forgive(`status of 401`)
			b.signIn(key.Text)
			b.forget()
			b.open("/ui/callbacks")
			b.streams()
			if down {
				b.forgive(awayComplaints)
				x.Refuse()
				b.see("#livestate", "interrupted")
			}
			began := time.Now()
			_, err = s.RevokeKey(t.Context(), key.ID, "it left")
			harness.Check(t, err)
			x.Pass()
			b.arrive("/ui/sign-in")
			t.Logf("a page whose key was revoked was left after %s",
				time.Since(began).Round(100*time.Millisecond))
		})
	}
}

// A list whose condition no index serves is looked through in steps. The page goes on by itself until it is
// stopped, and again when it is asked to. All of it is one entry in the history. Here no callback matches.
func TestBrowserLooksOn(t *testing.T) {
	t.Parallel()
	tr := harness.NewTrial(t, "looks on")
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

	x.Slow(2 * time.Second) // so that the look can be stopped before its last step
	b.fill("#ff-topic", "nothing")
	b.click(".filters button", "Filter")
	b.see(".empty time", "")
	b.click(".empty button", "Stop looking")
	b.see(".empty a", "Look on")
	x.Slow(0)
	stopped := b.where()
	harness.Eventually(t, 5*time.Minute, "all is looked through", func() error {
		// again after half a minute
		at := b.where()
		if b.count("main:not([aria-busy]) .empty a", "Look on") > 0 {
			b.click(".empty a", "Look on")
			b.eventually("it looks on", func() error {
				if b.where() == at {
					return errors.New(at)
				}
				return nil
			})
		}
		if b.count(".empty", "Nothing matches") == 0 {
			return errors.New(b.where())
		}
		return nil
	})
	if at := b.where(); at == stopped || !strings.Contains(at, "cursor=") {
		t.Errorf("it was stopped at %s, and has ended at %s", stopped, at)
	}
	if n := ask[int](b, `history.length`) - entries; n != 1 {
		t.Errorf("the condition and to look on have made %d entries in the history", n)
	}
	b.marked("to look on")
	b.streams() // the page that is arrived at is up to date
}
