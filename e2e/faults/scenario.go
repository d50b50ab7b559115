package faults

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// restHealing allows for a sweep, an expiring lease, the tiers, and a backlog on a busy machine.
const restHealing = 2 * time.Minute

// exact are the bounds of a fault that costs no duplicate: SQL has every claim, whatever Redis loses, and
// results wait in memory until their commit.
func exact() judge.Bounds { return judge.Bounds{Heal: restHealing} }

const (
	// sharedAccept is the limit of an accept at p99 on a machine with other trials: less than the timeout of
	// a call to a hung index.
	sharedAccept = 3 * time.Second
	// outageRate is the load of a scenario, in callbacks a second.
	outageRate = 50
	// mostStretch is the highest slowdown by other programs at which the limits of time still apply.
	mostStretch = 2
)

// A scenario is the common run of faults of the servers and of the machine: a load and a watch, a fault in
// the middle, and the verdict.
type scenario struct {
	rate  int                          // callbacks a second; zero: outageRate
	shape func(int) harness.Submission // nil: Mixed
	// around is the number of callbacks to accept before the fault and after it; zero: those of three
	// seconds.
	around int
	// strike is the whole fault, from beginning to end.
	strike func(*faultTrial)
	// refuses: SQL cannot commit meanwhile, so accepts are refused. Otherwise the first request of each
	// accept must succeed in time, and the process stays ready.
	refuses bool
	// acceptLimit is the limit of an accept at p99; zero: sharedAccept.
	acceptLimit time.Duration
	// bounds are those of the verdict; nil: exact.
	bounds func() judge.Bounds
}

// A faultTrial is a trial under a fault, with the observations from outside.
type faultTrial struct {
	*trial
	p *harness.Process
	w *watch
	// began and ended are the times of the fault.
	began, ended time.Time
}

// suffer runs a scenario on the running processes until everything is terminal. It also checks what no fault
// may change: the process runs, and its memory and its log stay small.
func (tr *trial) suffer(s scenario) (*faultTrial, judge.Verdict) {
	tr.Helper()
	if s.shape == nil {
		s.shape = tr.Mixed
	}
	if s.bounds == nil {
		s.bounds = exact
	}
	s.rate = cmp.Or(s.rate, outageRate)
	s.around = cmp.Or(s.around, 3*s.rate)
	r := &faultTrial{trial: tr, p: tr.AnyProcess()}
	stretched := harness.Stretch(tr)
	tr.ready(r.p)
	started := time.Now()
	r.w = tr.watch(r.p)
	ld := tr.Load(s.rate, s.shape)
	tr.awaitMore(s.around)
	r.began = time.Now()
	s.strike(r)
	tr.MarkFault()
	r.ended = time.Now()
	tr.awaitMore(s.around)
	report := ld.Finish()
	tr.moderate(r.w, time.Since(started))
	tr.Settle(3 * time.Minute)
	stretch := stretched()
	g := r.w.during(started, time.Now())
	v := tr.Verdict(s.bounds())
	tr.Remark("fault of %s; accepts %s, %d requests repeated; %s; unknown %d, stale %d; other programs "+
		"slowed the machine by a factor of %.1f", r.ended.Sub(r.began), report.Took, report.Again,
		r.w.during(r.began, r.ended), v.Uncertain, v.Stale, stretch)
	if s.refuses || stretch >= mostStretch {
		return r, v
	}
	if report.Again > 0 || g.accepts[http.StatusAccepted] == 0 || len(g.accepts) > 1 {
		tr.Errorf("accepts were refused or timed out: %d of the load (the first: %v); %s", report.Again,
			report.First, g)
	}
	if g.ready[http.StatusOK] == 0 || len(g.ready) > 1 {
		tr.Errorf("the process was not ready all the time: %s", g)
	}
	if most := cmp.Or(s.acceptLimit, sharedAccept); report.Took.P99 > most {
		tr.Errorf("accepts took %s, at most %s at p99 is allowed", report.Took, most)
	}
	return r, v
}

// awaitMore waits until the load has accepted n more callbacks.
func (tr *trial) awaitMore(n int) {
	tr.Helper()
	from := tr.Count()
	tr.AtLeast(3*time.Minute, "the load is accepted", n, func() int { return tr.Count() - from })
}

// lasting waits until the load has accepted as many callbacks as it does in d.
func (tr *trial) lasting(d time.Duration) {
	tr.Helper()
	tr.awaitMore(int(d.Seconds() * outageRate))
}

// awaitSends waits until n more requests have arrived.
func (tr *trial) awaitSends(n int) {
	tr.Helper()
	from := tr.Receiver.Count()
	tr.AtLeast(time.Minute, "the load arrives", n, func() int { return tr.Receiver.Count() - from })
}

