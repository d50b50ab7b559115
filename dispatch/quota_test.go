package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/report"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// mayHave sets how many open callbacks the default project may have.
func (b *fixture) mayHave(open int64) {
	b.t.Helper()
	ch := control.ProjectChange{Quotas: store.QuotaChange{OpenCallbacks: &open}}
	b.must(b.engine.PatchProject(b.t.Context(), store.DefaultProject, ch, operator))
}

// held is a submission that stays open.
func held(key string) accept.Submission {
	return accept.Submission{
		URL: "https://shop.example/notify", Body: []byte(`{}`), Delay: ptr(time.Hour),
		IdempotencyKey: key, Fingerprint: []byte(key),
	}
}

// offer hands submissions over, and returns the error of each.
func (b *fixture) offer(subs ...accept.Submission) (errs []error) {
	b.t.Helper()
	receipts, err := b.engine.Accept(b.t.Context(), store.DefaultProject, subs)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range receipts {
		errs = append(errs, receipts[i].Err)
	}
	return errs
}

// wantErr reports an error that is not the one that was wanted; nil: none was.
func (b *fixture) wantErr(what string, want, err error) {
	b.t.Helper()
	if !errors.Is(err, want) || want == nil && err != nil {
		b.t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// A project that has used up its quota of open callbacks has no new one accepted. Replays are answered, and a
// callback that ends makes room.
func TestQuotaOfOpenCallbacks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""))
		first := b.accept(held("a"))
		b.mayHave(3)
		errs := b.offer(held("a"), held("b"), held("c"), held("d"), held("b"), held(""))
		for i, want := range []error{nil, nil, nil, store.ErrOpenQuota, nil, store.ErrOpenQuota} {
			b.wantErr(fmt.Sprintf("callback %d of a batch", i), want, errs[i])
		}
		offer := func(what string, want error, s accept.Submission) {
			t.Helper()
			b.wantErr(what, want, b.offer(s)[0])
		}
		offer("one more", store.ErrOpenQuota, held("e"))
		offer("a repetition", nil, held("a"))
		other := held("a")
		other.Fingerprint = []byte("another request")
		offer("another request with the key", store.ErrIdempotencyMismatch, other)
		b.must(b.engine.Cancel(t.Context(), store.DefaultProject, first.ID, operator))
		time.Sleep(time.Second)
		offer("into the room that there is now", nil, held("e"))
		offer("one too many", store.ErrOpenQuota, held("f"))
		b.mayHave(0)
		offer("without a quota", nil, held("f"))
		for _, open := range []int64{-1, store.MaxQuota + 1} {
			ch := control.ProjectChange{Quotas: store.QuotaChange{OpenCallbacks: &open}}
			_, err := b.engine.PatchProject(t.Context(), store.DefaultProject, ch, operator)
			if !isInvalid(err, "quotas.open_callbacks") {
				t.Errorf("a quota of %d: %v", open, err)
			}
		}
	})
}

// An event is accepted for all that subscribe, or refused before anything of it is written down.
func TestQuotaOfOpenCallbacksForEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""))
		for range 3 {
			b.endpoint(control.EndpointChange{Topics: &[]string{"payment"}})
		}
		b.mayHave(2)
		event := func(key string) (accept.EventReceipt, error) {
			return b.engine.AcceptEvent(t.Context(), store.DefaultProject, accept.Submission{
				Topic: "payment", Body: []byte(`{}`), Delay: ptr(time.Hour),
				IdempotencyKey: key, Fingerprint: []byte(key),
			})
		}
		_, err := event("a")
		b.wantErr("an event for three with room for two", store.ErrOpenQuota, err)
		planned, err := b.db.EventPlanned(t.Context(), store.DefaultProject, "", "a")
		if planned || err != nil {
			t.Errorf("a refused event was written down: %t, %v", planned, err)
		}
		b.mayHave(3)
		if sent, err := event("a"); err != nil || len(sent.Callbacks) != 3 {
			t.Errorf("an event for three with room for three: %+v, %v", sent, err)
		}
		if again, err := event("a"); err != nil || !again.Replayed || len(again.Callbacks) != 3 {
			t.Errorf("the event again: %+v, %v", again, err)
		}
		_, err = event("b")
		b.wantErr("another event", store.ErrOpenQuota, err)
	})
}

