package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// leastRounds is the lowest number of rounds of a comparison that may go into a document.
const leastRounds = 5

// compareCommand measures all systems in rounds, and reports ratios to the floor of the same round.
func compareCommand(args []string) error {
	flags, b := newFlags("compare")
	rounds := flags.Int("rounds", leastRounds, "how often everything is measured")
	systemList := flags.String("systems", "", "`list` of systems: floor, sqlite, postgres, asynq, river")
	phaseList := flags.String("phases", "", "`list` of phases: drain, single, batch, mixed, latency, "+
		"lateness")
	document := flags.String("report", "", "`file` whose block \"compare\" is replaced")
	flags.StringVar(&b.profiles, "profiles", "",
		"`directory` for profiles of the dispatcher; profiling costs time, so do not compare its figures")
	pgo := flags.String("pgo", "", "`file` for the merged CPU profiles, for profile-guided builds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	some, err1 := pick(*systemList, systems)
	parts, err2 := pick(*phaseList, phases)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if *document != "" && *rounds < leastRounds {
		return fmt.Errorf("-report needs at least %d rounds", leastRounds)
	}
	return outside(func(tb testing.TB) {
		if *pgo != "" && b.profiles == "" {
			b.profiles = tb.TempDir()
		}
		if b.profiles != "" {
			must(tb, os.MkdirAll(b.profiles, 0o755))
		}
		c := comparison{bench: b, rounds: *rounds, systems: some, phases: parts, results: results{}}
		b.receiver = startReceiver(tb)
		of := buildDispatcher(tb)
		began := loadNow(tb)
		must(tb, c.measureAll(tb, of))
		ended := loadNow(tb)
		r := c.report(fmt.Sprintf("%s %d callbacks of %d bytes, %d requests in flight; %d rounds in %s. "+
			"Other programs used %.0f %% of the machine's CPU time.",
			environment(tb), b.n, payloadSize, b.concurrency, *rounds,
			ended.at.Sub(began.at).Round(time.Second), ended.othersSince(began)))
		must(tb, r.publish(*document, "compare"))
		if *pgo != "" {
			must(tb, joinProfiles(b.profiles, *pgo))
		}
	})
}

// A comparison has the settings and results of compareCommand.
type comparison struct {
	*bench
	rounds  int
	systems []system
	phases  []phase
	results results
}

// A cell names one phase of one system. results have the figures of each cell, round by round.
type (
	cell    struct{ phase, system string }
	results map[cell][]figures
)

// measureAll measures every phase of every system once in each round. Within a phase the systems run directly
// one after the other. Each round begins with another system.
func (c *comparison) measureAll(tb testing.TB, of build) error {
	for round := range c.rounds {
		for _, p := range c.phases {
			for i := range c.systems {
				s := c.systems[(i+round)%len(c.systems)]
				if !p.of(s) {
					continue
				}
				began := loadNow(tb)
				f, err := c.within(of, s, p.measure)
				if err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
				at := cell{p.name, s.name}
				c.results[at] = append(c.results[at], f)
				logf("round %d of %d: %-8s %-8s %s(others: %.0f %% of the CPU time)",
					round+1, c.rounds, p.name, s.name, f.summary(), loadNow(tb).othersSince(began))
			}
		}
	}
	return nil
}

// summary returns the figures without their parts.
func (f figures) summary() string {
	var b strings.Builder
	for _, name := range []string{rate, cpuTime, p50, p99} {
		if v, measured := f[name]; measured {
			fmt.Fprintf(&b, "%s %.4g, ", name, v)
		}
	}
	return b.String()
}

// of returns one figure of each round; nil if it was not measured.
func (r results) of(at cell, name string) []float64 {
	var all []float64
	for _, f := range r[at] {
		if v, measured := f[name]; measured {
			all = append(all, v)
		}
	}
	return all
}

// ratios divides one system's figure of each round by another's of the same round; nil if one was not
// measured.
func (r results) ratios(of, to cell, name string) []float64 {
	above, below := r.of(of, name), r.of(to, name)
	if len(above) != len(below) {
		return nil
	}
	ratios := slices.Clone(above)
	for i := range ratios {
		ratios[i] /= below[i]
	}
	return ratios
}

// A goal is the limit of a figure of one phase of a system, or of its ratio to another system's figure.
type goal struct {
	phase, system, to string // empty: no ratio
	figure            string
	limit             float64
	least             bool // limit is a lower bound
}

var goals = []goal{
	{"drain", "sqlite", floorName, rate, 0.65, true},
	{"drain", "sqlite", floorName, cpuTime, 1.75, false},
	{"drain", "postgres", floorName, rate, 0.45, true},
	{"drain", "postgres", floorName, cpuTime, 3.0, false},
	{"drain", "sqlite", "asynq", rate, 2.8, true},
	{"drain", "postgres", "asynq", rate, 1.9, true},
	{"single", "sqlite", floorName, cpuTime, 2.2, false},
	{"single", "postgres", floorName, cpuTime, 2.8, false},
	{"batch", "sqlite", floorName, cpuTime, 0.7, false},
	{"batch", "postgres", floorName, cpuTime, 1.2, false},
	{"latency", "postgres", "", p50, 2, false},
	{"latency", "postgres", "", p99, 8, false},
	{"lateness", "sqlite", "", p99, 2, false},
	{"lateness", "postgres", "", p99, 2, false},
}

func (g goal) String() string {
	text := fmt.Sprintf("%s, %s: %s", g.phase, g.system, g.figure)
	if g.to != "" {
		return text + " ÷ " + g.to
	}
	return text + ", ms"
}

// result compares the middle half with the limit. If the limit is inside it, the goal is open: neither
// reached nor missed. With too few rounds every goal is open.
func (g goal) result(values []float64) string {
	s := spreadOf(values)
	best, worst, limit := s.low, s.high, g.limit
	if g.least {
		best, worst, limit = -s.high, -s.low, -g.limit
	}
	switch {
	case len(values) < leastRounds:
	case worst <= limit:
		return "reached"
	case best > limit:
		return "missed"
	}
	return "open"
}

func (c *comparison) goals() *table {
	t := &table{title: "Goals", texts: 1, header: []string{"goal", "limit", "figure", "result"}}
	for _, g := range goals {
		at := cell{g.phase, g.system}
		values := c.results.of(at, g.figure)
		if g.to != "" {
			values = c.results.ratios(at, cell{g.phase, g.to}, g.figure)
		}
		if len(values) == 0 {
			continue
		}
		sign := map[bool]string{true: "≥ ", false: "≤ "}[g.least]
		t.add(g.String(), sign+fmt.Sprint(g.limit), show(values, "%.2f"), g.result(values))
	}
	return t
}
