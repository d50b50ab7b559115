// Package relay tests the relay of outbox tables over the built binary, on real PostgreSQL and MariaDB
// servers: the matrix of its faults (R1 to R31), a storm of business transactions and kills, and its costs.
//
// An application writes its orders and the rows of its outbox in the same transactions. So the orders are the
// ledger: when a trial ends, each order has exactly one callback, and no other callback exists. make test
// runs some of the faults, make test-full all of them, and make test-long those that take over two minutes.
//
// Time limits are loose, because the machine may do other work too. Ratios of two measures within one run are
// held to their bars.
package relay

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

var relayReport = flag.String("relay-report", "", "file that the table of the faults is written to, as "+
	"Markdown")

// A line of the table is one fault on one database in one mode.
type line struct {
	id, title, on string
	mode          mode
	runs, failed  int
	// rows are committed orders. lost ones have no callback. twice counts callbacks beyond the first of an
	// order.
	rows, lost, twice, replayed int
	healed, took                time.Duration
}

func (l *line) add(o line) {
	l.runs += o.runs
	l.failed += o.failed
	l.rows += o.rows
	l.lost += o.lost
	l.twice += o.twice
	l.replayed += o.replayed
	l.healed = max(l.healed, o.healed)
	l.took = max(l.took, o.took)
}

// figures returns the columns with figures.
func (l *line) figures() string {
	return fmt.Sprintf("%d | %d | %d | %d | %d | %s", l.runs, l.rows, l.lost, l.twice, l.replayed,
		l.healed.Round(100*time.Millisecond))
}

// A table collects the results of the trials.
type table struct {
	mu       sync.Mutex
	lines    []line
	remarks  []string
	failures []string
}

var results table

// enter adds the result of a trial.
func (t *table) enter(found line, failures, remarks []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remarks = append(t.remarks, remarks...)
	for _, f := range failures {
		t.failures = append(t.failures, fmt.Sprintf("%s %s on %s, %s: %s", found.id, found.title, found.on,
			found.mode, f))
	}
	for i := range t.lines {
		l := &t.lines[i]
		if l.id == found.id && l.title == found.title && l.on == found.on && l.mode == found.mode {
			l.add(found)
			return
		}
	}
	t.lines = append(t.lines, found)
}

// note adds the figures of a trial without a line.
func (t *table) note(title string, failures, remarks []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remarks = append(t.remarks, remarks...)
	for _, f := range failures {
		t.failures = append(t.failures, title+": "+f)
	}
}

// order sorts R2 before R10. Lines without a number come last.
func order(a, b line) int {
	number := func(l line) int {
		n, err := strconv.Atoi(strings.TrimPrefix(l.id, "R"))
		if err != nil {
			return 1000
		}
		return n
	}
	return cmp.Or(number(a)-number(b), strings.Compare(a.id, b.id), strings.Compare(a.title, b.title),
		strings.Compare(b.on, a.on), strings.Compare(string(a.mode), string(b.mode)))
}

// print writes the results to the standard output and to the report. It is the last output of a run. Without
// -v and without a report it prints only the failures.
func (t *table) print() error {
	if len(t.lines)+len(t.remarks) == 0 || !testing.Verbose() && *relayReport == "" {
		for _, c := range t.failures {
			fmt.Println("FAILED:", c)
		}
		return nil
	}
	section := t.section()
	fmt.Printf("\nThe relay:\n%s\n", section)
	if *relayReport == "" {
		return nil
	}
	old, err := os.ReadFile(*relayReport)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	faults, costs, _ := strings.Cut(string(old), costsHead)
	if len(t.lines) > 0 {
		faults = fmt.Sprintf(reportHead, time.Now().Format(time.DateOnly)) + section
	} else {
		costs = fmt.Sprintf(costsDay, time.Now().Format(time.DateOnly)) + section
	}
	text := strings.TrimRight(faults, "\n") + "\n"
	if costs != "" {
		text += costsHead + strings.TrimRight(costs, "\n") + "\n"
	}
	return os.WriteFile(*relayReport, []byte(text), 0o644)
}

// section returns the tables, the figures and the failures. A run without faults has no table.
func (t *table) section() string {
	var b strings.Builder
	if len(t.lines) > 0 {
		slices.SortFunc(t.lines, order)
		t.sums(&b)
		b.WriteString("\n## Each fault\n\n| fault | what | source | relay | runs | rows | lost | twice | " +
			"replayed | healed in | took |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
		for _, l := range t.lines {
			failed := ""
			if l.failed > 0 {
				failed = fmt.Sprintf(" %d FAILED", l.failed)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s%s |\n", l.id, l.title, l.on, l.mode, l.figures(),
				l.took.Round(time.Second), failed)
		}
		b.WriteString("\n## Figures of the faults\n")
	}
	slices.Sort(t.remarks)
	for _, r := range t.remarks {
		b.WriteString("\n" + harness.ListItem(r))
	}
	for _, c := range t.failures {
		b.WriteString("\n" + harness.ListItem("FAILED: "+c))
	}
	return b.String()
}

// sums writes one line for each database and mode, and one for all.
func (t *table) sums(b *strings.Builder) {
	b.WriteString("| source | relay | runs | rows | lost | twice | replayed | healed in |\n" +
		"|---|---|---|---|---|---|---|---|\n")
	var all line
	sums := map[string]*line{}
	for _, l := range t.lines {
		name := l.on + " | " + string(l.mode)
		if sums[name] == nil {
			sums[name] = &line{on: name}
		}
		sums[name].add(l)
		all.add(l)
	}
	names := make([]string, 0, len(sums))
	for name := range sums {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(b, "| %s | %s |\n", name, sums[name].figures())
	}
	fmt.Fprintf(b, "| all | | %s |\n", all.figures())
}

// reportHead is the head of the report. Its argument is the day of the run.
const reportHead = `# The relay of outbox tables, as measured

` + "`make test-full`" + ` ran these faults on %s and wrote this page. In each run an application commits
orders and the rows of its outbox table in the same transactions. After the fault each order must have exactly
one callback.

| column | meaning |
|---|---|
| source | the database of the application |
| relay | a process of its own that uses the HTTP API, or a part of the dispatcher |
| rows | committed rows of the outbox |
| lost | rows without a callback; the run fails unless it is zero |
| twice | callbacks beyond the first one of a row; the run fails unless it is zero |
| replayed | rows that the relay submitted again because it could not know that they were accepted |
| healed in | time from the end of the last fault to the end of the last callback |
| took | time of the longest run, with the start of its servers |

## Sums

`

// costsHead begins the section of the costs, which another run writes. costsDay has the day of that run.
const (
	costsHead = "\n## Costs\n\n"
	costsDay  = `Measured on %s, with all processes on one machine. A ratio is the median of pairs of measures
that alternate. If it misses what is required, all pairs are measured again, at most three times: the best
median counts.
`
)
