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

// lostKeys are the keys of a shard, with what LostKeys returns when this key is missing; empty: nothing,
// because the shard recovers without help or by an audit. The loss of META is the loss of the generation.
var lostKeys = map[string]string{
	"META": "", "DELAY": "items", "READY": "items", "RECORDS": "records", "UNPROVEN": "", "ANSWERING": "",
	"TIMING_OUT": "",
	"BLOCKED":    "", "HELD": "", "BREAKERS": "", "LANES": "lanes", "LEASES": "items", "CLAIMS": "items",
	"OWNERS": "", "SEEN": "", "LOCKS": "",
	"WAITERS": "", "WAITING": "", "QUARANTINE": "",
}

// TestEachKeyAloneIsLostUnderLoad deletes one key under load. All items must be claimed in the end, only
// through what a dispatcher does anyway: sweeps, audits, expiring leases, and a rebuild if the shard is lost.
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

// loseUnderLoad ensures and claims in rounds, deletes the key in round 6, and then lets a dispatcher's
// maintenance run until all items are done. With watch it also calls LostKeys, as Run does.
func loseUnderLoad(t *testing.T, ix *redisq.Index, name string, watch bool) {
	ctx := context.Background()
	unfinished := make(map[string]schedule.Item) // the open items of SQL
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
	// A quarter of the leases is never settled, as if their dispatcher had died. The fence in SQL refuses
	// results for items that are done.
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
		// One round is what a dispatcher does every few seconds: sweep, audit and claim. Without watch only
		// errors show the loss.
		ix.Advance(5 * time.Second)
		if watch {
			if _, err := ix.LostKeys(ctx, 0); err != nil {
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
	// A second audit repairs nothing, and no lease is left without an item.
	for range 4 { // in steps, because time passes only for an index in use
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
