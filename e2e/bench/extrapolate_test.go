package bench

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/table"
)

// docs/scaling.md has a table of inputs, chosen or measured, and one of results, which is worked out here from the inputs alone:
// so every figure in it follows from what stands above it.

// inputs are those that have a value.
type inputs map[string]float64

var inputLine = regexp.MustCompile("^\\| `(\\w+)` \\| (.*) \\| (\\S+) \\| (.*) \\|$")

// noValue stands for what has not been measured, and for results that need it.
const noValue = "–"

// readInputs reads the table.
func readInputs(document string) (inputs, error) {
	block, err := blockOf(document, "inputs")
	if err != nil {
		return nil, err
	}
	in := inputs{}
	for line := range strings.Lines(block) {
		line = strings.TrimSpace(line)
		m := inputLine.FindStringSubmatch(line)
		switch {
		case m == nil && strings.HasPrefix(line, "| `"):
			return nil, fmt.Errorf("input %q cannot be read", line)
		case m == nil || m[3] == noValue:
			continue
		}
		if _, twice := in[m[1]]; twice {
			return nil, fmt.Errorf("input %s is there twice", m[1])
		}
		if in[m[1]], err = strconv.ParseFloat(m[3], 64); err != nil || in[m[1]] < 0 {
			return nil, fmt.Errorf("input %s is %q: %w", m[1], m[3], err)
		}
	}
	return in, nil
}

// blockOf is what stands between the two markers of that name.
func blockOf(document, name string) (string, error) {
	_, rest, found := strings.Cut(document, "<!-- "+name+" -->")
	block, _, ended := strings.Cut(rest, "<!-- /"+name+" -->")
	if !found || !ended {
		return "", fmt.Errorf("there is no block %s", name)
	}
	return block, nil
}

// setInputs writes what was measured, and from where, into the table, and works out the results.
func setInputs(document string, measured inputs, from string) (string, error) {
	block, err := blockOf(document, "inputs")
	if err != nil {
		return "", err
	}
	var lines []string
	set := 0
	for line := range strings.Lines(block) {
		line = strings.TrimSpace(line)
		if m := inputLine.FindStringSubmatch(line); m != nil {
			if v, has := measured[m[1]]; has {
				line = fmt.Sprintf("| `%s` | %s | %s | %s |", m[1], m[2], figure(v), from)
				set++
			}
		}
		lines = append(lines, line)
	}
	if set != len(measured) {
		return "", fmt.Errorf("%d of %d inputs have a line", set, len(measured))
	}
	document, err = replaceBlock(document, "inputs", strings.Join(lines, "\n"))
	if err != nil {
		return "", err
	}
	return workOut(document)
}

// workOut replaces the table of results.
func workOut(document string) (string, error) {
	in, err := readInputs(document)
	if err != nil {
		return "", err
	}
	return replaceBlock(document, "results", resultsTable(in).RenderMarkdown())
}

