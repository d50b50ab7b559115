package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// noValue stands for a figure that was not measured.
const noValue = "–"

// A table of a report. Cells of the first columns are texts, those of the others are aligned as numbers.
type table struct {
	title  string
	texts  int
	header []string
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// markdown is the table, padded so that a terminal shows it well too.
func (t *table) markdown() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	rule := slices.Repeat([]string{"---:"}, len(t.header))
	copy(rule, slices.Repeat([]string{"---"}, t.texts))
	for _, cells := range append([][]string{t.header, rule}, t.rows...) {
		fmt.Fprintln(w, "| "+strings.Join(cells, "\t| ")+"\t|")
	}
	w.Flush() // to a builder it never fails
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
	fmt.Fprintln(&b, r.intro)
	for _, t := range r.tables {
		if len(t.rows) > 0 {
			fmt.Fprintf(&b, "\n%s %s\n\n%s", r.heading, t.title, t.markdown())
		}
	}
	return b.String()
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

// blockOf cuts a document at the two markers of a block, which it must have once.
func blockOf(document, name string) (head, block, tail string, err error) {
	begin, end := "<!-- "+name+" -->", "<!-- /"+name+" -->"
	head, rest, found := strings.Cut(document, begin)
	block, tail, ended := strings.Cut(rest, end)
	if !found || !ended || strings.Count(document, begin)+strings.Count(document, end) != 2 {
		return "", "", "", errors.New("the markers of the block " + name + " are not there once each")
	}
	return head + begin, block, end + tail, nil
}

func replaceBlock(document, name, content string) (string, error) {
	head, _, tail, err := blockOf(document, name)
	return head + "\n" + strings.TrimSpace(content) + "\n" + tail, err
}

// show prints a figure over the rounds: the median, and the middle half if there are several rounds.
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

// doubt marks a figure whose middle half is too wide.
const doubt = " !"

// judge is show for figures that do not depend on how fast the machine is: a wide middle half is marked.
func judge(values []float64, format string) string {
	if len(values) > 0 && spreadOf(values).doubtful() {
		return show(values, format) + doubt
	}
	return show(values, format)
}

// report is the comparison's.
func (c *comparison) report(intro string) report {
	r := report{heading: "###", tables: []*table{c.rates(), c.times(), c.goals()}}
	if n := strings.Count(r.tables[0].markdown()+r.tables[1].markdown(), doubt); n > 0 {
		intro += fmt.Sprintf(" **%d figures are marked with \"%s\": their middle half is wider than %.0f %% "+
			"of the median. Do not build on them; measure again on a quieter machine.**", n, doubt[1:], 100*tooWide)
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
			if len(c.book.of(at, rate)) == 0 {
				continue
			}
			t.add(p.text, s.label,
				judge(c.book.ratios(at, base, rate), "%.2f"), judge(c.book.ratios(at, base, cpuTime), "%.2f"),
				show(c.book.of(at, rate), "%.0f"), show(c.book.of(at, cpuTime), "%.3f"),
				c.book.split(at, s.counted, cpuTime), megabytes(c.book.of(at, memory)))
		}
	}
	return t
}

// split prints the medians of the roles' parts of a figure.
func (b book) split(at cell, roles []string, name string) string {
	if len(roles) < 2 {
		return noValue
	}
	var parts []string
	for _, role := range roles {
		parts = append(parts, fmt.Sprintf("%s %.3f", role, spreadOf(b.of(at, name+":"+role)).median))
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
			if len(c.book.of(at, p50)) > 0 {
				t.add(p.text, s.label, judge(c.book.of(at, p50), "%.2f"), judge(c.book.of(at, p99), "%.2f"),
					show(c.book.of(at, answered+p50), "%.2f"), show(c.book.of(at, answered+p99), "%.2f"),
					show(c.book.of(at, largest), "%.1f"))
			}
		}
	}
	return t
}
