package storetest

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// scheduled picks open callbacks.
var scheduled = store.Filter{States: []store.State{store.Scheduled}}

// restartDead begins a new ladder for dead callbacks.
var restartDead = store.Redrive{
	Action: store.RedriveRetry, Ladder: store.Restart, Filter: store.Filter{States: []store.State{store.Dead}},
}

// gather gathers a redrive to the end.
func (f *fixture) gather(r store.Redrive) store.Redrive {
	for range 100 {
		r = must(f.GatherRedrive(f.ctx(), r.Project, r.ID, f.now))
		if r.State != store.RedriveGathering {
			return r
		}
	}
	panic("gathering does not end")
}

// newRedrive creates one of what was accepted before a time, as its caller wrote it.
func (f *fixture) newRedrive(r store.Redrive, before int64, shown store.JSONText) store.Redrive {
	r.ID, r.Project, r.CreatedAt, r.Filter.To, r.Shown = f.id(), project, f.now, before, shown
	return must(f.CreateRedrive(f.ctx(), r, actor))
}

// redrive creates one of what was accepted until now, and gathers it.
func (f *fixture) redrive(r store.Redrive) store.Redrive {
	return f.gather(f.newRedrive(r, f.now+1, "{}"))
}

func (f *fixture) step(r store.Redrive, limit int) store.RedriveStep {
	return must(f.StepRedrive(f.ctx(), r.ID, limit, f.now))
}

func (f *fixture) setRedrive(id string, to store.RedriveState) store.Redrive {
	return must(f.SetRedrive(f.ctx(), project, id, to, f.now, actor))
}

// askRedrive creates a redrive of a project that cancels everything.
func (f *fixture) askRedrive(project string) (store.Redrive, error) {
	return f.CreateRedrive(f.ctx(), store.Redrive{
		ID: f.id(), Project: project, Action: store.RedriveCancel, Shown: "{}", CreatedAt: f.now,
	}, actor)
}

// testRedriveTurns: RedrivesToDo pages by project, each with all its redrives, and leaves out those that are
// paused or have ended.
func testRedriveTurns(f *fixture) {
	f.newProjects("a", "b", "c")
	want := make(map[string][]string)
	for _, p := range []string{"a", "b", "c"} {
		f.accept(inProject(p))
		for _, to := range []store.RedriveState{
			store.RedrivePaused, store.RedriveRunning, store.RedriveCanceled, store.RedriveGathering,
			store.RedrivePaused,
		} {
			r := must(f.askRedrive(p))
			if to != store.RedriveGathering {
				f.gather(r)
			}
			if to == store.RedrivePaused || to == store.RedriveCanceled {
				must(f.SetRedrive(f.ctx(), p, r.ID, to, f.now, actor))
			} else {
				want[p] = append(want[p], r.ID)
			}
		}
	}
	for _, c := range []struct {
		after string
		limit int
		want  []string
	}{
		{"", 10, slices.Concat(want["a"], want["b"], want["c"])},
		{"", 1, want["a"]}, {"a", 1, want["b"]}, {"b", 2, want["c"]}, {"c", 1, nil},
	} {
		same(f, fmt.Sprintf("%d projects after %q", c.limit, c.after), c.want, each(
			must(f.RedrivesToDo(f.ctx(), c.after, c.limit)), func(r store.Redrive) string { return r.ID }))
	}
}

// testRedriveCrowd: parallel creates cannot pass the bound of open redrives. Another project's do not count.
func testRedriveCrowd(f *fixture) {
	f.newProjects("shop")
	var first atomic.Pointer[store.Redrive]
	made := f.winners(2*store.MaxOpenRedrives, store.ErrTooManyRedrives, func(int) error {
		r, err := f.askRedrive(project)
		if err == nil {
			first.CompareAndSwap(nil, &r)
		}
		return err
	})
	same(f, "made", store.MaxOpenRedrives, len(made))
	tooMany := func(what string) { f.fails(store.ErrTooManyRedrives, what, errOf(f.askRedrive(project))) }
	must(f.askRedrive("shop"))
	f.setRedrive(first.Load().ID, store.RedrivePaused)
	tooMany("one more beside one that is paused")
	f.setRedrive(first.Load().ID, store.RedriveCanceled)
	must(f.askRedrive(project))
	tooMany("one more")
	f.missing("one of no project", errOf(f.askRedrive("none")))
}