// figure prints three digits, and no zeros that say nothing.
func figure(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	digits := 2 - int(math.Floor(math.Log10(v)))
	text := strconv.FormatFloat(v, 'f', max(0, digits), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// A result is one line: what it is, how it is worked out, and of which inputs.
type result struct {
	group, text, formula string
	value                func(inputs) float64
}

// need returns an input. A result that asks for one without a value has none itself.
func (in inputs) need(name string) float64 {
	v, has := in[name]
	if !has {
		return math.NaN()
	}
	return v
}

// perSecond is how many callbacks come in the busiest second.
func (in inputs) perSecond() float64 { return in.need("per_day") / 86400 * in.need("peak") }

// cores are those that so much CPU time for 1,000 accepted alone, in batches and for 1,000 attempts takes in the busiest second.
func (in inputs) cores(alone, batch, attempt string) float64 {
	share := in.need("alone")
	accept := share*in.need(alone) + (1-share)*in.need(batch)
	if share == 1 {
		accept = in.need(alone)
	}
	return in.perSecond() * (accept + in.need("attempts")*in.need(attempt)) / 1000
}

func (in inputs) dispatcherCores() float64 {
	return in.cores("dispatcher_alone", "dispatcher_batch", "dispatcher_attempt")
}

func (in inputs) sqlCores() float64 { return in.cores("sql_alone", "sql_batch", "sql_attempt") }
func (in inputs) redisCores() float64 {
	return in.cores("redis_accept", "redis_accept", "redis_attempt")
}
func (in inputs) inFlight() float64 { return in.perSecond() * in.need("attempts") * in.need("waits") }
func (in inputs) opened() float64   { return in.need("per_day") * in.need("open") }

// walMB is the log of the busiest second in MB; a second attempt logs as much as the first and its accept at most.
func (in inputs) walMB() float64 {
	return in.perSecond() * in.need("wal_bytes") * in.need("attempts") / 1e6
}

// storedTB is what SQL holds when retention has begun to remove, without what is open.
func (in inputs) storedTB() float64 {
	return in.need("per_day") * (in.need("payload_days")*in.need("payload_bytes") +
		in.need("metadata_days")*(in.need("row_bytes")+in.need("attempts")*in.need("attempt_bytes")) +
		in.need("key_days")*in.need("key_bytes")) / 1e12
}

func (in inputs) sqlsByCPU() float64 {
	return math.Ceil(in.sqlCores() / in.need("sql_cores") / in.need("full"))
}
func (in inputs) sqlsByLog() float64  { return math.Ceil(in.walMB() / in.need("sql_wal")) }
func (in inputs) sqlsByDisk() float64 { return math.Ceil(in.storedTB() / in.need("sql_disk")) }

func (in inputs) gigabits(names ...string) float64 {
	sum := 0.0
	for _, name := range names {
		sum += in.need(name)
	}
	return in.perSecond() * sum * 8 / 1e9
}

// attemptGigabits is the same for each attempt.
func (in inputs) attemptGigabits(names ...string) float64 {
	return in.gigabits(names...) * in.need("attempts")
}

var results = []result{
	{"load", "callbacks a second, on average", "per_day ÷ 86,400", func(in inputs) float64 { return in.need("per_day") / 86400 }},
	{"load", "in the busiest second", "× peak", inputs.perSecond},
	{"load", "attempts in the busiest second", "× attempts", func(in inputs) float64 { return in.perSecond() * in.need("attempts") }},
	{"dispatchers", "cores in use at the peak", "accepts × (alone × dispatcher_alone + …) + attempts × dispatcher_attempt", inputs.dispatcherCores},
	{"dispatchers", "machines, by CPU", "÷ dispatcher_cores ÷ full", func(in inputs) float64 {
		return math.Ceil(in.dispatcherCores() / in.need("dispatcher_cores") / in.need("full"))
	}},
	{"dispatchers", "attempts in flight", "attempts × waits", inputs.inFlight},
	{"dispatchers", "processes, by slots of 512", "÷ 512", func(in inputs) float64 { return math.Ceil(in.inFlight() / 512) }},
	{"Redis", "cores in use at the peak", "accepts × redis_accept + attempts × redis_attempt", inputs.redisCores},
	{"Redis", "masters, one core each", "÷ full", func(in inputs) float64 { return math.Ceil(in.redisCores() / in.need("full")) }},
	{"Redis", "memory with all that is open, GB", "per_day × open × redis_bytes", func(in inputs) float64 { return in.opened() * in.need("redis_bytes") / 1e9 }},
	{"Redis", "memory with a horizon, GB", "× near", func(in inputs) float64 { return in.opened() * in.need("near") * in.need("redis_bytes") / 1e9 }},
	{"Redis", "minutes to fill an empty index", "per_day × open ÷ rebuild", func(in inputs) float64 { return in.opened() / in.need("rebuild") / 60 }},
	{"Redis", "minutes with a horizon", "× near", func(in inputs) float64 { return in.opened() * in.need("near") / in.need("rebuild") / 60 }},
	{"PostgreSQL", "cores in use at the peak", "accepts × (alone × sql_alone + …) + attempts × sql_attempt", inputs.sqlCores},
	{"PostgreSQL", "log at the peak, MB/s", "callbacks × attempts × wal_bytes", inputs.walMB},
	{"PostgreSQL", "log of a day, TB", "per_day × attempts × wal_bytes", func(in inputs) float64 {
		return in.need("per_day") * in.need("attempts") * in.need("wal_bytes") / 1e12
	}},
	{"PostgreSQL", "syncs of the log at the peak, a second", "callbacks × attempts × wal_syncs ÷ 1,000", func(in inputs) float64 {
		return in.perSecond() * in.need("attempts") * in.need("wal_syncs") / 1000
	}},
	{"PostgreSQL", "a day's partitions, TB", "per_day × (row_bytes + payload_bytes + attempts × attempt_bytes)", func(in inputs) float64 {
		return in.need("per_day") * (in.need("row_bytes") + in.need("payload_bytes") + in.need("attempts")*in.need("attempt_bytes")) / 1e12
	}},
	{"PostgreSQL", "stored when retention removes as much as comes, TB", "per_day × days × bytes, of each table", inputs.storedTB},
	{"PostgreSQL", "databases, by CPU", "÷ sql_cores ÷ full", inputs.sqlsByCPU},
	{"PostgreSQL", "databases, by log", "÷ sql_wal", inputs.sqlsByLog},
	{"PostgreSQL", "databases, by disk", "÷ sql_disk", inputs.sqlsByDisk},
	{"PostgreSQL", "databases: the most of the three", "installations, each with its own Redis", func(in inputs) float64 {
		return math.Max(in.sqlsByCPU(), math.Max(in.sqlsByLog(), in.sqlsByDisk()))
	}},
	{"network", "callers to dispatchers and back, Gbit/s", "callbacks × (api_in + api_out)", func(in inputs) float64 { return in.gigabits("api_in", "api_out") }},
	{"network", "dispatchers to receivers and back, Gbit/s", "attempts × (sent + answered)", func(in inputs) float64 { return in.attemptGigabits("sent", "answered") }},
	{"network", "dispatchers to PostgreSQL and back, Gbit/s", "attempts × (sql_in + sql_out)", func(in inputs) float64 { return in.attemptGigabits("sql_in", "sql_out") }},
	{"network", "dispatchers to Redis and back, Gbit/s", "attempts × redis_wire", func(in inputs) float64 { return in.attemptGigabits("redis_wire") }},
}

func resultsTable(in inputs) table.Writer {
	w := table.NewWriter()
	w.AppendHeader(table.Row{"of", "result", "worked out from", "value"})
	last := ""
	for _, r := range results {
		group := r.group
		if group == last {
			group = ""
		}
		last = r.group
		value := noValue
		if v := r.value(in); !math.IsNaN(v) {
			value = figure(v)
		}
		w.AppendRow(table.Row{group, r.text, r.formula, value})
	}
	return w
}

// scalingDocument is where the tables stand.
var scalingDocument = filepath.Join("..", "..", "docs", "scaling.md")

// TestScalingAddsUp compares the results with the inputs. With -scaling it works them out anew in that file instead.
func TestScalingAddsUp(t *testing.T) {
	if chosen.scaling != "" {
		if err := rewrite(chosen.scaling, workOut); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(scalingDocument)
	if err != nil {
		t.Fatal(err)
	}
	want, err := workOut(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if want != string(text) {
		t.Errorf("%s: the results are not those of the inputs: run this test with -args -scaling %s", scalingDocument, scalingDocument)
	}
}

// publishInputs writes what was measured into the table of inputs, where that is wanted.
func publishInputs(t *testing.T, measured inputs, from string) {
	t.Helper()
	if chosen.scaling == "" || t.Failed() {
		return
	}
	if err := rewrite(chosen.scaling, func(document string) (string, error) { return setInputs(document, measured, from) }); err != nil {
		t.Fatalf("write the inputs: %v", err)
	}
}
