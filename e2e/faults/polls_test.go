package faults

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// Responses of an upstream about an order.
const (
	processing = `{"trade_state":"PROCESSING"}`
	succeeded  = `{"trade_state":"SUCCESS","paid":10000}`
)

// order is a poll about an order, with a result callback for the merchant. The trial's receiver is both: the
// upstream at /poll/REF and the merchant at /result/REF.
func (tr *trial) order(ref string, tiers ...string) harness.Submission {
	return harness.Submission{
		"ref": ref, "topic": "order.poll",
		"request": harness.Submission{
			"url": tr.Receiver.URL + "/poll/" + ref, "payload": harness.Payload(ref)},
		"policy": harness.Tiers("1s", tiers...), "until": harness.Finals(),
		"context": harness.Submission{"shop": 7},
		"lane":    "poll-" + ref,
		"on_result": harness.Submission{"url": tr.Receiver.URL + "/result/" + ref, "topic": "order.result",
			"policy": harness.Tiers("1s", "200ms", "1s", "1s"), "lane": "result-" + ref},
	}
}

// An upstream answers PROCESSING four times and then SUCCESS. It is the script of a trial's receiver.
type upstream struct {
	mu        sync.Mutex
	successAt time.Time // when it first answered SUCCESS
}

func (u *upstream) answer(a *harness.Arrival) harness.Reply {
	polled := strings.HasPrefix(a.Path, "/poll/")
	if polled && a.Nth < 5 {
		return harness.Reply{Body: processing}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if polled && u.successAt.IsZero() {
		u.successAt = time.Now()
	}
	return harness.Reply{Body: succeeded}
}

// firstSuccess returns when it first answered SUCCESS; zero: not yet.
func (u *upstream) firstSuccess() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.successAt
}

// fiveTiers lead to exactly five requests.
var fiveTiers = []string{"100ms", "150ms", "200ms", "100ms"}

// judgePoll compares the poll of an order with its result callback. The verdict checks the number of sends.
func (tr *trial) judgePoll(c *harness.Client, up *upstream, ref, id string) {
	p, err := c.Poll(tr.Context(), id)
	tr.Check(err)
	if p.State != client.Succeeded || p.Reason != client.ReasonSuccess || p.Poll.Outcome != "success" ||
		p.AttemptCount > 5 || tr.Receiver.Times(id) < 5 {
		tr.Errorf("%s is %s, %s, with the outcome %q after %d attempts; the upstream got %d requests", ref,
			p.State, p.Reason, p.Poll.Outcome, p.AttemptCount, tr.Receiver.Times(id))
	}
	all, err := c.ListAll(client.Filter{})
	tr.Check(err)
	result := all[0] // the newest
	if len(all) != 2 || result.ID != p.Poll.ResultCallbackID || result.State != client.Succeeded {
		tr.Fatalf("want the poll and its result %s, which has succeeded: %+v", p.Poll.ResultCallbackID, all)
	}
	// The API cuts times to milliseconds.
	if at := up.firstSuccess(); at.IsZero() || result.CreatedAt.Before(at.Add(-2*time.Millisecond)) {
		tr.Errorf("the result of %s was created at %s, and its upstream answered SUCCESS at %s", ref,
			result.CreatedAt, at)
	}
	payload, err := c.Payload(tr.Context(), result.ID)
	tr.Check(err)
	var got client.PollResult
	err = json.Unmarshal(payload.Body, &got)
	rightEnd := got.Outcome == "success" && got.Reason == "success" && got.Polls == p.AttemptCount
	rightLast := got.Last != nil && got.Last.StatusCode == 200 && got.Last.Body == succeeded
	if err != nil || got.PollID != id || got.Ref != ref || !rightEnd || !rightLast ||
		string(got.Context) != `{"shop":7}` {
		tr.Errorf("the result of %s is %s, %v", ref, payload.Body, err)
	}
}

// The failpoints between the accept of a poll and its end, in order: those of the accept, those before a
// request, and those after it.
var (
	acceptSteps = []string{"before_accept_commit", "after_accept_commit", "after_enqueue"}
	askSteps    = []string{"after_claim", "after_lock", "after_stamp", "before_send"}
	askedSteps  = []string{"after_send", "before_result_commit", "after_result_commit", "after_settle"}
)

