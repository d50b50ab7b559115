package faults

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// slowly20 is harness.Usual, with each response after 20 ms.
func slowly20(a *harness.Arrival) harness.Reply {
	answer := harness.Usual(a)
	answer.After = 20 * time.Millisecond
	return answer
}

// longAtFirst responds to the first arrival only after its sender is dead.
func longAtFirst(a *harness.Arrival) harness.Reply {
	if a.Nth == 1 {
		return harness.Reply{After: time.Second}
	}
	return harness.Usual(a)
}

func busyWithTen(tr *trial) {
	tr.AtLeast(time.Minute, "ten requests are being answered", 10, tr.Receiver.InFlight)
}

// A death is the end of one process.
type death struct {
	// failpoint is where it kills itself; empty: the test kills it after waits.
	failpoint string
	waits     func(*trial)
	delay     string // of the callbacks that it accepts; empty: none
	empties   bool   // Redis, before the process starts
}

// killLoad is how many callbacks each of these trials accepts.
const killLoad = 60

// killed starts processes that die one after the other, and then one that survives.
func killed(script harness.Script, deaths ...death) func(*trial) {
	return func(tr *trial) {
		tr.Receiver.Answer(script)
		left := harness.Numbers(killLoad)
		for _, d := range deaths {
			if d.empties {
				tr.Flush()
			}
			if d.failpoint != "" {
				p := tr.ServeUntil(d.failpoint)
				left = tr.AcceptAll(left, tr.crashLike("0s"))
				tr.AwaitDeath(p, 2*time.Minute, 0)
				continue
			}
			p := tr.Serve()
			left = tr.AcceptAll(left, tr.crashLike(cmp.Or(d.delay, "0s")))
			if d.waits != nil {
				d.waits(tr)
			}
			tr.Kill(p, 0)
		}
		tr.goOn(left)
	}
}

// goOn starts another process, submits the callbacks without a response again, and judges the trial.
func (tr *trial) goOn(left []int) {
	tr.Helper()
	tr.MarkFault()
	tr.Serve()
	// They are submitted with the same key, and must not become second callbacks.
	for range 3 {
		left = tr.AcceptAll(left, tr.crashLike("0s"))
	}
	if len(left) > 0 {
		tr.Errorf("%d of %d callbacks were not accepted after the restart", len(left), killLoad)
	}
	tr.Conclude(3*time.Minute, 2*time.Minute)
	if n := tr.sqlCount(`SELECT count(*) FROM callbacks`); n != killLoad {
		tr.Errorf("SQL has %d callbacks, want %d: an idempotency key was lost", n, killLoad)
	}
	if tr.Backend.Postgres == "" {
		tr.intact()
	}
}

// crashLike is the load of the kill trials: every third callback fails on its first arrival, and every fourth
// has a lock key.
func (tr *trial) crashLike(delay string) func(int) harness.Submission {
	return func(i int) harness.Submission {
		kind := "plain"
		if i%3 == 0 {
			kind = "retry"
		}
		s := tr.Numbered(kind)(i)
		s["delay"] = delay
		if i%4 == 0 {
			s["lock_key"] = fmt.Sprint("lock-", i%8)
		}
		return s
	}
}

const bulkBatch = 1000

// A bulk submits batches until each has a response. TestARedriveIsKilledHalfWay kills a redrive.
type bulk struct {
	*trial
	mu sync.Mutex
	// ids are those of the responses, by number. A second response must have the same id.
	ids map[int]string
}

