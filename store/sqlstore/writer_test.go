package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

const testNow = int64(1_790_000_000_000)

// TestReopen: after Close and Open the accepted callbacks are there, and a closed store refuses calls.
func TestReopen(t *testing.T) {
	t.Parallel()
	url := sqliteURL(t)
	db := must(Open(t.Context(), Options{URL: url}))
	drafts := newDrafts(300, testNow)
	must(db.Accept(t.Context(), drafts))
	noError(db.Close())
	if _, err := db.Accept(t.Context(), drafts[:1]); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("accept after close: %v", err)
	}
	if err := db.Ping(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("ping after close: %v", err)
	}
	again := openURL(t, Options{URL: url})
	for _, d := range drafts {
		must(again.Get(t.Context(), d.Callback.Project, d.Callback.ID))
	}
}

// holdWriter blocks the writer of an SQLite store until the returned function is called.
func holdWriter(db *DB) (release func()) {
	begun, end := make(chan struct{}), make(chan struct{})
	go func() {
		_ = db.sql.Change(context.Background(), func(*sqldb.Tx) error {
			close(begun)
			<-end
			return nil
		})
	}()
	<-begun
	return func() { close(end) }
}

// TestQueueBound fills the queue while the writer is blocked. Calls that do not fit are refused at once, and
// the others are accepted later.
func TestQueueBound(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	release := holdWriter(db)
	var accepted, refused atomic.Int32
	var wg sync.WaitGroup
	for range 25 {
		drafts := newDrafts(1000, testNow)
		wg.Go(func() {
			_, err := db.Accept(t.Context(), drafts)
			switch {
			case err == nil:
				accepted.Add(1)
			case errors.Is(err, store.ErrUnavailable):
				if refused.Add(1) == 5 {
					release()
				}
			default:
				t.Errorf("accept: %v", err)
			}
		})
	}
	wg.Wait()
	if refused.Load() < 5 || accepted.Load() == 0 {
		t.Errorf("%d calls were accepted, %d refused", accepted.Load(), refused.Load())
	}
}

// TestQueueWait: a call that waits too long for its turn is refused. The test uses a fake clock.
func TestQueueWait(t *testing.T) {
	t.Parallel()
	url := sqliteURL(t)
	synctest.Test(t, func(t *testing.T) {
		db := openURL(t, Options{URL: url})
		drafts := newDrafts(2, testNow)
		release := holdWriter(db)
		began := time.Now()
		_, err := db.Accept(t.Context(), drafts[:1])
		if !errors.Is(err, store.ErrUnavailable) || time.Since(began) != 2*time.Second {
			t.Errorf("accept while the writer is blocked: %v after %s", err, time.Since(began))
		}
		release()
		if _, err := db.Accept(t.Context(), drafts[1:]); err != nil {
			t.Errorf("accept after that: %v", err)
		}
		_, err = db.Get(t.Context(), store.DefaultProject, drafts[0].Callback.ID)
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the refused callback is stored: %v", err)
		}
	})
}

