//go:build !race

package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A tolerance says how far a figure may be from its golden one, in parts of it.
type tolerance struct {
	// above and below; where below is infinite, less is always well.
	above, below float64
}

// Strict is for what nothing but the code decides, near for what the runtime keeps for itself now and then. They are missed
// by what has become better, too: a golden figure left where it was would let it get worse again unseen.
var (
	strict = tolerance{0.02, 0.02}
	near   = tolerance{0.05, 0.05}
)

// upTo is for what depends on how much gathers while the machine does something else: less is noise, much more is not.
func upTo(above float64) tolerance { return tolerance{above, math.Inf(1)} }

// String writes a tolerance for who reads a failure.
func (l tolerance) String() string {
	sign := "±"
	if math.IsInf(l.below, 1) {
		sign = "+"
	}
	return sign + strconv.FormatFloat(100*l.above, 'g', 3, 64) + "%"
}

// miss is how far beyond the tolerance a figure is, as a part of the golden one; zero: it holds. Less than one is taken for one: what is
// there once in a batch may be there twice.
func (l tolerance) miss(golden, got float64) float64 {
	off := (got - golden) / max(golden, 1)
	return max(off-l.above, -off-l.below, 0)
}

// A figure is one thing that was counted. Its name is what was measured, a colon, and what of it.
type figure struct {
	name  string
	value float64
	tolerance
}

// A goldenFile is what testdata/costs.golden says.
type goldenFile struct {
	path   string
	values map[string]float64
	// measured are the figures of this run, in their order.
	measured []figure
}

// goldenHead explains the file to who reads it.
const goldenHead = `# What a callback costs, each figure for one callback unless its name says for how many: operations, bytes and allocations, not times.
# TestCosts counts it anew and fails where a figure leaves its tolerance. docs/costs.md says what each is, and what to think of before:
# go test -tags nomsgpack ./cmd/dispatcher -run '^TestCosts$' -update
`

func readGolden(t *testing.T, path string) *goldenFile {
	t.Helper()
	g := &goldenFile{path: path, values: map[string]float64{}}
	text, err := os.ReadFile(path)
	if err != nil && !(os.IsNotExist(err) && *update) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := max(strings.LastIndex(line, " "), 0)
		name := strings.TrimSpace(line[:at])
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if _, twice := g.values[name]; err != nil || name == "" || twice {
			t.Fatalf("%s: %q is no figure, or stands there twice", path, line)
		}
		g.values[name] = value
	}
	return g
}

// tries is how often something is measured before it counts as too much: noise is gone by then, a cost is not.
const tries = 3

// hold measures, and fails where a figure does not hold. Of several tries the closest counts, figure by figure; for the golden
// file it is the median, so that what is out of the way once does not come to stand there.
func (g *goldenFile) hold(t *testing.T, measure func() []figure) {
	t.Helper()
	var values [][]float64 // of each figure, those of all tries
	var list []figure
	for range tries {
		list = measure()
		if values == nil {
			values = make([][]float64, len(list))
		}
		held := !*update
		for i := range list {
			values[i] = append(values[i], list[i].value)
			slices.SortFunc(values[i], func(a, b float64) int {
				if *update {
					return cmp.Compare(a, b)
				}
				return cmp.Compare(g.miss(list[i], a), g.miss(list[i], b))
			})
			held = held && g.miss(list[i], values[i][0]) == 0
		}
		if held {
			break
		}
	}
	for i := range list {
		list[i].value = values[i][0]
		if *update {
			list[i].value = values[i][tries/2]
			continue
		}
		g.judge(t, list[i])
	}
	g.measured = append(g.measured, list...)
}

// miss is how far beyond its tolerance a figure would be with that value.
func (g *goldenFile) miss(f figure, value float64) float64 {
	if want, ok := g.values[f.name]; ok {
		return f.tolerance.miss(want, value)
	}
	return math.Inf(1)
}

func (g *goldenFile) judge(t *testing.T, f figure) {
	t.Helper()
	want, ok := g.values[f.name]
	said := fmt.Sprintf("%-70s measured %s, golden %s, tolerance %s", f.name, number(f.value), number(want), f.tolerance)
	switch {
	case !ok:
		t.Errorf("%s: measured %s, and %s does not have it: write it with -update", f.name, number(f.value), g.path)
	case g.miss(f, f.value) == 0:
		t.Log(said)
	case f.value > want:
		t.Errorf("%s: it costs more than it did. Find out what was added, or is no longer done in batches; if it is worth it, say so in "+
			"the commit and write %s anew with -update", said, g.path)
	default:
		t.Errorf("%s: it costs less than it did. Write %s anew with -update, so that it stays so", said, g.path)
	}
}

// finish writes the file, or fails for figures that nobody measures any more. It needs all of them.
func (g *goldenFile) finish(t *testing.T) {
	t.Helper()
	some := strings.Contains(flag.Lookup("test.run").Value.String(), "/")
	if some && *update {
		t.Fatal("-update writes the whole file: measure all of TestCosts")
	}
	if some || t.Failed() {
		return
	}
	if *update {
		g.write(t)
		return
	}
	for name := range g.values {
		if !slices.ContainsFunc(g.measured, func(f figure) bool { return f.name == name }) {
			t.Errorf("%s has %q, and nothing measures it: take it out with -update", g.path, name)
		}
	}
}

func (g *goldenFile) write(t *testing.T) {
	t.Helper()
	var text bytes.Buffer
	text.WriteString(goldenHead)
	before := ""
	for _, f := range g.measured {
		if of, _, _ := strings.Cut(f.name, ":"); of != before {
			text.WriteString("\n")
			before = of
		}
		fmt.Fprintf(&text, "%-70s %9s\n", f.name, number(f.value))
	}
	if err := os.WriteFile(g.path, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// number writes a figure with four digits.
func number(v float64) string {
	if math.Abs(v) >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
