package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// noValue stands for a figure that was not measured.
const noValue = "–"

// A table of a report. The first columns, as many as texts, are texts. The others are aligned as numbers.
type table struct {
	title  string
	texts  int
	header []string
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// markdown returns the table, padded for terminals.
func (t *table) markdown() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	rule := slices.Repeat([]string{"---:"}, len(t.header))
	copy(rule, slices.Repeat([]string{"---"}, t.texts))
	for _, cells := range append([][]string{t.header, rule}, t.rows...) {
		fmt.Fprintln(w, "| "+strings.Join(cells, "\t| ")+"\t|")
	}
	w.Flush() // a builder returns no error
	return b.String()
}

// A report is a text and its tables.
type report struct {
	intro   string
	heading string // before a table's title, such as "###"
	tables  []*table
}

func (r report) markdown() string {
	var b strings.Builder
	fmt.Fprintln(&b, wrapped(r.intro))
	for _, t := range r.tables {
		if len(t.rows) > 0 {
			fmt.Fprintf(&b, "\n%s %s\n\n%s", r.heading, t.title, t.markdown())
		}
	}
	return b.String()
}

// wrapped wraps paragraphs at 110 columns.
func wrapped(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, paragraph := range paragraphs {
		var lines []string
		line := ""
		for _, word := range strings.Fields(paragraph) {
			if line != "" && utf8.RuneCountInString(line+" "+word) > 110 {
				lines, line = append(lines, line), ""
			}
			line = strings.TrimPrefix(line+" "+word, " ")
		}
		paragraphs[i] = strings.Join(append(lines, line), "\n")
	}
	return strings.Join(paragraphs, "\n\n")
}

// publish prints the report and, if a document is named, replaces a block of it.
func (r report) publish(document, block string) error {
	fmt.Printf("\n%s", r.markdown())
	if document == "" {
		return nil
	}
	return rewrite(document, func(text string) (string, error) {
		return replaceBlock(text, block, r.markdown())
	})
}

// rewrite changes a file.
func rewrite(name string, change func(string) (string, error)) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	changed, err := change(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return os.WriteFile(name, []byte(changed), 0o644)
}

// blockOf splits a document at the two markers of a block. Each marker must occur exactly once.
func blockOf(document, name string) (head, block, tail string, err error) {
	begin, end := "<!-- "+name+" -->", "<!-- /"+name+" -->"
	head, rest, found := strings.Cut(document, begin)
	block, tail, ended := strings.Cut(rest, end)
	if !found || !ended || strings.Count(document, begin)+strings.Count(document, end) != 2 {
		return "", "", "", errors.New("the markers of the block " + name + " must occur exactly once each")
	}
	return head + begin, block, end + tail, nil
}

func replaceBlock(document, name, content string) (string, error) {
	head, _, tail, err := blockOf(document, name)
	return head + "\n" + strings.TrimSpace(content) + "\n" + tail, err
}

// show formats a figure of the rounds: the median, and the middle half if there are several rounds.
func show(values []float64, format string) string {
	if len(values) == 0 {
		return noValue
	}
	s := spreadOf(values)
	if len(values) == 1 {
		return fmt.Sprintf(format, s.median)
	}
	return fmt.Sprintf(format+" ("+format+"–"+format+")", s.median, s.low, s.high)
}

// wideMark marks a figure whose middle half is too wide.
const wideMark = " !"

// showMarked is show, with a mark if the middle half is too wide. It is for figures that do not depend on the
// speed of the machine.
func showMarked(values []float64, format string) string {
	if len(values) > 0 && spreadOf(values).isWide() {
		return show(values, format) + wideMark
	}
	return show(values, format)
}

// report returns the report of the comparison.
func (c *comparison) report(intro string) report {
	r := report{heading: "###", tables: []*table{c.rates(), c.times(), c.goals()}}
	if n := strings.Count(r.tables[0].markdown()+r.tables[1].markdown(), wideMark); n > 0 {
		intro += fmt.Sprintf(" **%d figures are marked with \"%s\": their middle half is wider than %.0f %% "+
			"of the median. Do not build on them; measure again on a quieter machine.**", n, wideMark[1:],
			100*tooWide)
	}
	r.intro = intro + "\n\nEach figure is the median over the rounds, with the middle half in brackets. " +
		"A ratio is formed within a round."
	return r
}

func (c *comparison) rates() *table {
	t := &table{title: "Rates and CPU time", texts: 2, header: []string{
		"phase", "system", "per second ÷ floor", "CPU ÷ floor", "per second", "CPU s per 1,000", "of it",
		"memory, MB",
	}}
	for _, p := range c.phases {
		for _, s := range c.systems {
			at, base := cell{p.name, s.name}, cell{p.name, floorName}
			if len(c.results.of(at, rate)) == 0 {
				continue
			}
			t.add(p.text, s.label,
				showMarked(c.results.ratios(at, base, rate), "%.2f"),
				showMarked(c.results.ratios(at, base, cpuTime), "%.2f"),
				show(c.results.of(at, rate), "%.0f"), show(c.results.of(at, cpuTime), "%.3f"),
				c.results.split(at, s.counted, cpuTime), megabytes(c.results.of(at, memory)))
		}
	}
	return t
}

