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
	"github.com/seed-ff5a32d8/dispatcher/dispatch/report"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// openQuota is a change of how many open callbacks a project may have.
func openQuota(id string, open int64) control.ProjectChange {
	return control.ProjectChange{ID: id, Quotas: store.QuotaChange{OpenCallbacks: &open}}
}

// mayHave sets how many the default project may have.
func (b *fixture) mayHave(open int64) {
	b.Helper()
	b.ok(b.patchProject(openQuota("", open)))
}

// held is a submission that stays open.
func held(key string) accept.Submission {
	return accept.Submission{Delay: new(time.Hour), IdempotencyKey: key, Fingerprint: []byte(key)}
}

// tries offers submissions one after the other, and checks the error of each.
func (b *fixture) tries(what string, want error, subs ...accept.Submission) {
	b.Helper()
	for _, s := range subs {
		b.fails(what, b.offer(project, s)[0].Err, want)
	}
}

// A project that has used up its quota of open callbacks has no new one accepted. Replays are answered, and a
// callback that ends makes room.
func TestQuotaOfOpenCallbacks(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		first := b.accept(held("a")).ID
		b.mayHave(3)
		want := []error{nil, nil, nil, store.ErrOpenQuota, nil, store.ErrOpenQuota}
		for i, r := range b.offer(project, held("a"), held("b"), held("c"), held("d"), held("b"), held("")) {
			b.fails(fmt.Sprintf("callback %d of a batch", i), r.Err, want[i])
		}
		b.tries("one more", store.ErrOpenQuota, held("e"))
		b.tries("a repetition", nil, held("a"))
		other := held("a")
		other.Fingerprint = []byte("another request")
		b.tries("another request with the key", store.ErrIdempotencyMismatch, other)
		b.cancel(first)
		time.Sleep(time.Second)
		b.tries("into the room that there is now", nil, held("e"))
		b.tries("one too many", store.ErrOpenQuota, held("f"))
		b.mayHave(0)
		b.tries("without a quota", nil, held("f"))
		for _, open := range []int64{-1, store.MaxQuota + 1} {
			b.is("a wrong quota", b.wrongFields(b.patchProject(openQuota("", open))),
				[]string{"quotas.open_callbacks"})
		}
	})
}

// An event is accepted for all that subscribe, or refused before anything of it is written down.
func TestQuotaOfOpenCallbacksForEvents(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		for range 3 {
			b.subscriber("https://shop.example/hooks", "payment")
		}
		b.mayHave(2)
		event := func(what, key string, want error, callbacks int, replayed bool) {
			t.Helper()
			s := held(key)
			s.Topic, s.Body = "payment", []byte(`{}`)
			r, err := b.engine.AcceptEvent(b.Context(), project, s)
			b.fails(what, err, want)
			b.check(len(r.Callbacks) == callbacks && r.Replayed == replayed, "%s: %+v", what, r)
		}
		event("for three with room for two", "a", store.ErrOpenQuota, 0, false)
		b.check(!must(b.db.EventPlanned(b.Context(), project, "", "a")), "a refused event was written down")
		b.mayHave(3)
		event("for three with room for three", "a", nil, 3, false)
		event("again", "a", nil, 3, true)
		event("another one", "b", store.ErrOpenQuota, 0, false)
	})
}

// Polls and schedules are bound by the quota. What follows from a callback that was accepted is not: a poll's
// result, a retry, an operational event.
func TestQuotaOfOpenCallbacksAndWhatFollows(t *testing.T) {
	with(bank("WAIT", "SUCCESS"), withTemplates).run(t, func(b *fixture) {
		b.subscriber("https://ops.example/", report.TopicDead)
		sched := b.schedule(everyMinute("sweep"))
		poll := b.poll(paidPoll("1", 3*time.Minute)).ID
		doomed := tiers()
		doomed.URL, doomed.Delay = "https://bank.example/down", new(30*time.Second)
		dies := b.accept(doomed).ID
		b.mayHave(1)
		_, err := b.engine.AcceptPoll(b.Context(), project, paidPoll("2", time.Hour))
		b.fails("a poll", err, store.ErrOpenQuota)
		b.check(must(b.engine.AcceptPoll(b.Context(), project, paidPoll("1", 3*time.Minute))).Replayed,
			"the poll that is open is no replay")
		_, err = b.runSchedule(sched.ID)
		b.fails("a schedule by hand", err, store.ErrOpenQuota)
		b.ends("dead", time.Minute, dies)
		untilMinute(time.Second)
		b.is("told of what has died", len(b.alerts()), 1)
		now := b.scheduleNow(sched.ID)
		b.check(now.LastError != "" && now.LastID == "" && now.NextAt > b.engine.Now(),
			"a schedule that came due: %+v", now)
		b.ends("succeeded", time.Hour, poll)
		b.is("the poll told", b.result(poll).Outcome, store.PollSuccess)
		b.tries("with room", nil, held(""))
		b.retry(dies, control.RetryRequest{Ladder: store.Restart})
		b.mayHave(10)
		untilMinute(time.Second)
		untilMinute(time.Second)
		now = b.scheduleNow(sched.ID)
		b.check(now.LastError == "" && now.LastID != "", "a schedule that came due with room: %+v", now)
	})
}

// Of callbacks that are handed over at the same time exactly as many are accepted as there is room for. What
// another process has accepted counts within a second. Open callbacks are not counted for each accept, and
// never without a quota.
func TestQuotaOfOpenCallbacksIsExact(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		const most = 30
		b.accept(held(""))
		b.is("counted without a quota", b.count("OpenCallbacks"), 0)
		b.mayHave(most)
		var accepted atomic.Int64
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				err := b.offer(project, held(""))[0].Err
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
			b.tries("one more", store.ErrOpenQuota, held(""))
		}
		between(b, "counted for 100 callbacks that were refused at once", b.count("OpenCallbacks")-before, 0,
			2)
		b.mayHave(most + 10)
		time.Sleep(time.Second)
		b.tries("into new room", nil, held("")) // counts: the other process comes after that
		page := must(b.db.List(b.Context(), project, store.Filter{Limit: 1}))
		for i := range 9 {
			d := store.Draft{Callback: page.Callbacks[0]}
			d.Callback.ID, d.Callback.PayloadID = fmt.Sprintf("01ZZ%022d", i), ""
			must(b.db.Accept(b.Context(), []store.Draft{d}))
		}
		time.Sleep(time.Second)
		b.tries("into room that another process has taken", store.ErrOpenQuota, held(""))
	})
}

// A project whose callbacks come and go quickly has none refused while few of them are open, however many
// they are in all.
func TestQuotaOfOpenCallbacksIsNotOfAll(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		b.mayHave(50)
		for range 50 {
			b.backlog(20, accept.Submission{})
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
	})
}

// A project without room takes none of another project's.
func TestQuotasAreOfOneProject(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		b.createProject(openQuota("other", 1))
		for i, want := range []error{nil, store.ErrOpenQuota} {
			b.fails(fmt.Sprintf("callback %d", i), b.offer("other", held(""))[0].Err, want)
		}
		b.tries("another project's", nil, held(""))
	})
}
