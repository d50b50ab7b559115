//go:build !race

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
)

// The store, the index and the API by themselves, in batches of one size: nothing here depends on what the machine does beside.

// costRows is the size of a batch, and costRounds how many are counted, after as many that warm up.
const (
	costRows   = 64
	costRounds = 8
)

var (
	byOneself  = limits{allocations: near}
	ofPostgres = limits{allocations: near, statements: strict, sqlBytes: near, wal: upTo(0.25)}
	ofRedis    = limits{allocations: near, redis: near}
)

func costsOfParts(t *testing.T, golden *goldenFile, servers *costServers) {
	for _, on := range []struct {
		name    string
		servers *costServers
		limits
		settings *Settings
	}{
		{"sqlite", nil, byOneself, testSettings(t, "--admin-key=admin")},
		{"postgres", servers, ofPostgres, servers.settings(t)},
	} {
		t.Run("store, "+on.name, func(t *testing.T) {
			one, other := openStore(t, on.settings), openStore(t, on.settings)
			golden.hold(t, func() []figure {
				return storeCosts(steps{t: t, limits: on.limits, servers: on.servers}, one, other, "store, "+on.name)
			})
		})
		t.Run("accept, "+on.name, func(t *testing.T) {
			term := newTerminal()
			srv, err := openServer(t.Context(), &term.console, on.settings, newLogger(&term.console, on.settings))
			if err != nil {
				t.Fatal(err)
			}
			closeAfter(t, srv)
			golden.hold(t, func() []figure {
				return acceptCosts(steps{t: t, limits: on.limits, servers: on.servers}, srv.web.Handler(), "accept, "+on.name)
			})
		})
	}
	for _, on := range []struct {
		name    string
		servers *costServers
		limits
		settings *Settings
	}{
		{"embedded", nil, byOneself, testSettings(t)},
		{"redis", servers, ofRedis, servers.settings(t)},
	} {
		t.Run("index, "+on.name, func(t *testing.T) {
			srv := &server{s: on.settings, log: newLogger(&newTerminal().console, on.settings)}
			index, err := srv.openIndex(t.Context(), newRegistry())
			if err != nil {
				t.Fatal(err)
			}
			closeAfter(t, srv)
			golden.hold(t, func() []figure {
				return indexCosts(steps{t: t, limits: on.limits, servers: on.servers}, index.(indexPart), "index, "+on.name)
			})
		})
	}
}

func closeAfter(t *testing.T, srv *server) {
	t.Cleanup(func() {
		if err := srv.close(); err != nil {
			t.Error(err)
		}
	})
}

