//go:build !race

// The race detector allocates, so this file is not built with it.

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/app"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/loadtest"
	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestCosts checks the cost of a callback in operations, bytes and allocations, which do not depend on the
// machine. "make bench" measures times. It does not run in parallel with other tests, because they allocate.
func TestCosts(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real PostgreSQL and a real Redis")
	}
	// A collection empties sync.Pools, and its time depends on the machine.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	golden := readGolden(t, "testdata/costs.golden")
	servers := startCostServers(t)
	costsOfParts(t, golden, servers)
	costsOfCalls(t, golden)
	golden.finish(t)
}

// A batch has costRows callbacks. costRounds batches warm up, and as many are counted.
const (
	costRows   = 64
	costRounds = 8
	// costBody is the size of a payload in bytes.
	costBody = 512
	// costLane is how many attempts a lane may have in flight.
	costLane = 64
)

// The tolerances. Batches have a fixed size or collect in virtual time, so the costs depend only on the code.
// But the runtime and the drivers allocate for themselves at times: allocations differ by up to 3 % between
// idle and busy machines. WAL contains the first change of each page after a checkpoint. The order of two
// goroutines decides how much a call takes: a little for results, much for claims.
const (
	ofOperations = 0.10
	ofGathering  = 0.25
)

var (
	ofMemory   = tolerances{allocations: 0.05, bytesAllocated: 0.05}
	ofPostgres = tolerances{allocations: 0.05, bytesAllocated: 0.05, statements: 0.02, sqlBytes: 0.05,
		walBytes: 0.25}
	ofRedis = tolerances{allocations: 0.05, bytesAllocated: 0.05, redisCommands: 0.05, redisBytes: 0.05}
)

// costsOfParts measures the store, the API and the index separately.
func costsOfParts(t *testing.T, golden *goldenFile, servers *costServers) {
	embedded, both := apptest.Settings(t, cmdtest.BothKeys()...), servers.settings(t)
	for _, part := range []struct {
		name    string
		servers *costServers
		tolerances
		settings *config.Settings
		costs    func(*testing.T, *config.Settings) func(*steps)
	}{
		{"store, sqlite", nil, ofMemory, embedded, storeCosts},
		{"accept, sqlite", nil, ofMemory, embedded, acceptCosts},
		{"store, postgres", servers, ofPostgres, both, storeCosts},
		{"accept, postgres", servers, ofPostgres, both, acceptCosts},
		{"index, embedded", nil, ofMemory, embedded, indexCosts},
		{"index, redis", servers, ofRedis, both, indexCosts},
	} {
		t.Run(part.name, func(t *testing.T) {
			run := part.costs(t, part.settings)
			golden.check(t, func() []figure {
				s := steps{t: t, part: part.name, tolerances: part.tolerances, servers: part.servers}
				run(&s)
				return s.figures
			})
		})
	}
}

// steps collects the cost of each step of a part.
type steps struct {
	t    *testing.T
	part string
	tolerances
	servers *costServers
	figures []figure
}

// count runs a step for all batches and counts those of the second half.
func (s *steps) count(step string, size int, run func(batch int) error) {
	s.t.Helper()
	half := func(first int) {
		for i := range costRounds {
			if err := run(first + i); err != nil {
				s.t.Fatalf("%s: %v", step, err)
			}
		}
	}
	half(0)
	runtime.GC() // makes a collection during the measurement unlikely
	name := s.part + ", " + step
	s.figures = append(s.figures, s.servers.measure(s.t, name, costRounds*size, s.tolerances, func() {
		half(costRounds)
	})...)
}

func closeAfter(t *testing.T, srv *app.App) {
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
}

