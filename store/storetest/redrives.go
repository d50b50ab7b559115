package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// gather gathers a redrive to the end.
func (f *fixture) gather(r store.Redrive) store.Redrive {
	f.Helper()
	for range 100 {
		r = must(f.GatherRedrive(f.ctx(), r.Project, r.ID, f.now))
		if r.State != store.RedriveGathering {
			return r
		}
	}
	f.Fatal("gathering does not end")
	return r
}

// redrive creates one of what was accepted until now, and gathers it.
func (f *fixture) redrive(r store.Redrive) store.Redrive {
	f.Helper()
	r.ID, r.Project, r.CreatedAt, r.Filter.To, r.Shown = f.id(), project, f.now, f.now+1, "{}"
	return f.gather(must(f.CreateRedrive(f.ctx(), r, actor)))
}

func testRedriveOnce(f *fixture) {
	var dead []string
	for range 7 {
		dead = append(dead, f.dead(nil).ID)
	}
	open := f.accept(nil)
	f.now += 1000
	r := must(f.CreateRedrive(f.ctx(), store.Redrive{
		ID: f.id(), Project: project, Action: store.RedriveRetry, Ladder: store.Restart, Shown: `{"state":["dead"]}`,
		Filter: store.Filter{States: []store.State{store.Dead}, To: f.now}, CreatedAt: f.now,
	}, actor))
	f.now += 1000
	late := f.dead(nil) // not of its snapshot
	r = f.gather(r)
	if r.State != store.RedriveRunning || r.Matched != 7 {
		f.Fatalf("gathered %d, %s", r.Matched, r.State)
	}
	var placed []string
	for range 10 {
		f.now += 1000
		step := must(f.StepRedrive(f.ctx(), r.ID, 3, f.now))
		for _, c := range step.Placed {
			placed = append(placed, c.ID)
			if c.State != store.Scheduled || c.DueAt != f.now || c.LadderBase != c.AttemptCount {
				f.Errorf("%s is %s, due %d, ladder from %d of %d", c.ID, c.State, c.DueAt, c.LadderBase, c.AttemptCount)
			}
		}
		if r = step.Redrive; !r.Open() {
			break
		}
	}
	slices.Sort(placed)
	slices.Sort(dead)
	if !slices.Equal(placed, dead) || r.State != store.RedriveDone || r.Done != 7 || r.Failed != 0 || r.FinishedAt == 0 {
		f.Errorf("placed %v of %v: %+v", placed, dead, r)
	}
	if got := f.get(late.ID); got.State != store.Dead {
		f.Errorf("one that died after it began is %s", got.State)
	}
	if got := f.get(open.ID); got.UpdatedAt != open.UpdatedAt {
		f.Error("one that the filter does not pick was changed")
	}
	f.fails(store.ErrTerminal, "pausing one that is done", errOf(f.SetRedrive(f.ctx(), project, r.ID, store.RedrivePaused, f.now, actor)))
	none(f, "to do", must(f.RedrivesToDo(f.ctx(), "", 10)))
}

func testRedriveActions(f *fixture) {
	step := func(r store.Redrive) store.RedriveStep {
		f.Helper()
		f.now += 10
		return must(f.StepRedrive(f.ctx(), r.ID, 100, f.now))
	}
	c := f.accept(nil)
	scheduled := store.Filter{States: []store.State{store.Scheduled}}
	f.now += 1000
	s := step(f.redrive(store.Redrive{Action: store.RedriveReschedule, Filter: scheduled, Delay: 60_000}))
	if got := f.get(c.ID); s.Redrive.Done != 1 || got.DueAt != f.now+60_000 || len(s.Placed) != 1 {
		f.Errorf("rescheduled: %+v, due %d", s.Redrive, got.DueAt)
	}
	s = step(f.redrive(store.Redrive{
		Action: store.RedriveSetURL, Filter: scheduled, URL: "https://new.example/",
	}))
	if got := f.get(c.ID); s.Redrive.Done != 1 || got.URL != "https://new.example/" {
		f.Errorf("address set: %+v, %s", s.Redrive, got.URL)
	}
	r := f.redrive(store.Redrive{Action: store.RedriveCancel, Filter: scheduled})
	paused, err := f.SetRedrive(f.ctx(), project, r.ID, store.RedrivePaused, f.now, actor)
	if err != nil || paused.State != store.RedrivePaused {
		f.Fatalf("paused: %+v, %v", paused, err)
	}
	if s = step(r); s.Redrive.Done != 0 || len(s.Canceled) != 0 {
		f.Errorf("a paused one did %d", s.Redrive.Done)
	}
	f.fails(store.ErrNotFound, "another project's", errOf(f.SetRedrive(f.ctx(), "another", r.ID, store.RedriveRunning, f.now, actor)))
	must(f.SetRedrive(f.ctx(), project, r.ID, store.RedriveRunning, f.now, actor))
	if s = step(r); s.Redrive.Done != 1 || len(s.Canceled) != 1 || s.Redrive.State != store.RedriveDone {
		f.Errorf("canceled: %+v", s.Redrive)
	}
	if got := f.get(c.ID); got.State != store.Canceled || got.Reason != store.Requested {
		f.Errorf("it is %s, %s", got.State, got.Reason)
	}
	none := f.redrive(store.Redrive{Action: store.RedriveCancel, Filter: scheduled})
	if none.State != store.RedriveDone || none.Matched != 0 {
		f.Errorf("one that matches nothing: %+v", none)
	}
	list, err := f.Redrives(f.ctx(), project, "", 2)
	if err != nil || len(list) != 2 || list[0].ID != none.ID {
		f.Errorf("list: %v, %v", fmt.Sprint(list), err)
	}
	f.fails(store.ErrNotFound, "another project's", errOf(f.Redrive(f.ctx(), "another", none.ID)))
}

