package storetest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func testDispatchers(f *fixture) {
	want := func(since int64, want ...store.Dispatcher) {
		f.Helper()
		same(f, fmt.Sprint("since ", since), want, must(f.Dispatchers(f.ctx(), since)))
	}
	want(0)
	a := store.Dispatcher{
		Name: "a", Host: "machine-1", Version: "v1.2.3", Roles: "api,worker", Workers: 64, InFlight: 7, Held: true, ClockOffset: -12,
		StartedAt: f.now - 100, SeenAt: f.now,
	}
	b := store.Dispatcher{Name: "b", Host: "machine-2", Draining: true, StartedAt: f.now - 200, SeenAt: f.now - 50}
	c := store.Dispatcher{Name: "0", StartedAt: f.now - 100, SeenAt: f.now - 1}
	f.ok(f.ReportDispatcher(f.ctx(), a))
	f.ok(f.ReportDispatcher(f.ctx(), b))
	f.ok(f.ReportDispatcher(f.ctx(), c))
	want(f.now-50, b, c, a)
	want(f.now-49, c, a)
	a = store.Dispatcher{
		Name: "a", Host: "machine-3", Version: "v2", Roles: "ui", Workers: 1, InFlight: 0, Draining: true, ClockOffset: 3, StartedAt: f.now - 300,
		SeenAt: f.now + 1,
	}
	f.ok(f.ReportDispatcher(f.ctx(), a))
	want(0, a, b, c)
	for range 2 {
		f.ok(f.WithdrawDispatcher(f.ctx(), "b", f.now+2))
	}
	want(0, a, c)
	purge := func(now int64, limit, want int) {
		f.Helper()
		same(f, "purged", want, must(f.PurgeDispatchers(f.ctx(), now, limit)))
	}
	purge(f.now-1+day, 10, 0)
	purge(f.now+day, 10, 1)
	want(0, a)
}

// testLastWorker: a process with workers is known after it has ended, or died, for as long as none has come
// after it.
func testLastWorker(f *fixture) {
	want := func(what string, want int64) {
		f.Helper()
		same(f, "the last worker, "+what, want, must(f.LastWorker(f.ctx())))
	}
	want("of none", 0)
	f.ok(f.ReportDispatcher(f.ctx(), store.Dispatcher{Name: "api", SeenAt: f.now + 90}))
	want("with none but an API", 0)
	f.ok(f.ReportDispatcher(f.ctx(), store.Dispatcher{Name: "a", Workers: 8, SeenAt: f.now}))
	f.ok(f.ReportDispatcher(f.ctx(), store.Dispatcher{Name: "b", Workers: 8, SeenAt: f.now + 10}))
	want("of two", f.now+10)
	f.ok(f.WithdrawDispatcher(f.ctx(), "b", f.now+20))
	f.ok(f.WithdrawDispatcher(f.ctx(), "b", f.now+30))
	want("when one has ended", f.now+20)
	same(f, "purged", 2, must(f.PurgeDispatchers(f.ctx(), f.now+9*day, 10)))
	want("after the purge", f.now+20)
	if list := must(f.Dispatchers(f.ctx(), 0)); len(list) != 0 {
		f.Errorf("one that has ended is listed: %+v", list)
	}
	f.ok(f.ReportDispatcher(f.ctx(), store.Dispatcher{Name: "c", Workers: 1, SeenAt: f.now + 40}))
	same(f, "purged", 1, must(f.PurgeDispatchers(f.ctx(), f.now+9*day, 10)))
	want("when another has come", f.now+40)
}

// testDispatchersMany: what starts and dies again and again is listed up to a bound, those that were seen last.
func testDispatchersMany(f *fixture) {
	const n = 1003
	for i := range n {
		d := store.Dispatcher{Name: fmt.Sprint(i), StartedAt: f.now - int64(i), SeenAt: f.now + int64(i)}
		f.ok(f.ReportDispatcher(f.ctx(), d))
	}
	got, err := f.Dispatchers(f.ctx(), f.now)
	if err != nil || len(got) != 1000 || got[0].Name != fmt.Sprint(n-1) || got[999].Name != "3" ||
		!slices.IsSortedFunc(got, func(a, b store.Dispatcher) int { return int(a.StartedAt - b.StartedAt) }) {
		f.Errorf("%v, %d are listed", err, len(got))
	}
	same(f, "purged", 500, must(f.PurgeDispatchers(f.ctx(), f.now+2*day, 500)))
	same(f, "purged with the rest", 503, must(f.PurgeDispatchers(f.ctx(), f.now+2*day, 5000)))
}

func testSessions(f *fixture) {
	put := func(s store.Session) {
		f.Helper()
		f.ok(f.PutSession(f.ctx(), s))
	}
	want := func(token string, now int64, want *store.Session) {
		f.Helper()
		got, err := f.Session(f.ctx(), token, now)
		if want == nil {
			f.fails(store.ErrNotFound, "session that is none", err)
		} else if err != nil || got.Token != want.Token || !bytes.Equal(got.Data, want.Data) ||
			got.ExpiresAt != want.ExpiresAt {
			f.Errorf("session: %v, %+v, want %+v", err, got, *want)
		}
	}
	want("one", f.now, nil)
	one := store.Session{Token: "one", Data: []byte("\x00\xff{}"), ExpiresAt: f.now + 10}
	two := store.Session{Token: "two", ExpiresAt: f.now + 20}
	put(one)
	put(two)
	want("one", f.now+9, &one)
	want("one", f.now+10, nil)
	want("two", f.now+10, &two)
	one.Data, one.ExpiresAt = []byte("more"), f.now+30
	put(one)
	want("one", f.now+10, &one)
	for range 2 {
		f.ok(f.DeleteSession(f.ctx(), "one"))
	}
	want("one", f.now, nil)
	put(one)
	for i := range 5 {
		put(store.Session{Token: fmt.Sprint(i), ExpiresAt: f.now + int64(i)})
	}
	for _, step := range []struct {
		now         int64
		limit, want int
	}{{f.now + 2, 2, 2}, {f.now + 2, 10, 1}, {f.now + 2, 10, 0}, {f.now + 20, 10, 3}} {
		same(f, "purged", step.want, must(f.PurgeSessions(f.ctx(), step.now, step.limit)))
	}
	want("two", 0, nil)
	want("one", f.now, &one)
}
