package faults

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/procfs"
)

// openPolls is how many polls are open, against as many callbacks.
func openPolls() int { return sized(10_000, 30_000, 100_000) }

const (
	// costDue is how many callbacks are delivered beside what is open, and costRounds how often: each in
	// turns, so that what the machine does besides falls on both.
	costDue    = 8000
	costRounds = 3
	// costLimit is how much more open polls may cost than open callbacks, and cpuNoise what is added for what
	// the figures of so short a time are worth on a machine that does other things.
	costLimit = 1.25
	cpuNoise  = 0.15
)

// A costed dispatcher has many of one kind open, due far away.
type costed struct {
	name string
	on   harness.Backend
	p    *harness.Process
	// heap, resident and cpu are what it took in each round: bytes in use for each that is open, bytes of the
	// process, seconds.
	heap, resident, cpu []float64
}

// Open polls are kept as open callbacks are: after a restart they take no more memory, and what is claimed
// beside them no more time.
func TestOpenPollsCostNoMoreThanScheduledCallbacks(t *testing.T) {
	harness.BlackBox(t)
	r := harness.NewReceiver(t, harness.Always(200, ""))
	sides := []*costed{{name: "callbacks"}, {name: "polls"}}
	for _, s := range sides {
		s.on = harness.NewBackend(t, harness.SQLiteEmbedded)
		s.p = harness.Serve(t, harness.Launch{On: s.on})
		began := time.Now()
		s.fill(t, r, openPolls())
		t.Logf("%d %s accepted in %s", openPolls(), s.name, time.Since(began).Round(time.Millisecond))
		s.p.Terminate()
		if code := s.p.ExitCode(time.Minute); code != 0 {
			t.Fatalf("exit code %d", code)
		}
	}
	empty := emptyHeap(t)
	for round := range costRounds {
		for _, s := range sides {
			s.measure(t, r, round, empty)
		}
	}
	for _, what := range []struct {
		name  string
		of    func(*costed) []float64
		by    func([]float64) float64
		unit  float64
		limit float64
	}{
		// what else is on the heap only adds to it
		{"bytes of the heap for each", func(s *costed) []float64 { return s.heap }, slices.Min[[]float64], 1,
			costLimit},
		{"MB resident", func(s *costed) []float64 { return s.resident }, median, 1e6, costLimit + cpuNoise},
		{fmt.Sprintf("s of CPU for %d callbacks", costDue), func(s *costed) []float64 { return s.cpu }, median, 1,
			costLimit + cpuNoise},
	} {
		calls, polls := what.by(what.of(sides[0])), what.by(what.of(sides[1]))
		t.Logf("%s: %.2f beside %d open callbacks, %.2f beside as many open polls: ratio %.2f (all rounds %.2f, "+
			"%.2f)",
			what.name, calls/what.unit, openPolls(), polls/what.unit, polls/calls,
			inUnits(what.of(sides[0]), what.unit), inUnits(what.of(sides[1]), what.unit))
		if polls > calls*what.limit {
			t.Errorf("%s: open polls cost %.2f times as much, over %.2f", what.name, polls/calls, what.limit)
		}
	}
}

// median of few figures.
func median(figures []float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	return sorted[len(sorted)/2]
}

func inUnits(figures []float64, unit float64) []float64 {
	out := slices.Clone(figures)
	for i := range out {
		out[i] /= unit
	}
	return out
}

