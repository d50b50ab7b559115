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

// What upstreams say of an order, and what is asked of it.
const (
	processing = `{"trade_state":"PROCESSING"}`
	succeeded  = `{"trade_state":"SUCCESS","paid":10000}`
)

// An order is one that an upstream is asked about and a merchant is told of: a trial whose recorder is both,
// at /ask/REF and at /told/REF.
func (tr *trial) order(ref string, tiers ...string) harness.Submission {
	return harness.Submission{
		"ref": ref, "topic": "order.ask", "request": harness.Submission{"url": tr.Receiver.URL + "/ask/" +
			ref,
			"payload": harness.Payload(ref)},
		"policy": harness.Tiers("1s", tiers...), "until": harness.Finals(),
		"context": harness.Submission{"shop": 7},
		"lane":    "ask-" + ref,
		"on_result": harness.Submission{"url": tr.Receiver.URL + "/told/" + ref, "topic": "order.told",
			"policy": harness.Tiers("1s", "200ms", "1s", "1s"), "lane": "told-" + ref},
	}
}

// An upstream says PROCESSING of its order four times, and then SUCCESS. It is the script of a trial's
// recorder.
type upstream struct {
	mu   sync.Mutex
	said time.Time // when it first said SUCCESS
}

func (u *upstream) answer(a *harness.Arrival) harness.Reply {
	asked := strings.HasPrefix(a.Path, "/ask/")
	if asked && a.Nth < 5 {
		return harness.Reply{Body: processing}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if asked && u.said.IsZero() {
		u.said = time.Now()
	}
	return harness.Reply{Body: succeeded}
}

// saidSuccess is when it first said SUCCESS; zero: it has not yet.
func (u *upstream) saidSuccess() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.said
}

// fiveTiers lead to five requests and no more.
var fiveTiers = []string{"100ms", "150ms", "200ms", "100ms"}

// judgePoll holds the poll of an order against what its one result says. What was asked and told how often is
// the verdict's.
func (tr *trial) judgePoll(c *harness.Client, up *upstream, ref, id string) {
	p, err := c.Poll(tr.Context(), id)
	tr.Check(err)
	if p.State != client.Succeeded || p.Reason != client.ReasonSuccess || p.Poll.Outcome != "success" ||
		p.AttemptCount > 5 || tr.Receiver.Times(id) < 5 {
		tr.Errorf("%s is %s, %s, with the outcome %q after %d attempts; it was asked about %d times", ref,
			p.State,
			p.Reason, p.Poll.Outcome, p.AttemptCount, tr.Receiver.Times(id))
	}
	all, err := c.ListAll(client.Filter{})
	tr.Check(err)
	result := all[0] // the newest
	if len(all) != 2 || result.ID != p.Poll.ResultCallbackID || result.State != client.Succeeded {
		tr.Fatalf("want the poll and its result %s, which has succeeded: %+v", p.Poll.ResultCallbackID, all)
	}
	// Milliseconds are cut off.
	if said := up.saidSuccess(); said.IsZero() || result.CreatedAt.Before(said.Add(-2*time.Millisecond)) {
		tr.Errorf("the result of %s was made at %s, and its upstream said SUCCESS at %s", ref,
			result.CreatedAt,
			said)
	}
	payload, err := c.Payload(tr.Context(), result.ID)
	tr.Check(err)
	var told client.PollResult
	if err := json.Unmarshal(payload.Body, &told); err != nil || told.PollID != id || told.Ref != ref ||
		told.Outcome != "success" || told.Reason != "success" || told.Polls != p.AttemptCount ||
		told.Last == nil ||
		told.Last.StatusCode != 200 || told.Last.Body != succeeded || string(told.Context) != `{"shop":7}` {
		tr.Errorf("the result of %s says %s, %v", ref, payload.Body, err)
	}
}

// The failpoints between the accept of a poll and its end, in order: those of the accept, and those of a
// request until it is made, and after.
var (
	acceptSteps = []string{"before_accept_commit", "after_accept_commit", "after_enqueue"}
	askSteps    = []string{"after_claim", "after_lock", "after_stamp", "before_send"}
	askedSteps  = []string{"after_send", "before_result_commit", "after_result_commit", "after_settle"}
)

// A pollKill is a poll of an order whose dispatcher is killed at a step of one of its five requests; request
// 6 is that of its result.
type pollKill struct {
	failpoint string
	request   int
}

func (k pollKill) ref() string { return fmt.Sprintf("%s-%d", k.failpoint, k.request) }

// pollKills are each step of each request, or in the small size of the last one and of the result.
func pollKills() (kills []pollKill) {
	for _, failpoint := range acceptSteps {
		// it is accepted once; its result is accepted with its end
		kills = append(kills, pollKill{failpoint, 1})
	}
	for _, failpoint := range slices.Concat(askSteps, askedSteps) {
		for request := sized(5, 1, 1); request <= 6; request++ {
			kills = append(kills, pollKill{failpoint, request})
		}
	}
	return kills
}

