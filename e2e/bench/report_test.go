package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fiveRounds are figures in which sqlite reaches its goals of draining, postgres misses one and leaves one
// open.
func fiveRounds() *comparison {
	c := &comparison{rounds: 5, systems: systems, phases: phases, book: book{}}
	for i := range c.rounds {
		slow := 1 - 0.1*float64(i) // the machine, in this round
		put := func(system string, perSecond, cpu float64) {
			at := cell{"drain", system}
			c.book[at] = append(c.book[at], figures{rate: perSecond * slow, cpuTime: cpu / slow})
		}
		put(floorName, 40000, 0.03)
		put("sqlite", 28000, 0.048)
		put("postgres", 12000, 0.09*(0.9+0.05*float64(i)))
	}
	return c
}

// A machine that becomes slower changes the rates, but not the ratios.
func TestComparisonReportsRatios(t *testing.T) {
	c := fiveRounds()
	text := regexp.MustCompile(` +`).ReplaceAllString(c.report("Introduction.").markdown(), " ")
	for _, want := range []string{
		"Introduction.", " 0.70 (0.70–0.70) |", " 22400 (19600–25200) |", " 1.60 (1.60–1.60) |",
		"3.00 (2.85–3.15) ! |",
		"1 figures are marked",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	for _, line := range strings.Split(text, "\n") {
		for goal, want := range map[string]string{
			"drain, sqlite: rate ÷ floor": "reached", "drain, postgres: rate ÷ floor": "missed",
			"drain, postgres: cpu ÷ floor": "open",
		} {
			if strings.Contains(line, goal) && !strings.Contains(line, want) {
				t.Errorf("want %q: %s", want, line)
			}
		}
		if strings.Contains(line, "River") || strings.Contains(line, "asynq") {
			t.Errorf("the report has what was not measured: %s", line)
		}
	}
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

// The documents have the blocks that are written into them, the comparison has the tables of today's report,
// and the results in docs/reports/scaling.md follow from the inputs.
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
					t.Errorf("%s: no table %q with the columns %s; make bench writes it", name, table.title, header)
				}
			}
		}
		if name != "scaling.md" {
			continue
		}
		want, err := workOut(string(text))
		if err != nil || want != string(text) {
			t.Errorf("%s: the results are not those of the inputs; go run . scaling writes them (%v)", name, err)
		}
	}
}

func TestResultsFollowFromInputs(t *testing.T) {
	const document = "<!-- inputs -->\n| `a` | x | 6 | chosen |\n| `b` | y | 2 | measured |\n" +
		"<!-- /inputs -->\n" +
		"<!-- results -->\n| `c` | x | `a * (2 + 1) / 4` | ? |\n| `d` | x | `ceil(max(c, 2) / 4)` | ? |\n" +
		"| `e` | x | `b + d` | ? |\n| `f` | x | `a / 4` | ? |\n" +
		"| `g` | x | `least(c, f, e)` | ? |\n<!-- /results -->\n"
	got, err := workOut(document)
	for _, want := range []string{"| 4.5 |\n", "| 2 |\n", "| `b + d` | 4 |\n", "| 1.5 |\n", "| `f` |\n"} {
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("the results lack %q: %v\n%s", want, err, got)
		}
	}
	if got, err = setInputs(document, numbers{"b": 0.5}, "here"); err != nil ||
		!strings.Contains(got, "| `b` | y | 0.5 | here |") || !strings.Contains(got, "| `b + d` | 2.5 |") {
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
			t.Errorf("with %q for %q it was worked out: %s", to, from, got)
		}
	}
	for v, want := range map[float64]string{0: "0", 0.0449: "0.0449", 12.34: "12.3", 27777.7: "27778", 1: "1"} {
		if got := significant(v); got != want {
			t.Errorf("%g is printed as %s, want %s", v, got, want)
		}
	}
}
