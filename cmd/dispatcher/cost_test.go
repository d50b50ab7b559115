//go:build !race

// The race detector allocates, too: no cost is measured beside it.

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestCosts guards what a callback costs: operations, bytes and allocations, on whatever machine; what a change is worth in time is for make
// bench to say. It does not run beside other tests of this package: they allocate, too.
func TestCosts(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real PostgreSQL and a real Redis")
	}
	// Garbage is collected as seldom as in a dispatcher: each collection empties the pools of what is used again.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	golden := readGolden(t, "testdata/costs.golden")
	servers := startCostServers(t)
	costsOfParts(t, golden, servers)
	costsOfCalls(t, golden)
	costsEndToEnd(t, golden, servers)
	golden.finish(t)
}

const (
	// costBody is how long a payload is.
	costBody = 512
	// costLane is how many attempts a lane may have in flight.
	costLane = 64
)

// A backlog is n callbacks that are due at the same time, in so many lanes.
type backlog struct {
	name     string
	n, lanes int
	// locks: each callback has a lock key of its own.
	locks bool
}

// accept hands it over.
func (b backlog) accept(t *testing.T, engine *dispatch.Engine, url string, due time.Time) {
	t.Helper()
	const batch = 500
	body, at := benchBody(costBody), due.UnixMilli()
	for first := 0; first < b.n; first += batch {
		subs := make([]dispatch.Submission, min(batch, b.n-first))
		for i := range subs {
			subs[i] = dispatch.Submission{
				URL: url, Ref: fmt.Sprint("order-", first+i), Body: body, BodyField: "payload", Lane: fmt.Sprint("merchant-", i%b.lanes), DueAt: &at,
			}
			if b.locks {
				subs[i].LockKey = subs[i].Ref
			}
		}
		receipts, err := engine.Accept(t.Context(), store.DefaultProject, subs)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range receipts {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
}

// costsEndToEnd has backlogs accepted and sent by a whole server, to a receiver in this process, whose allocations are counted, too.
func costsEndToEnd(t *testing.T, golden *goldenFile, servers *costServers) {
	var answered atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answered.Add(1)
		_, _ = io.WriteString(w, "success") // who does not get it comes again, and is counted
	}))
	t.Cleanup(receiver.Close)
	lane := fmt.Sprint("--lane-concurrency=", costLane)
	for _, b := range []backlog{{name: "64 lanes", n: 2000, lanes: 64}, {name: "locks", n: 500, lanes: 1, locks: true}} {
		for _, on := range []struct {
			name    string
			servers *costServers
			limits
			settings *Settings
		}{
			{"sqlite", nil, limits{allocations: upTo(0.1)}, testSettings(t, lane)},
			{"postgres", servers, limits{allocations: upTo(0.1), sqlBytes: upTo(0.15), wal: upTo(0.25), redis: upTo(0.5)}, servers.settings(t, lane)},
		} {
			name := "end to end, " + on.name + ", " + b.name
			t.Run(name, func(t *testing.T) {
				r := startServer(t, on.settings)
				t.Cleanup(func() {
					if err := r.end(t); err != nil {
						t.Error(err)
					}
				})
				until(t, "the index is filled", func() bool { return len(r.engine.Health(t.Context()).Degraded) == 0 })
				drain := func() {
					want := answered.Load() + int64(b.n)
					b.accept(t, r.engine, receiver.URL+"/notify", time.Now())
					until(t, "the backlog is sent", func() bool { return answered.Load() >= want })
					until(t, "the backlog is settled", func() bool {
						s, err := r.engine.Stats(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						return s.Delayed+s.Ready+s.Leased == 0
					})
				}
				drain() // warms up
				golden.hold(t, func() []figure { return on.servers.measure(t, name, b.n, on.limits, drain) })
			})
		}
	}
}

// The parts of an engine in virtual time take as long as this for each call, so that as much gathers meanwhile on whatever machine.
const (
	indexTakes    = 170 * time.Microsecond
	storeTakes    = 1300 * time.Microsecond
	receiverTakes = 5100 * time.Microsecond
)

// costsOfCalls counts the calls between the engine and its parts, in virtual time and without a wire: what gathers in a batch does not depend
// on what else the machine does.
func costsOfCalls(t *testing.T, golden *goldenFile) {
	for _, b := range []backlog{{name: "one lane", n: 2000, lanes: 1}, {name: "64 lanes", n: 2000, lanes: 64}, {name: "locks", n: 500, lanes: 1, locks: true}} {
		t.Run("calls, "+b.name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // as everywhere
			golden.hold(t, func() (list []figure) {
				synctest.Test(t, func(t *testing.T) { list = callsOf(t, b) })
				return list
			})
		})
	}
}

