package dispatch_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// What simulations found, each by itself.

// A callback that was accepted without its client hearing of it is on time once the client has asked again, and not only when
// the sweep finds it overdue.
func TestAReplayIsToldToTheIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sql := new(faults)
		b := newBench(t, always(200, ""), faultySQL(sql))
		time.Sleep(time.Second)
		delay := time.Minute
		s := dispatch.Submission{URL: "https://shop.example/", Body: []byte("1"), IdempotencyKey: "k", Route: "callbacks", Fingerprint: []byte("a"), Delay: &delay}
		sql.times(1, loseReply, "Accept")
		if _, err := b.engine.Accept(t.Context(), store.DefaultProject, []dispatch.Submission{s}); err == nil {
			t.Fatal("the reply was to be lost")
		}
		c := b.accept(s)
		b.await(c.ID, 2*time.Minute)
		if late := b.attempts(c.ID)[0].Lateness; late > 20 {
			t.Errorf("attempted %g ms after its due time", late)
		}
	})
}

// Stamps whose replies are lost are no crashes: nothing was sent. Any number of them in a row ends no callback and holds up none.
func TestStampsWhoseRepliesAreLostAreTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sql := new(faults)
		b := newBench(t, always(200, ""), faultySQL(sql))
		time.Sleep(time.Second)
		for range 8 {
			sql.times(1, loseReply, "Stamp")
			id := b.accept(dispatch.Submission{}).ID
			start := time.Now()
			for range 7 {
				time.Sleep(2500 * time.Millisecond)
				if c := b.get(id); c.CrashCount > 0 || c.ClaimToken != "" {
					t.Fatalf("%v after a lost reply: crash count %d, token %q", time.Since(start), c.CrashCount, c.ClaimToken)
				}
			}
			c := b.await(id, time.Second)
			if rows := b.attempts(id); c.State != store.Succeeded || len(rows) != 1 {
				t.Errorf("%s %s after %d attempts", c.State, c.Reason, len(rows))
			}
		}
		sql.times(9, loseReply, "Stamp")
		id := b.accept(dispatch.Submission{}).ID
		if c := b.await(id, time.Minute); c.State != store.Succeeded || c.FinishedAt-c.CreatedAt > 30_000 {
			t.Errorf("nine lost replies in a row: %s %s after %d ms", c.State, c.Reason, c.FinishedAt-c.CreatedAt)
		}
	})
}

// Results are committed in time although the index hangs that is told of them afterwards: after their claims have run out the
// callbacks would be sent again.
func TestResultsDoNotWaitForAnIndexThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := new(faults)
		var next atomic.Int32
		b := newBench(t, func(context.Context, hit, int) (*http.Response, error) {
			time.Sleep(2*time.Second + time.Duration(next.Add(1))*300*time.Millisecond)
			return answer(200, ""), nil
		}, faultyIndex(index))
		var ids []string
		for i := range 20 {
			ids = append(ids, b.accept(dispatch.Submission{LockKey: fmt.Sprint("k", i), URL: fmt.Sprintf("https://s%d.example/", i)}).ID)
		}
		time.Sleep(time.Second)
		if n := len(b.receiver.seen()); n != len(ids) {
			t.Fatalf("%d are in flight, want %d", n, len(ids))
		}
		index.set(hang, "Settle", "Release", "Stats")
		time.Sleep(15 * time.Second)
		for _, id := range ids {
			if c := b.get(id); c.State != store.Succeeded {
				t.Errorf("still %s", c.State)
			} else if late := c.FinishedAt - b.attempts(id)[0].EndedAt; late > 1000 {
				t.Errorf("committed %d ms after its attempt", late)
			}
		}
		for i := range 20 { // They end one after the other, while it hangs.
			b.accept(dispatch.Submission{URL: fmt.Sprintf("https://s%d.example/", i)})
		}
		start := time.Now()
		b.stop()
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("the end waited %v for an index that hangs", took)
		}
	})
}

// A rebuild that finds the claim of an attempt that has just ended takes its lock again. It is released with the result, and not
// only when the claim runs out.
func TestALockThatARebuildTookAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sql := new(faults)
		b := newBench(t, always(200, ""), faultySQL(sql))
		time.Sleep(time.Second)
		sql.set(slow(3*time.Second), "Commit")
		first := b.accept(dispatch.Submission{LockKey: "k"}).ID
		time.Sleep(time.Second) // It has ended; its result is on the way.
		if err := b.index.Reset(t.Context(), 0, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		sql.set(nil, "Commit")
		second := b.accept(dispatch.Submission{LockKey: "k"})
		b.await(first, 10*time.Second)
		if c := b.await(second.ID, time.Minute); c.FinishedAt-second.DueAt > 8000 {
			t.Errorf("the next one waited %d ms for a lock that nobody had", c.FinishedAt-second.DueAt)
		}
	})
}
