package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A watch looks at one process a few times a second, as a load balancer and a caller would: what /readyz
// says, what an accept is answered and how long that takes, how many goroutines there are and how much
// memory. What it hands over is in the trial's books.
type watch struct {
	l    *trial
	p    *harness.Process
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	accepts []seen
	ready   []seen
	most    usage
}

// A seen answer. Status zero is none.
type seen struct {
	asked, answered time.Time
	status          int
	bare            bool // a refusal without Retry-After
	degraded        bool // by Redis, as /readyz says
}

// usage is what a process took at its worst.
type usage struct {
	goroutines int
	memory     int64
}

// watchEvery is how often a watch looks.
const watchEvery = 200 * time.Millisecond

// watch begins to look at a process, until end.
func (tr *trial) watch(p *harness.Process) *watch {
	ctx, cancel := context.WithCancel(tr.Context())
	w := &watch{l: tr, p: p, stop: cancel}
	w.done.Go(func() { w.every(ctx, w.accept) })
	w.done.Go(func() { w.every(ctx, w.look) })
	tr.Cleanup(w.end)
	return w
}

// end stops looking. It may be called twice.
func (w *watch) end() {
	w.stop()
	w.done.Wait()
}

func (w *watch) every(ctx context.Context, once func(i int)) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for i := 0; ; i++ {
		once(i)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// accept hands over one callback, once.
func (w *watch) accept(i int) {
	s := w.l.Named(fmt.Sprint("watched-", w.p.Cmd.Process.Pid))(i)
	ctx, cancel := context.WithTimeout(context.Background(), harness.AskTimeout)
	defer cancel()
	one := seen{asked: time.Now()}
	cb, err := w.p.Accept(ctx, s)
	one.answered = time.Now()
	if refusal := harness.Refusal(err); refusal != nil {
		one.status, one.bare = refusal.Status, refusal.RetryAfter == 0
	} else if err == nil {
		one.status = http.StatusAccepted
		w.l.Note(cb.ID, s)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accepts = append(w.accepts, one)
}

// look reads readiness, goroutines and memory.
func (w *watch) look(int) {
	asked := time.Now()
	status, degraded, _ := readiness(w.p) // status zero is an error
	one := seen{asked: asked, answered: time.Now(), status: status, degraded: degraded}
	goroutines, gerr := w.p.Goroutines()
	memory, merr := harness.ResidentMemory(w.p.Cmd.Process.Pid)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready = append(w.ready, one)
	if gerr == nil {
		w.most.goroutines = max(w.most.goroutines, goroutines)
	}
	if merr == nil {
		w.most.memory = max(w.most.memory, memory)
	}
}

// readiness is what /readyz says: its status, and whether it names Redis as degraded.
func readiness(p *harness.Process) (status int, degraded bool, err error) {
	status, body, err := p.Readyz()
	if err != nil || status != http.StatusOK {
		return status, false, err
	}
	var said struct {
		Degraded []string `json:"degraded"`
	}
	err = json.Unmarshal([]byte(body), &said)
	return status, slices.Contains(said.Degraded, "redis"), err
}

// A glance is what a watch saw in a span of time.
type glance struct {
	accepts, ready map[int]int // by status
	slowest        time.Duration
	// bare are refusals without Retry-After.
	bare     int
	last     int // what /readyz said last
	degraded int // looks at /readyz that found Redis named
}

func (g glance) looks() (n int) {
	for _, some := range g.ready {
		n += some
	}
	return n
}

func (g glance) String() string {
	return fmt.Sprintf("accepts %v (slowest %s), readyz %v, %d degraded by Redis", g.accepts,
		g.slowest.Round(time.Millisecond), g.ready, g.degraded)
}

// during is what was both asked and answered in that span.
func (w *watch) during(from, to time.Time) glance {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := glance{accepts: map[int]int{}, ready: map[int]int{}}
	within := func(s seen) bool { return !s.asked.Before(from) && !s.answered.After(to) }
	for _, s := range w.accepts {
		if !within(s) {
			continue
		}
		g.accepts[s.status]++
		g.slowest = max(g.slowest, s.answered.Sub(s.asked))
		if s.status == http.StatusServiceUnavailable && s.bare {
			g.bare++
		}
	}
	for _, s := range w.ready {
		if within(s) {
			g.ready[s.status]++
			g.last = s.status
			if s.degraded {
				g.degraded++
			}
		}
	}
	return g
}

// moderate ends a watch and checks that the process stayed within bounds: it neither collects goroutines or
// memory while SQL is away, nor does it flood its log.
func (tr *trial) moderate(w *watch, lasted time.Duration) {
	tr.Helper()
	w.end()
	lines, kinds := logLines(tr, w.p)
	most := w.most
	tr.Remark("most goroutines %d, most memory %s, log lines %d", most.goroutines,
		harness.Megabytes(most.memory), lines)
	if most.goroutines == 0 || most.memory == 0 {
		tr.Error("goroutines and memory were never seen")
	}
	if most.goroutines > maxGoroutines {
		tr.Errorf("%d goroutines, more than %d", most.goroutines, maxGoroutines)
	}
	if most.memory > maxMemory {
		tr.Errorf("%s resident, more than %s", harness.Megabytes(most.memory), harness.Megabytes(maxMemory))
	}
	if bound := 100 + 10*int(lasted.Seconds()); lines > bound {
		tr.Errorf("%d lines in the log, more than %d: a flood. The most frequent: %v", lines, bound, kinds)
	}
}

// logLines counts the lines of a process's log, and its most frequent messages.
func logLines(tr *trial, p *harness.Process) (n int, kinds []string) {
	tr.Helper()
	text, err := os.ReadFile(p.LogFile)
	tr.Check(err)
	count := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var entry struct{ Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			entry.Msg = line // a library's own line
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

// What a process may take at its worst in these trials: 64 callers at a time, 64 workers, and the connections
// and timers of each.
const (
	maxGoroutines = 1200
	maxMemory     = 400 << 20
)