// A pollKill kills the dispatcher of a poll at a step of one of its five requests. Request 6 is that of the
// result callback.
type pollKill struct {
	failpoint string
	request   int
}

func (k pollKill) ref() string { return fmt.Sprintf("%s-%d", k.failpoint, k.request) }

// pollKills are all steps of all requests. In the small size, they are those of the last request and of the
// result.
func pollKills() (kills []pollKill) {
	for _, failpoint := range acceptSteps {
		// The poll is accepted once; its result is accepted together with its end.
		kills = append(kills, pollKill{failpoint, 1})
	}
	for _, failpoint := range slices.Concat(askSteps, askedSteps) {
		for request := testserver.Sized(5, 1, 1); request <= 6; request++ {
			kills = append(kills, pollKill{failpoint, request})
		}
	}
	return kills
}

// A dispatcher is killed at each step between the accept of a poll and the result callback, and another one
// goes on. The merchant gets one result, with the upstream's answer, and not before that answer.
func TestAPollKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, c := range harness.BothEnds {
		t.Run(c.String(), func(t *testing.T) {
			began := time.Now()
			shared := harness.NewBackend(t, c) // all share its Redis, each with its own prefix
			kills := pollKills()
			victims := make([]*pollVictim, len(kills))
			for i, k := range kills {
				v := &pollVictim{pollKill: k, up: &upstream{}}
				v.trial = newTrial(t, "poll killed at "+k.ref())
				v.Times = harness.QuickTimes
				v.Receiver.Answer(v.up.answer)
				b := harness.Backend{Name: c.String(), DataDir: t.TempDir(),
					Redis: shared.Redis, Server: shared.Server, Prefix: fmt.Sprint("e2e", i)}
				if c.Postgres {
					b.Postgres = testserver.SharedPostgres(t).Database(t)
				}
				v.UseBackend(b)
				victims[i] = v
			}
			// The claims of dead processes must expire first. All of them die first, so that the test waits
			// only once.
			for _, phase := range []struct {
				name string
				do   func(*pollVictim)
			}{{"killed", (*pollVictim).die}, {"started again", (*pollVictim).goOn}} {
				t.Run(phase.name, func(t *testing.T) {
					for _, v := range victims {
						t.Run(v.ref(), func(t *testing.T) {
							mostlyWaits(t)
							phase.do(v.as(t))
						})
					}
				})
			}
			hits, asked := 0, 0
			for _, v := range victims {
				hits, asked = hits+v.Claims.Len(), asked+v.Receiver.Count()
			}
			t.Logf("%s: %d polls killed at %d steps, %d of them claimed at the kill; %d requests in all, %d "+
				"more than without a fault; %s", c, len(victims),
				len(acceptSteps)+len(askSteps)+len(askedSteps), hits, asked, asked-6*len(victims),
				time.Since(began).Round(10*time.Millisecond))
		})
	}
}

// A pollVictim is a trial with one poll and one kill.
type pollVictim struct {
	*trial
	pollKill
	up *upstream
	id string
}

// as continues the trial under another test. The connections of the trial close with the test that opened
// them.
func (v *pollVictim) as(t *testing.T) *pollVictim {
	v.trial = &trial{Trial: &harness.Trial{T: t, Title: v.Title, Backend: v.Backend, Receiver: v.Receiver,
		Args: v.Args, Times: v.Times, Accepted: v.Accepted, Claims: v.Claims}}
	return v
}

// submit submits the poll, for the first time or again, and notes its id.
func (v *pollVictim) submit(p *harness.Process) error {
	s := v.order(v.ref(), fiveTiers...)
	s["idempotency_key"], s["lock_key"] = "key-"+v.ref(), "lock-"+v.ref()
	cb, err := p.Submit(s)
	if err == nil {
		v.id = cb.ID
		v.NoteAccepted(v.id, v.ref())
	}
	return err
}