// part opens one part of a server until the end of the test.
func part[T any](
	t *testing.T, s *config.Settings, open func(*app.App, context.Context, prometheus.Registerer) (T, error),
) T {
	srv := &app.App{Settings: s, Log: app.NewLogger(&program.Terminal().Console, s)}
	closeAfter(t, srv)
	opened, err := open(srv, t.Context(), app.NewRegistry("dev", ""))
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// storeCosts takes batches through the steps of their life. Then it stamps callbacks that another process
// accepted, whose payloads must be read.
func storeCosts(t *testing.T, settings *config.Settings) func(*steps) {
	one, other := part(t, settings, (*app.App).OpenDatabase), part(t, settings, (*app.App).OpenDatabase)
	return func(s *steps) {
		ctx, now := t.Context(), time.Now().UnixMilli()
		var own, foreign [2 * costRounds][]store.Draft
		for i := range own {
			own[i], foreign[i] = costDrafts(now, i), costDrafts(now, len(own)+i)
		}
		var stamped [2 * costRounds][]*store.Stamped
		stamp := func(batches [2 * costRounds][]store.Draft) func(i int) error {
			return func(i int) (err error) {
				token := batches[i][0].Callback.ID
				r := store.Stamp{Token: token, Now: now, Margin: 15_000, QuarantineAfter: 2}
				for _, draft := range batches[i] {
					r.Claims = append(r.Claims, store.StampClaim{ID: draft.Callback.ID})
				}
				stamped[i], _, err = one.Stamp(ctx, r)
				if err == nil && len(stamped[i]) != costRows {
					err = fmt.Errorf("%d rows", len(stamped[i]))
				}
				return err
			}
		}
		s.count("accept", costRows, func(i int) error {
			accepted, err := one.Accept(ctx, own[i])
			if err != nil {
				return err
			}
			return accepted[0].Err
		})
		s.count("stamp", costRows, stamp(own))
		s.count("result", costRows, func(i int) error {
			committed, err := one.Commit(ctx, costResults(stamped[i], now), now)
			if err == nil && !committed[0].Won {
				err = fmt.Errorf("the result has not won: %+v", committed[0])
			}
			return err
		})
		for i := range foreign {
			if _, err := other.Accept(ctx, foreign[i]); err != nil {
				t.Fatal(err)
			}
		}
		s.count("stamp of others", costRows, stamp(foreign))
	}
}

// costID returns an id with this time.
func costID(now int64, batch, n int) string { return fmt.Sprintf("01K%013d%04d%06d", now, batch, n) }

func costDrafts(now int64, batch int) []store.Draft {
	policy := accept.DefaultPolicy()
	policy.Name, policy.Tiers = "payment", schedule.Payment()
	drafts := make([]store.Draft, costRows)
	for n := range drafts {
		drafts[n] = store.Draft{Body: loadtest.BenchBody(costBody), Callback: store.Callback{
			ID: costID(now, batch, n), Project: store.DefaultProject, Kind: store.Notify,
			URL: "https://shop.example/notify", Method: "POST", ContentType: "application/json",
			Ref: fmt.Sprint("order-", n), Lane: fmt.Sprint("merchant-", n%8), Policy: policy,
			Success: store.Success{Name: "http-2xx"}, Signer: "standard-v1",
			State: store.Scheduled, Trigger: store.BySchedule,
			DueAt: now, FirstDueAt: now, CreatedAt: now, UpdatedAt: now,
			CreatedBy: costID(now, 0, 0),
		}}
	}
	return drafts
}

func costResults(stamped []*store.Stamped, now int64) []store.Result {
	results := make([]store.Result, len(stamped))
	for i, s := range stamped {
		results[i] = store.Result{ID: s.ID, Fence: s.Fence, Stamped: s, State: store.Succeeded, Charge: true,
			Attempt: &store.Attempt{
				Trigger: store.BySchedule, Outcome: store.AttemptSucceeded, Charged: true,
				Class: store.ClassOK, Status: 200,
				StartedAt: now, EndedAt: now, DueAt: now, Lateness: 1.5, ResponseBody: "success",
				RequestHeaders: []store.Header{{Name: "webhook-id", Value: s.ID},
					{Name: "content-type", Value: "application/json"}},
				ResponseHeaders: []store.Header{{Name: "content-type", Value: "text/plain"}},
			}}
	}
	return results
}

// acceptCosts accepts callbacks, from the router to the commit, without a connection and without an engine.
// The cost includes the test's request and recorder.
func acceptCosts(t *testing.T, settings *config.Settings) func(*steps) {
	term := program.Terminal()
	srv, err := app.New(t.Context(), &term.Console, settings, app.NewLogger(&term.Console, settings))
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, srv)
	post := func(path, body string, want int) func(int) error {
		return func(int) error {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, path,
				strings.NewReader(body))
			if err != nil {
				return err
			}
			req.RemoteAddr = "127.0.0.1:1234" // a connection sets it
			req.Header.Set("Authorization", "Bearer "+settings.AdminKey)
			answer := httptest.NewRecorder()
			srv.Web.Handler().ServeHTTP(answer, req)
			if answer.Code != want {
				return fmt.Errorf("%d: %s", answer.Code, answer.Body)
			}
			return nil
		}
	}
	one := fmt.Sprintf(`{"url":"http://127.0.0.1:9/notify","ref":"order-1","payload":%s}`,
		loadtest.BenchBody(costBody))
	many := `{"callbacks":[` + strings.Repeat(one+",", costRows-1) + one + `]}`
	return func(s *steps) {
		s.count("one by one", 1, post("/v1/callbacks", one, http.StatusAccepted))
		s.count("batch", costRows, post("/v1/callbacks/batch", many, http.StatusMultiStatus))
	}
}

