package redisq_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// lostKeys are the keys of a shard, and what is said when one of them alone is gone; empty: nothing, for its
// loss heals by itself or by an audit. META's loss is that of the generation.
var lostKeys = map[string]string{
	"META": "", "DELAY": "items", "READY": "items", "RECORDS": "records", "UNPROVEN": "", "ANSWERING": "",
	"TIMING_OUT": "",
	"BLOCKED":    "", "HELD": "", "BREAKERS": "", "LANES": "lanes", "LEASES": "items", "CLAIMS": "items",
	"OWNERS": "", "SEEN": "", "LOCKS": "",
	"WAITERS": "", "WAITING": "", "QUARANTINE": "",
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
	unfinished := make(map[string]schedule.Item) // what SQL knows to be open
	token, accepted, done, generation := 0, 0, 0, int64(1)
	accept := func(count int, after time.Duration) []schedule.Item {
		items := itemsOf(&accepted, count, 5, now(t, ix)+after.Milliseconds())
		for _, it := range items {
			unfinished[it.ID] = it
		}
		return items
	}
	bearable := func(err error) {
		t.Helper()
		if err != nil && !errors.Is(err, schedule.ErrLost) {
			t.Fatal(err)
		}
	}
	// A quarter of the leases is never settled: their dispatcher has died. SQL's stamp refuses what was done
	// before.
	work := func() {
		token++
		c, err := ix.Claim(ctx, 0, wide(fmt.Sprint("token-", token), 64))
		bearable(err)
		var settlements []schedule.Settlement
		for _, lease := range c.Leases[len(c.Leases)/4:] {
			s := schedule.Settlement{
				Item: lease.Item, Token: lease.Token, Outcome: schedule.Ack, Signal: schedule.Answered,
			}
			_, s.Won = unfinished[lease.ID]
			if s.Won {
				done++
				delete(unfinished, lease.ID)
			}
			settlements = append(settlements, s)
		}
		_, err = ix.Settle(ctx, settlements)
		bearable(err)
	}
	for round := range 12 {
		items := slices.Concat(accept(50, -time.Minute), accept(20, time.Duration(round)*time.Second))
		_, err := ix.Ensure(ctx, items)
		bearable(err)
		if round == 6 {
			hold := schedule.Settlement{
				Item: accept(1, -time.Minute)[0], Token: "t", Outcome: schedule.Reschedule, Won: true,
				HoldUntil: now(t, ix) + 10_000,
			}
			if _, err := ix.Settle(ctx, []schedule.Settlement{hold}); err != nil {
				t.Fatal(err)
			}
			do(t, ix, "del", ix.Key(0, name))
		}
		work()
	}
	rounds := 0
	for ; len(unfinished) > 0 && rounds < 2000; rounds++ {
		// What a dispatcher does some seconds later, beside sweeps, audits and claims. Without a watch
		// nothing but errors tells that something is gone.
		ix.Advance(5 * time.Second)
		if watch {
			if _, err := ix.Gone(ctx, 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := ix.Stats(ctx, 0); errors.Is(err, schedule.ErrLost) {
			generation++
			reset(t, ix, generation)
		}
		overdue := now(t, ix) - 5000
		isEarly := func(it schedule.Item) bool { return it.Due > overdue }
		due := slices.DeleteFunc(slices.Collect(maps.Values(unfinished)), isEarly)
		for page := range slices.Chunk(due, schedule.MaxBatch) {
			ensure(t, ix, page...)
		}
		audit(t, ix, -1)
		work()
	}
	if done != accepted {
		t.Errorf("%d of %d items were done in %d rounds", done, accepted, rounds)
	}
	// Nothing is left that an audit would repair once more, nor an end without an item.
	for range 4 { // as time passes for an index in use
		ix.Advance(8 * time.Second)
		if _, err := ix.Stats(ctx, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ix.Claim(ctx, 0, wide("last", 0)); err != nil {
		t.Fatal(err)
	}
	audit(t, ix, -1)
	audit(t, ix, 0)
}