// fill accepts n of its kind, which differ in their reference and are asked or told at the same address, in
// as many lanes.
func (s *costed) fill(t *testing.T, r *harness.Receiver, n int) {
	t.Helper()
	const batch = 500
	var group errgroup.Group
	group.SetLimit(32)
	of := func(i int) (ref, lane string) {
		return fmt.Sprintf("order-20261122-%08d", i), fmt.Sprint("merchant-", i%200)
	}
	for first := 0; first < n; first += batch {
		last := min(first+batch, n)
		if s.name == "callbacks" {
			group.Go(func() error {
				var list []harness.Submission
				for i := first; i < last; i++ {
					ref, lane := of(i)
					list = append(list, harness.Submission{"url": r.URL + "/later", "ref": ref, "lane": lane,
						"payload": harness.Payload(ref), "delay": "2d", "policy": harness.AskAfter("5s", "15s", "1m")})
				}
				_, err := s.p.AcceptBatch(t.Context(), list)
				return err
			})
			continue
		}
		for i := first; i < last; i++ {
			group.Go(func() error {
				ref, lane := of(i)
				_, err := s.p.AcceptPoll(t.Context(), harness.Submission{
					"ref": ref, "lane": lane, "request": harness.Submission{"url": r.URL + "/later",
						"payload": harness.Payload(ref)}, "delay": "2d", "policy": harness.AskAfter("5s", "15s", "1m"),
					"until": harness.Finals(), "context": harness.Submission{"shop": 7},
					"on_result": harness.Submission{"url": r.URL + "/told", "policy": harness.AskAfter("5s")},
				})
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// emptyHeap is how many bytes of its heap a dispatcher uses that has nothing open: not in its first life, in
// which it makes its tables.
func emptyHeap(t *testing.T) float64 {
	t.Helper()
	b := harness.NewBackend(t, harness.SQLiteEmbedded)
	first := harness.Serve(t, harness.Launch{On: b})
	first.Terminate()
	if code := first.ExitCode(time.Minute); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	n, err := harness.Serve(t, harness.Launch{On: b}).HeapInUse(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// measure starts the dispatcher anew, and reads what it takes: of memory once all of them are in its index,
// and of CPU for callbacks that are due beside them.
func (s *costed) measure(t *testing.T, r *harness.Receiver, round int, empty float64) {
	t.Helper()
	ctx := t.Context()
	p := harness.Serve(t, harness.Launch{On: s.on})
	pid := p.Cmd.Process.Pid
	harness.Eventually(t, time.Minute, "all of them are in the index", func() error {
		var drift struct {
			Items   int `json:"items"`
			Missing int `json:"missing"`
		}
		err := p.Call(ctx, http.MethodPost, "/v1/index/verify", nil, http.StatusOK, &drift)
		if err == nil && (drift.Items < openPolls() || drift.Missing > 0) {
			err = fmt.Errorf("%+v", drift)
		}
		return err
	})
	heap, err := p.HeapInUse(ctx)
	if err != nil {
		t.Fatal(err)
	}
	resident, err := harness.ResidentMemory(pid)
	if err != nil {
		t.Fatal(err)
	}
	s.heap, s.resident = append(s.heap, (heap-empty)/float64(openPolls())), append(s.resident, float64(resident))

	before := r.Count()
	used, err := cpuOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	var group errgroup.Group
	group.SetLimit(4)
	for first := 0; first < costDue; first += 500 {
		group.Go(func() error {
			var list []harness.Submission
			for i := first; i < min(first+500, costDue); i++ {
				ref := fmt.Sprintf("due-%d-%d", round, i)
				list = append(list, harness.Submission{"url": r.URL + "/now", "ref": ref,
					"lane": fmt.Sprint("due-", i%20), "payload": harness.Payload(ref), "policy": harness.AskAfter("5s")})
			}
			_, err := p.AcceptBatch(ctx, list)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, time.Minute, "what is due is delivered", func() error {
		if n := r.Count() - before; n < costDue {
			return fmt.Errorf("%d of %d are", n, costDue)
		}
		return nil
	})
	after, err := cpuOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	s.cpu = append(s.cpu, after-used)
	if round == costRounds-1 {
		return // its books are closed
	}
	p.Terminate()
	if code := p.ExitCode(time.Minute); code != 0 {
		t.Fatalf("exit code %d", code)
	}
}

// cpuOf is the CPU seconds that a process has used.
func cpuOf(pid int) (float64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	stat, err := procfs.ParseStat(string(text))
	return stat.Seconds, err
}
