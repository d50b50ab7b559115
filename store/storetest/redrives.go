package storetest

import "github.com/seed-ff5a32d8/dispatcher/store"

// testRedriveCrowd: parallel creates cannot pass the bound of open redrives.
func testRedriveCrowd(f *fixture) {
	made := f.winners(2*store.MaxOpenRedrives, store.ErrTooManyRedrives, func(int) error {
		return errOf(f.CreateRedrive(f.ctx(), store.Redrive{
			ID: f.id(), Project: project, Action: store.RedriveCancel, Shown: "{}", CreatedAt: f.now,
		}, actor))
	})
	same(f, "made", store.MaxOpenRedrives, len(made))
}
