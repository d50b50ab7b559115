package storetest

import (
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func testLease(f *fixture) {
	for i, step := range []struct {
		holder string
		after  int64
		want   bool
	}{
		{"a", 0, true}, {"b", 9_999, false}, {"a", 9_999, true}, {"b", 10_000, false}, {"b", 19_999, true},
		{"a", 20_000, false},
		// The holder dies, and the clock is set back: a little is waited for, an hour is not.
		{"c", 12_000, false}, {"c", 20_000 - hour, true}, {"a", 20_000 - hour, false},
	} {
		held := must(f.TryLease(f.ctx(), "leader", step.holder, f.now+step.after, 10*time.Second))
		same(f, fmt.Sprint("step ", i, ", ", step.holder), step.want, held)
	}
	holders := 0
	for _, held := range crowd(f, 8, func(i int) bool {
		return must(f.TryLease(f.ctx(), "contended", fmt.Sprint(i), f.now, time.Second))
	}) {
		if held {
			holders++
		}
	}
	same(f, "holders of one lease", 1, holders)
}

func testMeta(f *fixture) {
	f.missing("next generation without a row", errOf(f.NextGeneration(f.ctx(), 0, f.now, nil)))
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
		end, body := f.die, []byte(paid)
		if i%2 == 1 {
			end, body = f.succeed, nil
		}
		c := f.accept(withBody(body))
		end(c.ID)
		ended = append(ended, c.ID)
	}
	revived, open := f.dead(), f.accept()
	f.now += 1000
	f.retry(revived.ID, store.Once)
	young := f.dead()
	purge := func(payloadBefore, metadataBefore int64, limit, wantPayloads, wantCallbacks int) {
		r := store.Retention{Now: f.now, Payloads: payloadBefore, Callbacks: metadataBefore}
		p := must(f.Purge(f.ctx(), r, limit))
		same(f, "purged", [2]int{wantPayloads, wantCallbacks}, [2]int{p.Payloads, p.Callbacks})
	}
	overstays := func(payloads, callbacks int64, want map[string]int64) {
		r := store.Retention{Now: f.now, Payloads: payloads, Callbacks: callbacks}
		same(f, "the oldest that should be gone", want, must(f.Overstays(f.ctx(), r)))
	}
	then := f.now - 1000
	overstays(then, then, map[string]int64{})
	overstays(f.now, 0, map[string]int64{"payload": then})
	overstays(f.now, f.now, map[string]int64{"payload": then, "callback": then})
	purge(f.now, 0, 2, 2, 0)
	purge(f.now, 0, 100, 1, 0)
	purge(f.now, 0, 100, 0, 0)
	overstays(f.now, f.now, map[string]int64{"callback": then})
	for i, id := range ended {
		c := f.get(id)
		f.check(c.PayloadPurged == (i%2 == 0) && c.PayloadID == "" && len(f.attempts(id)) == 1,
			"callback %d after its payload: %+v", i, c)
	}
	for _, id := range ids(revived, open, young) {
		f.check(len(f.payload(id).Body) > 0, "a payload that must stay is empty")
	}
	purge(f.now, f.now, 3, 0, 3)
	purge(f.now, f.now, 100, 0, 2)
	overstays(f.now, f.now, map[string]int64{})
	for _, id := range ended {
		f.missing("purged callback", errOf(f.Get(f.ctx(), project, id)))
		f.missing("attempts of a purged callback", errOf(f.Attempts(f.ctx(), project, id, 0, 10)))
	}
	// Metadata that goes earlier than payloads takes them along.
	purge(0, f.now+1, 100, 1, 1)
	f.wantCounts(states{store.Dead: 0, store.Succeeded: 0, store.Scheduled: 2})
}

// purgeKeys removes what has run out until there is no more, and says how many keys went.
func (f *fixture) purgeKeys(limit int) (sum int) {
	for more := true; more; {
		n, left := must2(f.PurgeKeys(f.ctx(), f.now, limit))
		sum, more = sum+n, left
	}
	return sum
}

// purgeThrice purges keys, and then what the purge itself may have made ready to go.
func (f *fixture) purgeThrice() {
	for range 3 {
		f.purgeKeys(100)
	}
}

func testIdempotencyExpires(f *fixture) {
	for _, key := range []string{"open", "ended", "purged"} {
		if c := f.accept(keyed(key, "one")); key != "open" {
			f.succeed(c.ID)
		}
	}
	replayed := func(key string, want bool) {
		a := f.offer(keyed(key, "one"))
		f.check(a.Err == nil && a.Replayed == want, "%s: %+v, want replayed %t", key, a, want)
	}
	f.now += store.IdempotencyAge.Milliseconds()
	f.purgeThrice()
	replayed("open", true)
	replayed("ended", true)
	p := must(f.Purge(f.ctx(), store.Retention{Now: f.now, Callbacks: f.now - 1}, 1))
	same(f, "purged", 1, p.Callbacks)
	f.now++
	f.purgeThrice()
	replayed("open", true)
	replayed("ended", false)
	replayed("purged", false)
}

// testPassedKeysEnd: a key whose callback was open when the purge passed it goes within an hour of the
// callback's end, however many others are open before it.
func testPassedKeysEnd(f *fixture) {
	const limit = 2
	for i := range 3 * limit {
		f.accept(keyed(fmt.Sprint("open-", i), "one"))
		f.now++
	}
	late := f.accept(keyed("late", "one"))
	f.now += 8 * day
	same(f, "keys removed while their callbacks are open", 0, f.purgeKeys(limit))
	f.succeed(late.ID)
	f.now += 2 * hour
	same(f, "keys removed after the end of a callback", 1, f.purgeKeys(limit))
}

// testPurgeAfterAClockAhead: a purge by a clock that was a year ahead does not keep later ones from what
// should go.
func testPurgeAfterAClockAhead(f *fixture) {
	f.now += 365 * day
	f.purgeKeys(100)
	f.now -= 365 * day
	f.succeed(f.accept(keyed("key", "one")).ID)
	f.now += 8 * day
	same(f, "keys removed", 1, f.purgeKeys(100))
}

func testPing(f *fixture) {
	for range 2 {
		f.ok(f.Ping(f.ctx()))
	}
}
