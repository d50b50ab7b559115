package dispatch_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// bury accepts n callbacks that die with their first attempt.
func (b *bench) bury(n int) (ids []string) {
	b.t.Helper()
	for done := 0; done < n; {
		subs := make([]dispatch.Submission, min(n-done, 1000))
		for i := range subs {
			subs[i] = tiers()
			subs[i].URL, subs[i].Body, subs[i].Topic = "https://shop.example/", []byte("{}"), "payment"
		}
		receipts, err := b.engine.Accept(b.t.Context(), store.DefaultProject, subs)
		if err != nil {
			b.t.Fatal(err)
		}
		for i := range receipts {
			ids = append(ids, receipts[i].Callback.ID)
		}
		done += len(subs)
	}
	for _, id := range ids {
		if c := b.await(id, time.Hour); c.State != store.Dead {
			b.t.Fatalf("%s is %s", id, c.State)
		}
	}
	return ids
}

// awaitRedrive waits, in the bubble's time, until a redrive has ended.
func (b *bench) awaitRedrive(id string, within time.Duration) store.Redrive {
	b.t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		r, err := b.db.Redrive(b.t.Context(), store.DefaultProject, id)
		if err != nil {
			b.t.Fatal(err)
		}
		if !r.Open() {
			return r
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("the redrive is still %s after %s: %d of %d", r.State, within, r.Done, r.Matched)
		}
	}
}

// A redrive does what it is for to each callback once, at its rate, though its process dies half-way.
func TestRedriveSurvivesItsProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 1500
		path := databasePath(t)
		b := startBench(t, path, always(500, ""))
		ids := b.bury(n)
		request := dispatch.RedriveRequest{
			Action: "retry", Filter: store.Filter{Topic: "payment", States: []store.State{store.Dead}}, Shown: `{"topic":"payment"}`, Rate: "100/s",
		}
		tried := request
		tried.DryRun = true
		if r, err := b.engine.Redrive(t.Context(), store.DefaultProject, tried, operator); err != nil || r.Matched != n || r.ID != "" {
			t.Fatalf("a dry run matched %d, %v", r.Matched, err)
		}
		b.receiver.answer = always(200, "")
		r, err := b.engine.Redrive(t.Context(), store.DefaultProject, request, operator)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.Sleep(7 * time.Second)
		half, err := b.db.Redrive(t.Context(), store.DefaultProject, r.ID)
		if err != nil || half.Matched != n || half.Done < 500 || half.Done > 900 {
			t.Errorf("after 7 s at 100/s: %d of %d, %v", half.Done, half.Matched, err)
		}
		first := b.receiver.seen()
		b.stop()
		b = startBench(t, path, always(200, ""))
		r = b.awaitRedrive(r.ID, time.Minute)
		if r.Done != n || r.Failed != 0 || r.State != store.RedriveDone {
			t.Errorf("%+v", r)
		}
		if took := time.Since(began); took < 14*time.Second {
			t.Errorf("%d at 100/s took %s", n, took)
		}
		for _, id := range ids {
			if c := b.await(id, time.Minute); c.State != store.Succeeded {
				t.Fatalf("%s is %s", id, c.State)
			}
		}
		sent := make(map[string]int)
		for _, h := range append(first, b.receiver.seen()...) {
			sent[h.id]++
		}
		for _, id := range ids {
			delete(sent, store.CallbackPrefix+id)
		}
		if len(sent) != 0 {
			t.Errorf("%d others were sent", len(sent))
		}
		twice := 0
		for _, h := range b.receiver.seen() {
			if h.number != "2" {
				twice++
			}
		}
		if twice > 0 {
			t.Errorf("%d were sent more than once more", twice)
		}
	})
}