func callsOf(t *testing.T, b backlog) []figure {
	var c calls
	engine := c.start(t)
	due := time.Now().Add(time.Minute)
	b.accept(t, engine, "http://127.0.0.1:9", due)
	time.Sleep(time.Until(due) - 100*time.Millisecond)
	before := c.sofar()
	var none *costServers
	list := none.measure(t, "calls, "+b.name, b.n, limits{allocations: near}, func() {
		until(t, "the backlog is settled", func() bool { return c.settled.Load() >= int64(b.n) })
	})
	now := c.sofar()
	for i, of := range []figure{
		{"claims", 0, upTo(0.25)}, {"stamps", 0, upTo(0.25)}, {"commits of results", 0, near}, {"settles", 0, near},
		{"acquires of locks", 0, near}, {"releases of locks", 0, near},
	} {
		if b.locks || i < 4 {
			list = append(list, figure{"calls, " + b.name + ": " + of.name + " for 1,000", 1000 * float64(now[i]-before[i]) / float64(b.n), of.tolerance})
		}
	}
	return list
}

// calls are those of an engine of its index and its store.
type calls struct {
	claims, stamps, commits, settles, acquires, releases atomic.Int64
	// settled are callbacks.
	settled atomic.Int64
}

func (c *calls) sofar() [6]int64 {
	return [6]int64{c.claims.Load(), c.stamps.Load(), c.commits.Load(), c.settles.Load(), c.acquires.Load(), c.releases.Load()}
}

// start runs an engine on the embedded stores, whose requests are answered without a wire. It ends with the test.
func (c *calls) start(t *testing.T) *dispatch.Engine {
	t.Helper()
	s := testSettings(t)
	log := newLogger(&newTerminal().console, s)
	srv := &server{s: s, log: log}
	closeAfter(t, srv)
	db, err := srv.openDatabase(t.Context(), newRegistry())
	if err != nil {
		t.Fatal(err)
	}
	index, err := srv.openIndex(t.Context(), newRegistry())
	if err != nil {
		t.Fatal(err)
	}
	keyring, err := dispatch.NewKeyring([]string{someKey('m')})
	if err != nil {
		t.Fatal(err)
	}
	sender, err := outbound.New(outbound.Options{Transport: pretender{}, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := dispatch.New(dispatch.Options{
		Store: countedRows{db, c}, Schedule: countedIndex{index, c}, Sender: sender, Keyring: keyring, Alone: true, LaneConcurrency: costLane, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	until(t, "the index is filled", func() bool { return len(engine.Health(t.Context()).Degraded) == 0 })
	return engine
}

type countedIndex struct {
	dispatch.Schedule
	*calls
}

func (c countedIndex) Claim(ctx context.Context, shard int, r schedule.ClaimRequest) (schedule.Claimed, error) {
	c.claims.Add(1)
	time.Sleep(indexTakes)
	return c.Schedule.Claim(ctx, shard, r)
}

func (c countedIndex) Settle(ctx context.Context, s []schedule.Settlement) ([]schedule.Settled, error) {
	c.settles.Add(1)
	time.Sleep(indexTakes)
	defer c.settled.Add(int64(len(s)))
	return c.Schedule.Settle(ctx, s)
}

func (c countedIndex) Acquire(ctx context.Context, r []schedule.LockRequest) ([]schedule.LockReply, error) {
	c.acquires.Add(1)
	time.Sleep(indexTakes)
	return c.Schedule.Acquire(ctx, r)
}

func (c countedIndex) Release(ctx context.Context, u []schedule.Unlock) ([]schedule.Waiter, error) {
	c.releases.Add(1)
	time.Sleep(indexTakes)
	return c.Schedule.Release(ctx, u)
}

type countedRows struct {
	dispatch.Store
	*calls
}

func (c countedRows) Stamp(ctx context.Context, s store.Stamp) ([]*store.Stamped, []store.Refusal, error) {
	c.stamps.Add(1)
	time.Sleep(storeTakes)
	return c.Store.Stamp(ctx, s)
}

func (c countedRows) Commit(ctx context.Context, r []store.Result, now int64) ([]store.Committed, error) {
	c.commits.Add(1)
	time.Sleep(storeTakes)
	return c.Store.Commit(ctx, r, now)
}

// A pretender answers without a wire.
type pretender struct{}

func (pretender) RoundTrip(req *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return nil, err
	}
	time.Sleep(receiverTakes)
	return &http.Response{
		StatusCode: 200, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader("success")), ContentLength: 7,
	}, nil
}