// TestUnreachable calls a server that does not exist, and one that never answers.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	silent := must(net.Listen("tcp", "127.0.0.1:0"))
	defer silent.Close()
	absent := must(net.Listen("tcp", "127.0.0.1:0"))
	absent.Close()
	for name, l := range map[string]net.Listener{"silent": silent, "absent": absent} {
		t.Run(name, func(t *testing.T) {
			url := fmt.Sprintf("postgres://u:secret@%s/d?sslmode=disable", l.Addr())
			db := must(Open(t.Context(), Options{URL: url}))
			began := time.Now()
			accept := func() error { _, err := db.Accept(t.Context(), newDrafts(1, testNow)); return err }
			get := func() error { _, err := db.Get(t.Context(), "p", "x"); return err }
			ping := func() error { return db.Ping(t.Context()) }
			var wg sync.WaitGroup
			for _, call := range []func() error{accept, accept, accept, get, ping} {
				wg.Go(func() {
					if err := call(); !errors.Is(err, store.ErrUnavailable) ||
						strings.Contains(err.Error(), "secret") {
						t.Errorf("unreachable: %v", err)
					}
				})
			}
			wg.Wait()
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestConnectionsCut ends the store's sessions again and again while callers accept, claim and commit.
// Whatever returned without an error must be stored once, and the counters must agree.
func TestConnectionsCut(t *testing.T) {
	needsPostgres(t)
	server, address := testserver.SharedPostgres(t), postgresURL(t)
	registry := prometheus.NewRegistry()
	db := openURL(t, Options{URL: address, Registerer: registry})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	var finished, answered atomic.Int32
	for caller := range 4 {
		wg.Go(func() {
			defer finished.Add(1)
			for round := range 8 {
				liveOnce(ctx, t, db, &answered, fmt.Sprintf("t-%d-%d", caller, round))
			}
		})
	}
	parsed := must(url.Parse(address))
	end := `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE application_name = 'dispatcher' AND datname = '` + strings.TrimPrefix(parsed.Path, "/") + "'"
	for finished.Load() < 4 && ctx.Err() == nil {
		if err := server.Exec(ctx, end); err != nil {
			t.Errorf("cut connections: %v", err)
			break
		}
		// Wait until a call was answered before the next cut, so that a slow machine makes progress, too.
		for before := answered.Load(); answered.Load() == before && finished.Load() < 4 && ctx.Err() == nil; {
			time.Sleep(time.Millisecond) // until the deadline of ctx
		}
	}
	wg.Wait()
	counts := must(db.Counts(t.Context(), store.DefaultProject))
	states := make(map[store.State]int64)
	var after *store.Cursor
	for {
		page := must(db.List(t.Context(), store.DefaultProject,
			store.Filter{Limit: 500, After: after, Now: testNow}))
		for _, c := range page.Callbacks {
			states[c.State]++
			if c.State == store.Succeeded && (c.AttemptCount != 1 || c.AttemptSeq != 1) {
				t.Errorf("a result was counted twice: %+v", c)
			}
		}
		after = page.Next
		if after == nil {
			break
		}
	}
	for _, s := range store.States {
		if states[s] != counts.States[s] {
			t.Errorf("%d %s are counted, %d are stored", counts.States[s], s, states[s])
		}
	}
	n, err := testutil.GatherAndCount(registry, "dispatcher_sql_transaction_retries_total")
	if err != nil || n != 1 {
		t.Errorf("retries are not exported: %d, %v", n, err)
	}
}

// liveOnce takes ten callbacks from accept to success, and repeats each call until it returns without an
// error.
func liveOnce(ctx context.Context, t *testing.T, db *DB, answered *atomic.Int32, token string) {
	insist := func(call func() error) bool {
		for ctx.Err() == nil {
			err := call()
			if err == nil {
				answered.Add(1)
				return true
			}
			if !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: %v", token, err)
				return false
			}
		}
		t.Errorf("%s: %v", token, ctx.Err())
		return false
	}
	var ids []store.StampClaim
	if !insist(func() error {
		drafts := newDrafts(10, testNow) // a caller that got "unavailable" sends new ids
		accepted, err := db.Accept(ctx, drafts)
		if err != nil {
			return err
		}
		ids = nil
		for _, a := range accepted {
			if a.Err != nil {
				return a.Err
			}
			ids = append(ids, store.StampClaim{ID: a.Callback.ID})
		}
		return nil
	}) {
		return
	}
	var stamped []*store.Stamped
	if !insist(func() error {
		var err error
		var refused []store.Refusal
		stamped, refused, err = db.Stamp(ctx,
			store.Stamp{Token: token, Now: testNow, Margin: 15_000, Claims: ids})
		if len(refused) > 0 {
			return fmt.Errorf("refused: %+v", refused)
		}
		return err
	}) {
		return
	}
	results := make([]store.Result, len(stamped))
	for i, s := range stamped {
		results[i] = succeeded(s)
	}
	insist(func() error {
		committed, err := db.Commit(ctx, results, testNow)
		for _, c := range committed {
			if !c.Won || c.Number != 1 || c.Err != nil {
				return fmt.Errorf("a result lost without a competitor: %+v", c)
			}
		}
		return err
	})
}

// TestBadTextStandsAlone: PostgreSQL refuses the text of two drafts of a group. The others must be accepted.
func TestBadTextStandsAlone(t *testing.T) {
	needsPostgres(t)
	db := openPostgres(t)
	drafts := newDrafts(50, testNow)
	drafts[17].Callback.Ref = "a\x00b"
	drafts[31].Callback.Ref = "\xff"
	accepted := must(db.Accept(t.Context(), drafts))
	for i, a := range accepted {
		if bad := i == 17 || i == 31; (a.Err != nil) != bad {
			t.Errorf("draft %d: %v", i, a.Err)
		}
		if errors.Is(a.Err, store.ErrUnavailable) {
			t.Errorf("draft %d is refused as if the database were gone: %v", i, a.Err)
		}
	}
}

// TestMetrics: two databases of one process share a registry.
func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	for range 2 {
		db := openURL(t, Options{URL: sqliteURL(t), Registerer: registry})
		must(db.Accept(t.Context(), newDrafts(3, testNow)))
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", err, problems)
	}
	families := must(registry.Gather())
	for _, f := range families {
		if f.GetName() == "dispatcher_sql_group_rows" {
			if h := f.GetMetric()[0].GetHistogram(); h.GetSampleCount() != 2 || h.GetSampleSum() != 6 {
				t.Errorf("rows of groups: %v", h)
			}
			return
		}
	}
	t.Error("no groups were counted")
}
