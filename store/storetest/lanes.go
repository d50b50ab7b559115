package storetest

import (
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// testLanesMadeWhilePaused pauses and resumes a project while lanes are made: one that follows the versions
// knows of each lane in the end what it is.
func testLanesMadeWhilePaused(f *fixture) {
	const makers, each = 4, 15
	known, since := make(map[string]int64), int64(0)
	pause := func(until int64) {
		must(f.SetProjectPause(f.ctx(), project, until, "", f.now, actor))
		for _, l := range must(f.Lanes(f.ctx(), since, 1000)) {
			f.check(l.Version > since, "version %d after %d", l.Version, since)
			known[l.Key], since = l.PausedUntil, l.Version
		}
	}
	f.during(func() {
		crowd(f, makers, func(i int) (_ error) {
			for n := range each {
				f.accept(inLane(fmt.Sprintf("lane-%d-%d", i, n)))
			}
			return nil
		})
	}, 1, func() {
		pause(store.Forever)
		pause(0)
	})
	pause(store.Forever)
	for i := range makers * each {
		key := fmt.Sprintf("lane-%d-%d", i/each, i%each)
		f.check(known[key] == store.Forever, "the pause of %s was not among the changes", key)
	}
}

// testLaneQuotaCrowd: of callbacks that are accepted at the same time no more make a lane than may.
func testLaneQuotaCrowd(f *fixture) {
	bound := infallible(func(p *store.Project) { p.Quotas.Lanes = 7 })
	must(f.PatchProject(f.ctx(), project, bound, f.now, actor))
	made := f.winners(24, store.ErrLaneQuota,
		func(i int) error { return f.offer(inLane(fmt.Sprint("lane-", i))).Err })
	same(f, "lanes that were made", 7, len(made))
}
