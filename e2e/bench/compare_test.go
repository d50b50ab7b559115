package bench

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// drainLimit is how long a backlog may take; a system that needs longer does not work.
const drainLimit = 5 * time.Minute

// A system is one of those that are compared.
type system struct {
	key, name string
	// on is what it works with, or how.
	on string
	// counted are the processes whose CPU time and memory count as the system's.
	counted []string
	measure func(*testing.T, *round) figures
}

var systems = []system{
	{"a", "floor", "go-retryablehttp + HMAC in a loop", []string{roleFloor}, measureFloor},
	{"b", "dispatcher", "SQLite + embedded index", []string{roleDispatcher}, measureEmbedded},
	{"c", "dispatcher", "PostgreSQL + Redis", []string{roleDispatcher, "redis-server", "postgres"}, measureFull},
	{"d", "asynq", "Redis", []string{roleAsynqWorker, "redis-server"}, measureAsynq},
	{"e", "River", "PostgreSQL", []string{roleRiverWorker, "postgres"}, measureRiver},
}

// What may be measured. The dispatcher alone accepts over HTTP and has delayed callbacks.
const (
	phaseDrain    = "drain"
	phaseAccept   = "accept"
	phaseLatency  = "latency"
	phaseLateness = "lateness"
)

var allPhases = []string{phaseDrain, phaseAccept, phaseLatency, phaseLateness}

func knownPhases(list string) error {
	for phase := range strings.SplitSeq(list, ",") {
		if !slices.Contains(allPhases, phase) {
			return fmt.Errorf("there is no phase %q, only %q", phase, allPhases)
		}
	}
	return nil
}

// A round is one measurement of one system.
type round struct {
	options
	system
	meter
	number, concurrency int
	binary              string // the dispatcher
	receiver            *receiver
}

// has says whether a phase is to be measured.
func (r *round) has(phase string) bool { return slices.Contains(strings.Split(r.phases, ","), phase) }

// TestCompare measures all systems in turns, and reports.
func TestCompare(t *testing.T) {
	if testing.Short() {
		t.Skip("the comparison needs the binary, servers and minutes")
	}
	concurrencies, err := numbers(chosen.concurrencies)
	if err != nil {
		t.Fatalf("-concurrency: %v", err)
	}
	wanted, err := pick(chosen.systems)
	if err != nil {
		t.Fatalf("-systems: %v", err)
	}
	if err := knownPhases(chosen.phases); err != nil {
		t.Fatalf("-phases: %v", err)
	}
	if chosen.pgo != "" && chosen.profiles == "" {
		chosen.profiles = t.TempDir()
	}
	first := firstRound(t)
	intro := introduction(t, chosen)
	began := first.loadNow(t)
	measured := measureAll(t, first, wanted, concurrencies)
	ended := first.loadNow(t)
	if chosen.pgo != "" {
		if err := joinProfiles(chosen.profiles, chosen.pgo); err != nil {
			t.Fatalf("-pgo: %v", err)
		}
	}
	intro += fmt.Sprintf(" It took %s; others used %.0f %% of the machine's CPU time meanwhile. A page written with fsync took %s before and %s after.",
		ended.at.Sub(began.at).Round(time.Second), ended.othersSince(began), began.sync.Round(time.Microsecond), ended.sync.Round(time.Microsecond))
	publish(t, newReport(measured, intro, wanted, concurrencies))
}

