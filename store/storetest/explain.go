package storetest

import (
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// testLockHolder: of the callbacks of a lock key the one whose claim is alive has the lock.
func testLockHolder(f *fixture) {
	locked := func(d *store.Draft) { d.Callback.LockKey = "k" }
	want := func(what, id string, since int64) {
		f.Helper()
		gotID, gotSince, err := f.LockHolder(f.ctx(), project, "k", f.now)
		if err != nil || gotID != id || gotSince != since {
			f.Errorf("%s: %q since %d, %v; want %q since %d", what, gotID, gotSince, err, id, since)
		}
	}
	first, second := f.accept(locked), f.accept(locked)
	f.claim(f.accept(nil).ID)
	f.claim(f.accept(func(d *store.Draft) { locked(d); d.Callback.Project = "other" }).ID)
	want("no attempt is made", "", 0)
	f.now += 5
	claimed, at := f.claim(second.ID), f.now
	f.now += 5
	want("the second is attempted", second.ID, at)
	f.win(f.succeeded(claimed))
	want("it has ended", "", 0)
	f.claim(first.ID)
	want("the first is attempted", first.ID, f.now)
	f.now += claimLasts
	want("its claim has run out", "", 0)
	if id, since, err := f.LockHolder(f.ctx(), project, "", f.now); id != "" || since != 0 || err != nil {
		f.Errorf("the holder of no lock: %q since %d, %v", id, since, err)
	}
}

// testAttempted: when a callback was claimed, and when its last attempt ended.
func testAttempted(f *fixture) {
	c := f.accept(nil)
	want := func(what, project string, claimed, ended int64) {
		f.Helper()
		gotClaimed, gotEnded, err := f.Attempted(f.ctx(), project, c.ID)
		if err != nil || gotClaimed != claimed || gotEnded != ended {
			f.Errorf("%s: claimed at %d, ended at %d, %v; want %d and %d",
				what, gotClaimed, gotEnded, err, claimed, ended)
		}
	}
	want("at first", project, 0, 0)
	ended := int64(0)
	for i := range 2 {
		claimed, at := f.claim(c.ID), f.now
		want(fmt.Sprint("claimed, with ", i, " attempts"), project, at, ended)
		f.win(f.failed(claimed))
		attempts := f.attempts(c.ID)
		if last := attempts[len(attempts)-1].EndedAt; len(attempts) != i+1 || last <= ended {
			f.Fatalf("attempts: %+v", attempts)
		}
		ended = attempts[i].EndedAt
		f.now = f.get(c.ID).DueAt
	}
	f.claim(c.ID)
	want("claimed, with two attempts", project, f.now, ended)
	want("of another project", "other", 0, 0)
}
