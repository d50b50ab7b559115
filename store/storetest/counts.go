package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	hour = int64(3_600_000)
	day  = 24 * hour
)

// A tally is numbers of callbacks: by state, and of open ones by tier, by lane and by the hour that they are due in.
type tally map[string]int64

// listedLanes is how many lanes Counts lists at most.
const listedLanes = 100

// counted is what the counters say. Hours that passed a day ago are not counted any more.
func (f *fixture) counted() (tally, error) {
	counts, err := f.Counts(f.ctx(), project)
	if err != nil {
		return nil, err
	}
	hours, err := f.DueHours(f.ctx(), project, f.countedFrom(), f.now+1000*day)
	if err != nil {
		return nil, err
	}
	all := make(tally)
	for state, n := range counts.States {
		all["state "+string(state)] = n
	}
	for tier, n := range counts.Tiers {
		all[fmt.Sprint("tier ", tier)] = n
	}
	for _, l := range counts.Lanes {
		all["lane "+l.Lane] = l.Open
	}
	for _, h := range hours {
		all[fmt.Sprint("hour ", h.At)] = h.Count
	}
	return all, nil
}

func (f *fixture) countedFrom() int64 { return f.now - f.now%hour - day }

// listed is what a list of the callbacks since then says, and shows each.
func (f *fixture) listed(since int64, show func(c *store.Callback)) (tally, error) {
	all := make(tally)
	filter := store.Filter{Limit: 500, From: since, Now: f.now}
	for {
		page, err := f.List(f.ctx(), project, filter)
		if err != nil {
			return nil, err
		}
		for i := range page.Callbacks {
			c := &page.Callbacks[i]
			show(c)
			all["state "+string(c.State)]++
			if c.State != store.Scheduled {
				continue
			}
			all[fmt.Sprint("tier ", c.AttemptCount-c.LadderBase)]++
			all["lane "+c.Lane]++
			if c.DueAt >= f.countedFrom() {
				all[fmt.Sprint("hour ", c.DueAt-c.DueAt%hour)]++
			}
		}
		if filter.After = page.Next; page.Next == nil {
			return all, nil
		}
	}
}

// compareCounters compares what the counters say beside what they said before with a list of the callbacks since then.
func (f *fixture) compareCounters(before tally, since int64, show func(c *store.Callback)) error {
	counted, err := f.counted()
	if err != nil {
		return err
	}
	listed, err := f.listed(since, show)
	if err != nil {
		return err
	}
	lanes := 0
	for what, n := range counted {
		if n -= before[what]; n != listed[what] {
			return fmt.Errorf("%d of %s are counted, %d are there", n, what, listed[what])
		}
		if strings.HasPrefix(what, "lane ") {
			lanes++
		}
	}
	for what, n := range listed {
		_, ok := counted[what]
		if left := strings.HasPrefix(what, "lane ") && lanes == listedLanes; !ok && !left {
			return fmt.Errorf("none of %s are counted, %d are there", what, n)
		}
	}
	return nil
}

// checkCounters fails where the counters are not what a scan would count, before and after they are folded. It is done
// after every test.
func (f *fixture) checkCounters() {
	f.Helper()
	for _, when := range []string{"before", "after"} {
		if err := f.compareCounters(nil, 0, func(*store.Callback) {}); err != nil {
			f.Errorf("%s the fold: %v", when, err)
		}
		f.fold()
	}
}

