package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A tally counts callbacks by state, and open callbacks also by tier, lane and due hour.
type tally map[string]int64

// listedLanes is the largest number of lanes in Counts.
const listedLanes = 100

// counted returns the values of the store's counters. The store drops hours that are more than a day in the
// past.
func (f *fixture) counted() tally {
	counts, all := f.counts(), make(tally)
	for state, n := range counts.States {
		all["state "+string(state)] = n
	}
	for tier, n := range counts.Tiers {
		all[fmt.Sprint("tier ", tier)] = n
	}
	for _, l := range counts.Lanes {
		all["lane "+l.Lane] = l.Open
	}
	for _, h := range must(f.DueHours(f.ctx(), project, f.countedFrom(), f.now+1000*day)) {
		all[fmt.Sprint("hour ", h.At)] = h.Count
	}
	return all
}

func (f *fixture) countedFrom() int64 { return f.now - f.now%hour - day }

// listed counts the callbacks that were created from since on, by listing them. It calls visit for each.
func (f *fixture) listed(since int64, visit func(c *store.Callback)) tally {
	all := make(tally)
	filter := store.Filter{Limit: 500, From: since, Now: f.now}
	for {
		page := must(f.List(f.ctx(), project, filter))
		for i := range page.Callbacks {
			c := &page.Callbacks[i]
			visit(c)
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
		filter.After = page.Next
		if page.Next == nil {
			return all
		}
	}
}

// compareCounters compares the counters, minus their values before, with a list of the callbacks that were
// created from since on. It calls visit for each of these callbacks.
func (f *fixture) compareCounters(before tally, since int64, visit func(c *store.Callback)) error {
	counted, listed := f.counted(), f.listed(since, visit)
	lanes := 0
	for name, n := range counted {
		n -= before[name]
		if n != listed[name] {
			return fmt.Errorf("counter %q is %d, want %d", name, n, listed[name])
		}
		if strings.HasPrefix(name, "lane ") {
			lanes++
		}
	}
	for name, n := range listed {
		_, ok := counted[name]
		leftOut := strings.HasPrefix(name, "lane ") && lanes == listedLanes
		if !ok && !leftOut {
			return fmt.Errorf("counter %q is missing, want %d", name, n)
		}
	}
	return nil
}

// checkCounters checks that the counters equal a count of the rows, before and after a fold. It runs after
// every test.
func (f *fixture) checkCounters() {
	for _, when := range []string{"before", "after"} {
		err := f.compareCounters(nil, 0, func(*store.Callback) {})
		f.check(err == nil, "%s the fold: %v", when, err)
		f.fold()
	}
}

// testCounts checks Counts with more lanes than it lists, before and after folds.
func testCounts(f *fixture) {
	lane := func(n int) option { return inLane(fmt.Sprintf("lane-%03d", n)) }
	var drafts []store.Draft
	for i := range 130 {
		drafts = append(drafts, f.drafts(1+i%3, lane(i))...)
	}
	f.acceptAll(drafts...)
	all := int64(len(drafts))
	check := func(when string) {
		counts := f.counts()
		lanes := counts.Lanes
		f.require(len(lanes) == listedLanes, "%s: %d lanes are listed", when, len(lanes))
		// One lane has four open callbacks, and 86 lanes have two or three.
		largest := lanes[0] == store.LaneCount{Lane: "lane-000", Open: 4}
		f.check(largest && lanes[86].Open == 2 && lanes[87].Open == 1 && lanes[99].Open == 1,
			"%s: lanes %+v", when, lanes)
		maps.DeleteFunc(counts.States, func(_ store.State, n int64) bool { return n == 0 })
		same(f, when+": states", map[store.State]int64{store.Scheduled: all + 3, store.Succeeded: 1},
			counts.States)
		same(f, when+": tiers", map[int]int64{0: all + 1, 1: 1, 3: 1}, counts.Tiers)
	}
	f.fold()
	extra := f.acceptEach(3, lane(0))
	f.accept(lane(0), with(func(c *store.Callback) { c.LadderBase = -3 }))
	f.win(f.failed(f.claim(extra[0].ID)))
	f.succeed(extra[1].ID)
	for _, when := range []string{"half folded", "folded", "folded twice"} {
		check(when)
		f.fold()
	}
}

// testDeadGroupsMany checks the limits of DeadGroups: the number of groups, and the count of one group.
func testDeadGroupsMany(f *fixture) {
	const large = 1001
	groups := 230
	// Runs with -short may use the race detector, which makes 200 index lookups slower than a read may be.
	if testing.Short() {
		groups = 30
	}
	all := ids(f.acceptEach(large + groups)...)
	for i := 0; i < len(all); i += 100 {
		stamped, _ := f.stamp(all[i:min(i+100, len(all))]...)
		var results []store.Result
		for n, s := range stamped {
			r := f.died(s)
			r.Reason = store.Poison
			if i+n >= large {
				r.Reason = store.Exhausted
				r.Attempt.Class, r.Attempt.Status = store.Class(fmt.Sprint("class-", n%7)), i+n
			}
			results = append(results, r)
		}
		must(f.Commit(f.ctx(), results, f.now))
	}
	got := must(f.DeadGroups(f.ctx(), project))
	same(f, "groups", min(groups+1, 200), len(got))
	for _, g := range got {
		isLarge := g.Reason == store.Poison && groups < 200
		isSmall := g.Reason == store.Exhausted && g.Count == 1 && !g.More
		f.check(isLarge || isSmall, "%+v", g)
	}
	// With fewer groups, the large one is listed, and comes first.
	for _, id := range all[large+20:] {
		must(f.Retry(f.ctx(), project, id, store.Retry{Ladder: store.Restart, Now: f.now}, actor))
	}
	got = must(f.DeadGroups(f.ctx(), project))
	same(f, "fewer groups", 21, len(got))
	// If the reads of the groups took long, the store counts only up to 10.
	g := got[0]
	countOK := g.Count == 1000 || g.Count == 10
	idsOK := g.OldestID == all[0] && g.NewestID == all[large-1]
	f.check(g.Reason == store.Poison && g.More && countOK && idsOK, "the largest group: %+v", g)
}

// testCompareMany compares a list with more references than one statement takes.
func testCompareMany(f *fixture) {
	f.accept(with(func(c *store.Callback) { c.Ref = "a" }))
	many := make([]string, 2500)
	for i := range many {
		many[i] = fmt.Sprint("many-", i)
	}
	many[2400] = "a"
	got := must(f.Compare(f.ctx(), project, f.now, f.now+1, many, 0))
	f.check(got.Matched == 1 && len(got.Missing) == 2499 && !slices.Contains(got.Missing, "a") && !got.More,
		"%d references matched, %d are missing", got.Matched, len(got.Missing))
}
