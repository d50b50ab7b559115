package dispatch_test

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// What befalls the index: it does not answer, forgets, goes back in time, is another's, or is filled anew.

var strangers = []string{"01JD7Q2Z3K4M5N6P7R8S9TABC0", "01JD7Q2Z3K4M5N6P7R8S9TABC1",
	"01JD7Q2Z3K4M5N6P7R8S9TABC2"}

// theirs are items that SQL never heard of.
func theirs() (items []schedule.Item) {
	for _, id := range strangers {
		items = append(items, schedule.Item{ID: id, Lane: 1, Due: soon(time.Hour)})
	}
	return items
}

// foreignIndex is an index that has a generation and those items.
func foreignIndex(t *testing.T, generation int64) *memq.Index {
	t.Helper()
	ix := memq.New(memq.Options{})
	ix.SetGeneration(generation)
	err := ix.Reset(t.Context(), 0, generation)
	if err == nil {
		err = ix.Open(t.Context(), 0)
	}
	if err == nil {
		_, err = ix.Ensure(t.Context(), theirs())
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

// drift compares SQL with the index.
func (b *fixture) drift() index.Drift {
	b.Helper()
	return must(b.engine.Verify(b.Context()))
}

// holds checks that SQL and the index agree, and how many callbacks are open.
func (b *fixture) holds(open int) {
	b.Helper()
	d := b.drift()
	b.check(d.Clean() && d.Rows == open && d.Items == open, "verify: %+v, want it clean with %d", d, open)
}

func (b *fixture) rebuild() (index.RebuildReport, error) {
	return b.engine.Rebuild(b.Context(), false, operator)
}

// lines counts what is written.
type lines struct{ n atomic.Int64 }

func (l *lines) Write(p []byte) (int, error) {
	l.n.Add(1)
	return len(p), nil
}

func (l *lines) log(o *options) { o.Logger = slog.New(slog.NewTextHandler(l, nil)) }

// A verify at the very start waits for the index to be filled, instead of finding it lost.
func TestVerifyWaitsForTheIndex(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		b.accept(in(time.Hour))
		b.restart(nil).holds(1)
	})
}

// What the index did not hear of is sent once it answers again, without waiting for the sweep.
func TestAnIndexThatDoesNotAnswer(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		time.Sleep(time.Second)
		b.set(fail(errBroken), "Ensure", "Claim")
		start := time.Now()
		id := b.accept(accept.Submission{}).ID
		between(b, "an accept meanwhile took", time.Since(start), 0, time.Second)
		time.Sleep(time.Minute)
		b.is("health", b.health(), "ready redis")
		b.set(nil, "Ensure", "Claim")
		b.await(id, 5*time.Second)
		// The callback may be sent before the probe has asked everything that failed: health follows a probe
		// or two later.
		for range 50 {
			if b.health() != "ready" {
				time.Sleep(100 * time.Millisecond)
			}
		}
		b.is("health afterwards", b.health(), "ready")
	})
}

// An index that fails one operation and answers all others is not driven in a circle.
func TestAnIndexThatFailsToClaimAlone(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		b.set(fail(errBroken), "Claim")
		id := b.accept(accept.Submission{}).ID
		before := b.count("Claim")
		time.Sleep(time.Minute)
		between(b, "claims in a minute", b.count("Claim")-before, 1, 60*20)
		b.set(nil, "Claim")
		b.await(id, 10*time.Second)
	})
}

// An index that is away for long does not fill the log.
func TestAnIndexThatIsAwayIsLoggedNowAndThen(t *testing.T) {
	var log lines
	with(nil, struck(fail(errBroken), "Generation"), log.log).run(t, func(b *fixture) {
		time.Sleep(10 * time.Minute)
		between(b, "lines in ten minutes", log.n.Load(), 1, 30)
		b.set(nil, "Generation")
		b.await(b.accept(accept.Submission{}).ID, 10*time.Second)
	})
}

// What expires does so while the index is away, too.
func TestExpiryWithoutAnIndex(t *testing.T) {
	with(nil, struck(fail(errBroken), "Ensure", "Settle", "Claim")).run(t, func(b *fixture) {
		b.backlog(5, accept.Submission{})
		b.ends("dead expired", 2*time.Minute,
			b.accept(accept.Submission{ExpiresIn: new(10 * time.Second)}).ID)
	})
}

