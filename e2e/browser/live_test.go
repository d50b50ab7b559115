package browser

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	cdppage "github.com/chromedp/cdproto/page"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// awayComplaints are what a browser says of a server that is away.
var awayComplaints = []string{
	`net::ERR_CONNECTION_REFUSED`, `net::ERR_INCOMPLETE_CHUNKED_ENCODING`, `net::ERR_EMPTY_RESPONSE`, `net::ERR_CONNECTION_RESET`, `net::ERR_CONNECTION_CLOSED`,
	`net::ERR_NETWORK_CHANGED`, `net::ERR_SOCKET_NOT_CONNECTED`, `status of 503`,
}

// A page that is open when the server goes away says so, and nothing is lost of what it shows; it comes back by itself, with what has changed
// meanwhile, and is never loaded anew.
func TestBrowserLiveUpdatesComeBack(t *testing.T) {
	harness.BlackBox(t)
	for _, c := range []struct {
		name string
		// away has the server go away; back has it come back, and returns the process that is there then.
		away func(*harness.Proxy, *harness.Process)
		back func(*testing.T, *harness.Proxy, *harness.Process, harness.Backend) *harness.Process
	}{
		{"the connection is cut", func(x *harness.Proxy, _ *harness.Process) { x.Refuse() }, func(_ *testing.T, x *harness.Proxy, p *harness.Process, _ harness.Backend) *harness.Process {
			x.Pass()
			return p
		}},
		{"nothing comes any more", func(x *harness.Proxy, _ *harness.Process) { x.Hang() }, func(_ *testing.T, x *harness.Proxy, p *harness.Process, _ harness.Backend) *harness.Process {
			x.Cut() // what was sent into it is late by more than anybody waits
			x.Pass()
			return p
		}},
		{"the server is killed", func(_ *harness.Proxy, p *harness.Process) { p.Kill() }, func(t *testing.T, x *harness.Proxy, _ *harness.Process, b harness.Backend) *harness.Process {
			next := harness.Serve(t, harness.Launch{On: b})
			x.Mu.Lock()
			x.Server = hostOf(t, next.Base)
			x.Mu.Unlock()
			return next
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			backend := harness.NewBackend(t, harness.SQLiteEmbedded)
			p := harness.Serve(t, harness.Launch{On: backend})
			x := harness.StartProxy(t, hostOf(t, p.Base))
			r := harness.NewReceiver(t, harness.Always(200, "success"))
			cb := heldOne(t, p, r)
			b := newTab(t, "http://"+x.Address)
			b.forgive(awayComplaints...)
			b.hurry()
			b.signIn(harness.AdminKey)
			b.forget()
			b.open("/ui/callbacks/" + cb.ID)
			b.see(".why", "Its lane is paused")
			b.streams()
			b.mark()
			documents := b.documentsLoaded()
			b.seeNot("#livestate", "interrupted")
			c.away(x, p)
			b.see("#livestate", "Live updates are interrupted")
			b.see(".why", "Its lane is paused")
			p = c.back(t, x, p, backend)
			p.Post("/v1/lanes/held/resume", harness.Submission{}, nil, http.StatusOK)
			b.see(".why", "succeeded")
			b.seeNot("#livestate", "interrupted")
			b.marked(c.name)
			if n := b.documentsLoaded(); n != documents {
				t.Errorf("%d documents were loaded meanwhile", n-documents)
			}
		})
	}
}

