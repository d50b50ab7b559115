package dispatch_test

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Failures of the index: it does not answer, loses its data, is rolled back, belongs to another installation,
// or is rebuilt.

var unknownIDs = []string{"01JD7Q2Z3K4M5N6P7R8S9TABC0", "01JD7Q2Z3K4M5N6P7R8S9TABC1",
	"01JD7Q2Z3K4M5N6P7R8S9TABC2"}

// unknownItems are items without rows in SQL.
func unknownItems() (items []schedule.Item) {
	for _, id := range unknownIDs {
		items = append(items, schedule.Item{ID: id, Lane: 1, Due: soon(time.Hour)})
	}
	return items
}

// foreignIndex returns an index with a generation and unknownItems.
func foreignIndex(t *testing.T, generation int64) *memq.Index {
	t.Helper()
	ix := memq.New(memq.Options{})
	ix.SetGeneration(generation)
	err := ix.Reset(t.Context(), 0, generation)
	if err == nil {
		err = ix.Open(t.Context(), 0)
	}
	if err == nil {
		_, err = ix.Ensure(t.Context(), unknownItems())
	}
	if err != nil {
		t.Fatal(err)
	}
	return ix
}

func public(ids []string) []string {
	out := slices.Clone(ids)
	for i := range out {
		out[i] = store.CallbackPrefix + out[i]
	}
	return out
}

// drift returns the differences between SQL and the index.
func (b *fixture) drift() index.Drift {
	b.Helper()
	return must(b.engine.Verify(b.Context()))
}

func (b *fixture) rebuild() (index.RebuildReport, error) {
	return b.engine.Rebuild(b.Context(), false, operator)
}

// lines records and counts log lines.
type lines struct {
	n    atomic.Int64
	text atomic.Value
}

func (l *lines) Write(p []byte) (int, error) {
	l.n.Add(1)
	l.text.Store(l.all() + string(p)) // a handler writes one line at a time
	return len(p), nil
}

func (l *lines) all() string {
	text, _ := l.text.Load().(string)
	return text
}

func (l *lines) log(o *options) { o.Logger = slog.New(slog.NewTextHandler(l, nil)) }

// A server that may lose parts of the index degrades the process, which goes on working.
func TestIndexOnAnUnsafeServerDegrades(t *testing.T) {
	unsafe := func(o *options) { o.Schedule = unsafeIndex{o.Schedule.(*calledIndex)} }
	with(nil, unsafe).run(t, func(b *fixture) {
		b.await(b.accept(accept.Submission{}).ID, 0)
		b.is("health", b.health(), "ready redis_unsafe")
	})
}

// An unsafeIndex has a server that evicts.
type unsafeIndex struct{ *calledIndex }

func (unsafeIndex) Warnings() []string { return []string{"maxmemory-policy is allkeys-lru"} }

// rolled makes each claim report this sequence number. A lower number than before means that the index was
// rolled back.
func rolled(seq int64) effect {
	return func(_ context.Context, c *call) error {
		err := c.do()
		claimed, _ := c.got.(schedule.Claimed)
		claimed.Seq = seq
		c.got = claimed
		return err
	}
}

// A catch-up reads all open rows and ends although callbacks are accepted between its pages. Those reach the
// index by their own enqueues.
func TestCatchUpEndsUnderTraffic(t *testing.T) {
	with(nil, withEffect(rolled(10), "Claim")).run(t, func(b *fixture) {
		b.backlog(1500, in(time.Hour))
		time.Sleep(10 * time.Second)
		b.times(100, before(func() { b.accept(in(2 * time.Hour)) }), "Open")
		read := b.count("Open")
		b.set(rolled(5), "Claim")
		time.Sleep(time.Minute)
		between(b, "pages of open rows that were read, of two", b.count("Open")-read, 1, 5)
	})
}

// Two concurrent rebuilds of one process run one after the other, each with its own generation.
func TestRebuildsDoNotOverlap(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		time.Sleep(time.Second)
		generations := make(chan int64, 2)
		for range 2 {
			go func() {
				r, err := b.rebuild()
				b.fails("rebuild", err, nil)
				generations <- r.Generation
			}()
		}
		one, other := <-generations, <-generations
		b.check(one != other, "both rebuilds made generation %d", one)
		b.await(b.accept(accept.Submission{}).ID, 10*time.Second)
	})
}

// A rebuild continues after a failure of the index or of SQL.
func TestRebuildContinuesAfterAFailure(t *testing.T) {
	for op, failure := range map[string]error{"Ensure": errBroken, "Open": errDown} {
		t.Run(op, func(t *testing.T) {
			with(nil).run(t, func(b *fixture) {
				synctest.Wait() // an accept before the index is filled would reach it a second later
				b.backlog(5000, in(time.Hour))
				time.Sleep(time.Second)
				resets, pages, made := b.count("Reset"), b.count("Ensure"), 0
				b.set(func(_ context.Context, c *call) error {
					made++
					if made == 4 || made == 5 {
						return failure
					}
					return c.do()
				}, op)
				b.is("open rows", must(b.rebuild()).Open, 5000)
				b.is("times that the index was emptied", b.count("Reset")-resets, 1)
				between(b, "calls to fill five pages", b.count("Ensure")-pages, 5, 7)
				d := b.drift()
				b.check(d.Clean() && d.Rows == 5000 && d.Items == 5000,
					"verify: %+v, want it clean with 5000", d)
			})
		})
	}
}

// Verify distinguishes items without a row from items of ended callbacks. VerifyAll lists all of them.
func TestVerifyDistinguishesUnknownAndEnded(t *testing.T) {
	with(nil, sendingOff).run(t, func(b *fixture) {
		var ended []string
		for range 120 {
			ended = append(ended, b.accept(accept.Submission{}).ID)
		}
		synctest.Wait() // until the index is updated
		for _, id := range ended {
			// Cancel in SQL only; the engine would update the index.
			must(b.db.Cancel(b.Context(), project, id, soon(0), operator))
		}
		must(b.index.Ensure(b.Context(), unknownItems()))
		d := b.drift()
		b.is("verify", []int{d.Extra, d.Unknown, d.Ended, len(d.ExtraIDs), len(d.EndedIDs)},
			[]int{123, 3, 120, 100, 100})
		all := must(b.engine.VerifyAll(b.Context()))
		slices.Sort(ended)
		b.is("unknown", all.UnknownIDs, public(unknownIDs))
		b.is("ended", all.EndedIDs, public(ended))
		b.is("extra", len(all.ExtraIDs), 123)
	})
}

// foreignBuild uses an index of another build until it is reset. is is the error that reports the build.
func foreignBuild(t *testing.T, is error) tweak {
	return func(o *options) {
		on(foreignIndex(t, 7))(o)
		o.set(fail(is), "Generation")
		o.set(before(func() { o.set(nil, "Generation") }), "Reset")
	}
}

// TestUnreadTablesDegrade: outbox tables that cannot be read are named, and the process stays ready.
func TestUnreadTablesDegrade(t *testing.T) {
	with(nil, sendingOff, func(o *options) {
		o.Unread = func() []string { return []string{dispatch.DegradedRelay + "pay"} }
	}).run(t, func(b *fixture) {
		time.Sleep(time.Second) // the index is rebuilt first
		b.is("health", b.health(), "ready held relay:pay")
	})
}
