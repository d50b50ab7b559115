package bench

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
)

// Each part of the scale benchmark has a block of its own in the document, so that it can be measured by itself.
const (
	blockSQL     = "scale-sql"
	blockIndex   = "scale-index"
	blockCluster = "scale-cluster"
	blockWire    = "scale-wire"
)

// A section is a part of the report that is not of the comparison: a text and its tables.
type section struct {
	intro  string
	tables []titled
}

func (s section) console() string { return (&report{intro: s.intro, tables: s.tables}).console() }
func (s section) markdown() string {
	var b strings.Builder
	fmt.Fprintln(&b, s.intro)
	for _, t := range s.tables {
		fmt.Fprintf(&b, "\n#### %s\n\n%s\n", t.title, t.table.RenderMarkdown())
	}
	return b.String()
}

// publish prints the section and, where that is wanted, writes it into its block of the document.
func (s section) publish(t *testing.T, block string) {
	t.Helper()
	fmt.Println("\n" + s.console())
	if chosen.report != "" && !t.Failed() {
		if err := rewrite(chosen.report, func(document string) (string, error) {
			return replaceBlock(document, block, s.markdown())
		}); err != nil {
			t.Fatalf("write the report: %v", err)
		}
	}
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

// machine says when, where and with what something was measured.
func machine(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("%s, %s/%s, %d cores, %s, %s.",
		time.Now().UTC().Format(time.DateOnly), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), serverVersions(t))
}

// A measure is one line of the table of figures.
type measure struct {
	text, figure, format string
	by                   float64
}

var scaleMeasures = []measure{
	{"open callbacks put into an empty index", openRows, "%.0f", 1},
	{"… in s", rebuildTime, "%.1f", 1},
	{"… a second", rebuildSpeed, "%.0f", 1},
	{"… CPU s for 1,000, all processes", rebuildCPU, "%.3f", 1},
	{"from the start of the process to its first send, s", firstSend, "%.2f", 1},
	{"most memory of the dispatcher, MB", memory + ":" + roleDispatcher, "%.0f", 1e-6},
	{"Redis, bytes for one that is pending", redisPerPending, "%.0f", 1},
	{"SQL, bytes for a callback", sqlPerCallback, "%.0f", 1},
	{"… its row, with indexes", "callbacks row", "%.0f", 1},
	{"… its payload of 512 bytes", "payloads row", "%.0f", 1},
	{"… each attempt", "attempts row", "%.0f", 1},
	{"… an idempotency key", "idempotency row", "%.0f", 1},
	{"lateness of delayed ones beside them: p50 ms", lateness + p50, "%.2f", 1},
	{"… p99 ms", lateness + p99, "%.2f", 1},
	{"… most ms", lateness + largest, "%.1f", 1},
	{"… early", lateness + earlyOnes, "%.0f", 1},
	{"delivered/s beside them", delivered, "%.0f", 1},
	{"… CPU s per 1,000", deliverCPU, "%.3f", 1},
	{"accepted/s in batches of 100 beside them", batchAccepted, "%.0f", 1},
	{"… CPU s per 1,000", batchCPU, "%.3f", 1},
	{"WAL, bytes for one that is accepted and delivered", walPerCallback, "%.0f", 1},
	{"… of it pages logged whole, for 1,000", walPages, "%.0f", 1},
	{"… commits for 1,000", walCommits, "%.1f", 1},
	{"… syncs of the log for 1,000", walSyncs, "%.1f", 1},
}

func (m measure) of(f figures) string {
	v, measured := f[m.figure]
	if !measured {
		return "–"
	}
	return fmt.Sprintf(m.format, v*m.by)
}

// figuresTable has a column for each database.
func figuresTable(all []*scaled) table.Writer {
	header := []any{""}
	for _, x := range all {
		header = append(header, x.label())
	}
	w := newTable(1, header...)
	for _, m := range scaleMeasures {
		line := table.Row{m.text}
		for _, x := range all {
			line = append(line, m.of(x.figures))
		}
		w.AppendRow(line)
	}
	return w
}

