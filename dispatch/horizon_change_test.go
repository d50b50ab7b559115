package dispatch_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// What the horizon meets in the course of time: another setting, SQL or the index being away, a clock that is set.

// The setting is changed from one start to the next, each way: nothing is lost, nothing is early, and nothing that waits is moved.
func TestAnotherHorizonAtTheNextStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path, index := databasePath(t), memq.New(memq.Options{})
		var all []store.Callback
		expect := func(b *fixture, horizon time.Duration, held, missing time.Duration) {
			t.Helper()
			b.index = index
			b.awaitMark(horizon)
			c := b.later(held)
			b.expect("one that is due in "+held.String(), c, schedule.Delayed)
			all = append(all, c)
			if missing > 0 {
				c = b.later(missing)
				b.expect("one that is due in "+missing.String(), c, schedule.Absent)
				all = append(all, c)
			}
			d, err := b.engine.Verify(t.Context())
			if err != nil || !d.Clean() {
				t.Errorf("with a horizon of %s: %+v, %v", horizon, d, err)
			}
		}
		for i, step := range []struct{ horizon, held, missing time.Duration }{
			{0, 11 * time.Minute, 0},
			{5 * time.Minute, 4 * time.Minute, 8 * time.Minute},
			{3 * time.Minute, 2 * time.Minute, 6 * time.Minute},
			{8 * time.Minute, 7 * time.Minute, 10 * time.Minute},
			{0, 9 * time.Minute, 0},
			{4 * time.Minute, 3 * time.Minute, 7 * time.Minute},
		} {
			b := startFixture(t, path, always(200, ""), within(index, step.horizon))
			expect(b, step.horizon, step.held, step.missing)
			if i == 5 {
				b.punctual(10*time.Millisecond, all...)
				b.clean(0)
				break
			}
			b.stop()
			time.Sleep(3 * time.Second) // nobody is there for a while
		}
	})
}

// Two processes that are set differently do not take turns: whoever loads goes on until it ends.
func TestDifferentHorizonsSideBySide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path, index, moves := databasePath(t), memq.New(memq.Options{}), new(faults)
		first := startFixture(t, path, always(200, ""), within(index, 10*time.Minute), faultyIndex(moves))
		first.index = index
		time.Sleep(3 * time.Minute) // it has loaded once
		first.awaitMark(10 * time.Minute)
		others := []time.Duration{3 * time.Minute, 0}
		if underRace {
			others = others[1:]
		}
		for _, other := range others {
			second := startFixture(t, path, always(200, ""), within(index, other), faultyIndex(moves))
			second.index = index
			before := moves.count("MoveWatermark")
			for range 6 {
				time.Sleep(time.Minute)
				first.awaitMark(10 * time.Minute)
			}
			if n := moves.count("MoveWatermark") - before; n > 4 {
				t.Errorf("the watermark was moved %d times in six minutes beside a process with a horizon of %s", n, other)
			}
			if other != 0 {
				second.stop()
				continue
			}
			far := second.later(time.Hour)
			second.expect("one that is due beyond the loader's horizon", far, schedule.Absent)
			first.stop()
			second.awaitMark(0)
			second.expect("one that is due in an hour", far, schedule.Delayed)
		}
	})
}

// While SQL is away nothing is loaded; what fell due meanwhile, and was beyond the horizon, is sent as soon as it is back.
func TestSQLIsAwayForLongerThanTheHorizon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const horizon = 2 * time.Minute
		sql, away := new(faults), []string{"Stamp", "Commit", "Ping", "TryLease", "OpenUntil", "Overdue"}
		b := newHorizonFixture(t, horizon, faultySQL(sql))
		var all []store.Callback
		for i := range 12 {
			all = append(all, b.later(time.Duration(i)*30*time.Second+time.Second))
		}
		time.Sleep(500 * time.Millisecond)
		sql.set(fail(errDown), away...)
		time.Sleep(4 * time.Minute)
		if n := len(b.receiver.seen()); n != 0 {
			t.Errorf("%d requests while SQL was away", n)
		}
		sql.set(nil, away...)
		back := time.Now()
		time.Sleep(3 * time.Second)
		for _, c := range all[:8] { // were due by then
			if got := b.get(c.ID); got.State != store.Succeeded {
				t.Errorf("due %s before SQL came back, and %s three seconds after it", back.Sub(time.UnixMilli(c.DueAt)), got.State)
			}
		}
		b.awaitMark(horizon)
		b.punctual(10*time.Millisecond, all[9:]...)
	})
}

// The index's clock is put forward, by more than the horizon: what is due by it is sent at once. Put back, nothing is early.
func TestTheClockIsSetAcrossTheHorizon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const horizon = 2 * time.Minute
		var skew atomic.Int64
		index := memq.New(memq.Options{Now: func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }})
		b := newFixture(t, always(200, ""), within(index, horizon))
		b.index = index
		b.awaitMark(horizon)
		early, late := b.later(8*time.Minute), b.later(14*time.Minute)
		skew.Store(int64(10 * time.Minute))
		time.Sleep(3 * time.Second)
		if c := b.get(early.ID); c.State != store.Succeeded {
			t.Errorf("due two minutes ago by the index's clock, and %s", c.State)
		}
		b.awaitMark(horizon)
		skew.Store(0)
		time.Sleep(3 * time.Second)
		b.awaitMark(horizon)
		b.expect("one that is due in 14 m", late, schedule.Absent)
		time.Sleep(13 * time.Minute)
		if c := b.get(late.ID); c.State != store.Scheduled {
			t.Errorf("%s before it was due", c.State)
		}
		b.punctual(10*time.Millisecond, late)
	})
}