func testDueHours(f *fixture) {
	at := f.now - f.now%hour
	f.now = at + hour/2
	dueIn := func(ms int64) store.Callback { return f.accept(func(d *store.Draft) { d.Callback.DueAt += ms }) }
	want := func(when string, from, to int64, want ...store.DueHour) {
		f.Helper()
		if got := must(f.DueHours(f.ctx(), project, from, to)); !slices.Equal(got, want) {
			f.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	none(f, "of another project", must(f.DueHours(f.ctx(), "other", 0, store.Forever)))
	want("none yet", 0, store.Forever)
	first, late := dueIn(0), dueIn(-hour)
	dueIn(hour/2 - 1)
	dueIn(hour / 2)
	dueIn(50 * hour)
	f.accept(func(d *store.Draft) { d.Callback.Project = "other" })
	all := []store.DueHour{{At: at - hour, Count: 1}, {At: at, Count: 2}, {At: at + hour, Count: 1}, {At: at + 50*hour, Count: 1}}
	for _, when := range []string{"accepted", "folded"} {
		want(when, 0, store.Forever, all...)
		want(when+", from within an hour", f.now, at+50*hour, all[1:3]...)
		want(when+", up to within an hour", at, at+50*hour+1, all[1:]...)
		want(when+", no time", at, at)
		f.fold()
	}
	// One that is told what was stamped, and one that is not.
	for _, known := range []bool{true, false} {
		r := f.failed(f.claim(first.ID))
		if !known {
			r.Stamped = nil
		}
		r.DueAt = f.now + hour
		f.win(r)
		want("failed", at, at+2*hour, store.DueHour{At: at, Count: 1}, store.DueHour{At: at + hour, Count: 2})
		f.fold()
		want("failed and folded", at, at+2*hour, store.DueHour{At: at, Count: 1}, store.DueHour{At: at + hour, Count: 2})
		f.retry(first.ID, store.Once)
		want("to be retried", at, at+2*hour, all[1:3]...)
	}
	must(f.Reschedule(f.ctx(), project, first.ID, at+7*hour, f.now, actor))
	f.cancel(late.ID)
	moved := []store.DueHour{{At: at, Count: 1}, {At: at + hour, Count: 1}, {At: at + 7*hour, Count: 1}, {At: at + 50*hour, Count: 1}}
	want("moved", 0, store.Forever, moved...)
	// What is overdue by more than a day is not counted, and not less than none when it ends.
	f.now = at + 27*hour
	f.fold()
	want("a day later", 0, store.Forever, moved[2:]...)
	f.cancel(first.ID)
	f.fold()
	want("ended late", 0, store.Forever, moved[3:]...)
}

func (f *fixture) wantDueNow(what string, want store.DueNow) {
	f.Helper()
	same(f, what, want, must(f.DueNow(f.ctx(), project, f.now)))
}

func testDueNow(f *fixture) {
	f.wantDueNow("none", store.DueNow{})
	dueIn := func(ms int64) store.Callback { return f.accept(func(d *store.Draft) { d.Callback.DueAt += ms }) }
	dueIn(0)
	dueIn(1000)
	f.accept(func(d *store.Draft) { d.Callback.Project = "other"; d.Callback.DueAt -= 5000 })
	f.wantDueNow("none yet", store.DueNow{})
	first, second := dueIn(-20), dueIn(-10)
	f.wantDueNow("two", store.DueNow{Count: 2, OldestAt: f.now - 20})
	f.claim(first.ID)
	f.wantDueNow("one is attempted", store.DueNow{Count: 1, OldestAt: f.now - 10})
	f.cancel(second.ID)
	f.wantDueNow("one was canceled", store.DueNow{})
	f.now += claimLasts
	f.wantDueNow("a claim has run out", store.DueNow{Count: 3, OldestAt: start - 20})
	same(f, "of another project", store.DueNow{}, must(f.DueNow(f.ctx(), "none", f.now)))
}

// testDueNowMany: those of another project come first, and there are more than are counted.
func testDueNowMany(f *fixture) {
	for _, of := range []struct {
		project string
		n       int
		due     int64
	}{{"other", 700, f.now - 2000}, {project, 1000, f.now - 1000}} {
		drafts := make([]store.Draft, of.n)
		for i := range drafts {
			drafts[i] = f.draft(func(d *store.Draft) { d.Callback.Project, d.Callback.DueAt = of.project, of.due })
		}
		f.acceptAll(drafts...)
	}
	f.wantDueNow("as many as are counted", store.DueNow{Count: 1000, OldestAt: f.now - 1000})
	f.accept(func(d *store.Draft) { d.Callback.DueAt -= 1 })
	f.wantDueNow("one more", store.DueNow{Count: 1000, More: true, OldestAt: f.now - 1000})
}

// diesOf accepts a callback and ends it as dead of a cause.
func (f *fixture) diesOf(reason store.Reason, class store.Class, status int) store.Callback {
	f.Helper()
	f.now++
	r := f.died(f.claim(f.accept(nil).ID))
	r.Reason, r.Attempt.Class, r.Attempt.Status = reason, class, status
	f.win(r)
	return f.get(r.ID)
}

func (f *fixture) wantGroups(what string, want ...store.DeadGroup) {
	f.Helper()
	same(f, what, want, must(f.DeadGroups(f.ctx(), project)))
}

// groupOf is the group of callbacks that died alike, the oldest first.
func groupOf(all ...store.Callback) store.DeadGroup {
	first, last := &all[0], &all[len(all)-1]
	return store.DeadGroup{
		Reason: last.Reason, Class: last.LastClass, Status: last.LastStatus, Count: len(all),
		OldestAt: first.CreatedAt, NewestAt: last.CreatedAt, NewestID: last.ID,
	}
}

func testDeadGroups(f *fixture) {
	f.wantGroups("none")
	f.accept(nil)
	f.win(f.succeeded(f.claim(f.accept(nil).ID)))
	f.cancel(f.accept(nil).ID)
	f.wantGroups("none dead")
	a1 := f.diesOf(store.Exhausted, store.ClassHTTP5xx, 500)
	b1 := f.diesOf(store.Exhausted, store.ClassHTTP5xx, 503)
	c1 := f.diesOf(store.Rejected, store.ClassHTTP4xx, 404)
	b2 := f.diesOf(store.Exhausted, store.ClassHTTP5xx, 503)
	d1 := f.diesOf(store.Exhausted, store.ClassTimeoutHeaders, 0)
	b3 := f.diesOf(store.Exhausted, store.ClassHTTP5xx, 503)
	a2 := f.diesOf(store.Exhausted, store.ClassHTTP5xx, 500)
	without := f.accept(func(d *store.Draft) { d.Callback.ExpiresAt = f.now + 1 })
	f.now += 2
	must(f.Expire(f.ctx(), f.now, 10))
	e1 := f.get(without.ID)
	f.wantGroups("five", groupOf(b1, b2, b3), groupOf(a1, a2), groupOf(e1), groupOf(d1), groupOf(c1))
	f.retry(b2.ID, store.Restart)
	f.retry(b3.ID, store.Restart)
	f.retry(d1.ID, store.Once)
	f.wantGroups("three are alive again", groupOf(a1, a2), groupOf(e1), groupOf(c1), groupOf(b1))
	none(f, "of another project", must(f.DeadGroups(f.ctx(), "other")))
}

// testDeadGroupsMany: no more groups are listed, and no more callbacks counted, than may be.
func testDeadGroupsMany(f *fixture) {
	const large = 1001
	groups := 230
	if testing.Short() { // the race detector makes of two hundred looks into the index more than a read may take
		groups = 30
	}
	drafts := make([]store.Draft, large+groups)
	for i := range drafts {
		drafts[i] = f.draft(nil)
	}
	f.acceptAll(drafts...)
	for i := 0; i < len(drafts); i += 100 {
		var ids []string
		for _, d := range drafts[i:min(i+100, len(drafts))] {
			ids = append(ids, d.Callback.ID)
		}
		stamped, _ := f.stamp(f.token(), ids...)
		var results []store.Result
		for n, s := range stamped {
			r := f.died(s)
			if r.Reason = store.Poison; i+n >= large {
				r.Reason, r.Attempt.Class, r.Attempt.Status = store.Exhausted, store.Class(fmt.Sprint("class-", n%7)), i+n
			}
			results = append(results, r)
		}
		must(f.Commit(f.ctx(), results, f.now))
	}
	got := must(f.DeadGroups(f.ctx(), project))
	same(f, "groups", min(groups+1, 200), len(got))
	for _, g := range got {
		if g.Reason == store.Poison && groups < 200 {
			continue
		}
		if g.Count != 1 || g.More || g.Reason != store.Exhausted {
			f.Errorf("%+v", g)
		}
	}
	// Once there are fewer groups, the large one is among them, before all others.
	for _, d := range drafts[large+20:] {
		f.retry(d.Callback.ID, store.Restart)
	}
	got = must(f.DeadGroups(f.ctx(), project))
	same(f, "fewer groups", 21, len(got))
	// It may have been counted less far, if the others have taken long.
	if g := got[0]; g.Reason != store.Poison || !g.More || g.Count != 1000 && g.Count != 10 || g.NewestID != drafts[large-1].Callback.ID {
		f.Errorf("the largest: %+v", g)
	}
}