// An attempt that is asked for while the index does not answer is made as soon as it does, though the index
// holds the callback for a later time.
func TestRetryWhileTheIndexIsAway(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		time.Sleep(time.Second)
		id := b.accept(in(time.Hour)).ID
		time.Sleep(time.Second)
		b.set(fail(errBroken), "Ensure")
		b.retryAt(id, "")
		time.Sleep(500 * time.Millisecond)
		b.set(nil, "Ensure")
		time.Sleep(2 * time.Second)
		b.stands(b.get(id), "succeeded")
	})
}

// What ended while the index did not answer is told afterwards: neither its leases keep their lane full, nor
// do their locks keep the next one waiting, until they run out.
func TestLeasesThatEndUnheardBlockNobody(t *testing.T) {
	with(nil, laneConcurrency(4)).run(t, func(b *fixture) {
		time.Sleep(time.Second)
		b.set(fail(errBroken), "Settle", "Release")
		b.accept(locked("order-1"))
		b.backlog(8, accept.Submission{})
		time.Sleep(5 * time.Second)
		b.set(nil, "Settle", "Release")
		b.ends("succeeded", 5*time.Second, b.accept(accept.Submission{}).ID, b.accept(locked("order-1")).ID)
		b.sent(11, "for 11 callbacks")
	})
}

// A server that may drop parts of the index degrades the process; it goes on working.
func TestIndexOnAnUnsafeServerDegrades(t *testing.T) {
	unsafe := func(o *options) { o.Schedule = unsafeIndex{o.Schedule.(*calledIndex)} }
	with(nil, unsafe).run(t, func(b *fixture) {
		b.await(b.accept(accept.Submission{}).ID, 0)
		b.is("health", b.health(), "ready redis_unsafe")
	})
}

// An unsafeIndex is on a server that evicts.
type unsafeIndex struct{ *calledIndex }

func (unsafeIndex) Warnings() []string { return []string{"maxmemory-policy is allkeys-lru"} }

// An index that answers again is used at once, though it takes long until it has heard of all that it missed.
func TestAnIndexThatCatchesUpIsUsed(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		time.Sleep(time.Second)
		b.set(fail(errBroken), "Ensure", "Claim", "Stats")
		b.backlog(5000, in(time.Hour))
		time.Sleep(10 * time.Second)
		b.set(nil, "Claim", "Stats")
		b.set(slow(2*time.Second), "Ensure") // ten times, for all that it missed
		time.Sleep(4 * time.Second)          // a probe, and one part of what was missed
		b.is("health four seconds after the index came back", b.health(), "ready")
		b.await(b.accept(accept.Submission{}).ID, 3*time.Second)
		time.Sleep(time.Minute)
		b.holds(5000)
	})
}

// rolled has the index say this sequence of its writes with each claim: a lower one than before is that of an
// index that went back in time.
func rolled(seq int64) way {
	return func(_ context.Context, c *call) error {
		err := c.do()
		claimed, _ := c.got.(schedule.Claimed)
		claimed.Seq = seq
		c.got = claimed
		return err
	}
}

// The same holds where every open row is walked; and a walk that was interrupted goes on where it was.
func TestAWalkOfAllOpenRowsGoesOnBesideTheTraffic(t *testing.T) {
	with(nil, struck(rolled(10), "Claim")).run(t, func(b *fixture) {
		b.backlog(5000, in(time.Hour))
		time.Sleep(10 * time.Second)
		b.set(fail(errBroken), "Ensure", "Stats")
		b.set(rolled(5), "Claim")
		time.Sleep(10 * time.Second)
		b.set(nil, "Stats")
		b.set(slow(2*time.Second), "Ensure")
		time.Sleep(4 * time.Second)
		b.await(b.accept(accept.Submission{}).ID, 3*time.Second)
		b.times(1, fail(errBroken), "Ensure")
		before := b.count("Ensure")
		time.Sleep(time.Minute)
		// Five pages and the end, of which one or two were given before, and one once more.
		between(b, "calls to finish a walk of five pages that was interrupted once", b.count("Ensure")-before,
			0, 5)
		b.holds(5000)
	})
}

