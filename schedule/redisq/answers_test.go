package redisq_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// notNow are the answers of a server that cannot at present, as servers gave them.
var notNow = []string{
	"READONLY You can't write against a read only replica.",
	"NOREPLICAS Not enough good replicas to write.",
	"LOADING Redis is loading the dataset in memory",
	"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
	"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
	"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
	"CLUSTERDOWN Hash slot not served",
	"TRYAGAIN Multiple keys request during rehashing of slot",
	"OOM command not allowed when used memory > 'maxmemory'.",
	"UNKILLABLE Sorry the script already executed write commands against the dataset.",
	"ERR max number of clients reached",
	"ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.",
}

// An answer of a server that only means "not now" fails the calls of that time and nothing else, and does not
// keep a process from starting.
func TestAnswersThatMeanNotNow(t *testing.T) {
	needsServer(t)
	for _, answer := range notNow {
		word, _, _ := strings.Cut(strings.TrimPrefix(answer, "ERR "), " ")
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t, testserver.SharedRedis(t))
			ix := open(t, p.url, 1)
			reset(t, ix, 1)
			it := schedule.Item{ID: id(1), Lane: 1, Due: 1}
			ensure(t, ix, it)
			p.say(answer)
			expectFailing(t, ix, it, word)
			if !strings.HasPrefix(answer, "ERR Error") { // which only scripts answer
				log := new(journal)
				if openAs(t, redisq.Options{URL: p.url, Logger: log.logger()}); log.count("WARN", "cannot be reached") != 1 {
					t.Errorf("at a start the log says %s", log)
				}
			}
			p.say("")
			testserver.Until(t, "the index to work again", func() bool { _, err := ix.Stats(t.Context(), 0); return err == nil })
			if p := ensure(t, ix, it)[0]; p.Place == schedule.Absent {
				t.Error("afterwards the item is gone")
			}
			token := 0
			if leases := claim(t, ix, &token, 10).Leases; len(leases) != 1 || leases[0].ID != it.ID {
				t.Errorf("afterwards %v were claimed", leases)
			}
			audit(t, ix, 0)
		})
	}
}

// expectFailing calls what the engine calls, and expects errors that say that the index is down for now: none
// of those that mean that it is lost, or that the call was wrong.
func expectFailing(t *testing.T, ix *redisq.Index, it schedule.Item, want string) {
	t.Helper()
	ctx := context.Background()
	var group sync.WaitGroup
	for name, call := range map[string]func() error{
		"ensure": func() error { _, err := ix.Ensure(ctx, []schedule.Item{it}); return err },
		"claim": func() error {
			_, err := ix.Claim(ctx, 0, schedule.ClaimRequest{Owner: "o", Token: "t", Max: 1, MaxUncertain: 1, Lease: time.Second, LaneLimit: 1})
			return err
		},
		"settle": func() error {
			_, err := ix.Settle(ctx, []schedule.Settlement{{Item: it, Token: "t", Outcome: schedule.Ack}})
			return err
		},
		"acquire": func() error {
			_, err := ix.Acquire(ctx, []schedule.LockRequest{{Lock: "k", ID: it.ID, Lane: it.Lane, Token: "t", Until: 1}})
			return err
		},
		"open":  func() error { return ix.Open(ctx, 0) },
		"reset": func() error { return ix.Reset(ctx, 0, 2) },
	} {
		group.Go(func() {
			err := call()
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want %s", name, err, want)
			}
			for _, other := range []error{schedule.ErrLost, schedule.ErrRebuilding, schedule.ErrInvalid, schedule.ErrTooMany} {
				if errors.Is(err, other) {
					t.Errorf("%s: %v counts as %v", name, err, other)
				}
			}
		})
	}
	group.Wait()
}
