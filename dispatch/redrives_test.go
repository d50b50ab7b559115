package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// retryDead is a redrive of everything of the topic that is dead, at a rate.
func retryDead(rate string) control.RedriveRequest {
	return control.RedriveRequest{
		Action: "retry", Filter: store.Filter{Topic: "payment", States: []store.State{store.Dead}},
		Shown: `{"topic":"payment"}`, Rate: rate,
	}
}

func (b *fixture) redrive(project string, r control.RedriveRequest) store.Redrive {
	b.Helper()
	return must(b.engine.Redrive(b.Context(), project, r, operator))
}

func (b *fixture) setRedrive(r store.Redrive, to store.RedriveState) store.Redrive {
	b.Helper()
	return must(b.engine.SetRedrive(b.Context(), r.Project, r.ID, to, operator))
}

func (b *fixture) redriveNow(r store.Redrive) store.Redrive {
	b.Helper()
	return must(b.db.Redrive(b.Context(), r.Project, r.ID))
}

// awaitRedrive waits, in the bubble's time, until a redrive has ended.
func (b *fixture) awaitRedrive(r store.Redrive, within time.Duration) store.Redrive {
	b.Helper()
	for deadline := time.Now().Add(within); r.Open(); r = b.redriveNow(r) {
		if time.Now().After(deadline) {
			b.Fatalf("the redrive is still %s after %s: %d of %d", r.State, within, r.Done, r.Matched)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return r
}

// A redrive does what it is for to each callback once, at its rate. It can be paused, goes on where it was,
// also in another process, and can be canceled. What it has not done stays as it is, for another one.
func TestRedrive(t *testing.T) {
	with(always(500, "")).run(t, func(b *fixture) {
		const n = 300
		ids := b.bury(n)
		first := len(b.hits(""))
		b.turn(always(200, ""))
		slow := b.redrive(project, retryDead("10/s"))
		time.Sleep(5 * time.Second)
		paused := b.setRedrive(slow, store.RedrivePaused)
		time.Sleep(time.Minute)
		now := b.redriveNow(slow)
		b.is("matched and done after a minute's pause", []int64{now.Matched, now.Done},
			[]int64{n, paused.Done})
		b.check(now.Done != 0, "nothing was done before the pause")
		b.setRedrive(slow, store.RedriveRunning)
		time.Sleep(2 * time.Second)
		b.stop() // lets the attempts in flight end
		sent := b.hits("")[first:]
		b = b.restart(nil)
		time.Sleep(5 * time.Second)
		done := b.setRedrive(slow, store.RedriveCanceled).Done
		time.Sleep(time.Minute)
		between(b, "done in the end", done, paused.Done+1, 140)
		counts := b.counts()
		b.is("succeeded and dead", []int64{counts[store.Succeeded], counts[store.Dead]},
			[]int64{done, n - done})
		began := time.Now()
		rest := b.awaitRedrive(b.redrive(project, retryDead("20/s")), time.Minute)
		b.check(rest.State == store.RedriveDone && rest.Done == n-done && rest.Failed == 0 &&
			rest.Matched == rest.Done, "the rest: %+v", rest)
		between(b, "the rest took", time.Since(began), time.Duration(rest.Done)*time.Second/20-time.Second,
			time.Minute)
		b.ends("succeeded", 2*time.Second, ids...) // the redrive enqueues it: no sweep is needed
		times := make(map[string]int)
		for _, h := range append(sent, b.hits("")...) {
			times[h.id]++
		}
		for _, id := range ids {
			b.is("sends of "+id, times[id], 1)
		}
	})
}

func TestRedriveRefuses(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		const topic = `{"topic":"a"}`
		for field, r := range map[string]control.RedriveRequest{
			"action": {Action: "explode", Shown: topic},
			"filter": {Action: "cancel", Shown: `{}`},
			"rate":   {Action: "retry", Shown: topic, Rate: "fast"},
			"ladder": {Action: "retry", Shown: topic, Ladder: "twice"},
			"due_at": {Action: "reschedule", Shown: topic},
			"delay":  {Action: "reschedule", Shown: topic, Delay: new(-time.Second)},
			"url":    {Action: "set_url", Shown: topic, URL: "shop"},
		} {
			_, err := b.engine.Redrive(b.Context(), project, r, operator)
			b.check(err != nil && strings.Contains(err.Error(), field+":"), "%+v: %v; want %s named", r, err,
				field)
		}
	})
}