// repeatDuring calls do in each period until the load has accepted n more callbacks.
func (tr *trial) repeatDuring(period time.Duration, n int, do func()) {
	tr.Helper()
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for end := tr.Count() + n; tr.Count() < end; <-ticker.C {
		do()
	}
}

// sendingEnds is how long after the start of a blackout a request may still leave, because it was stamped
// before.
const sendingEnds = 3 * time.Second

// refusedWithin is the time limit of a refusal while SQL does not respond: two seconds for the commit, more
// for a group of many rows, and a margin for a busy machine.
const refusedWithin = 5 * time.Second

// A blackout is a time in which SQL cannot commit. Meanwhile nothing is accepted and nothing is sent.
// Afterwards the process becomes ready without help, and works.
type blackout struct {
	what      string
	lasts     time.Duration
	hit, heal func() // each fails the trial on an error
	// locked: the commit waits for a lock. Accepts need not return meanwhile, and /readyz is not judged.
	locked bool
}

// blackout breaks SQL, waits, and repairs it. It returns the observations meanwhile.
func (r *faultTrial) blackout(b blackout) observations {
	r.Helper()
	before := r.Receiver.Count()
	b.hit()
	from := time.Now()
	time.Sleep(min(sendingEnds, b.lasts)) // the fault lasts for a fixed time
	sent := r.Receiver.Count()
	time.Sleep(max(0, b.lasts-sendingEnds))
	to := time.Now()
	if now := r.Receiver.Count(); now != sent {
		r.Errorf("%s: %d requests were sent while SQL could not stamp them", b.what, now-sent)
	}
	b.heal()
	g := r.w.during(from, to)
	if wrong := g.refused(b.locked); wrong != "" {
		r.Errorf("%s: %s: %s", b.what, wrong, g)
	}
	healed := time.Now()
	if err := r.p.AwaitReady(30 * time.Second); err != nil {
		r.Errorf("after %s: %v", b.what, err)
	}
	ready := time.Since(healed)
	again := r.Receiver.Count()
	r.Eventually(30*time.Second, "callbacks are sent again after "+b.what, func() error {
		if r.Receiver.Count() == again {
			return fmt.Errorf("nothing arrived: %s", r.w.during(healed, time.Now()))
		}
		return nil
	})
	r.Remark("%s for %s: %s; sent meanwhile %d; ready again after %s, sending after %s", b.what,
		to.Sub(from), g, sent-before, ready, time.Since(healed))
	return g
}

