package app_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/app"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/internal/metric"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// openLabels are the labels whose values are not listed in the golden file, and why they are bounded. All
// other labels are closed: their values exist from the start, and no others appear.
var openLabels = map[string]string{
	"route":     "method and pattern of a route, or unmatched",
	"code":      "status code; 500 and 503 exist from the start",
	"version":   "one value",
	"revision":  "one value",
	"goversion": "one value",
	"source":    "a source of the setting relay: its name, or PROJECT/NAME outside of the project default",
	"task":      "a maintenance function, from its first run in the process that runs it",
}

// A family is one metric as the two kinds of installation export it.
type family struct {
	name, kind, help string
	// labels has the values of each label.
	labels map[string]map[string]bool
	// in names the kinds of installation that export it, by what only that kind has.
	in []string
	// edges are the upper edges of a histogram's buckets.
	edges []float64
}

// TestMetrics compares the metrics of the whole program with the golden file. Dashboards and alert rules
// depend on the names, and on the closed labels to exist from the start.
func TestMetrics(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL and a real Redis")
	}
	families := make(map[string]*family)
	outbox := `--relay=[{"name":"pay","dsn":"postgres://relay@127.0.0.1:1/pay"}]`
	for name, args := range map[string][]string{
		"SQLite": append(cmdtest.BothKeys(), outbox),
		"Redis": slices.Concat(cmdtest.BothKeys(), apptest.OwnIndex(t),
			[]string{"--database-url=" + apptest.Migrated(t), outbox}),
	} {
		r := apptest.Start(t, apptest.Settings(t, args...))
		var before map[string]*family
		testserver.Until(t, "the installation is measured and maintained", func() bool {
			before = gather(t, r.Metrics)
			return before["dispatcher_index_items"] != nil && before["dispatcher_processes"] != nil &&
				before["dispatcher_alerts_firing"] != nil &&
				before["dispatcher_task_last_success_timestamp_seconds"] != nil
		})
		work(t, r)
		after := gather(t, r.Metrics)
		for _, f := range after {
			compareSeries(t, before[f.name], f)
			add(families, f, name)
		}
		problems, err := testutil.GatherAndLint(r.Metrics)
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: promlint: %v, %v", name, problems, err)
		}
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(families)) {
		families[name].write(&b)
	}
	transcript.File(t, "testdata/metrics.golden", func(*testing.T, string) string { return b.String() })
	comparePage(t, families)
}

// work gives the server callbacks that end in several ways.
func work(t *testing.T, r *apptest.Running) {
	t.Helper()
	var failing client.Callback
	url := cmdtest.ServeResponse(t, http.StatusInternalServerError, "")
	r.Call(t, http.MethodPost, "/v1/callbacks",
		map[string]any{"url": url, "payload": 1, "policy": "none"}, &failing)
	ok := r.Send(t, cmdtest.ServeResponse(t, http.StatusOK, ""))
	testserver.Until(t, "both end", func() bool {
		return r.State(t, ok) == "succeeded" && r.State(t, failing.ID) == "dead"
	})
}

// gather returns the program's own metrics, and those of the connections to SQL.
func gather(t *testing.T, g prometheus.Gatherer) map[string]*family {
	t.Helper()
	list, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]*family)
	for _, raw := range list {
		if !strings.HasPrefix(raw.GetName(), metric.Prefix) && !strings.HasPrefix(raw.GetName(), "go_sql_") {
			continue
		}
		f := &family{name: raw.GetName(), kind: strings.ToLower(raw.GetType().String()), help: raw.GetHelp(),
			labels: make(map[string]map[string]bool)}
		for _, m := range raw.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.labels[l.GetName()] == nil {
					f.labels[l.GetName()] = make(map[string]bool)
				}
				f.labels[l.GetName()][l.GetValue()] = true
			}
			f.edges = nil
			for _, b := range m.GetHistogram().GetBucket() {
				f.edges = append(f.edges, b.GetUpperBound())
			}
		}
		all[f.name] = f
	}
	return all
}

// compareSeries checks that work created no family and no series of closed labels.
func compareSeries(t *testing.T, before, after *family) {
	t.Helper()
	if after.name == "dispatcher_http_request_duration_seconds" {
		before = after // it begins with the first request of each route
	}
	if before == nil {
		t.Errorf("%s appeared with its first event", after.name)
		return
	}
	for label, values := range after.labels {
		if openLabels[label] == "" && !maps.Equal(values, before.labels[label]) {
			t.Errorf("%s: label %s has the values %v, at the start %v", after.name, label,
				slices.Sorted(maps.Keys(values)), slices.Sorted(maps.Keys(before.labels[label])))
		}
	}
	if strings.HasSuffix(after.name, "_seconds") && after.kind == "histogram" &&
		!slices.Equal(after.edges, metric.Durations()) {
		t.Errorf("%s has the edges %v", after.name, after.edges)
	}
}

// add merges a family of one kind of installation into all.
func add(all map[string]*family, f *family, in string) {
	first := all[f.name]
	if first == nil {
		f.in = []string{in}
		all[f.name] = f
		return
	}
	first.in = append(first.in, in)
	for label, values := range f.labels {
		if first.labels[label] == nil {
			first.labels[label] = values
		}
		maps.Copy(first.labels[label], values)
	}
}

// write writes the family as the golden file has it.
func (f *family) write(b *strings.Builder) {
	fmt.Fprintf(b, "%s %s\n\t%s\n", f.name, f.kind, f.help)
	if len(f.in) == 1 {
		fmt.Fprintf(b, "\tonly: %s\n", f.in[0])
	}
	for _, label := range slices.Sorted(maps.Keys(f.labels)) {
		text := openLabels[label]
		if text == "" {
			text = f.values(label)
		}
		fmt.Fprintf(b, "\t%s: %s\n", label, text)
	}
}

// TestDiskAndConnectionsAreExported checks the metrics of what the program opens.
func TestDiskAndConnectionsAreExported(t *testing.T) {
	t.Parallel()
	r := apptest.Start(t, apptest.Settings(t, cmdtest.BothKeys()...))
	work(t, r)
	got := make(map[string]float64)
	families, err := r.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue()
		}
	}
	for _, name := range []string{"dispatcher_data_free_bytes", "dispatcher_sqlite_bytes db",
		"dispatcher_sqlite_bytes wal", "go_sql_open_connections readers"} {
		if got[name] <= 0 {
			t.Errorf("%s is %g", name, got[name])
		}
	}
}

// values returns the values of a label, separated by spaces. Numbers are in the order of numbers.
func (f *family) values(label string) string {
	values := slices.SortedFunc(maps.Keys(f.labels[label]), func(a, b string) int {
		n, errA := strconv.Atoi(strings.TrimSuffix(a, "+"))
		m, errB := strconv.Atoi(strings.TrimSuffix(b, "+"))
		if errA == nil && errB == nil {
			return n - m
		}
		return strings.Compare(a, b)
	})
	if i := slices.Index(values, ""); i >= 0 {
		values[i] = `""`
	}
	return strings.Join(values, " ")
}

// TestBuildInfo: the linker names the revision, or else the build information.
func TestBuildInfo(t *testing.T) {
	t.Parallel()
	for revision, want := range map[string]bool{"abc123": true, "": false} {
		families := gather(t, app.NewRegistry("v1.2.3", revision))
		info := families["dispatcher_build_info"].labels
		if !info["version"]["v1.2.3"] || info["revision"]["abc123"] != want || info["revision"][""] {
			t.Errorf("revision %q: build_info has %v", revision, info)
		}
	}
}
