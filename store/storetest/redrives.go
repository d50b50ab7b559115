package storetest

import (
	"sync/atomic"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (f *fixture) setRedrive(id string, to store.RedriveState) store.Redrive {
	return must(f.SetRedrive(f.ctx(), project, id, to, f.now, actor))
}

// askRedrive creates a redrive of a project that cancels everything.
func (f *fixture) askRedrive(project string) (store.Redrive, error) {
	return f.CreateRedrive(f.ctx(), store.Redrive{
		ID: f.id(), Project: project, Action: store.RedriveCancel, Shown: "{}", CreatedAt: f.now,
	}, actor)
}

// testRedriveCrowd: parallel creates cannot pass the bound of open redrives. Another project's do not count.
func testRedriveCrowd(f *fixture) {
	must(f.CreateProject(f.ctx(), store.Project{ID: "shop", CreatedAt: f.now}, actor))
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
	f.fails(store.ErrNotFound, "one of no project", errOf(f.askRedrive("none")))
}
