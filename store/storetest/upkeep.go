package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func testLease(f *fixture) {
	try := func(holder string, now int64) bool {
		return must(f.TryLease(f.ctx(), "leader", holder, now, 10*time.Second))
	}
	if !try("a", f.now) || try("b", f.now+9_999) || !try("a", f.now+9_999) || try("b", f.now+10_000) || !try("b", f.now+19_999) || try("a", f.now+20_000) {
		f.Error("the lease was not held by one at a time until its end")
	}
	// The holder at f.now+20,000 dies, and the clock is set back: a little is waited for, an hour is not.
	if try("c", f.now+12_000) || !try("c", f.now+20_000-3600_000) || try("a", f.now+20_000-3600_000) {
		f.Error("a lease outlived its holder by as much as the clock was set back")
	}
	var wg sync.WaitGroup
	var holders atomic.Int32
	for i := range 8 {
		wg.Go(func() {
			held, err := f.TryLease(f.ctx(), "contended", fmt.Sprint(i), f.now, time.Second)
			if err != nil {
				f.Errorf("lease: %v", err)
			}
			if held {
				holders.Add(1)
			}
		})
	}
	wg.Wait()
	if n := holders.Load(); n != 1 {
		f.Errorf("%d hold one lease", n)
	}
}

func testMeta(f *fixture) {
	f.fails(store.ErrNotFound, "next generation without a row",
		errOf(f.NextGeneration(f.ctx(), 0, f.now, nil)))
	want := store.IndexMeta{Generation: 3, Shards: 16, Prefix: "dispatcher"}
	for _, ask := range []store.IndexMeta{want, {Generation: 9, Shards: 1, Prefix: "x"}} {
		same(f, "meta", want, must(f.IndexMeta(f.ctx(), ask)))
	}
	for i, step := range []struct{ from, want int64 }{{3, 4}, {3, 4}, {4, 5}, {9, 5}} {
		same(f, fmt.Sprint("next generation from ", step.from), step.want,
			must(f.NextGeneration(f.ctx(), step.from, f.now+int64(i), &actor)))
	}
	want.Generation, want.MadeAt = 5, f.now+2
	for _, step := range []struct{ generation, now, built, builtAt int64 }{
		{4, f.now, 4, f.now}, {3, f.now + 1, 4, f.now}, {4, f.now + 2, 4, f.now}, {5, f.now + 3, 5, f.now + 3},
	} {
		f.ok(f.MarkBuilt(f.ctx(), step.generation, step.now))
		want.Built, want.BuiltAt = step.built, step.builtAt
		same(f, fmt.Sprint("built: ", step.generation), want, must(f.IndexMeta(f.ctx(), store.IndexMeta{})))
	}
}

func testCursor(f *fixture) {
	want := store.Cursor{}
	for range 3 {
		same(f, "cursor", want, must(f.SweepCursor(f.ctx())))
		want = store.Cursor{DueAt: want.DueAt + f.now, ID: f.id()}
		f.ok(f.SetSweepCursor(f.ctx(), want))
	}
}

func testPurge(f *fixture) {
	var ended []string
	for i := range 5 {
		if i%2 == 0 {
			ended = append(ended, f.dead(nil).ID)
			continue
		}
		c := f.accept(func(d *store.Draft) { d.Body = nil })
		f.win(f.succeeded(f.claim(c.ID)))
		ended = append(ended, c.ID)
	}
	revived := f.dead(nil)
	open := f.accept(nil)
	f.now += 1000
	f.retry(revived.ID, store.Once)
	young := f.dead(nil)
	purge := func(payloadBefore, metadataBefore int64, limit, wantPayloads, wantCallbacks int) {
		f.Helper()
		r := store.Retention{Now: f.now, Payloads: payloadBefore, Callbacks: metadataBefore}
		p, err := f.Purge(f.ctx(), r, limit)
		if err != nil || p.Payloads != wantPayloads || p.Callbacks != wantCallbacks {
			f.Errorf("purged %+v: %v; want %d and %d", p, err, wantPayloads, wantCallbacks)
		}
	}
	overstays := func(r store.Retention, want map[string]int64) {
		f.Helper()
		r.Now = f.now
		same(f, "the oldest that should be gone", want, must(f.Overstays(f.ctx(), r)))
	}
	then := f.now - 1000
	overstays(store.Retention{Payloads: then, Callbacks: then}, map[string]int64{})
	overstays(store.Retention{Payloads: f.now}, map[string]int64{"payload": then})
	overstays(store.Retention{Payloads: f.now, Callbacks: f.now},
		map[string]int64{"payload": then, "callback": then})
	purge(f.now, 0, 2, 2, 0)
	purge(f.now, 0, 100, 1, 0)
	purge(f.now, 0, 100, 0, 0)
	overstays(store.Retention{Payloads: f.now, Callbacks: f.now}, map[string]int64{"callback": then})
	for i, id := range ended {
		if c := f.get(id); c.PayloadPurged != (i%2 == 0) || c.PayloadID != "" || len(f.attempts(id)) != 1 {
			f.Errorf("callback %d after its payload: %+v", i, c)
		}
	}
	for _, id := range []string{revived.ID, open.ID, young.ID} {
		if p, err := f.Payload(f.ctx(), project, id); err != nil || len(p.Body) == 0 {
			f.Errorf("payload that must stay: %v", err)
		}
	}
	purge(f.now, f.now, 3, 0, 3)
	purge(f.now, f.now, 100, 0, 2)
	overstays(store.Retention{Payloads: f.now, Callbacks: f.now}, map[string]int64{})
	for _, id := range ended {
		f.fails(store.ErrNotFound, "purged callback", errOf(f.Get(f.ctx(), project, id)))
		f.fails(store.ErrNotFound, "attempts of a purged callback",
			errOf(f.Attempts(f.ctx(), project, id, 0, 10)))
	}
	// Metadata that goes earlier than payloads takes them along.
	purge(0, f.now+1, 100, 1, 1)
	counts := f.counts()
	if counts.States[store.Dead] != 0 || counts.States[store.Succeeded] != 0 || counts.States[store.Scheduled] != 2 {
		f.Errorf("counts %+v", counts)
	}
}