// Polls and schedules are bound by the quota. What follows from a callback that was accepted is not: a poll's
// result, a retry, an operational event.
func TestQuotaOfOpenCallbacksAndWhatFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, bank("WAIT", "SUCCESS"), withTemplates)
		b.endpoint(control.EndpointChange{
			URL: ptr("https://ops.example/"), Topics: &[]string{report.TopicDead},
		})
		sched := b.schedule(everyMinute("sweep"))
		poll := b.poll(paidPoll("1", 3*time.Minute))
		doomed := tiers()
		doomed.URL, doomed.Delay = "https://bank.example/down", ptr(30*time.Second)
		dies := b.accept(doomed)
		b.mayHave(1)
		_, err := b.engine.AcceptPoll(t.Context(), store.DefaultProject, paidPoll("2", time.Hour))
		b.wantErr("a poll", store.ErrOpenQuota, err)
		same, err := b.engine.AcceptPoll(t.Context(), store.DefaultProject, paidPoll("1", 3*time.Minute))
		if err != nil || !same.Replayed {
			t.Errorf("the poll that is open: replayed %t, %v", same.Replayed, err)
		}
		_, err = b.engine.RunSchedule(t.Context(), store.DefaultProject, sched.ID, operator)
		b.wantErr("a schedule by hand", store.ErrOpenQuota, err)
		if dead := b.await(dies.ID, time.Minute); dead.State != store.Dead {
			t.Errorf("what was to die is %s", dead.State)
		}
		untilMinute(time.Second)
		if told := b.alerts(); len(told) != 1 {
			t.Errorf("told %+v of what has died", told)
		}
		now := b.scheduleNow(sched.ID)
		if now.LastError == "" || now.LastID != "" || now.NextAt <= b.engine.Now() {
			t.Errorf("a schedule that came due: %+v", now)
		}
		if done := b.await(poll.ID, time.Hour); done.State != store.Succeeded {
			t.Errorf("the poll is %s", done.State)
		}
		if r := b.result(poll.ID); r.Outcome != store.PollSuccess {
			t.Errorf("the poll told %+v", r)
		}
		b.must(nil, b.offer(held(""))[0])
		retry := control.RetryRequest{Ladder: store.Restart}
		b.must(b.engine.Retry(t.Context(), store.DefaultProject, dies.ID, retry, operator))
		b.mayHave(10)
		untilMinute(time.Second)
		untilMinute(time.Second)
		if now := b.scheduleNow(sched.ID); now.LastError != "" || now.LastID == "" {
			t.Errorf("a schedule that came due with room: %+v", now)
		}
	})
}

// openReads counts how often open callbacks are counted.
type openReads struct {
	dispatch.Store
	n atomic.Int64
}

func (s *openReads) OpenCallbacks(ctx context.Context, projects []string) (map[string]int64, error) {
	s.n.Add(1)
	return s.Store.OpenCallbacks(ctx, projects)
}

// Of callbacks that are handed over at the same time exactly as many are accepted as there is room for. What
// another process has accepted counts within a second. Open callbacks are not counted for each accept, and
// never without a quota.
func TestQuotaOfOpenCallbacksIsExact(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 30
		reads := new(openReads)
		b := newFixture(t, always(200, ""), func(o *dispatch.Options) {
			reads.Store, o.Store = o.Store, reads
		})
		b.offer(held(""))
		if n := reads.n.Load(); n != 0 {
			t.Errorf("counted %d times without a quota", n)
		}
		b.mayHave(most)
		var accepted atomic.Int64
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if err := b.offer(held(""))[0]; err == nil {
					accepted.Add(1)
				} else {
					b.wantErr("one of a crowd", store.ErrOpenQuota, err)
				}
			})
		}
		if wg.Wait(); accepted.Load() != most-1 {
			t.Errorf("%d of a crowd were accepted beside 1; %d may be open", accepted.Load(), most)
		}
		time.Sleep(time.Second)
		before := reads.n.Load()
		for range 100 {
			b.wantErr("one more", store.ErrOpenQuota, b.offer(held(""))[0])
		}
		if n := reads.n.Load() - before; n > 2 {
			t.Errorf("counted %d times for 100 callbacks that were refused at once", n)
		}
		b.mayHave(most + 10)
		time.Sleep(time.Second)
		b.wantErr("into new room", nil, b.offer(held(""))[0]) // counts: the other process comes after that
		page, err := b.db.List(t.Context(), store.DefaultProject, store.Filter{Limit: 1})
		b.must(page, err)
		for i := range 9 {
			d := store.Draft{Callback: page.Callbacks[0]}
			d.Callback.ID, d.Callback.PayloadID = fmt.Sprintf("01ZZ%022d", i), ""
			b.must(b.db.Accept(t.Context(), []store.Draft{d}))
		}
		time.Sleep(time.Second)
		err = b.offer(held(""))[0]
		b.wantErr("into room that another process has taken", store.ErrOpenQuota, err)
	})
}

// A project whose callbacks come and go quickly has none refused while few of them are open, however many
// they are in all.
func TestQuotaOfOpenCallbacksIsNotOfAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""))
		b.mayHave(50)
		for range 50 {
			batch := make([]accept.Submission, 20)
			for i := range batch {
				batch[i] = held("")
				batch[i].Delay = nil
			}
			for _, err := range b.offer(batch...) {
				b.wantErr("one of 20", nil, err)
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
	})
}

// A project without room takes none of another project's.
func TestQuotasAreOfOneProject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""))
		other := control.ProjectChange{ID: "other", Quotas: store.QuotaChange{OpenCallbacks: ptr(int64(1))}}
		b.must(b.engine.CreateProject(t.Context(), other, operator))
		for i, want := range []error{nil, store.ErrOpenQuota} {
			receipts, err := b.engine.Accept(t.Context(), "other", []accept.Submission{held("")})
			b.must(receipts, err)
			b.wantErr(fmt.Sprintf("callback %d", i), want, receipts[0].Err)
		}
		b.wantErr("another project's", nil, b.offer(held(""))[0])
	})
}
