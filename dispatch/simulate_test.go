package dispatch_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

var (
	simulateSeeds = flag.Int("seeds", 0,
		"how many seeds TestSimulation runs; 0: as many as fit into a test run")
	simulateFirst = flag.Uint64("seed", 1, "the first seed of TestSimulation")
	simulateLog   = flag.Bool("log", false, "print what the processes log; for one seed")
)

const (
	// fullSeeds, defaultSeeds and shortSeeds are how many simulations a full, a normal and a short test run
	// makes. raceSeeds is for a short run under the race detector.
	fullSeeds    = 3000
	defaultSeeds = 400
	shortSeeds   = 100
	raceSeeds    = 20
	// enoughSeeds is the least number of seeds that must meet every kind of fault and of recovery.
	enoughSeeds = defaultSeeds
)

// TestSimulation runs one to three processes with real engines on one SQLite file and one index in memory, in
// virtual time (synctest). A seed decides the faults:
//
//   - Processes crash before or after any call, stop for longer than their leases, drain and start again.
//   - Replies are lost, late or doubled.
//   - The index is emptied, rolled back or away, or its clock jumps.
//   - SQL is away, or commits without a reply.
//   - Receivers fail in every way.
//   - People cancel, retry and reschedule callbacks meanwhile.
//
// After the last fault every callback must become terminal, and the judge checks the guarantees.
//
// The same seed gives the same plan (callbacks, receivers, acts and faults), but not exactly the same run:
// the scheduler chooses the order of goroutines, and ids and tokens are random. A fault applies to the first
// call of an operation by a process after a time, and an event happens at a time, so a replay is similar. A
// failure that does not recur at once does so within some replays of its seed:
//
//	go test -tags nomsgpack ./dispatch -run 'TestSimulation$' -args -seed 12345 -seeds 1
func TestSimulation(t *testing.T) {
	seeds := *simulateSeeds
	if seeds == 0 {
		seeds = defaultSeeds
		switch {
		case testserver.Full():
			seeds = fullSeeds
		case testing.Short() && underRace:
			seeds = raceSeeds
		case testing.Short():
			seeds = shortSeeds
		}
	}
	all := batch{met: map[string]int{}}
	var next atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for worker := range min(runtime.GOMAXPROCS(0), seeds) {
			t.Run(fmt.Sprint("worker", worker), func(t *testing.T) {
				t.Parallel()
				for i := next.Add(1) - 1; i < int64(seeds) && all.failed.Load() < 10; i = next.Add(1) - 1 {
					seed := *simulateFirst + uint64(i)
					t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { simulate(t, draw(seed), &all) })
					})
				}
			})
		}
	})
	all.report(t, seeds)
}

