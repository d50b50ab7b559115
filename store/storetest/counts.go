package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A tally is numbers of callbacks: by state, and of open ones by tier, by lane and by the hour that they are
// due in.
type tally map[string]int64

// listedLanes is how many lanes Counts lists at most.
const listedLanes = 100

// counted is what the counters say. Hours that passed a day ago are not counted any more.
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

// listed is what a list of the callbacks since then says, and shows each.
func (f *fixture) listed(since int64, show func(c *store.Callback)) tally {
	all := make(tally)
	filter := store.Filter{Limit: 500, From: since, Now: f.now}
	for {
		page := must(f.List(f.ctx(), project, filter))
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
		filter.After = page.Next
		if page.Next == nil {
			return all
		}
	}
}

// compareCounters compares what the counters say beside what they said before with a list of the callbacks
// since then.
func (f *fixture) compareCounters(before tally, since int64, show func(c *store.Callback)) error {
	counted, listed := f.counted(), f.listed(since, show)
	lanes := 0
	for what, n := range counted {
		n -= before[what]
		if n != listed[what] {
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

// checkCounters fails where the counters are not what a scan would count, before and after they are folded.
// It is done after every test.
func (f *fixture) checkCounters() {
	for _, when := range []string{"before", "after"} {
		err := f.compareCounters(nil, 0, func(*store.Callback) {})
		f.check(err == nil, "%s the fold: %v", when, err)
		f.fold()
	}
}

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
		// 86 lanes have two or three; one has four.
		f.check(lanes[0] == store.LaneCount{Lane: "lane-000", Open: 4} && lanes[86].Open == 2 &&
			lanes[87].Open == 1 &&
			lanes[99].Open == 1, "%s: lanes %+v", when, lanes)
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

// testDeadGroupsMany: no more groups are listed, and no more callbacks counted, than may be.
func testDeadGroupsMany(f *fixture) {
	const large = 1001
	groups := 230
	// the race detector makes of two hundred looks into the index more than a read may take
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
				r.Reason, r.Attempt.Class, r.Attempt.Status = store.Exhausted,
					store.Class(fmt.Sprint("class-", n%7)), i+n
			}
			results = append(results, r)
		}
		must(f.Commit(f.ctx(), results, f.now))
	}
	got := must(f.DeadGroups(f.ctx(), project))
	same(f, "groups", min(groups+1, 200), len(got))
	for _, g := range got {
		f.check(g.Reason == store.Poison && groups < 200 || g.Count == 1 && !g.More &&
			g.Reason == store.Exhausted, "%+v", g)
	}
	// Once there are fewer groups, the large one is among them, before all others.
	for _, id := range all[large+20:] {
		must(f.Retry(f.ctx(), project, id, store.Retry{Ladder: store.Restart, Now: f.now}, actor))
	}
	got = must(f.DeadGroups(f.ctx(), project))
	same(f, "fewer groups", 21, len(got))
	// It may have been counted less far, if the others have taken long.
	g := got[0]
	f.check(g.Reason == store.Poison && g.More && (g.Count == 1000 || g.Count == 10) &&
		g.NewestID == all[large-1],
		"the largest: %+v", g)
}

// testCompareMany compares with more references than one statement takes.
func testCompareMany(f *fixture) {
	f.accept(with(func(c *store.Callback) { c.Ref = "a" }))
	many := make([]string, 2500)
	for i := range many {
		many[i] = fmt.Sprint("many-", i)
	}
	many[2400] = "a"
	got := must(f.Compare(f.ctx(), project, f.now, f.now+1, many, 0))
	f.check(got.Matched == 1 && len(got.Missing) == 2499 && !slices.Contains(got.Missing, "a") && !got.More,
		"of many %d matched, %d are missing", got.Matched, len(got.Missing))
}