func testIdempotencyExpires(f *fixture) {
	f.accept(keyed("open", "one"))
	ended := f.accept(keyed("ended", "one"))
	purged := f.accept(keyed("purged", "one"))
	f.win(f.succeeded(f.claim(ended.ID)))
	f.win(f.succeeded(f.claim(purged.ID)))
	end := func() {
		f.Helper()
		for range 3 {
			if _, more, err := f.PurgeKeys(f.ctx(), f.now, 100); err != nil || more {
				f.Fatalf("purge keys: %t, %v", more, err)
			}
		}
	}
	replayed := func(key string) bool {
		f.Helper()
		a := f.acceptAll(f.draft(keyed(key, "one")))[0]
		f.ok(a.Err)
		return a.Replayed
	}
	f.now += (7 * 24 * time.Hour).Milliseconds()
	end()
	if !replayed("open") || !replayed("ended") {
		f.Error("a key ended before seven days had passed")
	}
	if p, err := f.Purge(f.ctx(), store.Retention{Now: f.now, Callbacks: f.now - 1}, 1); err != nil ||
		p.Callbacks != 1 {
		f.Fatalf("purge: %+v, %v", p, err)
	}
	f.now++
	end()
	if !replayed("open") {
		f.Error("a key ended while its callback was open")
	}
	if replayed("ended") || replayed("purged") {
		f.Error("a key outlived seven days and its callback")
	}
}

// A key whose callback was open when the purge passed it goes within an hour of the callback's end, however
// many others are open before it.
func testPassedKeysEnd(f *fixture) {
	const limit = 2
	for i := range 3 * limit {
		f.accept(keyed(fmt.Sprint("open-", i), "one"))
		f.now++
	}
	late := f.accept(keyed("late", "one"))
	f.now += (8 * 24 * time.Hour).Milliseconds()
	purge := func() int {
		f.Helper()
		sum := 0
		for more := true; more; {
			n, left, err := f.PurgeKeys(f.ctx(), f.now, limit)
			f.ok(err)
			sum, more = sum+n, left
		}
		return sum
	}
	same(f, "keys removed while their callbacks are open", 0, purge())
	f.win(f.succeeded(f.claim(late.ID)))
	f.now += (2 * time.Hour).Milliseconds()
	same(f, "keys removed after the end of a callback", 1, purge())
}

// A purge by a clock that was a year ahead does not keep later ones from what should go.
func testPurgeAfterAClockAhead(f *fixture) {
	const year = 365 * 24 * time.Hour
	purge := func() int {
		f.Helper()
		n, _, err := f.PurgeKeys(f.ctx(), f.now, 100)
		f.ok(err)
		return n
	}
	f.now += year.Milliseconds()
	purge()
	f.now -= year.Milliseconds()
	c := f.accept(keyed("key", "one"))
	f.win(f.succeeded(f.claim(c.ID)))
	f.now += (8 * 24 * time.Hour).Milliseconds()
	same(f, "keys removed", 1, purge())
}

func testPing(f *fixture) {
	for range 2 {
		f.ok(f.Ping(f.ctx()))
	}
}
