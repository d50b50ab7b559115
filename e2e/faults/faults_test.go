package faults

import (
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A pause takes effect within a second, whichever process gets the request and whichever sends. After a
// resume the open callbacks are sent.
func TestAStopTakesEffectWithinASecond(t *testing.T) {
	runOn(t, "stops", heavy|unlimited, harness.BothEnds, func(tr *trial) {
		r := tr.Receiver
		p := tr.ServeAll()
		other := tr.Alive()[len(tr.Alive())-1]
		id := p.Create("/v1/endpoints", harness.Submission{"url": r.URL})
		const n = 30_000
		tr.AcceptMany(n, func(i int) harness.Submission {
			ref := fmt.Sprint("stop-", i)
			return harness.Submission{"endpoint": id, "ref": ref, "payload": harness.Payload(ref)}
		})
		for _, of := range []string{"/v1/endpoints/" + id, "/v1/lanes/" + id, "/v1"} {
			tr.AtLeast(30*time.Second, "callbacks are sent", r.Count()+200, r.Count)
			other.Post(of+"/pause", harness.Submission{"reason": "a test"}, nil)
			time.Sleep(time.Second) // the time allowed for the pause to take effect
			stopped := r.Count()
			time.Sleep(2 * time.Second)
			if after := r.Count(); after != stopped {
				tr.Errorf("%s/pause: %d arrived more than a second later", of, after-stopped)
			}
			if stopped >= n {
				tr.Fatalf("%s/pause: all had arrived before it", of)
			}
			p.Post(of+"/resume", nil, nil)
		}
		tr.End(2*time.Minute, judge.Bounds{})
	})
}

// indexAway is how long the index is down. missedInIt is more callbacks than a process remembers
// individually, so afterwards it enqueues every open row again.
const (
	indexAway  = 12 * time.Second
	missedInIt = 120_000
)

// newWithin is the limit for sending a callback that is accepted just after the index is back.
const newWithin = time.Second

// The dispatcher uses the index as soon as it responds again, however much it missed and however many rows
// are open.
func TestANewCallbackAfterAnOutage(t *testing.T) {
	runOn(t, "catching up under traffic", 0, bothWithRedis, newCallbackAfterAnOutage)
}

func newCallbackAfterAnOutage(tr *trial) {
	tr.behindProxy()
	open := testserver.Sized(50_000, 200_000, 1_000_000)
	tr.seeded(open, 0)
	tr.Serve()
	tr.awaitFilled(open, 3*time.Minute)

	tr.way.Refuse()
	began := time.Now()
	tr.AcceptMany(missedInIt, func(i int) harness.Submission {
		s := tr.due("missed", i, 24*time.Hour)
		s["lane"] = harness.SeedRef(i % 100)
		return s
	})
	if took := time.Since(began); took > indexAway {
		tr.Logf("it took %s to accept %d", took.Round(time.Millisecond), missedInIt)
	}
	time.Sleep(time.Until(began.Add(indexAway))) // the fault lasts for a fixed time, not until a condition
	tr.way.Pass()
	back := time.Now()
	var waits []time.Duration
	for i := range 10 {
		sent := time.Now()
		id := tr.SubmitAndNote(tr.Numbered("new")(i))
		tr.AtLeast(time.Minute, "a new callback arrives", 1, func() int { return tr.Receiver.Times(id) })
		waits = append(waits, time.Since(sent).Round(time.Millisecond))
	}
	tr.Remark("%s after the index came back with %d open rows, new callbacks arrived within %v",
		time.Since(back), open+missedInIt, waits)
	for _, wait := range waits {
		if wait > newWithin {
			tr.Errorf("a new callback arrived %s after it was accepted, over %s", wait, newWithin)
		}
	}
	tr.awaitFilled(open+missedInIt, 3*time.Minute)
}

// Three dispatchers run the same schedule, and one is killed. Each due time has exactly one callback in every
// count, and no callback of the others waits for the dead one's leases.
func TestThreeDispatchersRunASchedule(t *testing.T) {
	runOn(t, "a schedule of three dispatchers", quick, onlyPostgresRedis, runASchedule)
}

func runASchedule(tr *trial) {
	maker, p := tr.Serve(), tr.Serve()
	tr.Serve()
	const ref = "tick"
	var s client.Schedule
	maker.Post("/v1/schedules", harness.Submission{"name": "totals", "cron": "@every 1s",
		"callback": harness.Submission{"url": tr.Receiver.URL + "/plain/tick", "ref": ref,
			"topic":   "tick.totals",
			"payload": harness.Payload(ref), "policy": harness.Tiers("1s", "200ms", "1s", "1s")}}, &s)
	want := testserver.Sized(20, 30, 90) // seconds; the API returns the last hundred runs
	var runs []client.ScheduleRun
	awaitRuns := func(n int) {
		tr.AtLeast(3*time.Minute, "the schedule runs", n, func() (have int) {
			var err error
			runs, err = p.ScheduleRuns(tr.Context(), s.ID)
			tr.Check(err)
			return len(runs)
		})
	}
	stalled := harness.Stalls(tr)
	awaitRuns(want / 2)
	// The dead process also sent wake-ups for the others. Their own attempts end within a second.
	tr.Kill(maker, 2*time.Second)
	awaitRuns(want)
	off := false
	_, err := p.PatchSchedule(tr.Context(), s.ID, client.ScheduleChange{Enabled: &off})
	tr.Check(err)
	stopped, stall := time.Now(), stalled()
	tr.Settle(2 * time.Minute) // claims of the dead process wait until their leases expire
	awaitRuns(want)
	// The last due time is the last one before the schedule was disabled, which happened during the call.
	if most := int(stopped.Sub(s.NextAt)/time.Second) + 1; len(runs) > most || runs[0].DueAt.After(stopped) {
		tr.Errorf("%d runs, at most %d are allowed; the last is due at %s, disabled at %s", len(runs), most,
			runs[0].DueAt, stopped)
	}
	made, err := p.ListAll(client.Filter{Topic: "tick.totals"})
	tr.Check(err)
	created := map[string]time.Time{}
	for _, cb := range made {
		created[cb.ID] = cb.CreatedAt
	}
	var making []time.Duration
	for i, run := range runs { // the latest first
		due := s.NextAt.Add(time.Duration(len(runs)-1-i) * time.Second)
		late := created[run.CallbackID].Sub(due)
		if !run.DueAt.Equal(due) || run.Trigger != "schedule" || late < 0 {
			tr.Fatalf("a run was due at %s by %s, its callback created %s later; want %s, each second once",
				run.DueAt, run.Trigger, late, due)
		}
		making = append(making, late)
		tr.NoteAccepted(run.CallbackID, ref)
	}
	if len(made) != len(runs) {
		tr.Errorf("%d runs created %d callbacks", len(runs), len(made))
	}
	tr.Accounted(judge.Bounds{SharedRefs: true})
	starting := tr.lateness(ref)
	tr.Remark("%d due times, one dispatcher killed: created after %s (the goal is 100 ms); attempted after "+
		"%s; %s", len(runs), judge.QuantilesOf(making), judge.QuantilesOf(starting), &tr.Claims)
	limit := time.Second + commits*stall
	if p99 := judge.Quantile(making, 0.99); p99 > limit {
		tr.Errorf("callbacks are created %s after their due times at p99, at most %s is allowed", p99, limit)
	}
	// Only the claims of the dead process wait until their leases expire.
	if p75 := judge.Quantile(starting, 0.75); p75 > limit {
		tr.Errorf("callbacks are attempted %s after their due times at p75, at most %s is allowed", p75,
			limit)
	}
}

const (
	// redriveRate is how many callbacks a second are redriven.
	redriveRate = 500
	// During a redrive, the p99 of other traffic may be liveNoise times its p99 before, plus liveSlack. The
	// machine that runs the redrive also runs both receivers, the database and its disk.
	liveNoise = 3
	liveSlack = 50 * time.Millisecond
	// redriveTakeover is how long a redrive may make no progress: the lease of the dead process that ran it
	// must expire.
	redriveTakeover = 45 * time.Second
)

// Thousands of dead callbacks are redriven at a rate, and SIGKILL ends the dispatcher half-way. Each callback
// is attempted exactly once more. Other traffic is as quick as before.
func TestARedriveIsKilledHalfWay(t *testing.T) {
	runOn(t, "redrive killed half-way", heavy|unlimited|quick, harness.BothEnds, func(tr *trial) {
		r := &redriveTrial{trial: tr, n: testserver.Sized(3_000, 10_000, 50_000)}
		r.dead = "http://" + r.Receiver.Listen(t, "127.0.0.2:0")
		r.run()
	})
}

// A redriveTrial is a trial with a redrive of n callbacks. Other callbacks are accepted meanwhile, for a
// different destination.
type redriveTrial struct {
	*trial
	n    int
	dead string // the destination of the redriven callbacks
	job  client.Redrive
}

func (l *redriveTrial) run() {
	first := l.ServeAll()
	began := time.Now()
	l.die()
	l.Remark("%d are dead after %s", l.n, time.Since(began))

	stalled := harness.Stalls(l.T)
	before := l.calm("before")

	// The process that accepts the redrive also runs it.
	l.begin(first)
	other := l.Alive()[len(l.Alive())-1].Client // the process that survives, if there are two
	began = time.Now()
	during := l.latenessUntil("first", other, func() bool { return l.job.Done >= int64(l.n/2) })
	if l.job.State != "running" {
		l.Fatalf("half-way the redrive is %s, with %d of %d done", l.job.State, l.job.Done, l.n)
	}
	at, halfway := time.Now(), l.job.Done
	took := at.Sub(began)
	// The other process commits its own attempts within the two seconds.
	if next := l.KillOne(first, 2*time.Second); next != nil {
		other = next.Client
	}
	l.Eventually(redriveTakeover, "the redrive goes on", func() error {
		before := l.job.Done
		l.refresh(other)
		if l.job.Done == before && l.job.State == "running" {
			return fmt.Errorf("no progress: %d are done", l.job.Done)
		}
		return nil
	})
	stood := time.Since(at)
	resumed := l.job.Done
	ended := func() bool { return l.job.State != "running" }
	during = append(during, l.latenessUntil("second", other, ended)...)
	stall := stalled()

	n := int64(l.n)
	if l.job.State != "done" || l.job.Matched != n || l.job.Done != n || l.job.Failed != 0 ||
		l.job.FinishedAt.IsZero() {
		l.Errorf("the redrive ended as %+v; want all %d done", l.job, l.n)
	}
	// The redrive keeps its rate, plus one second's burst and one second between two readings.
	if most := float64(redriveRate) * (took.Seconds() + 2); float64(halfway) > most {
		l.Errorf("%d were redriven in %s, which is more than %d/s", halfway, took, redriveRate)
	}
	l.Settle(2 * time.Minute) // sends that the kill cut wait until the dead process's claims expire
	settled := time.Since(at)
	v := l.onceMore()
	l.Remark("%d dead redriven at %d/s, killed after %d, no progress for %s, went on at %d: all over %s "+
		"after the kill: each attempted once more, %d duplicates; %s",
		l.n, redriveRate, halfway, stood, resumed, settled, v.Duplicates, &l.Claims)
	late := judge.QuantilesOf(during)
	l.Remark("others were late: before: %s; during the redrive: %s (of %d); the disk stalled for %s at most",
		before, late, len(during), stall)
	limit := func(calm judge.Quantiles) time.Duration {
		return liveNoise*calm.P99 + liveSlack + commits*stall
	}
	if late.P99 > limit(before) {
		// The machine may have become slower meanwhile. Then it is still slow now, without a redrive.
		after := l.calm("after")
		l.Remark("after the redrive: %s", after)
		if late.P99 > limit(after) {
			l.Errorf("p99 of the others is %s during the redrive, over %s", late.P99,
				max(limit(before), limit(after)))
		}
	}
}

// calm measures the lateness of other traffic without a redrive.
func (l *redriveTrial) calm(name string) judge.Quantiles {
	l.Helper()
	span := testserver.Sized(4*time.Second, 8*time.Second, 20*time.Second)
	return judge.QuantilesOf(l.steadyLateness(name, span))
}

// die accepts the callbacks, waits until the only attempt of each has failed, and lets the receiver respond
// again.
func (l *redriveTrial) die() {
	l.Helper()
	l.Receiver.Answer(harness.Always(harness.Reply{Status: 500}))
	l.AcceptMany(l.n, func(i int) harness.Submission {
		ref := fmt.Sprint("dead-", i)
		return harness.Submission{
			"url": l.dead + "/dead/" + ref, "ref": ref, "topic": "redrive.dead",
			"payload": harness.Payload(ref),
			"policy":  harness.Tiers("2s"),
		}
	})
	l.Settle(5 * time.Minute)
	if n := l.Receiver.Count(); n != l.n {
		l.Fatalf("%d died of %d attempts", l.n, n)
	}
	// The slow responses make sure that the kill finds some requests in flight.
	l.Receiver.Answer(harness.Always(harness.Reply{After: 30 * time.Millisecond}))
}

// begin starts the redrive, and then checks that a dry run counts about as many.
func (l *redriveTrial) begin(p *harness.Process) {
	l.Helper()
	request := harness.Submission{
		"action": "retry", "filter": harness.Submission{"topic": "redrive.dead"},
		"rate":   fmt.Sprintf("%d/s", redriveRate),
		"ladder": "restart", "reason": "the receiver is back",
	}
	p.Post("/v1/redrives", request, &l.job)
	request["dry_run"] = true
	var counted client.Redrive
	p.Post("/v1/redrives", request, &counted)
	// The dry run counts callbacks that are still dead, and the redrive already revives some.
	if n := int(counted.Matched); n > l.n || n < l.n*9/10 {
		l.Errorf("a dry run counts %d of %d", n, l.n)
	}
}

// refresh reads the redrive. Its count of done must never fall, and never exceed the matched ones.
func (l *redriveTrial) refresh(c *harness.Client) {
	l.Helper()
	now, err := c.Redrive(l.Context(), l.job.ID)
	l.Check(err)
	if now.Done < l.job.Done || now.Done+now.Failed > now.Matched {
		l.Errorf("a redrive with %d done now reports %d done and %d failed of %d", l.job.Done, now.Done,
			now.Failed, now.Matched)
	}
	l.job = now
}

// latenessUntil accepts other callbacks until far reports enough progress, and returns their lateness.
func (l *redriveTrial) latenessUntil(name string, c *harness.Client, far func() bool) (late []time.Duration) {
	l.Helper()
	deadline := time.Now().Add(3*time.Duration(l.n/redriveRate)*time.Second + redriveTakeover)
	for l.refresh(c); !far(); l.refresh(c) {
		if time.Now().After(deadline) {
			l.Fatalf("%d of %d are done", l.job.Done, l.n)
		}
		late = append(late, l.steadyLateness(fmt.Sprint(name, len(late)), time.Second)...)
	}
	return late
}

// onceMore judges the redriven callbacks: each was revived once and attempted once more. Only callbacks that
// the kill found in flight may have been sent twice.
func (l *redriveTrial) onceMore() judge.Verdict {
	v := l.Accounted(judge.Bounds{})
	const dead = `SELECT count(*) FROM callbacks JOIN requests USING (project, id) WHERE ref LIKE 'dead-%'`
	if n := l.sqlCount(dead + ` AND attempt_count = 2`); n != l.n {
		l.Errorf("%d of %d were attempted once more", n, l.n)
	}
	entries, err := harness.Collect(l.AnyProcess().Audit())
	l.Check(err)
	revived := map[string]bool{}
	for _, e := range entries {
		if e.Action != "callback.retry" {
			continue
		}
		var detail struct{ Redrive string }
		err := json.Unmarshal(e.Detail, &detail)
		if err != nil || detail.Redrive != l.job.ID || e.Reason == "" || revived[e.Object] {
			l.Fatalf("%s is in the audit with %s, %q, %v; twice: %t", e.Object, e.Detail, e.Reason, err,
				revived[e.Object])
		}
		revived[e.Object] = true
	}
	if len(revived) != l.n {
		l.Errorf("%d of %d are in the audit log as redriven", len(revived), l.n)
	}
	// A process has at most as many attempts in flight as workers.
	if l.Claims.Len() > 512 {
		l.Errorf("the kill found %d in flight", l.Claims.Len())
	}
	return v
}

// The matrix of faults: every trial ends with the judge, and the table has a line for each fault.
func TestFaults(t *testing.T) {
	t.Parallel() // its trials run in parallel with other tests that mostly wait
	for _, f := range matrix() {
		if !f.is(heavy) {
			runFault(t, &f)
		}
	}
}

// The faults that load the machine run one at a time.
func TestHeavyFaults(t *testing.T) {
	for _, f := range matrix() {
		if f.is(heavy) {
			runFault(t, &f)
		}
	}
}

// runFault runs a fault on each of its combinations. A trial without a verdict counts as failed in the table.
func runFault(t *testing.T, f *fault) {
	for _, c := range f.on {
		t.Run(f.id+"/"+strings.ReplaceAll(f.title, " ", "_")+"/"+c.String(), func(t *testing.T) {
			began := time.Now()
			tr := prepared(t, f.id, f.how, c)
			t.Cleanup(func() { // registered first, so it runs last: a trial may fail after its verdict
				outcome, failures, remarks := tr.Result()
				if outcome == nil {
					t.Errorf("%s ended without a verdict", f.id)
					outcome = &harness.TrialResult{Accepted: tr.Count()}
				}
				found := line{id: f.id, title: f.title, on: []string{c.String()}, runs: 1,
					TrialResult: *outcome, took: time.Since(began)}
				if t.Failed() {
					found.failed = 1
				}
				faultTable.enter(found, failures, remarks)
			})
			f.run(tr)
		})
	}
}

// runOn runs a test of one trial, outside the matrix, on each of the combinations.
func runOn(t *testing.T, title string, h how, on []harness.Combination, run func(*trial)) {
	t.Helper()
	if !h.is(heavy) {
		t.Parallel()
	}
	for _, c := range on {
		t.Run(c.String(), func(t *testing.T) { run(prepared(t, title, h, c)) })
	}
}

// prepared returns a trial on a combination. Unless it is heavy, it first waits for one of the places.
func prepared(t *testing.T, title string, h how, c harness.Combination) *trial {
	t.Helper()
	if !h.is(heavy) {
		mostlyWaits(t)
	}
	tr := newTrial(t, title)
	if h.is(quick) {
		tr.Times = harness.QuickTimes
	}
	if !h.is(apart) {
		tr.UseBackend(harness.NewBackend(t, c))
	}
	tr.Backend.Name = c.String()
	if h.is(unlimited) {
		tr.Args = nil
	}
	return tr
}

func TestMain(m *testing.M) {
	// The limit is higher than the number of places: a test that has a place may have subtests, which must
	// not wait for the places of other tests.
	if err := flag.Set("test.parallel", "64"); err != nil {
		panic(err)
	}
	harness.Main(m, faultTable.print)
}
