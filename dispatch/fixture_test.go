package dispatch_test

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
)

// The fixture is an engine with SQLite, an index in memory and a stub receiver, in virtual time (synctest).

// emptyDatabase returns the bytes of a migrated SQLite file without rows. Migrations take longer than most
// tests, so they run once and each test starts with a copy.
var emptyDatabase = testserver.SQLiteTemplate(func(url string) error {
	db, err := sqlstore.Open(context.Background(), sqlstore.Options{URL: url})
	if err != nil {
		return err
	}
	return errors.Join(sqlstore.Migrate(context.Background(), db), db.Close())
})

// databasePath returns a path in a new directory, in memory if the system has /dev/shm: each commit waits for
// a disk, and no test needs to survive a power cut.
func databasePath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "dispatch")
	if err != nil {
		return filepath.Join(t.TempDir(), "dispatcher.db")
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "dispatcher.db")
}

// openDatabase opens the SQLite file at the path, or creates an empty database there.
func openDatabase(ctx context.Context, path string) (*sqlstore.DB, error) {
	empty, err := emptyDatabase()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(path, empty, 0o600); err != nil {
			return nil, err
		}
	}
	return sqlstore.Open(ctx, sqlstore.Options{URL: "sqlite:" + path})
}

// A hit is a request that the receiver got.
type hit struct {
	at     time.Time
	id     string // without its prefix
	number string
	url    string
	body   string
}

// answers returns a receiver's response to a request, possibly after some virtual time. before is how many
// requests with that id came earlier.
type answers = func(ctx context.Context, h hit, before int) (*http.Response, error)

// A receiver is a stub transport that records requests and responds by a function.
type receiver struct {
	mu     sync.Mutex
	hits   []hit
	answer answers
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	h := hit{
		at: time.Now(), id: bare(req.Header.Get("webhook-id")), number: req.Header.Get("webhook-attempt"),
		url: req.URL.String(),
	}
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

// answer returns a response.
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

// always responds to every request in the same way.
func always(status int, body string, headers ...string) answers {
	return func(context.Context, hit, int) (*http.Response, error) {
		return answer(status, body, headers...), nil
	}
}

// after delays responses by d.
func after(d time.Duration, those answers) answers {
	return func(ctx context.Context, h hit, before int) (*http.Response, error) {
		select {
		case <-time.After(d):
			return those(ctx, h, before)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// takes responds with 200 after d.
func takes(d time.Duration) answers { return after(d, always(200, "")) }

// failing responds with 500 to URLs that contain part, and with 200 to others.
func failing(part string) answers { return answering(part, always(500, "")) }

// answering uses those responses for URLs that contain part, and 200 for others.
func answering(part string, those answers) answers { return divided(part, those, always(200, "")) }

// divided uses those responses for URLs that contain part, and others for the rest.
func divided(part string, those, others answers) answers {
	return func(ctx context.Context, h hit, before int) (*http.Response, error) {
		if strings.Contains(h.url, part) {
			return those(ctx, h, before)
		}
		return others(ctx, h, before)
	}
}

// inTurn responds to an id's requests with the statuses in turn and repeats the last one.
func inTurn(statuses ...int) answers {
	return func(_ context.Context, _ hit, before int) (*http.Response, error) {
		return answer(statuses[min(before, len(statuses)-1)], ""), nil
	}
}

// hangs never responds.
func hangs(ctx context.Context, _ hit, _ int) (*http.Response, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A gauge counts concurrent requests.
type gauge struct {
	mu        sync.Mutex
	now, most int
}

// around counts requests during their response.
func (g *gauge) around(those answers) answers {
	return func(ctx context.Context, h hit, before int) (*http.Response, error) {
		g.add(1)
		defer g.add(-1)
		return those(ctx, h, before)
	}
}

func (g *gauge) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now += n
	g.most = max(g.most, g.now)
}

// peak returns the most concurrent requests since its last call.
func (g *gauge) peak() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	most := g.most
	g.most = g.now
	return most
}

// options are the options of a fixture. The engine's are complete before the tweaks run.
type options struct {
	dispatch.Options
	*faults
	path  string
	index *memq.Index
}

// A tweak changes options.
type tweak = func(*options)

func workers(n int) tweak         { return func(o *options) { o.Workers = n } }
func laneConcurrency(n int) tweak { return func(o *options) { o.LaneConcurrency = n } }
func sendingOff(o *options)       { o.SendingOff = true }

// on makes the engine share an index.
func on(index *memq.Index) tweak {
	return func(o *options) { o.index, o.Embedded = index, false }
}

// withEffect injects an effect from the start.
func withEffect(w effect, ops ...string) tweak {
	return func(o *options) { o.set(w, ops...) }
}

// A setup creates fixtures.
type setup struct {
	answer answers
	tweaks []tweak
}

// with returns a setup whose receiver responds like that; nil: with 200.
func with(answer answers, tweaks ...tweak) setup {
	if answer == nil {
		answer = always(200, "")
	}
	return setup{answer, tweaks}
}

// A fixture is a running engine. Its faults apply to the calls of the engine.
type fixture struct {
	*testing.T
	*faults
	path     string
	db       *sqlstore.DB
	index    *memq.Index
	receiver *receiver
	engine   *dispatch.Engine
	metrics  *prometheus.Registry
	// stopRun ends the engine; stop also closes the database.
	stopRun, stop func()
}

// run runs a test in its own bubble, in parallel with others.
func (s setup) run(t *testing.T, test func(b *fixture)) {
	t.Helper()
	t.Parallel()
	s.runSerial(t, test)
}

func (s setup) runSerial(t *testing.T, test func(b *fixture)) {
	t.Helper()
	bubble(t, func(t *testing.T) { test(s.start(t)) })
}

// bubble runs a test in a synctest bubble, in which must can end the test.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer func() {
			if why := recover(); why != nil {
				failed, ok := why.(failure)
				if !ok {
					panic(why)
				}
				t.Fatal(failed)
			}
		}()
		test(t)
	})
}