// What the index lacks below the watermark is missing; what it lacks beyond it is not.
func TestVerifyTellsMissingFromBeyond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newHorizonFixture(t, 10*time.Minute)
		lost := b.later(5 * time.Minute)
		for range 5 {
			b.later(time.Hour)
		}
		b.clean(5)
		b.must(b.index.Cancel(t.Context(), []schedule.Ref{{ID: lost.ID, Lane: lost.LaneID}}))
		d, err := b.engine.Verify(t.Context())
		if err != nil || d.Missing != 1 || d.Beyond != 5 || d.Rows != 6 || d.MissingIDs[0] != store.CallbackPrefix+lost.ID {
			t.Errorf("verify: %+v, %v", d, err)
		}
		// The sweep finds it, as ever, and ensures nothing that is beyond.
		b.await(lost.ID, 6*time.Minute)
		b.clean(5)
	})
}

// What the index missed while it was away, or may have missed because another process has made it anew, is told to it again. What is
// beyond the horizon is not even read for that.
func TestCatchingUpStaysWithinTheHorizon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const horizon = 10 * time.Minute
		path, index, sql, broken := databasePath(t), memq.New(memq.Options{}), new(faults), new(faults)
		registry := prometheus.NewRegistry()
		b := startFixture(t, path, always(200, ""), within(index, horizon), faultySQL(sql), faultyIndex(broken),
			func(o *dispatch.Options) { o.Registerer = registry })
		b.index = index
		b.awaitMark(horizon)
		broken.set(fail(errBroken), "Ensure")
		near, far := b.later(5*time.Minute), b.later(time.Hour)
		time.Sleep(30 * time.Second)
		broken.set(nil, "Ensure")
		// No multiple of 5 s, at which the keeper looks at the index: the two engines share one memq, and with it
		// the generation that it expects, which the first would set back while the second makes the next one.
		time.Sleep(6 * time.Second)
		b.expect("one within the horizon", near, schedule.Delayed)
		b.expect("one beyond it", far, schedule.Absent)
		caughtUp := metricOf(t, registry, "dispatcher_index_catchups_total")

		other := startFixture(t, path, always(200, ""), within(index, horizon))
		if _, err := other.engine.Rebuild(t.Context(), false, store.Actor{Name: "test"}); err != nil {
			t.Fatal(err)
		}
		walked := sql.count("Open")
		time.Sleep(10 * time.Second)
		if n := metricOf(t, registry, "dispatcher_index_catchups_total"); caughtUp == 0 || n == caughtUp {
			t.Errorf("caught up %g times, and then %g times", caughtUp, n)
		}
		if n := sql.count("Open") - walked; n != 0 {
			t.Errorf("%d pages were read without an end", n)
		}
		b.clean(1)
		b.punctual(10*time.Millisecond, near)
	})
}

// A row that is due by now is missing, if nobody has loaded it.
func TestVerifyNamesWhatTheLoaderForgot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := new(faults)
		b := newHorizonFixture(t, 2*time.Minute, faultyIndex(index), func(o *dispatch.Options) { o.Hold = true })
		c := b.later(4 * time.Minute)
		index.set(fail(errBroken), "MoveWatermark")
		time.Sleep(4*time.Minute + time.Second)
		d, err := b.engine.Verify(t.Context())
		if err != nil || d.Missing != 1 || d.Beyond != 0 || d.MissingIDs[0] != store.CallbackPrefix+c.ID {
			t.Errorf("verify: %+v, %v", d, err)
		}
		time.Sleep(20 * time.Second)
		b.clean(0) // it is overdue, and the sweep has found it
	})
}

// A held process leaves a foreign index as it found it, its watermark too.
func TestHeldProcessLeavesTheWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := sharedIndex(t, 7, strangers...)
		moves := new(faults)
		newFixture(t, always(200, ""), on(index, true), faultyIndex(moves), func(o *dispatch.Options) {
			o.Horizon = 10 * time.Minute
		})
		time.Sleep(time.Minute)
		if m, err := index.Watermark(t.Context(), 0); err != nil || m.At != schedule.Forever || moves.count("MoveWatermark") != 0 {
			t.Errorf("the watermark is %+v after %d moves, %v", m, moves.count("MoveWatermark"), err)
		}
	})
}

// Without a horizon, and without one before, nobody moves a watermark nor takes the loader's lease.
func TestWithoutAHorizon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index, moves := memq.New(memq.Options{}), new(faults)
		b := newFixture(t, always(200, ""), within(index, 0), faultyIndex(moves))
		b.index = index
		far := b.later(400 * 24 * time.Hour)
		time.Sleep(5 * time.Minute)
		b.expect("one that is due in 400 days", far, schedule.Delayed)
		b.clean(0)
		if n := moves.count("MoveWatermark"); n != 0 {
			t.Errorf("the watermark was moved %d times", n)
		}
		if held, err := b.db.TryLease(t.Context(), "horizon", "the test", time.Now().UnixMilli(), time.Second); err != nil || !held {
			t.Errorf("the loader's lease is another's: %v", err)
		}
	})
}

func TestHorizonIsRefused(t *testing.T) {
	t.Parallel()
	for _, o := range []dispatch.Options{{Horizon: time.Hour, Alone: true}, {Horizon: -time.Hour}, {Horizon: 1}} {
		o.Store, o.Schedule = &calledStore{}, memq.New(memq.Options{})
		o.Sender, o.Keyring = &outbound.Client{}, new(secret.Keyring)
		if _, err := dispatch.New(o); err == nil || !strings.Contains(err.Error(), "horizon") {
			t.Errorf("a horizon of %s, alone %t: %v", o.Horizon, o.Alone, err)
		}
	}
}