// firstRound builds the program and starts the receiver.
func firstRound(t *testing.T) round {
	t.Helper()
	r := round{options: chosen, binary: chosen.program, receiver: startReceiver(t)}
	r.meter = meter{roles: map[int]string{os.Getpid(): roleClient, r.receiver.pid: roleReceiver}}
	if r.binary == "" {
		var err error
		if r.binary, err = buildDispatcher(t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// measureAll goes through the systems round by round.
func measureAll(t *testing.T, first round, wanted []system, concurrencies []int) book {
	measured := book{}
	for number := range first.rounds {
		for _, concurrency := range concurrencies {
			for _, s := range wanted {
				r := first
				r.system, r.number, r.concurrency = s, number+1, concurrency
				r.roles = maps.Clone(first.roles)
				t.Run(fmt.Sprintf("%d/%d/%s", r.number, concurrency, s.key), func(t *testing.T) {
					began := r.loadNow(t)
					f := s.measure(t, &r)
					ended := r.loadNow(t)
					at := row{s.key, concurrency}
					measured[at] = append(measured[at], f)
					t.Logf("%s, %d at once, in %s; others used %.0f %% of the CPU time; fsync took %s before and %s after:%s",
						s.label(), concurrency, ended.at.Sub(began.at).Round(time.Millisecond), ended.othersSince(began), began.sync, ended.sync, f)
				})
			}
		}
	}
	return measured
}

// introduction says what is measured, when, where and with what.
func introduction(t *testing.T, o options) string {
	t.Helper()
	modules, err := moduleVersions()
	if err != nil {
		t.Fatal(err)
	}
	rounds := "One round."
	if o.rounds > 1 {
		rounds = fmt.Sprintf("%d rounds: medians, and in brackets the least and the most.", o.rounds)
	}
	return fmt.Sprintf("%s, %s/%s, %d cores, %s, %s, %s. A backlog of %d. %s",
		time.Now().UTC().Format(time.DateOnly), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(),
		serverVersions(t), modules, o.n, rounds)
}

// publish prints the report, writes it where that is wanted, and checks the goals if it is asked to.
func publish(t *testing.T, r *report) {
	t.Helper()
	fmt.Println("\n" + r.console())
	if chosen.report != "" && !t.Failed() {
		if err := r.write(chosen.report); err != nil {
			t.Fatalf("write the report: %v", err)
		}
	}
	if chosen.check {
		if err := checkGoals(r.book); err != nil {
			t.Error(err)
		}
	}
}

// numbers reads a list of numbers above 0.
func numbers(list string) ([]int, error) {
	var all []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a number above 0", text)
		}
		all = append(all, n)
	}
	return all, nil
}

// pick finds the systems of a list of keys.
func pick(list string) ([]system, error) {
	var all []system
	for key := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(systems, func(s system) bool { return s.key == key })
		if i < 0 {
			return nil, fmt.Errorf("there is no system %q", key)
		}
		all = append(all, systems[i])
	}
	return all, nil
}

// cpu reads the CPU time so far.
func (r *round) cpu(t *testing.T) map[string]float64 {
	t.Helper()
	sums, err := r.meter.cpu()
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

// loadNow reads how busy the machine is.
func (r *round) loadNow(t *testing.T) load {
	t.Helper()
	l, err := r.load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// putMemory adds the memory of the processes that count.
func (r *round) putMemory(t *testing.T, f figures) {
	t.Helper()
	sums, err := r.meter.memory()
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range r.counted {
		f[memory+":"+role] = sums[role]
		f[memory] += sums[role]
	}
}

// measureFloor sends as many bodies as the others deliver.
func measureFloor(t *testing.T, r *round) figures {
	f := figures{}
	if !r.has(phaseDrain) {
		return f
	}
	c := startChild(t, roleFloor, childConfig{Receiver: r.receiver.url, Concurrency: r.concurrency, Count: r.n})
	r.roles[c.pid] = roleFloor
	r.receiver.expect(t, r.n)
	before, start := r.cpu(t), time.Now()
	c.tell(t, sayGo)
	at, err := r.receiver.arrivals(t.Context(), r.n, drainLimit)
	if err != nil {
		t.Fatal(err)
	}
	f.putCPU(deliverCPU, before, r.cpu(t), r.n, r.counted)
	f[delivered] = rate(at, start)
	r.putMemory(t, f)
	if err := r.receiver.once(t.Context()); err != nil {
		t.Error(err)
	}
	return f
}

// rate is how many arrived in a second, from the start to the last one.
func rate(at []time.Time, start time.Time) float64 {
	last := slices.MaxFunc(at, time.Time.Compare)
	return float64(len(at)) / last.Sub(start).Seconds()
}