// submit submits one batch. Some of its responses may be replays.
func (b *bulk) submit(c *harness.Client, batch int) error {
	var some []harness.Submission
	for i := batch * bulkBatch; i < (batch+1)*bulkBatch; i++ {
		// The callbacks have many merchants, and two or three of them share an order.
		some = append(some, ofMerchants(b.crashLike("2s")(i), i, 20, 10))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	got, err := c.SubmitBatch(ctx, some, http.StatusAccepted, http.StatusOK)
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, cb := range got {
		i := batch*bulkBatch + k
		if before, twice := b.ids[i]; !twice {
			b.Note(cb.ID, some[k])
		} else if before != cb.ID {
			b.Errorf("element %d was %s, and submitted again is %s", i, before, cb.ID)
		}
		b.ids[i] = cb.ID
	}
	return err
}

// ofMerchants gives a callback the lane of one of the merchants. A lock key becomes that of an order, which a
// few callbacks share.
func ofMerchants(s harness.Submission, i, merchants, each int) harness.Submission {
	s["lane"] = fmt.Sprint("merchant-", i%merchants)
	if s["lock_key"] != nil {
		s["lock_key"] = fmt.Sprint("order-", i/each)
	}
	return s
}

// killedInBatches kills the process during batches of a thousand, each time later, and submits all of them
// again.
func killedInBatches(tr *trial) {
	const batches = 5
	b := &bulk{trial: tr, ids: map[int]string{}}
	for _, passes := range []int{2, 4} {
		for _, at := range []string{"before_accept_commit", "after_accept_commit"} {
			p := tr.ServeUntil(fmt.Sprintf("%s:%d", at, passes))
			// The loop submits batches without a response again, so the error does not matter.
			harness.AtOnce(3, batches, func(batch int) error {
				if p.Ended() {
					return nil
				}
				return b.submit(p.Client, batch)
			})
			tr.Kill(p, 0) // unless it has died at the failpoint
		}
	}
	p := tr.Serve()
	for batch := range batches {
		tr.Eventually(harness.AcceptTimeout, fmt.Sprintf("batch %d is accepted", batch),
			func() error { return b.submit(p.Client, batch) })
	}
	v := tr.End(2*time.Minute, tr.Hit(judge.Bounds{Heal: 2 * time.Minute}))
	if n := tr.sqlCount(`SELECT count(*) FROM callbacks`); n != batches*bulkBatch {
		tr.Errorf("SQL has %d callbacks, want %d", n, batches*bulkBatch)
	}
	tr.Remark("%d batches of %d, killed %d times in between and submitted again: %d callbacks, none double, "+
		"none missing; %d duplicate sends",
		batches, bulkBatch, tr.Claims.Faults, v.Accepted, v.Duplicates)
}

const (
	// killGap is the shortest time between two kills, and killSpread the most that is added to it.
	killGap    = 3 * time.Second
	killSpread = 7 * time.Second
)

// randomKills combines the faults: three dispatchers under load, one is killed every 3 to 10 seconds, and
// Redis is emptied now and then.
func randomKills(tr *trial) {
	span := testserver.Sized(25*time.Second, 45*time.Second, 5*time.Minute)
	for range 3 {
		tr.Serve()
	}
	tr.idle()
	rate := testserver.Sized(150, 300, 500)
	// The load has many merchants, because attempts of a dead process count against their lanes until its
	// leases expire. Five callbacks share an order.
	ld := tr.Load(rate, func(i int) harness.Submission { return ofMerchants(tr.Mixed(i), i, 60, 40) })
	ctx, cancel := context.WithTimeout(context.Background(), span)
	defer cancel()
	emptied := 0
	stop := tr.Repeat(14*time.Second, func(i int) {
		if i == 0 {
			return // not at once
		}
		// Without ctx: a FLUSHALL that was sent must count.
		if err := tr.Backend.EachRedis(context.Background(), harness.FlushAll); err != nil {
			tr.Errorf("FLUSHALL: %v", err)
			return
		}
		emptied++
		tr.MarkFault()
	})
	for ctx.Err() == nil {
		next := time.Now().Add(killGap + rand.N(killSpread))
		// Each attempt has a timeout of two seconds. After three seconds, the uncommitted claims from before
		// the kill are the victim's.
		tr.Kill(tr.Alive()[rand.N(len(tr.Alive()))], killGap)
		tr.Serve()
		gap := time.NewTimer(time.Until(next))
		select {
		case <-gap.C:
		case <-ctx.Done():
			gap.Stop()
		}
	}
	stop()
	report := ld.Finish()
	tr.Settle(5 * time.Minute)
	tr.awaitEmptyIndex()
	v := tr.Conclude(time.Minute, 2*time.Minute)
	if least := float64(rate) * span.Seconds() * 0.8; float64(v.Accepted) < least {
		tr.Errorf("%d were accepted, want at least %.0f", v.Accepted, least)
	}
	if tr.Claims.Faults < int(span/(10*time.Second)) || emptied < int(span/(20*time.Second)) {
		tr.Errorf("%d kills and %d FLUSHALL are too few to show anything", tr.Claims.Faults, emptied)
	}
	tr.Remark("%d accepted in %s (%.0f/s) by three dispatchers, %d kills, %d FLUSHALL: %d lost, %d "+
		"duplicates; %s; accepts %s, %d requests repeated; lateness %s",
		v.Accepted, span, float64(v.Accepted)/span.Seconds(), tr.Claims.Faults, emptied, v.Lost, v.Duplicates,
		&tr.Claims, report.Took, report.Again, v.Lateness)
}

// idleScripts is how many scripts a second an idle dispatcher may run in Redis: it polls once a second, and
// maintains the index now and then.
const idleScripts = 3

// idle measures the dispatchers without load: none may wake another.
func (tr *trial) idle() {
	tr.Helper()
	scripts := func() (n int) {
		stats, err := tr.redis().InfoMap(tr.Context(), "commandstats").Result()
		tr.Check(err)
		for _, name := range []string{"cmdstat_eval", "cmdstat_evalsha"} {
			var calls int
			if _, err := fmt.Sscanf(stats["Commandstats"][name], "calls=%d", &calls); err == nil {
				n += calls
			}
		}
		return n
	}
	const span = 5 * time.Second
	before := scripts()
	time.Sleep(span) // the measured time: nothing happens
	each := float64(scripts()-before) / span.Seconds() / float64(len(tr.Alive()))
	tr.Remark("an idle dispatcher runs %.2f scripts a second in Redis", each)
	if each == 0 || each > idleScripts {
		tr.Errorf("an idle dispatcher runs %.2f scripts a second in Redis, more than %d", each, idleScripts)
	}
}

// longKind is a callback with a slow receiver, in one of twenty lanes, so that many are in flight at once.
func (tr *trial) longKind(i int) harness.Submission {
	s := tr.Numbered("long")(i)
	s["policy"] = harness.Tiers("8s", "1s", "1s")
	s["lane"] = fmt.Sprint("lane-", i%20)
	return s
}

// killedInDrain kills a process during its drain. The attempts in flight are recovered as after any kill.
func killedInDrain(tr *trial) {
	const took = 5 * time.Second
	p := tr.ServeAll()
	tr.Receiver.AnswerKind("long", harness.Reply{After: took})
	tr.AcceptEach(120, tr.longKind)
	tr.AtLeast(time.Minute, "receivers work on many at once", 20, tr.Receiver.InFlight)
	p.Terminate()
	p.AwaitUnready(10 * time.Second)
	tr.KillOne(p, took+2*time.Second)
	if tr.Claims.Len() == 0 {
		tr.Errorf("nothing was in flight, so the trial proves nothing")
	}
	v := tr.Conclude(2*time.Minute, 90*time.Second)
	tr.Remark("%s; %d duplicates", &tr.Claims, v.Duplicates)
}

// poisonCrashes is how many claims in a row may end without a result, as documented.
const poisonCrashes = 5

// poisoned has one callback whose attempts always kill the process, among others that are due at the same
// moment.
func poisoned(tr *trial) {
	const failpoint = "before_send@/poison/"
	shape := func(i int) harness.Submission {
		kind := "plain"
		switch {
		case i == 0:
			kind = "poison"
		case i%3 == 0:
			kind = "retry"
		}
		s := tr.Numbered(kind)(i)
		s["delay"] = "3s" // so that all are claimed together
		s["lane"] = fmt.Sprint("lane-", i%10)
		return s
	}
	dispatchers := 1
	if tr.Shared() {
		dispatchers = 2
	}
	for range dispatchers {
		tr.ServeUntil(failpoint)
	}
	left := tr.AcceptAll(harness.Numbers(100), shape)
	crashes := 0
	deadline := time.Now().Add(6 * time.Minute)
	for {
		if missing := dispatchers - len(tr.Alive()); missing > 0 {
			crashes += missing
			tr.Take(time.Now(), 3*time.Second)
			for range missing {
				tr.ServeUntil(failpoint)
			}
			left = tr.AcceptAll(left, shape)
		}
		open, _, err := harness.CountOpen(tr.Context(), tr.Database())
		if err == nil && open == 0 && len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			tr.Errorf("after %d crashes %d callbacks are open, %d not accepted: %v", crashes, open, len(left),
				err)
			break
		}
		harness.Pause()
	}
	v := tr.Accounted(judge.Bounds{Heal: 90 * time.Second, Expect: deadAre("poison")})
	if tr.sqlCount(`SELECT count(*) FROM callbacks JOIN requests USING (project, id)
		WHERE ref = 'poison-0' AND reason = 'poison'`) != 1 ||
		crashes != poisonCrashes {
		tr.Errorf("it is not dead of poison, or not after %d crashes but after %d", poisonCrashes, crashes)
	}
	tr.Remark("dead after %d crashes; the %d others succeeded with %d duplicates", crashes, v.Accepted-1,
		v.Duplicates)
}

// deadAre expects the callbacks of one kind to die, and all others to succeed.
func deadAre(kind string) func(ref string) string {
	return func(ref string) string {
		if strings.HasPrefix(ref, kind) {
			return "dead"
		}
		return "succeeded"
	}
}
