package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A redrive does what it is for to each callback once, at its rate. It can be paused, goes on where it was,
// also in another process, and can be canceled. What it has not done stays as it is, for another one.
func TestRedrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := databasePath(t)
		b := startFixture(t, path, always(500, ""))
		ids := b.bury(300)
		first := b.receiver.seen()
		b.receiver.turn(always(200, ""))
		redrive := func(rate string) store.Redrive {
			t.Helper()
			r, err := b.engine.Redrive(t.Context(), store.DefaultProject, control.RedriveRequest{
				Action: "retry", Filter: store.Filter{Topic: "payment", States: []store.State{store.Dead}},
				Shown: `{"topic":"payment"}`, Rate: rate,
			}, operator)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		slow := redrive("10/s")
		set := func(to store.RedriveState) store.Redrive {
			t.Helper()
			r, err := b.engine.SetRedrive(t.Context(), store.DefaultProject, slow.ID, to, operator)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		time.Sleep(5 * time.Second)
		paused := set(store.RedrivePaused)
		time.Sleep(time.Minute)
		now, err := b.db.Redrive(t.Context(), store.DefaultProject, slow.ID)
		if err != nil || now.Matched != 300 || now.Done != paused.Done || now.Done == 0 {
			t.Errorf("paused at %d, it is at %d of %d a minute later, %v", paused.Done, now.Done, now.Matched, err)
		}
		set(store.RedriveRunning)
		time.Sleep(2 * time.Second)
		b.stop() // lets the attempts in flight end
		second := b.receiver.seen()[len(first):]
		b = startFixture(t, path, always(200, ""))
		time.Sleep(5 * time.Second)
		end := set(store.RedriveCanceled)
		time.Sleep(time.Minute)
		if end.Done <= paused.Done || end.Done > 140 {
			t.Errorf("canceled at %d, paused at %d", end.Done, paused.Done)
		}
		counts := make(map[store.State]int)
		for _, id := range ids {
			counts[b.get(id).State]++
		}
		if counts[store.Succeeded] != int(end.Done) || counts[store.Dead] != len(ids)-int(end.Done) {
			t.Errorf("after %d were done: %v", end.Done, counts)
		}
		began := time.Now()
		rest := b.awaitRedrive(redrive("20/s").ID, time.Minute)
		if rest.State != store.RedriveDone || rest.Done != 300-end.Done || rest.Failed != 0 ||
			rest.Matched != rest.Done {
			t.Errorf("the rest: %+v", rest)
		}
		if took, least := time.Since(began), time.Duration(rest.Done)*time.Second/20-time.Second; took < least {
			t.Errorf("%d at 20/s took %s", rest.Done, took)
		}
		sent := make(map[string]int)
		for _, id := range ids {
			b.await(id, 2*time.Second) // the redrive enqueues it: no sweep is needed
			sent[store.CallbackPrefix+id] = -1
		}
		for _, h := range append(second, b.receiver.seen()...) {
			sent[h.id]++
		}
		for id, more := range sent {
			if more != 0 {
				t.Errorf("%s was sent %d times too often", id, more)
			}
		}
	})
}

func TestRedriveRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""))
		for _, c := range []struct {
			field string
			q     control.RedriveRequest
		}{
			{"action", control.RedriveRequest{Action: "explode", Shown: `{"topic":"a"}`}},
			{"filter", control.RedriveRequest{Action: "cancel", Shown: `{}`}},
			{"rate", control.RedriveRequest{Action: "retry", Shown: `{"topic":"a"}`, Rate: "fast"}},
			{"ladder", control.RedriveRequest{Action: "retry", Shown: `{"topic":"a"}`, Ladder: "twice"}},
			{"due_at", control.RedriveRequest{Action: "reschedule", Shown: `{"topic":"a"}`}},
			{"delay", control.RedriveRequest{Action: "reschedule", Shown: `{"topic":"a"}`, Delay: ptr(-time.Second)}},
			{"url", control.RedriveRequest{Action: "set_url", Shown: `{"topic":"a"}`, URL: "shop"}},
		} {
			if _, err := b.engine.Redrive(t.Context(), store.DefaultProject, c.q, operator); err == nil || !strings.Contains(err.Error(), c.field+":") {
				t.Errorf("%+v: %v; want %s named", c.q, err, c.field)
			}
		}
	})
}