// A walk of all open rows ends although callbacks are accepted between any two of its pages. Those reach the
// index by themselves.
func TestAWalkOfAllOpenRowsEndsUnderTraffic(t *testing.T) {
	with(nil, struck(rolled(10), "Claim")).run(t, func(b *fixture) {
		b.backlog(1500, in(time.Hour))
		time.Sleep(10 * time.Second)
		b.times(100, before(func() { b.accept(in(2 * time.Hour)) }), "Open")
		read := b.count("Open")
		b.set(rolled(5), "Claim")
		time.Sleep(time.Minute)
		between(b, "pages of open rows that were read, of two", b.count("Open")-read, 1, 5)
	})
}

// Two rebuilds of one process at a time are made one after the other, each with a generation of its own.
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

// A rebuild by hand that fails in the middle of it leaves nothing half filled.
func TestARebuildThatFails(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		b.backlog(20, in(time.Hour))
		time.Sleep(time.Second)
		b.set(fail(errBroken), "Ensure")
		_, err := b.rebuild()
		b.fails("a rebuild of an index that takes nothing", err, errBroken)
		b.set(nil, "Ensure")
		time.Sleep(15 * time.Second)
		b.holds(20)
	})
}

// A rebuild that meets a failure while it fills the index goes on where it was, whether the index or SQL
// failed.
func TestARebuildGoesOnAfterAFailure(t *testing.T) {
	for op, failure := range map[string]error{"Ensure": errBroken, "Open": errDown} {
		t.Run(op, func(t *testing.T) {
			with(nil).run(t, func(b *fixture) {
				synctest.Wait() // what is accepted before the index is filled is given to it a second later
				b.backlog(5000, in(time.Hour))
				time.Sleep(time.Second)
				resets, pages, made := b.count("Reset"), b.count("Ensure"), 0
				b.set(func(_ context.Context, c *call) error {
					if made++; made == 4 || made == 5 {
						return failure
					}
					return c.do()
				}, op)
				b.is("open rows", must(b.rebuild()).Open, 5000)
				b.is("times that the index was emptied", b.count("Reset")-resets, 1)
				between(b, "calls to fill five pages", b.count("Ensure")-pages, 5, 7)
				b.holds(5000)
			})
		})
	}
}

// An index that knows what SQL does not is left alone while sending is held, whatever generation it has, so
// that an operator can read it; a rebuild, or a start without the hold, then makes it what SQL says.
func TestHeldProcessKeepsWhatOnlyTheIndexKnows(t *testing.T) {
	// The same generation, which SQL says was never filled, would have been rebuilt too.
	for name, generation := range map[string]int64{"newer": 7, "the same": 1} {
		t.Run(name, func(t *testing.T) {
			shared := func(o *options) { on(foreignIndex(t, generation))(o) }
			with(nil, shared, onHold).run(t, func(b *fixture) {
				c := b.accept(accept.Submission{})
				time.Sleep(2 * time.Minute) // sweeps, audits, the looks at the generation
				synctest.Wait()
				b.is("verify", b.drift(), index.Drift{
					Rows: 1, Items: 4, Extra: 3, Unknown: 3, MissingIDs: []string{}, LateIDs: []string{},
					ExtraIDs: public(strangers), UnknownIDs: public(strangers), EndedIDs: []string{},
					Generation: 1, IndexGeneration: generation,
				})
				b.is("health", b.health(), "ready redis held")
				b.sent(0, "on hold")
				b.stands(b.get(c.ID), "scheduled")
				if generation == 1 {
					must(b.rebuild())
				} else {
					b = b.restart(nil, on(b.index))
					b.await(c.ID, time.Minute)
				}
				b.check(b.drift().Clean(), "verify at the end: %+v", b.drift())
			})
		})
	}
}

// An index that holds nothing is filled although sending is held: there is nothing to lose.
func TestHeldProcessFillsAnEmptyIndex(t *testing.T) {
	with(nil, func(o *options) { o.Alone = false }, onHold).run(t, func(b *fixture) {
		b.accept(accept.Submission{})
		time.Sleep(2 * time.Second) // What is accepted while the index is being filled is told to it a second later.
		b.holds(1)
		b.is("health", b.health(), "ready held")
	})
}

