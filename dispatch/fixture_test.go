package dispatch_test

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
)

// A hit is one request as the receiver saw it.
type hit struct {
	at     time.Time
	id     string
	number string
	url    string
	body   string
}

// A receiver is a stub transport: it answers from a script, in no time or after a while, and remembers what came.
type receiver struct {
	mu   sync.Mutex
	hits []hit
	// answer is asked with the hit and how often its id came before; it may sleep (in the bubble's time).
	answer func(ctx context.Context, h hit, before int) (*http.Response, error)
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	h := hit{at: time.Now(), id: req.Header.Get("webhook-id"), number: req.Header.Get("webhook-attempt"), url: req.URL.String()}
	if req.Body != nil {
		b, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		h.body = string(b)
	}
	r.mu.Lock()
	before := 0
	for i := range r.hits {
		if r.hits[i].id == h.id {
			before++
		}
	}
	r.hits = append(r.hits, h)
	say := r.answer
	r.mu.Unlock()
	return say(req.Context(), h, before)
}

// turn has the receiver answer otherwise from now on.
func (r *receiver) turn(answer func(context.Context, hit, int) (*http.Response, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *receiver) seen() []hit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]hit(nil), r.hits...)
}

// answer makes a response.
func answer(status int, body string, headers ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// always answers every request alike.
func always(status int, body string, headers ...string) func(context.Context, hit, int) (*http.Response, error) {
	return func(context.Context, hit, int) (*http.Response, error) { return answer(status, body, headers...), nil }
}

// failing answers addresses with that in them with 500, and the others with 200.
func failing(part string) func(context.Context, hit, int) (*http.Response, error) {
	return func(_ context.Context, h hit, _ int) (*http.Response, error) {
		if strings.Contains(h.url, part) {
			return answer(500, ""), nil
		}
		return answer(200, ""), nil
	}
}

// inTurn answers an id's first request with the first status, and so on; the last one repeats.
func inTurn(statuses ...int) func(context.Context, hit, int) (*http.Response, error) {
	return func(_ context.Context, _ hit, before int) (*http.Response, error) {
		return answer(statuses[min(before, len(statuses)-1)], ""), nil
	}
}

// A fixture is an engine with SQLite, the embedded index and a stub receiver, inside a synctest bubble.
type fixture struct {
	t        *testing.T
	db       *sqlstore.DB
	index    *memq.Index
	receiver *receiver
	engine   *dispatch.Engine
	// stopRun ends the engine, stop the database, too.
	stopRun, stop func()
}

// tweak changes the options before the engine is made.
type tweak func(*dispatch.Options)

// newFixture starts an engine. It ends with the test, or with stop.
func newFixture(
	t *testing.T, answer func(context.Context, hit, int) (*http.Response, error), tweaks ...tweak,
) *fixture {
	t.Helper()
	return startFixture(t, databasePath(t), answer, tweaks...)
}

func startFixture(
	t *testing.T, path string, answer func(context.Context, hit, int) (*http.Response, error), tweaks ...tweak,
) *fixture {
	t.Helper()
	db, err := openDatabase(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{answer: answer}
	client, err := outbound.New(outbound.Options{Transport: r, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := secret.NewKeyring([]string{base64.StdEncoding.EncodeToString(make([]byte, 32))})
	if err != nil {
		t.Fatal(err)
	}
	b := &fixture{t: t, db: db, receiver: r, index: memq.New(memq.Options{})}
	o := dispatch.Options{Store: db, Schedule: b.index, Sender: client, Keyring: keys, Alone: true}
	for _, f := range tweaks {
		f(&o)
	}
	if b.engine, err = dispatch.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.engine.Run(ctx) }()
	b.stopRun = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("engine: %v", err)
		}
	})
	b.stop = sync.OnceFunc(func() {
		b.stopRun()
		if err := db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	t.Cleanup(b.stop)
	return b
}

// must takes what an operation of the engine returns, whose value is of no interest.
func (b *fixture) must(_ any, err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *fixture) ok(err error) {
	b.t.Helper()
	b.must(nil, err)
}

// accept submits one callback and returns it; the submission must be valid.
func (b *fixture) accept(s accept.Submission) store.Callback {
	b.t.Helper()
	if s.URL == "" && s.Endpoint == "" {
		s.URL = "https://shop.example/notify"
	}
	if s.Body == nil {
		s.Body = []byte(`{"paid": 1}`)
	}
	receipts, err := b.engine.Accept(b.t.Context(), store.DefaultProject, []accept.Submission{s})
	if err != nil {
		b.t.Fatal(err)
	}
	if receipts[0].Err != nil {
		b.t.Fatal(receipts[0].Err)
	}
	return receipts[0].Callback
}

func (b *fixture) get(id string) store.Callback {
	b.t.Helper()
	c, err := b.db.Get(b.t.Context(), store.DefaultProject, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// attempts are those of a callback by number.
func (b *fixture) attempts(id string) []store.Attempt {
	b.t.Helper()
	a, err := b.db.Attempts(b.t.Context(), store.DefaultProject, id, 0, 500)
	if err != nil {
		b.t.Fatal(err)
	}
	slices.Reverse(a)
	return a
}

// await sleeps, in the bubble's time, until the callback is terminal: to its due time while that is far, else in small steps.
func (b *fixture) await(id string, within time.Duration) store.Callback {
	b.t.Helper()
	deadline := time.Now().Add(within)
	for {
		synctest.Wait()
		c := b.get(id)
		if c.State.Terminal() {
			return c
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("callback is still %s after %v: due %s, attempts %d, now %s", c.State, within,
				time.UnixMilli(c.DueAt).UTC(), c.AttemptCount, time.Now().UTC())
		}
		time.Sleep(max(50*time.Millisecond, time.Until(time.UnixMilli(c.DueAt))))
	}
}

// tiers is an inline policy.
func tiers(d ...time.Duration) accept.Submission {
	p := accept.DefaultPolicy()
	p.Tiers = d
	return accept.Submission{Choice: accept.Choice{Policy: p, PolicyGiven: true}}
}

// faultySQL puts faults before the store, faultyIndex before the index.
func faultySQL(f *faults) tweak {
	return func(o *dispatch.Options) { o.Store = &calledStore{o.Store, f} }
}

func faultyIndex(f *faults) tweak {
	return func(o *dispatch.Options) { o.Schedule = &calledIndex{o.Schedule, f} }
}