func openStore(t *testing.T, s *Settings) *sqlstore.DB {
	t.Helper()
	srv := &server{s: s, log: newLogger(&newTerminal().console, s)}
	closeAfter(t, srv)
	db, err := srv.openDatabase(t.Context(), newRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// steps collects what each step costs.
type steps struct {
	t *testing.T
	limits
	servers *costServers
	figures []figure
}

// count runs a step for every batch, and counts those of the second half.
func (s *steps) count(name string, size int, run func(batch int) error) {
	s.t.Helper()
	half := func(first int) {
		for i := range costRounds {
			if err := run(first + i); err != nil {
				s.t.Fatalf("%s: %v", name, err)
			}
		}
	}
	half(0)
	s.figures = append(s.figures, s.servers.measure(s.t, name, costRounds*size, s.limits, func() { half(costRounds) })...)
}

// storeCosts takes batches through one step of their life after the other; and stamps some that another process accepted, whose payload has
// to be read.
func storeCosts(s steps, one, other *sqlstore.DB, of string) []figure {
	ctx, now := s.t.Context(), time.Now().UnixMilli()
	var own, foreign [2 * costRounds][]store.Draft
	for i := range own {
		own[i], foreign[i] = costDrafts(now, i), costDrafts(now, len(own)+i)
	}
	var stamped [2 * costRounds][]*store.Stamped
	stamp := func(batches [2 * costRounds][]store.Draft) func(i int) error {
		return func(i int) (err error) {
			r := store.Stamp{Token: batches[i][0].Callback.ID, Now: now, Margin: 15_000, Suspect: 2, Claims: make([]store.StampClaim, costRows)}
			for n := range r.Claims {
				r.Claims[n].ID = batches[i][n].Callback.ID
			}
			if stamped[i], _, err = one.Stamp(ctx, r); err == nil && len(stamped[i]) != costRows {
				err = fmt.Errorf("%d rows", len(stamped[i]))
			}
			return err
		}
	}
	s.count(of+", accept", costRows, func(i int) error {
		accepted, err := one.Accept(ctx, own[i])
		if err != nil {
			return err
		}
		return accepted[0].Err
	})
	s.count(of+", stamp", costRows, stamp(own))
	s.count(of+", result", costRows, func(i int) error {
		committed, err := one.Commit(ctx, costResults(stamped[i], now), now)
		if err == nil && !committed[0].Won {
			err = fmt.Errorf("it has not won: %+v", committed[0])
		}
		return err
	})
	for i := range foreign {
		if _, err := other.Accept(ctx, foreign[i]); err != nil {
			s.t.Fatal(err)
		}
	}
	s.count(of+", stamp of others", costRows, stamp(foreign))
	return s.figures
}

// costID makes an id of this moment's.
func costID(now int64, batch, n int) string { return fmt.Sprintf("01K%013d%04d%06d", now, batch, n) }

func costDrafts(now int64, batch int) []store.Draft {
	policy := dispatch.DefaultPolicy()
	policy.Name, policy.Tiers = "payment", schedule.Payment()
	drafts := make([]store.Draft, costRows)
	for n := range drafts {
		drafts[n] = store.Draft{Body: benchBody(costBody), Callback: store.Callback{
			ID: costID(now, batch, n), Project: store.DefaultProject, Kind: store.Notify, URL: "https://shop.example/notify", Method: "POST",
			Ref: fmt.Sprint("order-", n), Lane: fmt.Sprint("merchant-", n%8), Policy: policy, Success: store.Success{Name: "http-2xx"},
			Signer: "standard-v1", State: store.Scheduled, Trigger: store.BySchedule, DueAt: now, FirstDueAt: now, CreatedAt: now, UpdatedAt: now,
			ContentType: "application/json",
		}}
	}
	return drafts
}

func costResults(stamped []*store.Stamped, now int64) []store.Result {
	results := make([]store.Result, len(stamped))
	for i := range stamped {
		results[i] = store.Result{ID: stamped[i].ID, Fence: stamped[i].Fence, Stamped: stamped[i], State: store.Succeeded, Charge: true, Attempt: &store.Attempt{
			Trigger: store.BySchedule, Outcome: store.AttemptSucceeded, Charged: true, Class: store.ClassOK, Status: 200,
			StartedAt: now, EndedAt: now, DueAt: now, Lateness: 1.5, ResponseBody: "success",
			RequestHeaders:  []store.Header{{Name: "webhook-id", Value: stamped[i].ID}, {Name: "content-type", Value: "application/json"}},
			ResponseHeaders: []store.Header{{Name: "content-type", Value: "text/plain"}},
		}}
	}
	return results
}

// An indexPart is what the steps need of an index.
type indexPart interface {
	dispatch.Schedule
	Reset(ctx context.Context, shard int, generation int64) error
}

// indexCosts takes items of many lanes through an index.
func indexCosts(s steps, index indexPart, of string) []figure {
	ctx, now := s.t.Context(), time.Now().UnixMilli()
	index.SetGeneration(1)
	if err := index.Reset(ctx, 0, 1); err != nil {
		s.t.Fatal(err)
	}
	if err := index.Open(ctx, 0); err != nil {
		s.t.Fatal(err)
	}
	s.count(of+", ensure", costRows, func(i int) error {
		items := make([]schedule.Item, costRows)
		for n := range items {
			items[n] = schedule.Item{ID: costID(now, i, n), Lane: int64(1 + i*costRows + n), Due: now}
		}
		_, err := index.Ensure(ctx, items)
		return err
	})
	var leases [2 * costRounds][]schedule.Lease
	s.count(of+", claim", costRows, func(i int) error {
		claimed, err := index.Claim(ctx, 0, schedule.ClaimRequest{
			Owner: "costs", Token: costID(now, i, 0), Max: costRows, MaxUncertain: costRows, MaxTimingOut: costRows, Lease: time.Minute, LaneLimit: 64,
		})
		if leases[i] = claimed.Leases; err == nil && len(leases[i]) != costRows {
			err = fmt.Errorf("%d leases", len(leases[i]))
		}
		return err
	})
	s.count(of+", settle", costRows, func(i int) error {
		done := make([]schedule.Settlement, costRows)
		for n, l := range leases[i] {
			done[n] = schedule.Settlement{Item: l.Item, Token: l.Token, Outcome: schedule.Ack, Signal: schedule.Answered, Won: true}
		}
		_, err := index.Settle(ctx, done)
		return err
	})
	return s.figures
}

// acceptCosts has callbacks accepted, from the router to the commit: without a connection, and while no engine runs. The request and
// the recorder that every one of them takes are counted, too.
func acceptCosts(s steps, handler http.Handler, of string) []figure {
	one := fmt.Sprintf(`{"url":"http://127.0.0.1:9/notify","ref":"order-1","payload":%s}`, benchBody(costBody))
	ask := func(path, body string, want int) func(int) error {
		return func(int) error {
			req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, path, strings.NewReader(body))
			if err != nil {
				return err
			}
			req.Header.Set("Authorization", "Bearer admin")
			answer := httptest.NewRecorder()
			if handler.ServeHTTP(answer, req); answer.Code != want {
				text, _ := io.ReadAll(answer.Body) // of memory: it cannot fail
				return fmt.Errorf("%d: %s", answer.Code, text)
			}
			return nil
		}
	}
	many := `{"callbacks":[` + strings.Repeat(one+",", costRows-1) + one + `]}`
	s.count(of+", one by one", 1, ask("/v1/callbacks", one, http.StatusAccepted))
	s.count(of+", batch", costRows, ask("/v1/callbacks/batch", many, http.StatusMultiStatus))
	return s.figures
}
