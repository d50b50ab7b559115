package redisq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// lostKeys are the keys of a shard, and what is said when one of them alone is gone; empty: nothing, for its loss
// heals by itself or by an audit. META's loss is that of the generation.
var lostKeys = map[string]string{
	"META": "", "DELAY": "items", "READY": "items", "RECORDS": "records", "UNPROVEN": "", "ANSWERING": "", "TIMING_OUT": "",
	"BLOCKED": "", "HELD": "", "BREAKERS": "", "LANES": "lanes", "LEASES": "items", "CLAIMS": "items", "OWNERS": "", "SEEN": "", "LOCKS": "",
	"WAITERS": "", "WAITING": "", "QUARANTINE": "",
}

// A ledger is what SQL would know: which items are open, and when they are due.
type ledger struct {
	mu   sync.Mutex
	open map[string]schedule.Item
	// done counts how often an item's result was recorded first, and again counts what SQL's stamp would have
	// refused.
	done  map[string]int
	again int
	n     int
}

func (l *ledger) accept(count int, due int64) []schedule.Item {
	l.mu.Lock()
	defer l.mu.Unlock()
	items := itemsOf(&l.n, count, 5, due)
	for _, it := range items {
		l.open[it.ID] = it
	}
	return items
}

// finish records results, and answers with the settlements of those that were open.
func (l *ledger) finish(leases []schedule.Lease) []schedule.Settlement {
	l.mu.Lock()
	defer l.mu.Unlock()
	var settlements []schedule.Settlement
	for _, lease := range leases {
		s := schedule.Settlement{Item: lease.Item, Token: lease.Token, Outcome: schedule.Ack, Signal: schedule.Answered, Won: true}
		if _, open := l.open[lease.ID]; !open {
			l.again++
			s.Won = false
		} else {
			l.done[lease.ID]++
			delete(l.open, lease.ID)
		}
		settlements = append(settlements, s)
	}
	return settlements
}

// overdue returns the open items that are due.
func (l *ledger) overdue(now int64) []schedule.Item {
	l.mu.Lock()
	defer l.mu.Unlock()
	var items []schedule.Item
	for _, it := range l.open {
		if it.Due <= now {
			items = append(items, it)
		}
	}
	return items
}

// Each key alone is deleted under load: whatever is gone, everything is claimed in the end, by nothing but
// what a dispatcher does anyway: sweeps, audits, a rebuild where the shard says that it is lost, and leases
// that run out.
func TestEachKeyAloneIsLostUnderLoad(t *testing.T) {
	needsServer(t)
	for name, noticed := range lostKeys {
		for _, watch := range []bool{false, true} {
			if watch && noticed == "" {
				continue
			}
			t.Run(fmt.Sprintf("%s/watched=%t", name, watch), func(t *testing.T) {
				t.Parallel()
				loseUnderLoad(t, openNew(t), name, watch)
			})
		}
	}
}

func loseUnderLoad(t *testing.T, ix *redisq.Index, name string, watch bool) {
	ctx := context.Background()
	l := &ledger{open: make(map[string]schedule.Item), done: make(map[string]int)}
	token, generation := 0, int64(1)
	// A quarter of the leases is never settled: their dispatcher has died.
	work := func() {
		token++
		c, err := ix.Claim(ctx, 0, wide(fmt.Sprint("token-", token), 64))
		if err == nil {
			_, err = ix.Settle(ctx, l.finish(c.Leases[len(c.Leases)/4:]))
		}
		if err != nil && !errors.Is(err, schedule.ErrLost) {
			t.Fatal(err)
		}
	}
	add := func(count int, after time.Duration) {
		if _, err := ix.Ensure(ctx, l.accept(count, now(t, ix)+after.Milliseconds())); err != nil && !errors.Is(err, schedule.ErrLost) {
			t.Fatal(err)
		}
	}
	for round := range 12 {
		add(50, -time.Minute)
		add(20, time.Duration(round)*time.Second)
		if round == 6 {
			hold := schedule.Settlement{Item: l.accept(1, 1)[0], Token: "t", Outcome: schedule.Reschedule, Won: true}
			hold.HoldUntil = now(t, ix) + 10_000
			if _, err := ix.Settle(ctx, []schedule.Settlement{hold}); err != nil {
				t.Fatal(err)
			}
			do(t, ix, "del", ix.Key(0, name))
		}
		work()
	}
	rounds(t, "everything to be claimed", func() bool {
		upkeep(t, ix, l, &generation, watch)
		work()
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.open) == 0
	})
	for id, times := range l.done {
		if times != 1 {
			t.Errorf("%s was done %d times", id, times)
		}
	}
	if len(l.done) != l.n {
		t.Errorf("%d of %d items were done", len(l.done), l.n)
	}
	// Nothing is left that an audit would repair once more, nor an end without an item.
	pass(t, ix, 30*time.Second)
	if _, err := ix.Claim(ctx, 0, wide("last", 0)); err != nil {
		t.Fatal(err)
	}
	audit(t, ix, -1)
	audit(t, ix, 0)
}

// upkeep is one round of what a dispatcher does beside claiming, some seconds later. Without a watch nothing
// but errors tells that something is gone.
func upkeep(t *testing.T, ix *redisq.Index, l *ledger, generation *int64, watch bool) {
	ctx := context.Background()
	ix.Advance(5 * time.Second)
	if watch {
		if _, err := ix.Gone(ctx, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ix.Stats(ctx, 0); errors.Is(err, schedule.ErrLost) {
		*generation++
		reset(t, ix, *generation)
	}
	for page := range slices.Chunk(l.overdue(now(t, ix)-5000), schedule.MaxBatch) {
		ensure(t, ix, page...)
	}
	audit(t, ix, -1)
}