// die lets a process accept the poll and kill itself, and checks what that leaves.
func (v *pollVictim) die() {
	failpoint := fmt.Sprintf("%s:%d", v.failpoint, v.request)
	v.Backend.SkipReconciliation("the next phase continues this trial")
	p := v.ServeUntil(failpoint)
	if err := v.submit(p); err != nil {
		// The failpoint of the first request may come before the response.
		v.Logf("submitted without a response: %v", err)
	}
	v.AwaitDeath(p, time.Minute, 0)

	// The end of the poll and its result are one commit.
	var state string
	var polls, ended int
	v.Check(v.Database().QueryRowContext(v.Context(), `SELECT count(*), coalesce(max(state), ''),
		count(CASE WHEN state <> 'scheduled' THEN 1 END)
		FROM callbacks JOIN requests USING (project, id)
		WHERE ref = $1 AND kind = 'poll'`, v.ref()).Scan(&polls, &state, &ended))
	results := v.sqlCount(`SELECT count(*) FROM callbacks JOIN requests USING (project, id)
		WHERE ref = $1 AND kind <> 'poll'`, v.ref())
	succeeded := !v.up.firstSuccess().IsZero()
	if polls > 1 || results != ended || results > 0 && !succeeded ||
		succeeded != (v.request == 6 || v.request == 5 && slices.Contains(askedSteps, v.failpoint)) {
		v.Errorf("killed at %s: %d polls, %s, with %d results; the upstream has answered SUCCESS: %t",
			failpoint, polls, state, results, succeeded)
	}
	if uncommitted := v.failpoint == acceptSteps[0]; slices.Contains(acceptSteps, v.failpoint) &&
		uncommitted != (polls == 0) {
		v.Errorf("killed at %s, and SQL has %d polls", failpoint, polls)
	}
}

// goOn starts another process, submits the poll again if it had no response, and judges its end.
func (v *pollVictim) goOn() {
	if v.Claims.Faults == 0 {
		v.Fatal("the process was not killed")
	}
	v.Backend.SkipReconciliation("")
	p := v.Serve()
	if v.id == "" {
		v.Check(v.submit(p))
	}
	v.Settle(2 * time.Minute)
	v.Accounted(judge.Bounds{SharedRefs: true}) // the result has the poll's ref
	v.judgePoll(p.Client, v.up, v.ref(), v.id)
}

// costLimit is the allowed ratio of the heap of an open poll to that of an open callback.
const costLimit = 1.25

// Open polls take as much memory after a restart as open callbacks.
func TestOpenPollsCostNoMoreThanScheduledCallbacks(t *testing.T) {
	mostlyWaits(t)
	n := testserver.Sized(10_000, 30_000, 100_000)
	empty := heapOfOpen(t, 0, nil)
	each := func(shape func(*trial, int) harness.Submission) float64 {
		return float64(heapOfOpen(t, n, shape)-empty) / float64(n)
	}
	callback := each(func(tr *trial, i int) harness.Submission { return tr.Numbered("order-20261122")(i) })
	poll := each(func(tr *trial, i int) harness.Submission {
		return tr.order(fmt.Sprint("order-20261122-", i))
	})
	t.Logf("%d open: %.0f bytes of the heap for each callback, %.0f for each poll", n, callback, poll)
	if poll > callback*costLimit {
		t.Errorf("an open poll takes %.2f times the heap of a callback, over %.2f", poll/callback, costLimit)
	}
}

// heapOfOpen returns the bytes of heap that a dispatcher uses after a restart with n open callbacks of a
// shape in its index.
func heapOfOpen(t *testing.T, n int, shape func(*trial, int) harness.Submission) int {
	t.Helper()
	tr := newTrial(t, "open polls")
	tr.UseBackend(harness.NewBackend(t, harness.SQLiteEmbedded))
	p := tr.Serve()
	tr.AcceptEach(n, func(i int) harness.Submission {
		s := shape(tr, i)
		s["lane"], s["delay"] = fmt.Sprint("merchant-", i%200), "2d"
		s["policy"] = harness.Tiers("1s", "5s", "15s", "1m")
		return s
	})
	p.Exit(time.Minute)
	p = tr.Serve()
	tr.Eventually(time.Minute, "all of them are in the index", func() error {
		drift, err := p.VerifyIndex(tr.Context(), client.VerifyRequest{})
		if err == nil && (drift.Items < n || drift.Missing > 0) {
			err = fmt.Errorf("%+v", drift)
		}
		return err
	})
	heap, err := p.HeapInUse()
	tr.Check(err)
	return heap
}