// split formats the medians of a figure for each role.
func (r results) split(at cell, roles []string, name string) string {
	if len(roles) < 2 {
		return noValue
	}
	var parts []string
	for _, role := range roles {
		parts = append(parts, fmt.Sprintf("%s %.3f", role, spreadOf(r.of(at, name+":"+role)).median))
	}
	return strings.Join(parts, ", ")
}

func megabytes(bytes []float64) string {
	if len(bytes) == 0 {
		return noValue
	}
	return fmt.Sprintf("%.0f", spreadOf(bytes).median/1e6)
}

func (c *comparison) times() *table {
	t := &table{title: "Times, in ms", texts: 2, header: []string{
		"phase", "system", "p50", "p99", "from the answer: p50", "p99", "most",
	}}
	for _, p := range c.phases {
		for _, s := range c.systems {
			at := cell{p.name, s.name}
			if len(c.results.of(at, p50)) > 0 {
				t.add(p.text, s.label,
					showMarked(c.results.of(at, p50), "%.2f"), showMarked(c.results.of(at, p99), "%.2f"),
					show(c.results.of(at, answered+p50), "%.2f"),
					show(c.results.of(at, answered+p99), "%.2f"),
					show(c.results.of(at, largest), "%.1f"))
			}
		}
	}
	return t
}

// The figures of a measurement, by name. CPU time and memory also have one for each role: name, colon, role.
const (
	rate     = "rate"   // callbacks a second
	cpuTime  = "cpu"    // CPU seconds of the system's processes for 1,000 callbacks
	memory   = "memory" // bytes
	p50      = "p50"    // ms, like those below
	p99      = "p99"
	largest  = "most"
	answered = "after the answer: " // prefix of p50 and p99: times from the response, not from the request
)

type figures map[string]float64

// putQuantiles adds the median and the 99th percentile of values, with the prefix before their names.
func (f figures) putQuantiles(prefix string, values []float64) {
	sorted := slices.Sorted(slices.Values(values))
	f[prefix+p50], f[prefix+p99] = quantile(sorted, 0.50), quantile(sorted, 0.99)
}

// putCPU adds the CPU time of the counted roles between two readings, for 1,000 of n callbacks.
func (r *run) putCPU(name string, from, to map[string]float64, n int) {
	r.figures[name] = 0
	for _, role := range r.system.counted {
		used := (to[role] - from[role]) * 1000 / float64(n)
		r.figures[name] += used
		r.figures[name+":"+role] = used
	}
}

// tooWide is the width of a middle half, as a share of its median, above which a figure is marked.
const tooWide = 0.10

// A spread has the median and the quartiles of one figure over the rounds. The middle half is between the
// quartiles.
type spread struct{ low, median, high float64 }

func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	return spread{quantile(sorted, 0.25), quantile(sorted, 0.5), quantile(sorted, 0.75)}
}

func (s spread) isWide() bool { return s.high-s.low > tooWide*math.Abs(s.median) }

// quantile interpolates between the two nearest of the sorted values; 0 without values.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// confidence is the probability with which an interval contains the true value.
const confidence = 0.95

// leastPairs is the lowest number of differences for which signedRank has an interval of that confidence.
const leastPairs = 6

// signedRank estimates the centre of differences and an interval that contains it, by Wilcoxon's signed-rank
// test. The centre is the median of the means of every two differences (Hodges-Lehmann), and the interval
// ends at the means whose rank the test still accepts. Like a sign test it tolerates outliers and assumes no
// normal distribution, but it needs about a third fewer pairs. It assumes symmetry, which holds because A and
// B take turns in going first. With fewer than leastPairs differences the interval is infinite.
func signedRank(differences []float64) (centre, low, high float64) {
	n := len(differences)
	var means []float64
	for i, a := range differences {
		for _, b := range differences[i:] {
			means = append(means, (a+b)/2)
		}
	}
	slices.Sort(means)
	centre = quantile(means, 0.5)
	if n < leastPairs {
		return centre, math.Inf(-1), math.Inf(1)
	}
	cut := acceptedRank(n)
	return centre, means[cut], means[len(means)-1-cut]
}

// acceptedRank returns the greatest sum of positive ranks of n differences that the two-sided test rejects.
func acceptedRank(n int) int {
	// probability[s] is the probability of the sum s: each rank from 1 to n is in the sum or not, with equal
	// probability.
	probability := make([]float64, n*(n+1)/2+1)
	probability[0] = 1
	for rank := 1; rank <= n; rank++ {
		for s := len(probability) - 1; s >= 0; s-- {
			with := 0.0
			if s >= rank {
				with = probability[s-rank]
			}
			probability[s] = (probability[s] + with) / 2
		}
	}
	sum, total := -1, 0.0
	for total += probability[0]; total <= (1-confidence)/2; total += probability[sum+1] {
		sum++
	}
	return sum
}