// manyRedrives makes a project with as many redrives as it may have.
func (b *fixture) manyRedrives(project string) (made []store.Redrive) {
	b.Helper()
	b.createProject(control.ProjectChange{ID: project})
	for range 40 {
		b.ok(b.offer(project, accept.Submission{Topic: "payment", Delay: new(time.Hour)})[0].Err)
	}
	for range store.MaxOpenRedrives {
		made = append(made, b.redrive(project, control.RedriveRequest{
			Action: "reschedule", Delay: new(time.Hour), Rate: "1/s",
			Filter: store.Filter{Topic: "payment"}, Shown: `{"topic":"payment"}`,
		}))
	}
	return made
}

// Paused redrives, of however many projects, do not hold up another one.
func TestPausedRedrivesHoldUpNoOther(t *testing.T) {
	with(always(500, "")).run(t, func(b *fixture) {
		b.bury(5)
		for p := range 6 {
			for _, r := range b.manyRedrives(fmt.Sprint("other-", p)) {
				b.setRedrive(r, store.RedrivePaused)
			}
		}
		b.is("done", b.awaitRedrive(b.redrive(project, retryDead("")), time.Minute).Done, 5)
	})
}

// Between two turns of a project each other project has one, however many and slow its redrives are. Within a
// project each redrive has its turn.
func TestProjectsTakeTurnsAtRedrives(t *testing.T) {
	const other = "other"
	with(always(500, ""), struck(func(_ context.Context, c *call) error {
		err := c.do()
		if c.got.(store.RedriveStep).Redrive.Project == other {
			time.Sleep(time.Second)
		}
		return err
	}, "StepRedrive")).run(t, func(b *fixture) {
		b.bury(5)
		made := b.manyRedrives(other)
		time.Sleep(5 * time.Second)
		b.is("done", b.awaitRedrive(b.redrive(project, retryDead("")), 5*time.Second).Done, 5)
		time.Sleep(time.Minute)
		for _, r := range made {
			b.check(b.redriveNow(r).Done > 0, "%s has done nothing of %d", r.ID, r.Matched)
		}
	})
}

// What a redrive would be done to is counted no further than it is asked for, and whether there are more is
// told.
func TestACountEndsWhereItIsToldTo(t *testing.T) {
	with(always(500, "")).run(t, func(b *fixture) {
		const n = 600
		b.bury(n)
		rows := int64(0)
		b.set(func(_ context.Context, c *call) error {
			err := c.do()
			rows += int64(len(c.got.(store.Page).Callbacks))
			return err
		}, "List")
		for _, c := range []struct {
			most, matched, read int64
			more                bool
		}{{0, n, n, false}, {520, 520, 521, true}, {n - 1, n - 1, n, true}, {n, n, n, false},
			{5000, n, n, false}, {1, 1, 2, true}} {
			r := retryDead("")
			r.DryRun, r.Most, rows = true, c.most, 0
			matched, more, err := b.engine.CountRedrive(b.Context(), project, r)
			b.check(err == nil && matched == c.matched && more == c.more && rows == c.read,
				"at most %d: %d, more %t, %d rows read, %v; want %+v", c.most, matched, more, rows, err, c)
			dry := b.redrive(project, r)
			b.check(dry.Matched == c.matched && dry.ID == "", "a dry run of at most %d: %+v", c.most, dry)
		}
		_, _, err := b.engine.CountRedrive(b.Context(), project, control.RedriveRequest{Action: "retry"})
		b.is("without a filter", b.wrongFields(err), []string{"filter"})
	})
}