// The server renders the answer to an action before the action takes effect. That answer may arrive after the
// live update about the effect. The page then shows the update.
func TestBrowserALateAnswerHidesNothing(t *testing.T) {
	harness.BlackBox(t)
	t.Parallel()
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	r := harness.NewReceiver(t, func(a *harness.Arrival) harness.Reply {
		if a.Nth == 1 {
			return harness.Reply{Status: 503}
		}
		<-gate
		return harness.Reply{Status: 200}
	})
	t.Cleanup(open) // before the receiver is closed, which waits for its requests
	p := harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded)})
	cb, err := p.Accept(t.Context(), harness.Submission{
		"url": r.URL, "ref": "order-1", "payload": harness.Submission{"paid": 1},
		// The second attempt lasts until the page's answer is drawn, however slow the browser is.
		"policy": harness.Tiers("60s", "1h"),
	})
	if err != nil {
		t.Fatal(err)
	}
	b := newTab(t, p.Base)
	b.signIn(harness.AdminKey)
	b.open("/ui/callbacks/" + cb.ID)
	b.see(".timeline", "503")
	b.see(".why", "It waits for its due time")
	b.streams()
	b.mark()
	ask[bool](b, `{
		const real = window.fetch;
		window.fetch = async (...args) => {
			const response = await real(...args), body = await response.text();
			await new Promise((go) => { window.__letArrive = go; });
			return { url: response.url, text: async () => body };
		};
		true }`)
	b.click("#retry", "")
	harness.Eventually(t, pageTime, "the answer is drawn", func() error {
		if !ask[bool](b, `Boolean(window.__letArrive)`) {
			return errors.New("it is not")
		}
		return nil
	})
	open()
	b.see(".why", "succeeded")
	ask[bool](b, `window.__letArrive(), true`)
	b.see(".toast", "attempted at once")
	b.see(".why", "succeeded")
	b.marked("a callback is retried")
}

// heldOne accepts a callback whose lane, held, is paused.
func heldOne(t *testing.T, p *harness.Process, r *harness.Receiver) client.Callback {
	t.Helper()
	p.Post("/v1/lanes/held/pause", harness.Submission{"reason": "for the test"}, nil, http.StatusOK)
	cb, err := p.Accept(t.Context(), harness.Submission{"url": r.URL, "lane": "held", "ref": "held-1", "payload": harness.Submission{"paid": 1}})
	if err != nil {
		t.Fatal(err)
	}
	return cb
}

// hurry has timers of a minute and more run fifteen times as fast, in every page from now on: a page waits that long before it believes that
// a silent server is gone.
func (t *tab) hurry() {
	t.Helper()
	call(t, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: `
		{ const real = window.setTimeout; window.setTimeout = (what, ms, ...args) => real(what, ms >= 60000 ? ms / 15 : ms, ...args); }`})
}

// Two who look at the same page both see what changes, on every part of it; who has another one open is not kept from that.
func TestBrowserTwoLookAtTheSamePage(t *testing.T) {
	harness.BlackBox(t)
	t.Parallel()
	p := harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded)})
	r := harness.NewReceiver(t, harness.Always(200, "success"))
	one, two, other := newTab(t, p.Base), newTab(t, p.Base), newTab(t, p.Base)
	for _, b := range []*tab{one, two, other} {
		b.signIn(harness.AdminKey)
	}
	other.mark()
	one.open("/ui/callbacks")
	two.open("/ui/callbacks")
	for _, b := range []*tab{one, two} {
		b.see(".empty", "No callbacks yet")
		b.mark()
	}
	cb := heldOne(t, p, r)
	for _, b := range []*tab{one, two} {
		b.see("tr[data-id="+cb.ID+"]", "scheduled")
		b.see(".chips a", "scheduled 1")
	}
	other.see("tr[data-id="+cb.ID+"]", "scheduled")
	p.Post("/v1/lanes/held/resume", harness.Submission{}, nil, http.StatusOK)
	for _, b := range []*tab{one, two} {
		b.see("tr[data-id="+cb.ID+"]", "succeeded")
		b.see(".chips a", "succeeded 1")
		b.seeNot(".chips a", "scheduled 1")
		b.marked("a list that is open")
	}
	other.see("tr[data-id="+cb.ID+"]", "succeeded")
	other.marked("the overview")
	p.Post("/v1/pause", harness.Submission{"reason": "a drill"}, nil, http.StatusOK)
	for _, b := range []*tab{one, two, other} {
		b.see(".banner", "a drill")
		b.marked("a page with a banner")
	}
}

