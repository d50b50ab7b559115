//go:build !race

package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// figure is one counted value. Its name is what was measured, a colon, and the kind of the value. It may
// exceed the golden value by the tolerance, a fraction of the golden value.
type figure struct {
	name             string
	value, tolerance float64
}

// goldenFile is testdata/costs.golden.
type goldenFile struct {
	path   string
	values map[string]float64
	// measured are the figures of this run in their order.
	measured []figure
}

const goldenHead = `# The cost of a callback in operations, bytes and allocations, not in time. A figure is
# for one callback, unless its name has another number. TestCosts measures again and
# fails if a figure grew by more than its tolerance.
# docs/reports/costs.md explains the figures, and what to check before this file is written again:
# go test -tags nomsgpack ./cmd/dispatcher -run '^TestCosts$' -update
`

func readGolden(t *testing.T, path string) *goldenFile {
	t.Helper()
	g := &goldenFile{path: path, values: map[string]float64{}}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndex(line, " ")
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatalf("%s: %q is not a figure: %v", path, line, err)
		}
		g.values[strings.TrimSpace(line[:at])] = value
	}
	return g
}

// tries is how often a figure is measured before it counts as grown.
const tries = 3

// check measures, and fails if a figure has grown. It compares the minimum of several tries, because noise
// only adds. With -update, the file gets the median.
func (g *goldenFile) check(t *testing.T, measure func() []figure) {
	t.Helper()
	values := map[string][]float64{}
	var list []figure
	for range tries {
		again := *transcript.Update
		list = measure()
		for _, f := range list {
			values[f.name] = append(values[f.name], f.value)
			again = again || g.hasGrown(f)
		}
		if !again {
			break
		}
	}
	for _, f := range list {
		all := values[f.name]
		slices.Sort(all)
		f.value = all[0]
		if *transcript.Update {
			f.value = all[len(all)/2]
		} else {
			g.compare(t, f)
		}
		g.measured = append(g.measured, f)
	}
}

// hasGrown reports whether a figure exceeds the golden one by more than its tolerance. A golden figure below
// one counts as one: an operation that happens once per batch can happen twice.
func (g *goldenFile) hasGrown(f figure) bool {
	want, known := g.values[f.name]
	return !known || f.value-want > f.tolerance*max(want, 1)
}

func (g *goldenFile) compare(t *testing.T, f figure) {
	t.Helper()
	want := g.values[f.name]
	line := fmt.Sprintf("%-70s measured %.5g, golden %.5g +%g %%", f.name, f.value, want, 100*f.tolerance)
	switch {
	case g.hasGrown(f):
		t.Errorf("%s: the figure is new, or the cost grew. Find out what was added, or is no longer done in "+
			"batches. If it is worth it, explain it in the commit and run -update to write %s", line, g.path)
	case f.value < want*(1-f.tolerance):
		t.Logf("%s: the cost fell; lower the golden figure with -update", line)
	default:
		t.Log(line)
	}
}

// finish writes the file with -update. Otherwise it fails for figures that nothing measures. It does nothing
// after a run of some subtests.
func (g *goldenFile) finish(t *testing.T) {
	t.Helper()
	if strings.Contains(flag.Lookup("test.run").Value.String(), "/") || t.Failed() {
		return
	}
	text, before := bytes.NewBufferString(goldenHead), ""
	for _, f := range g.measured {
		delete(g.values, f.name)
		if of, _, _ := strings.Cut(f.name, ":"); of != before {
			text.WriteString("\n")
			before = of
		}
		fmt.Fprintf(text, "%-70s %9.5g\n", f.name, f.value)
	}
	if *transcript.Update {
		if err := os.WriteFile(g.path, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for name := range g.values {
		t.Errorf("%s has %q, but nothing measures it: remove it with -update", g.path, name)
	}
}