// A dispatcher that asks about an order is killed at each step between accepting it and telling the merchant,
// and another one goes on: the merchant is told once, of what the upstream has said, and not before it has
// said it.
func TestAPollKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, c := range harness.BothEnds {
		t.Run(c.String(), func(t *testing.T) {
			began := time.Now()
			shared := harness.NewBackend(t, c) // its Redis is that of all, each with a prefix of its own
			kills := pollKills()
			victims := make([]*pollVictim, len(kills))
			for i, k := range kills {
				v := &pollVictim{pollKill: k, up: &upstream{}}
				v.trial = newTrial(t, "poll killed at "+k.ref())
				v.Times = harness.QuickTimes
				v.Receiver.Answer(v.up.answer)
				b := harness.Backend{Name: c.String(), DataDir: t.TempDir(), Redis: shared.Redis,
					Server: shared.Server,
					Prefix: fmt.Sprint("e2e", i)}
				if c.Postgres {
					b.Postgres = testserver.SharedPostgres(t).Database(t)
				}
				v.UseBackend(b)
				victims[i] = v
			}
			// What the dead had claimed is claimed again when that has run out. All of them die first, so
			// that this is waited for once.
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
			t.Logf("%s: %d polls killed at %d steps, %d of them found claimed by the kill; %d requests in "+
				"all, %d "+
				"more than without a fault; %s",
				c, len(victims), len(acceptSteps)+len(askSteps)+len(askedSteps), hits, asked,
				asked-6*len(victims),
				time.Since(began).Round(10*time.Millisecond))
		})
	}
}

// A pollVictim is a trial with the one poll that a kill is about.
type pollVictim struct {
	*trial
	pollKill
	up *upstream
	id string
}

// as has the trial go on under another test. What it had open beside the program is closed with the test
// before.
func (v *pollVictim) as(t *testing.T) *pollVictim {
	v.trial = &trial{Trial: &harness.Trial{T: t, Title: v.Title, Backend: v.Backend, Receiver: v.Receiver,
		Args:  v.Args,
		Times: v.Times, Accepted: v.Accepted, Claims: v.Claims}}
	return v
}

// ask hands the poll over, for the first time or again, and notes its id.
func (v *pollVictim) ask(p *harness.Process) error {
	s := v.order(v.ref(), fiveTiers...)
	s["idempotency_key"], s["lock_key"] = "key-"+v.ref(), "lock-"+v.ref()
	cb, err := p.Submit(s)
	if err == nil {
		v.id = cb.ID
		v.NoteAccepted(v.id, v.ref())
	}
	return err
}

// die has the poll accepted by a process that kills itself, and looks at what that leaves.
func (v *pollVictim) die() {
	failpoint := fmt.Sprintf("%s:%d", v.failpoint, v.request)
	v.Backend.SkipReconciliation("another test goes on with it")
	p := v.ServeUntil(failpoint)
	if err := v.ask(p); err != nil {
		// its first request may be as quick as the answer
		v.Logf("it was handed over and not answered: %v", err)
	}
	v.Die(p, time.Minute, 0)

	// Its end and its result are one commit.
	var state string
	var polls, ended int
	v.Check(v.Database().QueryRowContext(v.Context(), `SELECT count(*), coalesce(max(state), ''),
		count(CASE WHEN state <> 'scheduled' THEN 1 END)
		FROM callbacks JOIN requests USING (project, id)
		WHERE ref = $1 AND kind = 'poll'`, v.ref()).Scan(&polls, &state, &ended))
	results := v.sqlCount(`SELECT count(*) FROM callbacks JOIN requests USING (project, id)
		WHERE ref = $1 AND kind <> 'poll'`, v.ref())
	said := !v.up.saidSuccess().IsZero()
	if polls > 1 || results != ended || results > 0 && !said ||
		said != (v.request == 6 || v.request == 5 && slices.Contains(askedSteps, v.failpoint)) {
		v.Errorf("killed at %s: %d polls, %s, with %d results; the upstream has said SUCCESS: %t", failpoint,
			polls,
			state, results, said)
	}
	if uncommitted := v.failpoint == acceptSteps[0]; slices.Contains(acceptSteps, v.failpoint) &&
		uncommitted != (polls == 0) {
		v.Errorf("killed at %s, and SQL has %d polls", failpoint, polls)
	}
}

// goOn starts another process, hands over what was not answered, and judges how it all ended.
func (v *pollVictim) goOn() {
	if v.Claims.Faults == 0 {
		v.Fatal("it did not come to the kill")
	}
	v.Backend.SkipReconciliation("")
	p := v.Serve()
	if v.id == "" {
		v.Check(v.ask(p))
	}
	v.Settle(2 * time.Minute)
	v.Accounted(judge.Bounds{SharedRefs: true}) // the result has the poll's
	v.judgePoll(p.Client, v.up, v.ref(), v.id)
}

// costLimit is how much more heap an open poll may take than an open callback.
const costLimit = 1.25

// Open polls are kept as open callbacks are: after a restart they take no more memory.
func TestOpenPollsCostNoMoreThanScheduledCallbacks(t *testing.T) {
	mostlyWaits(t)
	n := sized(10_000, 30_000, 100_000)
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

// heapOfOpen is how many bytes of its heap a dispatcher uses after a restart with n of a shape open in its
// index.
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