// start starts an engine. It ends with the test or by stop.
func (s setup) start(t *testing.T) *fixture {
	t.Helper()
	b := &fixture{T: t, faults: new(faults), receiver: &receiver{answer: s.answer}}
	keys, err := secret.NewKeyring([]string{base64.StdEncoding.EncodeToString(make([]byte,
		secret.MasterKeyBytes))})
	b.ok(err)
	client, err := outbound.New(outbound.Options{Transport: b.receiver, Version: "test"})
	b.ok(err)
	sql, index := &calledStore{caller: b.faults}, &calledIndex{caller: b.faults}
	o := options{
		Options: dispatch.Options{Store: sql, Schedule: index, Sender: client, Keyring: keys, Embedded: true},
		faults:  b.faults, index: memq.New(memq.Options{}),
	}
	b.metrics = prometheus.NewRegistry()
	o.Registerer = b.metrics
	for _, f := range s.tweaks {
		f(&o)
	}
	b.path, b.index = cmp.Or(o.path, databasePath(t)), o.index
	b.db, err = openDatabase(t.Context(), b.path)
	b.ok(err)
	sql.Store, index.Schedule = b.db, b.index
	b.engine, err = dispatch.New(o.Options)
	b.ok(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.engine.Run(ctx) }()
	b.stopRun = sync.OnceFunc(func() {
		cancel()
		b.check(<-done == nil, "the engine could not start")
	})
	b.stop = sync.OnceFunc(func() {
		b.stopRun()
		err := b.db.Close()
		b.check(err == nil, "close: %v", err)
	})
	t.Cleanup(b.stop)
	return b
}

// restart stops the engine and starts another one on the same database.
func (b *fixture) restart(answer answers, tweaks ...tweak) *fixture {
	b.Helper()
	b.stop()
	return with(answer, append(tweaks, func(o *options) { o.path = b.path })...).start(b.T)
}

// join starts another engine on the same database and index.
func (b *fixture) join(name string, tweaks ...tweak) *fixture {
	b.Helper()
	return with(nil, append([]tweak{on(b.index), func(o *options) { o.path, o.Name = b.path, name }},
		tweaks...)...).start(b.T)
}

// damage stops the engine and changes the database.
func (b *fixture) damage(statements ...string) {
	b.Helper()
	b.stop()
	db, err := sql.Open("sqlite", b.path)
	b.ok(err)
	for _, statement := range statements {
		r, err := db.Exec(statement)
		b.ok(err)
		n, err := r.RowsAffected()
		b.ok(err)
		b.check(n > 0, "%s changed nothing", statement)
	}
	b.ok(db.Close())
}

// A failure is the panic value of must; bubble turns it into a failed test.
type failure string

// must returns the result of a call. An error ends the test, so it must not be used in another goroutine.
func must[T any](v T, err error) T {
	if err != nil {
		_, file, line, _ := runtime.Caller(1)
		panic(failure(fmt.Sprintf("%s:%d: %v", filepath.Base(file), line, err)))
	}
	return v
}

// ok ends the test on an error.
func (b *fixture) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// check fails the test unless holds is true.
func (b *fixture) check(holds bool, otherwise string, args ...any) {
	b.Helper()
	if !holds {
		b.Errorf(otherwise, args...)
	}
}

// is compares a value by its %#v text, so numbers of different types compare equal.
func (b *fixture) is(what string, got, want any) {
	b.Helper()
	b.check(fmt.Sprintf("%#v", got) == fmt.Sprintf("%#v", want), "%s: %+v, want %+v", what, got, want)
}

// fails checks an error with errors.Is; a nil want expects no error.
func (b *fixture) fails(what string, err, want error) {
	b.Helper()
	b.check(errors.Is(err, want) && (want != nil || err == nil), "%s: %v, want %v", what, err, want)
}

// between checks that a value is at least least and at most most.
func between[T cmp.Ordered](b *fixture, what string, got, least, most T) {
	b.Helper()
	b.check(least <= got && got <= most, "%s: %v, want %v to %v", what, got, least, most)
}
