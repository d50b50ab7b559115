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

func testRedriveOnce(f *fixture) {
	var dead []string
	for range 7 {
		dead = append(dead, f.dead().ID)
	}
	open := f.accept()
	f.now += 1000
	r := f.newRedrive(restartDead, f.now, `{"state":["dead"]}`)
	f.now += 1000
	late := f.dead() // not of its snapshot
	r = f.gather(r)
	f.require(r.State == store.RedriveRunning && r.Matched == 7, "gathered %d, %s", r.Matched, r.State)
	var placed []string
	for range 10 {
		f.now += 1000
		step := f.step(r, 3)
		for _, c := range step.Placed {
			placed = append(placed, c.ID)
			f.check(c.State == store.Scheduled && c.DueAt == f.now && c.LadderBase == c.AttemptCount, "placed: %+v", c)
		}
		if r = step.Redrive; !r.Open() {
			break
		}
	}
	same(f, "placed", sorted(dead), sorted(placed))
	f.check(r.State == store.RedriveDone && r.Done == 7 && r.Failed == 0 && r.FinishedAt != 0, "done: %+v", r)
	f.wantState(late.ID, store.Dead, store.Exhausted)
	same(f, "update of one that the filter does not pick", open.UpdatedAt, f.get(open.ID).UpdatedAt)
	f.fails(store.ErrTerminal, "pausing one that is done",
		errOf(f.SetRedrive(f.ctx(), project, r.ID, store.RedrivePaused, f.now, actor)))
	none(f, "to do", must(f.RedrivesToDo(f.ctx(), "", 10)))
}

func testRedriveActions(f *fixture) {
	const url = "https://new.example/"
	c := f.accept()
	step := func(r store.Redrive, done int64) store.RedriveStep {
		f.now += 10
		s := f.step(r, 100)
		same(f, "done by "+string(r.Action), done, s.Redrive.Done)
		return s
	}
	f.now += 1000
	s := step(f.redrive(store.Redrive{Action: store.RedriveReschedule, Filter: scheduled, Delay: 60_000}), 1)
	same(f, "placed", 1, len(s.Placed))
	same(f, "due", f.now+60_000, f.get(c.ID).DueAt)
	step(f.redrive(store.Redrive{Action: store.RedriveSetURL, Filter: scheduled, URL: url}), 1)
	same(f, "address", url, f.get(c.ID).URL)
	r := f.redrive(store.Redrive{Action: store.RedriveCancel, Filter: scheduled})
	same(f, "paused", store.RedrivePaused, f.setRedrive(r.ID, store.RedrivePaused).State)
	none(f, "canceled by a paused one", step(r, 0).Canceled)
	f.missing("another project's",
		errOf(f.SetRedrive(f.ctx(), "another", r.ID, store.RedriveRunning, f.now, actor)))
	f.setRedrive(r.ID, store.RedriveRunning)
	s = step(r, 1)
	f.check(len(s.Canceled) == 1 && s.Redrive.State == store.RedriveDone, "canceled: %+v", s)
	f.wantState(c.ID, store.Canceled, store.Requested)
	empty := f.redrive(store.Redrive{Action: store.RedriveCancel, Filter: scheduled})
	f.check(empty.State == store.RedriveDone && empty.Matched == 0, "one that matches nothing: %+v", empty)
	list := must(f.Redrives(f.ctx(), project, "", 2))
	f.check(len(list) == 2 && list[0].ID == empty.ID, "list: %+v", list)
	f.missing("another project's", errOf(f.Redrive(f.ctx(), "another", empty.ID)))
}

// testRedriveSuperseded: a redrive does not revive what a newer version has been accepted for since it ended:
// the newer one may have been delivered.
func testRedriveSuperseded(f *fixture) {
	old, revived := f.dead(versioned("r", 1)), ids(
		f.dead(versioned("r", 2)), f.dead(versioned("other", 1)), f.dead(withRef("r")))
	f.accept(versioned("other", 1))
	r := f.step(f.redrive(restartDead), 100).Redrive
	f.check(r.Done == 3 && r.Failed == 1, "%+v", r)
	f.wantState(old.ID, store.Dead, old.Reason)
	for _, id := range revived {
		f.wantState(id, store.Scheduled, "")
	}
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