// A redrive does not revive what a newer version has been accepted for since it ended: the newer one may have been delivered.
func testRedriveSuperseded(f *fixture) {
	old, latest, other := f.dead(versioned("r", 1)), f.dead(versioned("r", 2)), f.dead(versioned("other", 1))
	unversioned := f.dead(func(d *store.Draft) { d.Callback.Ref = "r" })
	f.accept(versioned("other", 1))
	r := f.redrive(store.Redrive{
		Action: store.RedriveRetry, Ladder: store.Restart, Filter: store.Filter{States: []store.State{store.Dead}},
	})
	if r = must(f.StepRedrive(f.ctx(), r.ID, 100, f.now)).Redrive; r.Done != 3 || r.Failed != 1 {
		f.Errorf("%+v", r)
	}
	f.wantState(f.get(old.ID), store.Dead, old.Reason)
	for _, c := range []store.Callback{latest, other, unversioned} {
		f.wantState(f.get(c.ID), store.Scheduled, "")
	}
}

// askRedrive creates a redrive of a project that cancels everything.
func (f *fixture) askRedrive(project string) (store.Redrive, error) {
	return f.CreateRedrive(f.ctx(), store.Redrive{
		ID: f.id(), Project: project, Action: store.RedriveCancel, Shown: "{}", CreatedAt: f.now,
	}, actor)
}

// RedrivesToDo pages by project, each with all its redrives, and leaves out those that are paused or have
// ended.
func testRedriveTurns(f *fixture) {
	want := make(map[string][]string)
	for _, p := range []string{"a", "b", "c"} {
		must(f.CreateProject(f.ctx(), store.Project{ID: p, CreatedAt: f.now}, actor))
		f.accept(func(d *store.Draft) { d.Callback.Project = p })
		for _, to := range []store.RedriveState{
			store.RedrivePaused, "", store.RedriveCanceled, store.RedriveGathering, store.RedrivePaused,
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
		var got []string
		for _, r := range must(f.RedrivesToDo(f.ctx(), c.after, c.limit)) {
			got = append(got, r.ID)
		}
		same(f, fmt.Sprintf("%d projects after %q", c.limit, c.after), c.want, got)
	}
}

// Parallel creates cannot pass the bound of open redrives. Another project's do not count.
func testRedriveCrowd(f *fixture) {
	must(f.CreateProject(f.ctx(), store.Project{ID: "shop", CreatedAt: f.now}, actor))
	var made, refused atomic.Int64
	var first atomic.Pointer[store.Redrive]
	var wg sync.WaitGroup
	for range 2 * store.MaxOpenRedrives {
		wg.Go(func() {
			switch r, err := f.askRedrive(project); {
			case err == nil:
				made.Add(1)
				first.CompareAndSwap(nil, &r)
			case errors.Is(err, store.ErrTooManyRedrives):
				refused.Add(1)
			default:
				f.Error(err)
			}
		})
	}
	wg.Wait()
	if made.Load() != store.MaxOpenRedrives || refused.Load() != store.MaxOpenRedrives {
		f.Errorf("made %d, refused %d", made.Load(), refused.Load())
	}
	must(f.askRedrive("shop"))
	must(f.SetRedrive(f.ctx(), project, first.Load().ID, store.RedrivePaused, f.now, actor))
	f.fails(store.ErrTooManyRedrives, "one more beside one that is paused", errOf(f.askRedrive(project)))
	must(f.SetRedrive(f.ctx(), project, first.Load().ID, store.RedriveCanceled, f.now, actor))
	must(f.askRedrive(project))
	f.fails(store.ErrTooManyRedrives, "one more", errOf(f.askRedrive(project)))
	f.fails(store.ErrNotFound, "one of no project", errOf(f.askRedrive("none")))
}
