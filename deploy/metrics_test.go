package deploy

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// A metric has a type, and the text of the contract about the values of each label.
type metric struct {
	kind   string
	labels map[string]string
}

// contract reads the metrics of dispatcher from the file that a test of the program holds, and adds those of
// the libraries and of Prometheus.
func contract(t *testing.T) map[string]metric {
	t.Helper()
	text, err := os.ReadFile("../cmd/dispatcher/internal/app/testdata/metrics.golden")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]metric{"up": {}, "dispatcher_backup_last_success_timestamp_seconds": {}}
	name, help := "", false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		value, indented := strings.CutPrefix(line, "\t")
		if !indented {
			var kind string
			name, kind, _ = strings.Cut(line, " ")
			known[name], help = metric{kind, map[string]string{}}, true
			continue
		}
		if label, values, ok := strings.Cut(value, ": "); ok && !help {
			known[name].labels[label] = values
		}
		help = false // the first line below a name is its help
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if _, ours := known[f.GetName()]; !ours {
			known[f.GetName()] = metric{kind: strings.ToLower(f.GetType().String())}
		}
	}
	if len(known) < 80 {
		t.Fatalf("found %d metrics", len(known))
	}
	return known
}

var (
	// selected matches a metric in an expression, with its matchers.
	selected = regexp.MustCompile(`\b((?:dispatcher|go|process)_\w+|up\b|dispatcher:[\w:]+)(\{[^}]*\})?`)
	// matched matches one matcher.
	matched = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
	// grouped matches the labels of an aggregation or of a vector match.
	grouped = regexp.MustCompile(`\b(?:by|on|without|ignoring)\s*\(([^)]*)\)`)
)

// openLabels are labels with values that no list has. Prometheus adds job and instance.
var openLabels = []string{"job", "instance", "route", "code", "version", "task", "source", "le"}

// TestMetricsExist checks that each metric, label and value in the rules, their tests and the dashboard is in
// the contract.
func TestMetricsExist(t *testing.T) {
	known := contract(t)
	texts := expressions()
	for _, r := range rules(t) {
		texts = append(texts, r.Expr)
		if r.Record != "" {
			known[r.Record] = metric{}
		}
	}
	for _, name := range ruleTests(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	wrong := map[string]bool{}
	used := 0
	for _, text := range texts {
		labels := map[string]bool{}
		for _, found := range selected.FindAllStringSubmatch(text, -1) {
			used++
			for _, problem := range unknown(known, found[1], found[2], labels) {
				wrong[problem] = true
			}
		}
		for _, found := range grouped.FindAllStringSubmatch(text, -1) {
			for label := range strings.SplitSeq(found[1], ",") {
				label = strings.TrimSpace(label)
				if label != "" && !labels[label] && !slices.Contains(openLabels, label) {
					wrong["label "+label+" of an aggregation: "+text] = true
				}
			}
		}
	}
	for text := range wrong {
		t.Error(text)
	}
	if used < 200 {
		t.Errorf("found only %d metrics", used)
	}
}

// unknown returns what a selector has that the contract does not. It adds the labels of the metric to labels.
func unknown(known map[string]metric, name, matchers string, labels map[string]bool) (problems []string) {
	m, ok := known[name]
	if !ok {
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		m, ok = known[base]
		ok = ok && m.kind == "histogram"
	}
	if !ok {
		return []string{name + " is not in the contract"}
	}
	for label := range m.labels {
		labels[label] = true
	}
	for _, found := range matched.FindAllStringSubmatch(matchers, -1) {
		label := found[1]
		values, listed := m.labels[label]
		if slices.Contains(openLabels, label) {
			continue
		}
		if !listed {
			problems = append(problems, name+" has no label "+label)
			continue
		}
		for value := range strings.SplitSeq(found[2], "|") {
			if value != "" && !slices.Contains(strings.Fields(values), value) {
				problems = append(problems, name+": "+label+" has no value "+value)
			}
		}
	}
	return problems
}
