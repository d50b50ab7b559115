package storetest

import (
	"fmt"
	"maps"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (f *fixture) pauseLane(key string, until int64, reason string) store.Lane {
	return must(f.PauseLane(f.ctx(), project, key, until, reason, f.now, actor))
}

// changedLanes follows the changes of lanes: each call returns those since the one before, by key, and when
// the pause of each ends.
func (f *fixture) changedLanes() func() map[string]int64 {
	var since int64
	return func() map[string]int64 {
		until := make(map[string]int64)
		for _, l := range must(f.Lanes(f.ctx(), since, 1000)) {
			f.check(l.Version > since, "version %d after %d", l.Version, since)
			until[l.Key], since = l.PausedUntil, l.Version
		}
		return until
	}
}

// testLanesMadeWhilePaused pauses and resumes a project while lanes are made: one that follows the versions
// knows of each lane in the end what it is.
func testLanesMadeWhilePaused(f *fixture) {
	const makers, each = 4, 15
	known, changed := make(map[string]int64), f.changedLanes()
	pause := func(until int64) {
		f.pauseProject(until, "")
		maps.Copy(known, changed())
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

// quotas sets those of a project.
func (f *fixture) quotas(q store.Quotas) {
	must(f.PatchProject(f.ctx(), project, infallible(func(p *store.Project) { p.Quotas = q }), f.now, actor))
}

// testLaneQuotaCrowd: of callbacks that are accepted at the same time no more make a lane than may.
func testLaneQuotaCrowd(f *fixture) {
	f.quotas(store.Quotas{Lanes: 7})
	made := f.winners(24, store.ErrLaneQuota,
		func(i int) error { return f.offer(inLane(fmt.Sprint("lane-", i))).Err })
	same(f, "lanes that were made", 7, len(made))
}

func (f *fixture) pauseProject(until int64, reason string) store.Project {
	return must(f.SetProjectPause(f.ctx(), project, until, reason, f.now, actor))
}

// newProjects makes projects.
func (f *fixture) newProjects(ids ...string) {
	for _, id := range ids {
		must(f.CreateProject(f.ctx(), store.Project{ID: id, CreatedAt: f.now}, actor))
	}
}