// manyRedrives makes a project with as many redrives as it may have.
func (b *fixture) manyRedrives(project string) (made []store.Redrive) {
	b.t.Helper()
	b.must(b.engine.CreateProject(b.t.Context(), control.ProjectChange{ID: project}, operator))
	for range 40 {
		b.must(b.engine.Accept(b.t.Context(), project, []accept.Submission{{
			URL: "https://shop.example/", Body: []byte("{}"), Topic: "payment", Delay: ptr(time.Hour),
		}}))
	}
	for range store.MaxOpenRedrives {
		r, err := b.engine.Redrive(b.t.Context(), project, control.RedriveRequest{
			Action: "reschedule", Delay: ptr(time.Hour), Rate: "1/s",
			Filter: store.Filter{Topic: "payment"}, Shown: `{"topic":"payment"}`,
		}, operator)
		b.must(r, err)
		made = append(made, r)
	}
	return made
}

// redrive has everything of the topic that is dead attempted again.
func (b *fixture) redrive() store.Redrive {
	b.t.Helper()
	r, err := b.engine.Redrive(b.t.Context(), store.DefaultProject, control.RedriveRequest{
		Action: "retry", Filter: store.Filter{Topic: "payment"}, Shown: `{"topic":"payment"}`,
	}, operator)
	b.must(r, err)
	return r
}

// Paused redrives, of however many projects, do not hold up another one.
func TestPausedRedrivesHoldUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(500, ""))
		ids := b.bury(5)
		for p := range 6 {
			project := fmt.Sprint("other-", p)
			for _, r := range b.manyRedrives(project) {
				b.must(b.engine.SetRedrive(t.Context(), project, r.ID, store.RedrivePaused, operator))
			}
		}
		if r := b.awaitRedrive(b.redrive().ID, time.Minute); r.Done != int64(len(ids)) {
			t.Errorf("it has done %d of %d", r.Done, len(ids))
		}
	})
}

// slowRedrives is a database in which a step of a redrive of one project takes a second.
type slowRedrives struct {
	dispatch.Store
	project string
}

func (s *slowRedrives) StepRedrive(
	ctx context.Context, id string, limit int, now int64,
) (store.RedriveStep, error) {
	step, err := s.Store.StepRedrive(ctx, id, limit, now)
	if step.Redrive.Project == s.project {
		time.Sleep(time.Second)
	}
	return step, err
}

// Between two turns of a project each other project has one, however many and slow its redrives are. Within a
// project each redrive has its turn.
func TestProjectsTakeTurnsAtRedrives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const slow = "other"
		b := newFixture(t, always(500, ""), func(o *dispatch.Options) {
			o.Store = &slowRedrives{o.Store, slow}
		})
		ids := b.bury(5)
		made := b.manyRedrives(slow)
		time.Sleep(5 * time.Second)
		if r := b.awaitRedrive(b.redrive().ID, 5*time.Second); r.Done != int64(len(ids)) {
			t.Errorf("it has done %d of %d", r.Done, len(ids))
		}
		time.Sleep(time.Minute)
		for _, r := range made {
			if now, err := b.db.Redrive(t.Context(), slow, r.ID); err != nil || now.Done == 0 {
				t.Errorf("%s has done %d of %d, %v", r.ID, now.Done, now.Matched, err)
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
		b := newFixture(t, always(500, ""), func(o *dispatch.Options) { rows.Store, o.Store = o.Store, rows })
		b.bury(n)
		for _, c := range []struct {
			most, matched, read int64
			more                bool
		}{{0, n, n, false}, {520, 520, 521, true}, {n - 1, n - 1, n, true}, {n, n, n, false}, {5000, n, n, false}, {1, 1, 2, true}} {
			rows.rows.Store(0)
			request := control.RedriveRequest{
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
		if _, _, err := b.engine.CountRedrive(t.Context(), store.DefaultProject, control.RedriveRequest{Action: "retry"}); !isInvalid(err, "filter") {
			t.Errorf("without a filter: %v", err)
		}
	})
}