// A redrive can be paused, goes on where it was, and can be canceled; what it has not done stays as it is.
func TestRedriveStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var healthy atomic.Bool
		b := newBench(t, func(context.Context, hit, int) (*http.Response, error) {
			if healthy.Load() {
				return answer(200, ""), nil
			}
			return answer(500, ""), nil
		})
		ids := b.bury(300)
		healthy.Store(true)
		r, err := b.engine.Redrive(t.Context(), store.DefaultProject, dispatch.RedriveRequest{
			Action: "retry", Filter: store.Filter{Topic: "payment"}, Shown: `{"topic":"payment"}`, Rate: "10/s",
		}, operator)
		if err != nil {
			t.Fatal(err)
		}
		set := func(to store.RedriveState) store.Redrive {
			t.Helper()
			r, err := b.engine.SetRedrive(t.Context(), store.DefaultProject, r.ID, to, operator)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		time.Sleep(5 * time.Second)
		paused := set(store.RedrivePaused)
		time.Sleep(time.Minute)
		if now, err := b.db.Redrive(t.Context(), store.DefaultProject, r.ID); err != nil || now.Done != paused.Done || now.Done == 0 {
			t.Errorf("paused at %d, it is at %d a minute later, %v", paused.Done, now.Done, err)
		}
		set(store.RedriveRunning)
		time.Sleep(5 * time.Second)
		end := set(store.RedriveCanceled)
		time.Sleep(time.Minute)
		if end.Done <= paused.Done || end.Done > 120 {
			t.Errorf("canceled at %d, paused at %d", end.Done, paused.Done)
		}
		counts := make(map[store.State]int)
		for _, id := range ids {
			counts[b.get(id).State]++
		}
		if counts[store.Succeeded] != int(end.Done) || counts[store.Dead] != len(ids)-int(end.Done) {
			t.Errorf("after %d were done: %v", end.Done, counts)
		}
	})
}

func TestRedriveRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, always(200, ""))
		for _, c := range []struct {
			field string
			q     dispatch.RedriveRequest
		}{
			{"action", dispatch.RedriveRequest{Action: "explode", Shown: `{"topic":"a"}`}},
			{"filter", dispatch.RedriveRequest{Action: "cancel", Shown: `{}`}},
			{"rate", dispatch.RedriveRequest{Action: "retry", Shown: `{"topic":"a"}`, Rate: "fast"}},
			{"ladder", dispatch.RedriveRequest{Action: "retry", Shown: `{"topic":"a"}`, Ladder: "twice"}},
			{"due_at", dispatch.RedriveRequest{Action: "reschedule", Shown: `{"topic":"a"}`}},
			{"delay", dispatch.RedriveRequest{Action: "reschedule", Shown: `{"topic":"a"}`, Delay: ptr(-time.Second)}},
			{"url", dispatch.RedriveRequest{Action: "set_url", Shown: `{"topic":"a"}`, URL: "shop"}},
		} {
			if _, err := b.engine.Redrive(t.Context(), store.DefaultProject, c.q, operator); err == nil || !strings.Contains(err.Error(), c.field+":") {
				t.Errorf("%+v: %v; want %s named", c.q, err, c.field)
			}
		}
	})
}

// listed counts the rows that lists have read.
type listed struct {
	dispatch.Store
	rows atomic.Int64
}

func (l *listed) List(ctx context.Context, project string, f store.Filter) (store.Page, error) {
	page, err := l.Store.List(ctx, project, f)
	l.rows.Add(int64(len(page.Callbacks)))
	return page, err
}

// What a redrive would be done to is counted no further than it is asked for, and whether there are more is told.
func TestACountEndsWhereItIsToldTo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 600
		rows := new(listed)
		b := newBench(t, always(500, ""), func(o *dispatch.Options) { rows.Store, o.Store = o.Store, rows })
		b.bury(n)
		for _, c := range []struct {
			most, matched, read int64
			more                bool
		}{{0, n, n, false}, {520, 520, 521, true}, {n - 1, n - 1, n, true}, {n, n, n, false}, {5000, n, n, false}, {1, 1, 2, true}} {
			rows.rows.Store(0)
			request := dispatch.RedriveRequest{
				Action: "retry", Filter: store.Filter{Topic: "payment"}, Shown: `{"topic":"payment"}`, DryRun: true, Most: c.most,
			}
			matched, more, err := b.engine.CountRedrive(t.Context(), store.DefaultProject, request)
			if err != nil || matched != c.matched || more != c.more || rows.rows.Load() != c.read {
				t.Errorf("at most %d: %d, more %t, %d rows read, %v; want %+v", c.most, matched, more, rows.rows.Load(), err, c)
			}
			if r, err := b.engine.Redrive(t.Context(), store.DefaultProject, request, operator); err != nil || r.Matched != c.matched || r.ID != "" {
				t.Errorf("a dry run of at most %d matched %d, %v", c.most, r.Matched, err)
			}
		}
		if _, _, err := b.engine.CountRedrive(t.Context(), store.DefaultProject, dispatch.RedriveRequest{Action: "retry"}); !isInvalid(err, "filter") {
			t.Errorf("without a filter: %v", err)
		}
	})
}

// isInvalid says whether the error names the field.
func isInvalid(err error, field string) bool {
	wrong, ok := errors.AsType[*store.InvalidError](err)
	return ok && slices.ContainsFunc(wrong.Fields, func(f store.FieldError) bool { return f.Field == field })
}
