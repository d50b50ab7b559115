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

// A figure is one thing that was counted. Its name is what was measured, a colon, and what of it. It may grow
// by its tolerance, a part of the golden figure.
type figure struct {
	name             string
	value, tolerance float64
}

// A goldenFile is what testdata/costs.golden says.
type goldenFile struct {
	path   string
	values map[string]float64
	// measured are the figures of this run, in their order.
	measured []figure
}

const goldenHead = `# What a callback costs, each figure for one callback unless its name says for how many: operations, bytes and
# allocations, not times. TestCosts counts again and fails where a figure has grown beyond its tolerance.
# docs/reports/costs.md says what each is, and what to check before it is rewritten:
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
			t.Fatalf("%s: %q is no figure: %v", path, line, err)
		}
		g.values[strings.TrimSpace(line[:at])] = value
	}
	return g
}

// tries is how often something is measured before it counts as grown.
const tries = 3

// hold measures, and fails where a figure has grown. Of several tries the least counts, because noise only
// adds. The golden file gets the median.
func (g *goldenFile) hold(t *testing.T, measure func() []figure) {
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
			g.judge(t, f)
		}
		g.measured = append(g.measured, f)
	}
}

// hasGrown says whether a figure is more than its tolerance above the golden one. Less than one is taken for
// one: what is there once in a batch may be there twice.
func (g *goldenFile) hasGrown(f figure) bool {
	want, known := g.values[f.name]
	return !known || f.value-want > f.tolerance*max(want, 1)
}

func (g *goldenFile) judge(t *testing.T, f figure) {
	t.Helper()
	want := g.values[f.name]
	said := fmt.Sprintf("%-70s measured %.5g, golden %.5g +%g %%", f.name, f.value, want, 100*f.tolerance)
	switch {
	case g.hasGrown(f):
		t.Errorf("%s: it is new, or costs more than it did. Find out what was added, or is no longer done "+
			"in batches; if it is "+
			"worth it, say so in the commit and rewrite %s with -update", said, g.path)
	case f.value < want*(1-f.tolerance):
		t.Logf("%s: it costs less than it did; -update lowers the golden figure, so that it stays so", said)
	default:
		t.Log(said)
	}
}

// finish writes the file, or fails for figures that are no longer measured. It needs all of them.
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
		t.Errorf("%s has %q, and nothing measures it: take it out with -update", g.path, name)
	}
}