// readsTable has three columns for each database.
func readsTable(all []*scaled) table.Writer {
	header := []any{"request"}
	for _, x := range all {
		header = append(header, "("+x.key+") p50 ms", "p99 ms", "callbacks on a page")
	}
	w := newTable(1, header...)
	for i := range all[0].reads {
		line := table.Row{all[0].reads[i].name}
		for _, x := range all {
			r := x.reads[i]
			line = append(line, fmt.Sprintf("%.1f", r.p50), fmt.Sprintf("%.1f", r.p99), fmt.Sprintf("%.1f", r.rows))
		}
		w.AppendRow(line)
	}
	return w
}

// readGoals are the most that the 99th percentile of any kind of read may be, in ms.
var readGoals = map[string]float64{"b": 100, "c": 50}

const (
	latenessGoal    = 15  // ms, the 99th percentile with a million pending
	perPendingGoal  = 250 // bytes
	claimGoal       = 1000
	claimGrowthGoal = 2.5
)

// A verdict is how a goal stands.
type verdict struct {
	text, figure, most string
	holds              bool
}

func (x *scaled) verdicts() []verdict {
	slowest := slices.MaxFunc(x.reads, func(a, b readFigures) int { return int(1000 * (a.p99 - b.p99)) })
	all := []verdict{
		{
			fmt.Sprintf("(%s) p99 of the slowest kind of read, ms: %s", x.key, slowest.name),
			fmt.Sprintf("%.1f", slowest.p99), fmt.Sprintf("%.0f", readGoals[x.key]), slowest.p99 <= readGoals[x.key],
		},
		{
			fmt.Sprintf("(%s) p99 of lateness, ms", x.key), fmt.Sprintf("%.2f", x.figures[lateness+p99]), fmt.Sprint(latenessGoal),
			x.figures[lateness+p99] <= latenessGoal,
		},
		{fmt.Sprintf("(%s) delayed callbacks that were early", x.key), fmt.Sprintf("%.0f", x.figures[lateness+earlyOnes]), "0", x.figures[lateness+earlyOnes] == 0},
	}
	if per, measured := x.figures[redisPerPending]; measured {
		all = append(all, verdict{fmt.Sprintf("(%s) bytes of Redis for one that is pending", x.key), fmt.Sprintf("%.0f", per), fmt.Sprint(perPendingGoal), per <= perPendingGoal})
	}
	return all
}

func verdictsTable(all []verdict) table.Writer {
	w := newTable(1, "goal", "at most", "figure", "holds")
	for _, v := range all {
		w.AppendRow(table.Row{v.text, v.most, v.figure, map[bool]string{true: "yes", false: "no"}[v.holds]})
	}
	return w
}

// judge fails the test for goals that are missed, if it is to check them.
func judge(t *testing.T, all []verdict) {
	t.Helper()
	for _, v := range all {
		if chosen.check && !v.holds {
			t.Errorf("goal missed: %s: %s, at most %s", v.text, v.figure, v.most)
		}
	}
}

// publishScale reports what TestScale has measured.
func publishScale(t *testing.T, all []*scaled, began, ended load) {
	t.Helper()
	x := all[0]
	intro := fmt.Sprintf("%s %d callbacks in %d lanes, of which %d are open and the others ended, with %d attempts; seeded in %s. %d requests of each kind, %d at once. It took %s; "+
		"others used %.0f %% of the machine's CPU time meanwhile.",
		machine(t), x.rows, chosen.lanes, x.seeded.pending, x.attempts, seedTimes(all), chosen.requests, chosen.readers,
		ended.at.Sub(began.at).Round(time.Second), ended.othersSince(began))
	var verdicts []verdict
	for _, x := range all {
		verdicts = append(verdicts, x.verdicts()...)
	}
	section{intro, []titled{
		{"What they take, and what is done beside them", figuresTable(all)},
		{"Reads of the API", readsTable(all)},
		{"Goals", verdictsTable(verdicts)},
	}}.publish(t, chosen.block)
	judge(t, verdicts)
}

func seedTimes(all []*scaled) string {
	var texts []string
	for _, x := range all {
		texts = append(texts, fmt.Sprintf("%s (%s)", x.took.Round(time.Second), x.key))
	}
	return strings.Join(texts, " and ")
}
