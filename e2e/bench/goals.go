package main

import "fmt"

// A goal bounds a figure of one cell or, if there is another cell to divide by, its ratio to that cell's.
type goal struct {
	of, to cell // to: zero for no ratio
	figure string
	limit  float64
	least  bool // the limit is a lower bound
}

var goals = []goal{
	{cell{"drain", "sqlite"}, cell{"drain", floorName}, rate, 0.65, true},
	{cell{"drain", "sqlite"}, cell{"drain", floorName}, cpuTime, 1.75, false},
	{cell{"drain", "postgres"}, cell{"drain", floorName}, rate, 0.45, true},
	{cell{"drain", "postgres"}, cell{"drain", floorName}, cpuTime, 3.0, false},
	{cell{"drain", "sqlite"}, cell{"drain", "asynq"}, rate, 2.8, true},
	{cell{"drain", "postgres"}, cell{"drain", "asynq"}, rate, 1.9, true},
	{cell{"single", "sqlite"}, cell{"single", floorName}, cpuTime, 2.2, false},
	{cell{"single", "postgres"}, cell{"single", floorName}, cpuTime, 2.8, false},
	{cell{"batch", "sqlite"}, cell{"batch", floorName}, cpuTime, 0.7, false},
	{cell{"batch", "postgres"}, cell{"batch", floorName}, cpuTime, 1.2, false},
	{cell{"latency", "postgres"}, cell{}, p50, 2, false},
	{cell{"latency", "postgres"}, cell{}, p99, 8, false},
	{cell{"lateness", "sqlite"}, cell{}, p99, 2, false},
	{cell{"lateness", "postgres"}, cell{}, p99, 2, false},
}

func (g goal) String() string {
	text := fmt.Sprintf("%s, %s: %s", g.of.phase, g.of.system, g.figure)
	if g.to.system != "" {
		return text + " ÷ " + g.to.system
	}
	return text + ", ms"
}

// verdict compares the middle half with the limit: a goal that lies inside of it is neither reached nor
// missed.
func (g goal) verdict(values []float64) string {
	s := spreadOf(values)
	worst, best := s.high, s.low
	if g.least {
		worst, best = -s.low, -s.high
	}
	limit := g.limit
	if g.least {
		limit = -limit
	}
	switch {
	case len(values) < leastRounds:
		return "open"
	case worst <= limit:
		return "reached"
	case best > limit:
		return "missed"
	}
	return "open"
}

func (c *comparison) goals() *table {
	t := &table{title: "Goals", texts: 1, header: []string{"goal", "limit", "figure", "stands"}}
	for _, g := range goals {
		values := c.book.of(g.of, g.figure)
		if g.to.system != "" {
			values = c.book.ratios(g.of, g.to, g.figure)
		}
		if len(values) == 0 {
			continue
		}
		sign := map[bool]string{true: "≥ ", false: "≤ "}[g.least]
		t.add(g.String(), sign+fmt.Sprint(g.limit), show(values, "%.2f"), g.verdict(values))
	}
	return t
}