// Verify tells what SQL does not know from what it has ended, and names all of it when it is asked to.
func TestVerifyTellsUnknownFromEnded(t *testing.T) {
	with(nil, onHold).run(t, func(b *fixture) {
		var ended []string
		for range 120 {
			ended = append(ended, b.accept(accept.Submission{}).ID)
		}
		synctest.Wait() // until the index has been told
		for _, id := range ended {
			// Behind the engine's back, which would tell the index.
			must(b.db.Cancel(b.Context(), project, id, soon(0), operator))
		}
		must(b.index.Ensure(b.Context(), theirs()))
		d := b.drift()
		b.is("verify", []int{d.Extra, d.Unknown, d.Ended, len(d.ExtraIDs), len(d.EndedIDs)},
			[]int{123, 3, 120, 100, 100})
		all := must(b.engine.VerifyAll(b.Context()))
		slices.Sort(ended)
		b.is("unknown", all.UnknownIDs, public(strangers))
		b.is("ended", all.EndedIDs, public(ended))
		b.is("extra", len(all.ExtraIDs), 123)
	})
}

// foreignBuild is an index that is as another build has written it until it is reset.
func foreignBuild(t *testing.T, is error) tweak {
	return func(o *options) {
		on(foreignIndex(t, 7))(o)
		o.set(fail(is), "Generation")
		o.set(before(func() { o.set(nil, "Generation") }), "Reset")
	}
}

// The index of an older build is filled anew.
func TestOlderIndexIsReplaced(t *testing.T) {
	with(nil, foreignBuild(t, schedule.ErrOlder)).run(t, func(b *fixture) {
		b.ends("succeeded", time.Minute, b.accept(accept.Submission{}).ID)
		b.is("times that it was emptied", b.count("Reset"), 1)
	})
}

// While sending is held it is left alone, until somebody asks.
func TestOlderIndexIsKeptWhileHeld(t *testing.T) {
	with(nil, foreignBuild(t, schedule.ErrOlder), onHold).run(t, func(b *fixture) {
		b.accept(accept.Submission{})
		time.Sleep(2 * time.Minute)
		b.is("times that it was emptied", b.count("Reset"), 0)
		b.is("health", b.health(), "ready redis held")
		must(b.rebuild())
		b.is("times that it was emptied by hand", b.count("Reset"), 1)
	})
}

// That of a newer build is never emptied: what is accepted meanwhile is in SQL.
func TestNewerIndexIsLeftAlone(t *testing.T) {
	with(nil, foreignBuild(t, schedule.ErrNewer)).run(t, func(b *fixture) {
		id := b.accept(accept.Submission{}).ID
		time.Sleep(2 * time.Minute)
		_, err := b.rebuild()
		b.fails("a rebuild by hand", err, schedule.ErrNewer)
		b.is("times that it was emptied", b.count("Reset"), 0)
		b.is("health", b.health(), "ready redis")
		b.stands(b.get(id), "scheduled")
		b.sent(0, "")
	})
}

// A pause that could not be told to the index at once is told later, also where nobody else changes anything.
func TestAPauseThatWasNotToldAtOnce(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		b.accept(in(time.Hour))
		time.Sleep(time.Second)
		b.times(1, fail(errDown), "Lanes")
		b.pause(store.Forever)
		time.Sleep(2 * time.Hour)
		b.sent(0, "while their project was paused")
	})
}

// Who looks at the index sees which one it is, since when, and whether it is the one that SQL wants.
func TestIndexStatus(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		status := func() index.Status { return must(b.engine.IndexStatus(b.Context())) }
		synctest.Wait()
		generation := status().Generation
		want := index.Status{
			Prefix: "dispatcher", Shards: 1, Embedded: true, Generation: generation, Present: generation,
			BuiltAt: soon(0),
		}
		b.check(generation != 0 && status() == want, "got %+v, want %+v", status(), want)
		time.Sleep(time.Hour)
		must(b.rebuild())
		want.Generation, want.Present, want.BuiltAt = generation+1, generation+1, soon(0)
		b.is("after a rebuild", status(), want)
		b.set(fail(errBroken), "Generation")
		want.Present, want.Down = 0, true
		b.is("an index that does not answer", status(), want)
		b.set(nil, "Generation")
		// Another process has begun to rebuild, and has died: nothing looks after an index that is this
		// process's own.
		must(b.db.NextGeneration(b.Context(), want.Generation, soon(0), nil))
		want.Present, want.Down, want.Rebuilding, want.Generation = want.Generation, false, true,
			want.Generation+1
		b.is("half-way through a rebuild", status(), want)
	})
}