// simulate runs one plan and fails the test if a guarantee was broken.
func simulate(t *testing.T, p *plan, all *batch) {
	log := slog.New(slog.DiscardHandler)
	if *simulateLog {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := newSimulation(ctx, p, databasePath(t), log)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.run(ctx); err != nil {
		t.Fatalf("seed %d: %v", p.seed, err)
	}
	held, _, err := s.index.contents(ctx)
	if err != nil {
		t.Fatal(err)
	}
	evidence, err := s.evidence(ctx, held)
	if err != nil {
		t.Fatalf("seed %d: %v", p.seed, err)
	}
	bounds := s.bounds(&evidence)
	result := judge.Judge(evidence, bounds)
	s.checkMore(&evidence)
	all.add(t, s, &evidence, &result)
	if result.OK() && len(s.problems) == 0 {
		return
	}
	all.failed.Add(1)
	t.Errorf("seed %d broke its guarantees: %s\n%s\nwhat happened:\n  %s\n%s\nreplay: go test -tags "+
		"nomsgpack ./dispatch -run 'TestSimulation$' -args -seed %d -seeds 1",
		p.seed, result.String(), strings.Join(s.problems, "\n"), strings.Join(s.notes, "\n  "),
		s.story(&evidence), p.seed)
}

// A batch sums up what the simulations met.
type batch struct {
	mu     sync.Mutex
	met    map[string]int
	time   time.Duration
	failed atomic.Int32
	seeds  int
	total  judge.Verdict
}

func (b *batch) add(t *testing.T, s *simulation, e *judge.Evidence, v *judge.Verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seeds++
	b.time += time.Since(s.began)
	for what, n := range s.met {
		b.met[what] += n
	}
	b.total.Accepted += v.Accepted
	b.total.Lost += v.Lost
	b.total.Sends += v.Sends
	b.total.Duplicates += v.Duplicates
	b.total.Overlaps += v.Overlaps
	b.total.LockOverlaps += v.LockOverlaps
	for i := range e.Rows {
		b.met[cmp.Or("ended "+e.Rows[i].State+" "+e.Rows[i].Reason)]++
	}
	for i := range e.Attempts {
		b.met["attempt "+e.Attempts[i].Class]++
		if e.Attempts[i].Stale {
			b.met["attempt stale"]++
		}
	}
	for _, p := range s.starts {
		counters, err := countersOf(p.registry)
		if err != nil {
			t.Errorf("metrics: %v", err)
		}
		for name, n := range counters {
			if _, ok := p.counters[name]; !ok {
				t.Errorf("the counter %q did not exist before its first event", name)
			}
			if n > 0 {
				b.met[name] += n
			}
		}
	}
}

// countersOf returns the counters of one process, by their names and labels.
func countersOf(registry *prometheus.Registry) (map[string]int, error) {
	families, err := registry.Gather()
	if err != nil {
		return nil, err
	}
	counters := make(map[string]int)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if m.GetCounter() == nil {
				continue
			}
			name := strings.TrimPrefix(f.GetName(), "dispatcher_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			counters[name] = int(m.GetCounter().GetValue())
		}
	}
	return counters, nil
}

// mustMeet are the faults and recoveries that a batch must meet; otherwise it proves nothing about them.
var mustMeet = []string{
	string(crashBefore), string(crashAfter), string(failed), string(replyLost), string(doubled),
	string(doubledLate), string(callLate), string(replyLate),
	string(stopBefore), string(stopAfter), string(wipedBefore), string(crash), string(pause), string(drain),
	string(wipe), string(rollback), string(sqlRefuses), string(sqlHangs), string(sqlMute),
	string(indexFails), string(indexHangs), string(indexMute), string(clockJumps),
	"act cancel", "act cancel ref", "act retry once", "act retry restart", "act retry elsewhere",
	"act reschedule",
	"ended succeeded ", "ended dead exhausted", "ended dead expired", "ended dead gone", "ended dead poison",
	"ended canceled requested",
	"attempt stale", "attempt crashed", "attempt interrupted", "attempt panic", "attempt timeout_headers",
	"attempt receiver_busy",
	"leases_reaped_total", "results_stale_total", "stamps_refused_total parked",
	"stamps_refused_total dropped", "stamps_taken_back_total",
	"attempts_crashed_total", "diverts_total lock_conflict", "diverts_total lock_lost",
	"diverts_total interrupted", "settlements_total reschedule stale",
	"rebuilds_total", "claims_adopted_total",
	"sweeps_total", "sweep_healed_total", "index_catchups_total", "horizon_loaded_total",
}

func (b *batch) report(t *testing.T, seeds int) {
	t.Logf("%d seeds, %s of their time: accepted %d, lost %d, sends %d, duplicates %d, overlaps %d, on one "+
		"lock %d; failed %d",
		b.seeds, b.time.Round(time.Second), b.total.Accepted, b.total.Lost, b.total.Sends,
		b.total.Duplicates, b.total.Overlaps,
		b.total.LockOverlaps, b.failed.Load())
	var lines []string
	for what, n := range b.met {
		lines = append(lines, fmt.Sprintf("%s %d", what, n))
	}
	slices.Sort(lines)
	t.Logf("met: %s", strings.Join(lines, "; "))
	if seeds < enoughSeeds || b.failed.Load() > 0 {
		return
	}
	for _, what := range mustMeet {
		if b.met[what] == 0 {
			t.Errorf("%q was never met in %d simulations: they prove nothing about it", what, seeds)
		}
	}
}