// refused returns what is wrong with the observations while SQL could not commit; empty: nothing.
func (g observations) refused(locked bool) string {
	var wrong []string
	note := func(is bool, format string, args ...any) {
		if is {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	note(g.accepts[http.StatusAccepted]+g.accepts[http.StatusOK] > 0, "an accept succeeded")
	note(g.accepts[http.StatusServiceUnavailable] == 0 && !locked, "no accept was refused with 503")
	for status, n := range g.accepts {
		note(status != http.StatusServiceUnavailable && !locked, "%d accepts got %d", n, status)
	}
	note(g.noRetryAfter > 0, "%d refusals have no Retry-After", g.noRetryAfter)
	note(g.slowest > refusedWithin, "an accept was refused only after %s", g.slowest)
	note(g.last != http.StatusServiceUnavailable && !locked, "/readyz returned %d at last, want 503", g.last)
	return strings.Join(wrong, ", ")
}

// A watch observes one process a few times a second, as a load balancer and a caller would: the status of
// /readyz, the status and latency of an accept, the goroutines and the memory. The ledger of the trial
// includes its callbacks.
type watch struct {
	l    *trial
	p    *harness.Process
	ends []func()

	mu      sync.Mutex
	accepts []seen
	ready   []seen
	// The highest values of the process.
	goroutines int
	memory     int64
}

// A seen is an observed response. Status zero is none.
type seen struct {
	asked, answered time.Time
	status          int
	noRetryAfter    bool // a refusal without Retry-After
	degraded        bool // /readyz reports Redis as degraded
}

// watchEvery is the interval of a watch.
const watchEvery = 200 * time.Millisecond

// watch starts to observe a process. moderate ends it.
func (tr *trial) watch(p *harness.Process) *watch {
	w := &watch{l: tr, p: p}
	w.ends = []func(){tr.Repeat(watchEvery, w.accept), tr.Repeat(watchEvery, w.probe)}
	return w
}

// accept submits one callback, once.
func (w *watch) accept(i int) {
	s := w.l.Numbered(fmt.Sprint("watched-", w.p.Cmd.Process.Pid))(i)
	one := seen{asked: time.Now()}
	cb, err := w.p.Submit(s)
	one.answered = time.Now()
	if refusal := harness.Refusal(err); refusal != nil {
		one.status, one.noRetryAfter = refusal.Status, refusal.RetryAfter == 0
	} else if err == nil {
		one.status = http.StatusAccepted
		w.l.Note(cb.ID, s)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accepts = append(w.accepts, one)
}

// probe reads readiness, goroutines and memory.
func (w *watch) probe(int) {
	asked := time.Now()
	status, degraded, _ := readiness(w.p) // status zero is an error
	one := seen{asked: asked, answered: time.Now(), status: status, degraded: degraded}
	goroutines, _ := w.p.Goroutines() // zero is an error
	memory, _ := w.p.ResidentMemory()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready = append(w.ready, one)
	w.goroutines, w.memory = max(w.goroutines, goroutines), max(w.memory, memory)
}

// readiness returns the status of /readyz, and whether it lists Redis as degraded.
func readiness(p *harness.Process) (status int, degraded bool, err error) {
	status, body, err := p.Readyz()
	if err != nil || status != http.StatusOK {
		return status, false, err
	}
	var reported struct{ Degraded []string }
	err = json.Unmarshal([]byte(body), &reported)
	return status, slices.Contains(reported.Degraded, "redis"), err
}

// observations sum up what a watch saw in a time span.
type observations struct {
	accepts, ready map[int]int // by status
	slowest        time.Duration
	// noRetryAfter counts refusals without Retry-After.
	noRetryAfter int
	last         int // last status of /readyz
	reads        int // number of readings of /readyz
	degraded     int // readings that listed Redis as degraded
}

func (g observations) String() string {
	return fmt.Sprintf("accepts %v (slowest %s), readyz %v, %d degraded by Redis", g.accepts,
		g.slowest.Round(time.Millisecond), g.ready, g.degraded)
}

// during sums up the requests that began and ended in the time span.
func (w *watch) during(from, to time.Time) observations {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := observations{accepts: map[int]int{}, ready: map[int]int{}}
	within := func(s seen) bool { return !s.asked.Before(from) && !s.answered.After(to) }
	for _, s := range w.accepts {
		if !within(s) {
			continue
		}
		g.accepts[s.status]++
		g.slowest = max(g.slowest, s.answered.Sub(s.asked))
		if s.status == http.StatusServiceUnavailable && s.noRetryAfter {
			g.noRetryAfter++
		}
	}
	for _, s := range w.ready {
		if within(s) {
			g.reads++
			g.ready[s.status]++
			g.last = s.status
			if s.degraded {
				g.degraded++
			}
		}
	}
	return g
}

// moderate ends a watch and checks that the process stayed within bounds. It must not accumulate goroutines
// or memory while SQL is down, and must not flood its log.
func (tr *trial) moderate(w *watch, lasted time.Duration) {
	tr.Helper()
	for _, end := range w.ends {
		end()
	}
	lines, kinds := logLines(tr, w.p)
	tr.Remark("most goroutines %d, most memory %s, log lines %d", w.goroutines, harness.Megabytes(w.memory),
		lines)
	if w.goroutines == 0 || w.memory == 0 {
		tr.Error("goroutines and memory were never read")
	}
	if w.goroutines > maxGoroutines {
		tr.Errorf("%d goroutines, more than %d", w.goroutines, maxGoroutines)
	}
	if w.memory > maxMemory {
		tr.Errorf("%s resident, more than %s", harness.Megabytes(w.memory), harness.Megabytes(maxMemory))
	}
	if bound := 100 + 10*int(lasted.Seconds()); lines > bound {
		tr.Errorf("%d lines in the log, more than %d: a flood. The most frequent: %v", lines, bound, kinds)
	}
}

// logLines counts the lines of a process's log, and returns its most frequent messages.
func logLines(tr *trial, p *harness.Process) (n int, kinds []string) {
	text, err := os.ReadFile(p.LogFile)
	tr.Check(err)
	count := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var entry struct{ Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			entry.Msg = line // a line of a library, not JSON
		}
		count[entry.Msg]++
		n++
	}
	for kind, times := range count {
		if times > 5 {
			kinds = append(kinds, fmt.Sprintf("%d × %.100s", times, kind))
		}
	}
	slices.Sort(kinds)
	return n, kinds
}

// Limits of a process in these trials: 64 callers and 64 workers at a time, and the connections and timers of
// each.
const (
	maxGoroutines = 1200
	maxMemory     = 400 << 20
)
