package dispatch_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// openQuota returns a change of the quota of open callbacks.
func openQuota(id string, open int64) control.ProjectChange {
	return control.ProjectChange{ID: id, Quotas: store.QuotaChange{OpenCallbacks: &open}}
}

// setQuota sets the quota of the default project.
func (b *fixture) setQuota(open int64) {
	b.Helper()
	b.ok(b.patchProject(openQuota("", open)))
}

// longOpen returns a submission that stays open for an hour.
func longOpen(key string) accept.Submission {
	return accept.Submission{Delay: new(time.Hour), IdempotencyKey: key, Fingerprint: []byte(key)}
}

// tries submits callbacks one by one, and checks the error of each.
func (b *fixture) tries(what string, want error, subs ...accept.Submission) {
	b.Helper()
	for _, s := range subs {
		b.fails(what, b.offer(project, s)[0].Err, want)
	}
}

// Of concurrent submissions exactly as many are accepted as the quota allows. Accepts of another process
// count within a second. Open callbacks are counted seldom, and never without a quota.
func TestQuotaOfOpenCallbacksIsExact(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		const most = 30
		b.accept(longOpen(""))
		b.is("counted without a quota", b.count("OpenCallbacks"), 0)
		b.setQuota(most)
		var accepted atomic.Int64
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				err := b.offer(project, longOpen(""))[0].Err
				if err == nil {
					accepted.Add(1)
					return
				}
				b.fails("one of a crowd", err, store.ErrOpenQuota)
			})
		}
		wg.Wait()
		b.is("accepted of a crowd beside 1", accepted.Load(), most-1)
		time.Sleep(time.Second)
		before := b.count("OpenCallbacks")
		for range 100 {
			b.tries("one more", store.ErrOpenQuota, longOpen(""))
		}
		between(b, "counted for 100 callbacks that were refused at once", b.count("OpenCallbacks")-before, 0,
			2)
		b.setQuota(most + 10)
		time.Sleep(time.Second)
		b.tries("into new room", nil, longOpen("")) // this counts; the other process accepts after that
		page := must(b.db.List(b.Context(), project, store.Filter{Limit: 1}))
		for i := range 9 {
			d := store.Draft{Callback: page.Callbacks[0]}
			d.Callback.ID, d.Callback.PayloadID = fmt.Sprintf("01ZZ%022d", i), ""
			must(b.db.Accept(b.Context(), []store.Draft{d}))
		}
		time.Sleep(time.Second)
		b.tries("into room that another process has taken", store.ErrOpenQuota, longOpen(""))
	})
}

// A quota of open callbacks refuses none while few are open, however many there are in all.
func TestQuotaOfOpenCallbacksIsNotOfAll(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		b.setQuota(50)
		for range 50 {
			b.backlog(20, accept.Submission{})
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
	})
}
