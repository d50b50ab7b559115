package dispatch_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// An attempt that is asked for while the index does not answer is made as soon as it does, though the index holds the
// callback for a later time.
func TestRetryWhileTheIndexIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := new(faults)
		b := newFixture(t, always(200, ""), faultyIndex(index))
		time.Sleep(time.Second)
		delay := time.Hour
		id := b.accept(accept.Submission{Delay: &delay}).ID
		time.Sleep(time.Second)
		index.set(fail(errBroken), "Ensure")
		b.must(b.engine.Retry(t.Context(), store.DefaultProject, id, control.RetryRequest{}, store.Actor{}))
		time.Sleep(500 * time.Millisecond)
		index.set(nil, "Ensure")
		time.Sleep(2 * time.Second)
		if c := b.get(id); c.State != store.Succeeded {
			t.Errorf("still %s two seconds after the index came back", c.State)
		}
	})
}

// While results cannot be recorded nothing more is sent, even if all else in SQL works: what was sent would be sent again.
func TestNothingIsSentWhileResultsCannotBeRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sql := new(faults)
		b := newFixture(t, always(200, ""), faultySQL(sql))
		time.Sleep(time.Second)
		sql.set(fail(errDown), "Commit")
		var ids []string
		for range 90 {
			ids = append(ids, b.accept(accept.Submission{}).ID)
			time.Sleep(time.Second)
		}
		if n := len(b.receiver.seen()); n > 5 {
			t.Errorf("%d requests while no result could be recorded", n)
		}
		sql.set(nil, "Commit")
		for _, id := range ids {
			if c := b.await(id, time.Minute); c.State != store.Succeeded || c.AttemptCount != 1 {
				t.Errorf("got %s after %d attempts", c.State, c.AttemptCount)
			}
		}
		if n := len(b.receiver.seen()); n != len(ids) {
			t.Errorf("%d requests for %d callbacks", n, len(ids))
		}
	})
}

// What ended while the index did not answer is told afterwards: neither its leases keep their lane full, nor do their locks
// keep the next one waiting, until they run out.
func TestLeasesThatEndUnheardBlockNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := new(faults)
		b := newFixture(t, always(200, ""), faultyIndex(index), func(o *dispatch.Options) { o.LaneConcurrency = 4 })
		time.Sleep(time.Second)
		index.set(fail(errBroken), "Settle", "Release")
		lock := "order-1"
		b.accept(accept.Submission{LockKey: lock})
		for range 8 {
			b.accept(accept.Submission{})
		}
		time.Sleep(5 * time.Second)
		index.set(nil, "Settle", "Release")
		next, locked := b.accept(accept.Submission{}), b.accept(accept.Submission{LockKey: lock})
		for _, id := range []string{next.ID, locked.ID} {
			if c := b.await(id, 5*time.Second); c.State != store.Succeeded {
				t.Errorf("still %s five seconds after the index came back", c.State)
			}
		}
		if n := len(b.receiver.seen()); n != 11 {
			t.Errorf("%d requests for 11 callbacks", n)
		}
	})
}

// lines counts what is written.
type lines struct{ n atomic.Int64 }

func (l *lines) Write(p []byte) (int, error) {
	l.n.Add(1)
	return len(p), nil
}

// An index that is away for long does not fill the log.
func TestAnIndexThatIsAwayIsLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		index := new(faults)
		index.set(fail(errBroken), "Generation")
		b := newFixture(t, always(200, ""), faultyIndex(index), func(o *dispatch.Options) {
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		time.Sleep(10 * time.Minute)
		if n := log.n.Load(); n == 0 || n > 30 {
			t.Errorf("%d lines in ten minutes", n)
		}
		index.set(nil, "Generation")
		b.await(b.accept(accept.Submission{}).ID, 10*time.Second)
	})
}

// A callback that was accepted without its client hearing of it is on time once the client has asked again, and not only when
// the sweep finds it overdue.
func TestAReplayIsToldToTheIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sql := new(faults)
		b := newFixture(t, always(200, ""), faultySQL(sql))
		time.Sleep(time.Second)
		delay := time.Minute
		s := accept.Submission{URL: "https://shop.example/", Body: []byte("1"), IdempotencyKey: "k", Route: "callbacks", Fingerprint: []byte("a"), Delay: &delay}
		sql.times(1, loseReply, "Accept")
		if _, err := b.engine.Accept(t.Context(), store.DefaultProject, []accept.Submission{s}); err == nil {
			t.Fatal("the reply was to be lost")
		}
		c := b.accept(s)
		b.await(c.ID, 2*time.Minute)
		if late := b.attempts(c.ID)[0].Lateness; late > 20 {
			t.Errorf("attempted %g ms after its due time", late)
		}
		if again := b.accept(s); again.ID != c.ID || again.State != store.Succeeded {
			t.Errorf("asked for once more, it is %s, %s", again.ID, again.State)
		}
	})
}

// Stamps whose replies are lost are no crashes: nothing was sent. Any number of them in a row ends no callback and holds up none.
func TestStampsWhoseRepliesAreLostAreTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sql := new(faults)
		b := newFixture(t, always(200, ""), faultySQL(sql))
		time.Sleep(time.Second)
		for range 8 {
			sql.times(1, loseReply, "Stamp")
			id := b.accept(accept.Submission{}).ID
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
		id := b.accept(accept.Submission{}).ID
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
		b := newFixture(t, func(context.Context, hit, int) (*http.Response, error) {
			time.Sleep(2*time.Second + time.Duration(next.Add(1))*300*time.Millisecond)
			return answer(200, ""), nil
		}, faultyIndex(index))
		var ids []string
		for i := range 20 {
			ids = append(ids, b.accept(accept.Submission{LockKey: fmt.Sprint("k", i), URL: fmt.Sprintf("https://s%d.example/", i)}).ID)
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
			b.accept(accept.Submission{URL: fmt.Sprintf("https://s%d.example/", i)})
		}
		start := time.Now()
		b.stop()
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("the end waited %v for an index that hangs", took)
		}
	})
}
