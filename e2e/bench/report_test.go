package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// A report is what the run has to say.
type report struct {
	book
	intro   string // what was measured, when and where
	systems []system
	tables  []titled
}

// A titled is a table with what stands above it.
type titled struct {
	title string
	table table.Writer
}

func newReport(b book, intro string, measured []system, concurrencies []int) *report {
	r := &report{book: b, intro: intro, systems: measured}
	for _, t := range []titled{
		{"Draining a backlog", r.draining(concurrencies)},
		{"Accepting", r.accepting()},
		{"From the request to the receiver", r.latencies()},
		{"Lateness of delayed callbacks", r.latenesses()},
		{"Goals", r.goals()},
	} {
		if t.table.Length() > 0 {
			r.tables = append(r.tables, t)
		}
	}
	return r
}

// newTable makes one; the columns after the first so many are numbers.
func newTable(texts int, header ...any) table.Writer {
	w := table.NewWriter()
	w.SetStyle(table.StyleLight)
	w.Style().Format.Header = text.FormatDefault
	w.AppendHeader(header)
	var numbers []table.ColumnConfig
	for i := texts + 1; i <= len(header); i++ {
		numbers = append(numbers, table.ColumnConfig{Number: i, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	w.SetColumnConfigs(numbers)
	return w
}

// cell prints the median with the least and the most, where there are several rounds.
func cell(s spread, format string) string {
	switch s.rounds {
	case 0:
		return "–"
	case 1:
		return fmt.Sprintf(format, s.median)
	}
	return fmt.Sprintf(format+" ("+format+"–"+format+")", s.median, s.least, s.most)
}

// scaled is the spread in another unit.
func (s spread) scaled(by float64) spread {
	s.median, s.least, s.most = s.median*by, s.least*by, s.most*by
	return s
}

// split prints the medians of a figure's parts that count.
func (r *report) split(s system, at row, name, format string, by float64) string {
	if len(s.counted) < 2 {
		return "–"
	}
	var all []string
	for _, role := range s.counted {
		all = append(all, fmt.Sprintf("%s "+format, role, r.of(at, name+":"+role).median*by))
	}
	return strings.Join(all, ", ")
}

func (s system) label() string { return fmt.Sprintf("(%s) %s, %s", s.key, s.name, s.on) }

func (r *report) draining(concurrencies []int) table.Writer {
	w := newTable(1, "system", "at once", "delivered/s", "÷ (a)", "CPU s per 1,000", "of it", "receiver's own", "memory, MB", "of it")
	for _, concurrency := range concurrencies {
		for _, s := range r.systems {
			at := row{s.key, concurrency}
			if r.of(at, delivered).rounds == 0 {
				continue
			}
			toFloor := "1"
			if s.key != "a" {
				toFloor = cell(r.ratio(at, row{"a", concurrency}, delivered), "%.2f")
			}
			w.AppendRow(table.Row{
				s.label(), concurrency, cell(r.of(at, delivered), "%.0f"), toFloor,
				cell(r.of(at, deliverCPU), "%.3f"), r.split(s, at, deliverCPU, "%.3f", 1), cell(r.of(at, deliverCPU+":"+roleReceiver), "%.3f"),
				cell(r.of(at, memory).scaled(1e-6), "%.0f"), r.split(s, at, memory, "%.0f", 1e-6),
			})
		}
	}
	return w
}

func (r *report) accepting() table.Writer {
	w := newTable(2, "system", "requests", "accepted/s", "CPU s per 1,000", "of it")
	for _, how := range []struct{ text, rate, cpu string }{
		{fmt.Sprintf("single, %d connections", connections), singleAccepted, singleCPU},
		{fmt.Sprintf("batches of %d, %d connections", batchSize, batchConnections), batchAccepted, batchCPU},
	} {
		for _, s := range r.systems {
			at := row{s.key, connections}
			if r.of(at, how.rate).rounds > 0 {
				w.AppendRow(table.Row{
					s.label(), how.text, cell(r.of(at, how.rate), "%.0f"), cell(r.of(at, how.cpu), "%.3f"), r.split(s, at, how.cpu, "%.3f", 1),
				})
			}
		}
	}
	return w
}

func (r *report) latencies() table.Writer {
	w := newTable(1, "system", "callbacks/s", "from the request: p50 ms", "p99 ms", "from its answer: p50 ms", "p99 ms")
	for _, name := range []string{lowLatency, halfLatency} {
		for _, s := range r.systems {
			at := row{s.key, connections}
			if r.of(at, name+p50).rounds > 0 {
				w.AppendRow(table.Row{
					s.label(), cell(r.of(at, name+loopRate), "%.0f"), cell(r.of(at, name+p50), "%.2f"), cell(r.of(at, name+p99), "%.2f"),
					cell(r.of(at, name+afterAnswer+p50), "%.2f"), cell(r.of(at, name+afterAnswer+p99), "%.2f"),
				})
			}
		}
	}
	return w
}

func (r *report) latenesses() table.Writer {
	w := newTable(1, "system", "p50 ms", "p99 ms", "most ms", "early")
	for _, s := range r.systems {
		at := row{s.key, connections}
		if r.of(at, lateness+p50).rounds > 0 {
			w.AppendRow(table.Row{
				s.label(), cell(r.of(at, lateness+p50), "%.2f"), cell(r.of(at, lateness+p99), "%.2f"),
				cell(r.of(at, lateness+largest), "%.1f"), fmt.Sprintf("%.0f", r.of(at, lateness+earlyOnes).most),
			})
		}
	}
	return w
}

func (r *report) goals() table.Writer {
	w := newTable(1, "goal", "must be", "figure", "holds")
	for _, g := range goals {
		s, measured, holds := g.verdict(r.book)
		sign, verdict := "≤ ", "no"
		if g.least {
			sign = "≥ "
		}
		if holds {
			verdict = "yes"
		}
		if measured {
			w.AppendRow(table.Row{g.text, sign + trimmed(g.limit), cell(s, g.format), verdict})
		}
	}
	return w
}

// trimmed prints a number with the digits that it has.
func trimmed(x float64) string {
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.3f", x), "0"), ".")
}

// console is the report for a terminal.
func (r *report) console() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.intro)
	for _, t := range r.tables {
		fmt.Fprintf(&b, "\n%s\n%s\n", t.title, t.table.Render())
	}
	return b.String()
}

// markdown is the generated block of the document.
func (r *report) markdown(chart string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n![%s](%s)\n", r.intro, chartTitle, chart)
	for _, t := range r.tables {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n", t.title, t.table.RenderMarkdown())
	}
	return b.String()
}

// write replaces the generated block of a document and writes the chart beside it.
func (r *report) write(name string) error {
	document, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	chart := strings.TrimSuffix(name, filepath.Ext(name)) + ".svg"
	replaced, err := replaceBlock(string(document), "compare", r.markdown(filepath.Base(chart)))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := os.WriteFile(chart, r.chart(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(replaced), 0o644)
}

// replaceBlock puts a text between the two markers of that name, which must be there once.
func replaceBlock(document, name, content string) (string, error) {
	begin, end := "<!-- "+name+" -->", "<!-- /"+name+" -->"
	if strings.Count(document, begin) != 1 || strings.Count(document, end) != 1 {
		return "", fmt.Errorf("the markers %s and %s are not there once each", begin, end)
	}
	head, rest, _ := strings.Cut(document, begin)
	_, tail, found := strings.Cut(rest, end)
	if !found {
		return "", fmt.Errorf("%s stands before %s", end, begin)
	}
	return head + begin + "\n" + strings.TrimSpace(content) + "\n" + end + tail, nil
}
