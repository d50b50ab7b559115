package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// fiveRounds has figures in which sqlite reaches its drain goals, and postgres misses one and leaves one
// open.
func fiveRounds() *comparison {
	c := &comparison{rounds: 5, systems: systems, phases: phases, results: results{}}
	for i := range c.rounds {
		slow := 1 - 0.1*float64(i) // speed of the machine in this round
		put := func(system string, perSecond, cpu float64) {
			at := cell{"drain", system}
			c.results[at] = append(c.results[at], figures{rate: perSecond * slow, cpuTime: cpu / slow})
		}
		put(floorName, 40000, 0.03)
		put("sqlite", 28000, 0.048)
		put("postgres", 12000, 0.09*(0.9+0.05*float64(i)))
	}
	return c
}

// A slower machine changes the rates, but not the ratios.
func TestComparisonReportsRatios(t *testing.T) {
	transcript.File(t, "testdata/compare.md", func(*testing.T, string) string {
		return fiveRounds().report("Introduction.").markdown()
	})
}

func TestBlocksAreReplaced(t *testing.T) {
	const document = "# Title\n\n<!-- compare -->\nold\n<!-- /compare -->\n\nby hand\n" +
		"<!-- scale -->\nkept\n<!-- /scale -->\n"
	got, err := replaceBlock(document, "compare", "\nnew\n\n")
	if want := strings.Replace(document, "old", "new", 1); err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	const swapped = "<!-- /compare --> <!-- compare -->"
	for _, bad := range []string{"", "<!-- compare -->", document + document, swapped} {
		if got, err := replaceBlock(bad, "compare", "new"); err == nil {
			t.Errorf("%q became %q", bad, got)
		}
	}
}

// The documents have the blocks that bench writes, the comparison has the tables of the current report, and
// the results in docs/reports/scaling.md follow from the inputs.
func TestDocumentsAreUpToDate(t *testing.T) {
	for name, blocks := range map[string][]string{
		"performance.md": {"compare", "scale-sql", "scale-cluster", "scale-wire"},
		"scaling.md":     {"inputs", "results"},
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", "reports", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range blocks {
			_, content, _, err := blockOf(string(text), block)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if block != "compare" {
				continue
			}
			for _, table := range fiveRounds().report("").tables {
				header := "| " + strings.Join(table.header, " | ") + " |"
				if !strings.Contains(strings.Join(strings.Fields(content), " "), table.title+" "+header) {
					t.Errorf("%s: no table %q with the columns %s; make bench writes it", name, table.title,
						header)
				}
			}
		}
		if name != "scaling.md" {
			continue
		}
		want, err := workOut(string(text))
		if err != nil || want != string(text) {
			t.Errorf("%s: the results are not those of the inputs; go run . scaling updates them (%v)", name,
				err)
		}
	}
}

func TestResultsFollowFromInputs(t *testing.T) {
	var document string
	transcript.File(t, "testdata/scaling.md", func(t *testing.T, text string) string {
		var err error
		document, err = workOut(text)
		if err != nil {
			t.Error(err)
		}
		return document
	})
	got, err := setInputs(document, numbers{"b": 0.5}, "here")
	if err != nil || !strings.Contains(got, "| `b` | y | 0.5 | here |") ||
		!strings.Contains(got, "| `b + d` | 2.5 |") {
		t.Errorf("a measured input: %v\n%s", err, got)
	}
	if _, err := setInputs(document, numbers{"unknown": 1}, "here"); err == nil {
		t.Error("an input without a line was set")
	}
	for from, to := range map[string]string{
		"| 6 |": "| many |", "a *": "a %", "b +": "z +", "(2 + 1)": "(2 + 1", "c, f": "c, z",
		"<!-- /results -->": "",
	} {
		if got, err := workOut(strings.Replace(document, from, to, 1)); err == nil {
			t.Errorf("with %q for %q the results were: %s", to, from, got)
		}
	}
}

func TestSpreads(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   spread
	}{
		{nil, spread{}},
		{[]float64{3}, spread{3, 3, 3}},
		{[]float64{9, 1, 4}, spread{2.5, 4, 6.5}},
		{[]float64{50, 10, 40, 20, 30}, spread{20, 30, 40}},
	} {
		if got := spreadOf(c.values); got != c.want {
			t.Errorf("spread of %v is %+v, want %+v", c.values, got, c.want)
		}
	}
	if (spread{0.97, 1, 1.03}).isWide() || !(spread{0.9, 1, 1.03}).isWide() {
		t.Error("a middle half of 6 % is too wide, or one of 13 % is not")
	}
}

// The critical values come from published tables for a two-sided test of 5 %.
func TestRanksAreThoseOfTheTables(t *testing.T) {
	for n, want := range map[int]int{5: -1, 6: 0, 10: 8, 15: 25, 20: 52, 30: 137} {
		if got := acceptedRank(n); got != want {
			t.Errorf("%d differences: %d, want %d", n, got, want)
		}
	}
}

// With 15 pairs and a known true ratio, the interval must contain it in 95 of 100 cases, even with outliers.
func TestIntervalsContainTheTrueRatio(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const trials, trueLoss = 2000, 0.02
	contained := 0
	for range trials {
		var costs []float64
		for range 15 {
			noise := 0.05 * random.NormFloat64()
			if random.IntN(10) == 0 {
				noise *= 10 // another program ran during one of the two
			}
			costs = append(costs, math.Exp(trueLoss+noise))
		}
		if l := newLoss(byRate, costs); l.low <= trueLoss && trueLoss <= l.high {
			contained++
		}
	}
	if share := float64(contained) / trials; share < 0.93 || share > 0.98 {
		t.Errorf("%.3f of the intervals contain the true ratio, want about 0.95", share)
	}
}

// synthetic returns the costs of pairs around a ratio, evenly spaced within the width on both sides.
func synthetic(pairs int, ratio, width float64) []float64 {
	costs := make([]float64, pairs)
	for i := range costs {
		costs[i] = ratio * math.Exp(width*(2*float64(i)/float64(pairs-1)-1))
	}
	return costs
}

// TestConclusionsOfPairs reports the synthetic costs of each line of conclusions.txt.
func TestConclusionsOfPairs(t *testing.T) {
	transcript.Run(t, "testdata/conclusions.txt", func(line string) string {
		var pairs int
		var ratio, width float64
		if _, err := fmt.Sscanf(line, "%d pairs, ratio %g, width %g", &pairs, &ratio, &width); err != nil {
			t.Error(err)
		}
		return newLoss(byRate, synthetic(pairs, ratio, width)).report(0.03)
	})
}

// The estimated number of further pairs is enough if the noise stays the same.
func TestFurtherPairsSuffice(t *testing.T) {
	const noise = 0.12
	bound := math.Log1p(0.03)
	few := newLoss(byRate, synthetic(15, 1, noise))
	if more := newLoss(byRate, synthetic(15+few.furtherPairs(bound)+5, 1, noise)); more.high >= bound {
		t.Errorf("with %d pairs the interval still ends at %.4f", more.pairs, more.high)
	}
}