// indexCosts takes items through an index. Each has its own lane and lock.
func indexCosts(t *testing.T, settings *config.Settings) func(*steps) {
	index := part(t, settings, (*app.App).OpenIndex).(interface {
		dispatch.Schedule
		Reset(ctx context.Context, shard int, generation int64) error
	})
	return func(s *steps) {
		ctx, now := t.Context(), time.Now().UnixMilli()
		index.SetGeneration(1)
		if err := index.Reset(ctx, 0, 1); err != nil {
			t.Fatal(err)
		}
		if err := index.Open(ctx, 0); err != nil {
			t.Fatal(err)
		}
		var leases [2 * costRounds][]schedule.Lease
		s.count("ensure", costRows, func(i int) error {
			items := make([]schedule.Item, costRows)
			for n := range items {
				items[n] = schedule.Item{ID: costID(now, i, n), Lane: int64(1 + i*costRows + n), Due: now}
			}
			_, err := index.Ensure(ctx, items)
			return err
		})
		s.count("claim", costRows, func(i int) error {
			claimed, err := index.Claim(ctx, 0, schedule.ClaimRequest{
				Owner: "costs", Token: costID(now, i, 0), Max: costRows, MaxUncertain: costRows,
				MaxTimingOut: costRows,
				Lease:        time.Minute, LaneLimit: costLane,
			})
			leases[i] = claimed.Leases
			if err == nil && len(leases[i]) != costRows {
				err = fmt.Errorf("%d leases", len(leases[i]))
			}
			return err
		})
		s.count("acquire of locks", costRows, func(i int) error {
			locks := slices.Clone(leases[i])
			for n := range locks {
				locks[n].Lock, locks[n].Until = locks[n].ID[4:], now+time.Minute.Milliseconds()
			}
			replies, err := index.Acquire(ctx, locks)
			if err == nil && !replies[0].Acquired {
				err = fmt.Errorf("a lock is taken: %+v", replies[0])
			}
			return err
		})
		s.count("release of locks", costRows, func(i int) error {
			locks := make([]schedule.Unlock, costRows)
			for n, l := range leases[i] {
				locks[n] = schedule.Unlock{Lock: l.ID[4:], ID: l.ID, Token: l.Token}
			}
			_, err := index.Release(ctx, locks)
			return err
		})
		s.count("settle", costRows, func(i int) error {
			done := make([]schedule.Settlement, costRows)
			for n, l := range leases[i] {
				done[n] = schedule.Settlement{Item: l.Item, Token: l.Token, Outcome: schedule.Ack,
					Signal: schedule.Answered, Won: true}
			}
			_, err := index.Settle(ctx, done)
			return err
		})
	}
}

// backlog is n callbacks with one due time in a number of lanes.
type backlog struct {
	name     string
	n, lanes int
	// locks: each callback has its own lock key.
	locks bool
}

// accept submits the backlog.
func (b backlog) accept(t *testing.T, engine *dispatch.Engine, due int64) {
	t.Helper()
	const batch = 500
	for first := 0; first < b.n; first += batch {
		subs := make([]accept.Submission, batch)
		for i := range subs {
			subs[i] = accept.Submission{
				URL: "http://127.0.0.1:9", Ref: fmt.Sprint("order-", first+i),
				Body: loadtest.BenchBody(costBody), BodyField: "payload",
				Lane: fmt.Sprint("merchant-", i%b.lanes), DueAt: &due,
			}
			if b.locks {
				subs[i].LockKey = subs[i].Ref
			}
		}
		receipts, err := engine.Accept(t.Context(), store.DefaultProject, subs)
		for _, r := range receipts {
			err = errors.Join(err, r.Err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// costsOfCalls counts the calls between the engine and its parts in virtual time. The sizes of batches then
// do not depend on the load of the machine.
func costsOfCalls(t *testing.T, golden *goldenFile) {
	for _, b := range []backlog{{"one lane", 2000, 1, false}, {"64 lanes", 2000, 64, false},
		{"locks", 500, 1, true}} {
		name := "calls, " + b.name
		t.Run(name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // equal on all machines
			golden.check(t, func() (list []figure) {
				synctest.Test(t, func(t *testing.T) {
					var c calls
					engine := c.start(t)
					due := time.Now().Add(time.Minute)
					b.accept(t, engine, due.UnixMilli())
					time.Sleep(time.Until(due) - 100*time.Millisecond) // virtual
					runtime.GC()
					before := c.counts()
					var none *costServers
					list = none.measure(t, name, b.n, ofMemory, func() {
						testserver.Until(t, "the backlog is settled", func() bool {
							return c.settled.Load() >= int64(b.n)
						})
					})
					for kind, n := range c.counts() {
						of := callNames[kind]
						if b.locks || kind < acquires {
							per1000 := 1000 * (n - before[kind]) / float64(b.n)
							list = append(list,
								figure{name + ": " + of + " for 1,000", per1000, callTolerances[kind]})
						}
					}
				})
				return list
			})
		})
	}
}