// What somebody types, has opened or looks at stays while the page around it changes.
func TestBrowserWhatIsTypedStays(t *testing.T) {
	harness.BlackBox(t)
	t.Parallel()
	p := harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded)})
	r := harness.NewReceiver(t, harness.Always(200, "success"))
	b := newTab(t, p.Base)
	b.signIn(harness.AdminKey)
	b.open("/ui/callbacks")
	b.unfold("More conditions")
	b.fill("#ff-lane", "half a word")
	cb := heldOne(t, p, r)
	b.see("tr[data-id="+cb.ID+"]", "scheduled")
	if at := b.focused(); at != "#ff-lane" {
		t.Errorf("the focus went to %q", at)
	}
	if text := ask[string](b, `document.querySelector("#ff-lane").value`); text != "half a word" {
		t.Errorf("what was typed became %q", text)
	}
	b.see("#ff-lane", "")

	b.open("/ui/callbacks/" + cb.ID)
	b.unfold("As a curl command")
	b.see("#curl", "")
	p.Post("/v1/lanes/held/resume", harness.Submission{}, nil, http.StatusOK)
	b.see(".timeline", "Ended: succeeded")
	b.see("#curl", "")
	b.unfold("Request and response")
	b.see("#attempt-1 pre", "success")
	// The retry is seen first, and what comes of it above it.
	for _, step := range []struct {
		path string
		body harness.Submission
		see  string
	}{
		{"/v1/lanes/held/pause", harness.Submission{"reason": "until it was looked at"}, ""},
		{"/v1/callbacks/" + cb.ID + "/retry", harness.Submission{"reason": "to be sure"}, "to be sure"},
		{"/v1/lanes/held/resume", harness.Submission{}, "Ended: succeeded"},
	} {
		p.Post(step.path, step.body, nil, http.StatusOK)
		b.see(".timeline", step.see)
	}
	b.see(".timeline", "Attempt 2")
	b.see("#curl", "")
	if b.count("#attempt-1 pre", "success") == 0 {
		t.Error("the first attempt was opened, and closed when the second one came")
	}

	// Who is at a row of a list stays there when another one comes in above it.
	b.open("/ui/callbacks")
	row := fmt.Sprintf("tr[data-id=%s] a", cb.ID)
	b.see(row, "held-1")
	ask[bool](b, js(`document.querySelector(args[0]).focus(); return true`, row))
	next, err := p.Accept(t.Context(), harness.Submission{"url": r.URL, "ref": "another-1", "payload": harness.Submission{"paid": 1}})
	if err != nil {
		t.Fatal(err)
	}
	b.see("tr[data-id="+next.ID+"]", "succeeded")
	if at := b.focused(); at != "a held-1" {
		t.Errorf("the focus was on held-1, and went to %q when another one came in above it", at)
	}
}

// A page leaves by itself when its session has ended: who holds a key that is revoked sees nothing more, whether the page is told so by its stream
// or finds out when that comes back.
func TestBrowserRevokedKeyLeavesThePage(t *testing.T) {
	harness.BlackBox(t)
	for _, c := range []struct {
		name string
		down bool
	}{{"by its stream", false}, {"while the stream is down", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded)})
			x := harness.StartProxy(t, hostOf(t, p.Base))
			key := madeKey(t, p, "read")
			b := newTab(t, "http://"+x.Address)
			b.forgive(`status of 401`)
			b.signIn(key.Key)
			b.forget()
			b.open("/ui/callbacks")
			b.streams()
			if c.down {
				b.forgive(awayComplaints...)
				x.Refuse()
				b.see("#livestate", "interrupted")
			}
			began := time.Now()
			if err := p.Call(t.Context(), http.MethodDelete, "/v1/keys/"+key.ID, nil, nil, http.StatusOK); err != nil {
				t.Fatal(err)
			}
			x.Pass()
			b.arrive("/ui/sign-in")
			t.Logf("a page whose key was revoked was left after %s", time.Since(began).Round(100*time.Millisecond))
		})
	}
}
