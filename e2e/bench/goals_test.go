package bench

import (
	"fmt"
	"slices"
)

// A goal is a figure at the main concurrency, and what it must be.
type goal struct {
	text   string
	figure func(book) spread // over the rounds; of no rounds: not measured
	format string
	limit  float64
	least  bool // the limit is the least that it may be; else the most
}

// goals are what the comparison must show.
var goals = []goal{
	ratio("b", "a", 0.5), atMost("b", "CPU s per 1,000 delivered", deliverCPU, "%.3f", 0.065),
	ratio("c", "a", 0.38), atMost("c", "CPU s per 1,000 delivered", deliverCPU, "%.3f", 0.10),
	ratio("b", "d", 3), ratio("c", "d", 2.2), ratio("b", "e", 1.5), ratio("c", "e", 1.5),
	atMost("b", "CPU s per 1,000 accepted one by one", singleCPU, "%.3f", 0.045),
	atMost("c", "CPU s per 1,000 accepted one by one", singleCPU, "%.3f", 0.045),
	atLeast("b", "accepted/s in batches of 100", batchAccepted, "%.0f", 40_000),
	atLeast("c", "accepted/s in batches of 100", batchAccepted, "%.0f", 40_000),
	atMost("c", "accept to arrival at 500/s, p50, ms", lowLatency+p50, "%.2f", 2),
	atMost("c", "accept to arrival at 500/s, p99, ms", lowLatency+p99, "%.2f", 10),
	atMost("b", "lateness p50, ms", lateness+p50, "%.2f", 1), atMost("b", "lateness p99, ms", lateness+p99, "%.2f", 5),
	atMost("c", "lateness p50, ms", lateness+p50, "%.2f", 2), atMost("c", "lateness p99, ms", lateness+p99, "%.2f", 10),
	never("b", "delayed callbacks that were early", lateness+earlyOnes), never("c", "delayed callbacks that were early", lateness+earlyOnes),
}

// ratio is that one system delivers so many times as much a second as another.
func ratio(of, to string, least float64) goal {
	return goal{
		text: fmt.Sprintf("delivered/s, (%s) ÷ (%s)", of, to), format: "%.2f", limit: least, least: true,
		figure: func(b book) spread { return b.ratio(row{of, connections}, row{to, connections}, delivered) },
	}
}

func atMost(of, text, name, format string, limit float64) goal {
	return goal{
		text: fmt.Sprintf("(%s) %s", of, text), format: format, limit: limit,
		figure: func(b book) spread { return b.of(row{of, connections}, name) },
	}
}

func atLeast(of, text, name, format string, limit float64) goal {
	g := atMost(of, text, name, format, limit)
	g.least = true
	return g
}

// never is that a count is zero in every round.
func never(of, text, name string) goal {
	g := atMost(of, text, name, "%.0f", 0)
	g.figure = func(b book) spread {
		s := b.of(row{of, connections}, name)
		s.median = s.most
		return s
	}
	return g
}

// verdict says how the goal stands: whether it was measured, and whether it holds.
func (g goal) verdict(b book) (s spread, measured, holds bool) {
	s = g.figure(b)
	if s.rounds == 0 {
		return s, false, false
	}
	if g.least {
		return s, true, s.median >= g.limit
	}
	return s, true, s.median <= g.limit
}

// checkGoals fails when a goal was measured and is missed, and when none was measured.
func checkGoals(b book) error {
	var missed []string
	any := false
	for _, g := range goals {
		s, measured, holds := g.verdict(b)
		any = any || measured
		if measured && !holds {
			missed = append(missed, fmt.Sprintf("%s: "+g.format+", goal "+g.format, g.text, s.median, g.limit))
		}
	}
	if !any {
		return fmt.Errorf("no goal was measured: they are for %d at once", connections)
	}
	if len(missed) > 0 {
		return fmt.Errorf("goals missed: %q", missed)
	}
	return nil
}

// ratio is that of the medians; least and most are of the rounds, each with the other system's figure of the same round.
func (b book) ratio(of, to row, name string) spread {
	above, below := b.of(of, name), b.of(to, name)
	if above.rounds == 0 || below.rounds == 0 {
		return spread{}
	}
	var each []float64
	for i := range min(len(b[of]), len(b[to])) {
		x, ok := b[of][i][name]
		y, ok2 := b[to][i][name]
		if ok && ok2 {
			each = append(each, x/y)
		}
	}
	if len(each) == 0 {
		return spread{}
	}
	return spread{median: above.median / below.median, least: slices.Min(each), most: slices.Max(each), rounds: len(each)}
}
