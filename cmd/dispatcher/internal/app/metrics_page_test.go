package app_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/metric"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// metricsPage is the page about metrics. comparePage writes it.
const metricsPage = "../../../../docs/reference/metrics.md"

// A group is one section of the page. Its names are without the prefix.
type group struct {
	title, text string
	names       []string
}

// groups are the sections of the page in their order. A metric must be in exactly one.
var groups = []group{
	{"What is overdue, and what waits?", "These are figures of the whole installation. One process " +
		"measures them every 15 s and exports them.\nA value lapses after a minute. So take `max` over all " +
		"processes. A metric that is absent was not measured:\nalert on that with `absent`.", []string{
		"overdue_callbacks", "oldest_overdue_seconds", "lanes_held", "open_callbacks", "endpoints_failing",
		"alerts_firing", "processes", "task_last_success_timestamp_seconds",
	}},
	{"What happens to callbacks?", "", []string{
		"callbacks_accepted_total", "callbacks_terminal_total", "attempts_total", "attempt_duration_seconds",
		"attempt_lateness_seconds", "diverts_total", "attempts_crashed_total", "results_stale_total",
		"activity_uncounted_total",
	}},
	{"How busy is a process?", "", []string{
		"slots", "slots_in_use", "attempts_in_flight", "results_waiting", "claims_total", "leases_total",
		"leases_reaped_total", "stamps_refused_total", "stamps_taken_back_total", "wakes_total",
	}},
	{"Is a process healthy?", "", []string{
		"degraded", "sql_down", "index_down", "index_unsafe", "clock_offset_seconds", "clock_jumps_total",
		"key_ring_keys", "key_ring_missing", "unreadable_secrets_total", "own_alerts_total",
		"trace_export_failures_total",
		"build_info",
	}},
	{"How does SQL do?", "", []string{
		"sql_group_rows", "sql_group_duration_seconds", "sql_transaction_retries_total",
		"sql_group_errors_total", "data_free_bytes", "sqlite_bytes",
	}},
	{"How does the index do?", "`index_items`, `index_locks` and `index_lock_waiters` are measured by one " +
		"process, like what is overdue.", []string{
		"index_items", "index_locks", "index_lock_waiters", "index_generation",
		"index_operation_failures_total", "index_call_errors_total",
		"index_call_duration_seconds", "redis_connections", "settlements_total",
		"enqueues_waiting", "enqueues_dropped_total", "index_evicted_keys_total", "index_parts_gone_total",
		"index_rollbacks_total", "index_catchups_total", "index_records_quarantined_total", "horizon_seconds",
		"horizon_lag_seconds", "horizon_loaded_total",
	}},
	{"What was healed?", "", []string{
		"sweeps_total", "sweep_healed_total", "audit_repaired_total", "rebuilds_total",
		"claims_adopted_total",
	}},
	{"Do schedules and retention keep up?", "", []string{
		"schedule_firings_total", "schedule_lateness_seconds", "purged_total", "retention_overdue_seconds",
	}},
	{"Are outbox tables read?", "Each source of the setting relay has its series, also in a process of " +
		"`dispatcher relay`. Take `max` over all\nprocesses: one of them reads the source, and the gauges " +
		"of the others are 0.", []string{
		"relay_lag_seconds", "relay_rows_waiting", "relay_rows_total", "relay_refused_rows",
		"relay_late_rows_total", "relay_errors_total", "relay_leader",
	}},
	{"How does the API do?", "", []string{"http_requests_total", "http_request_duration_seconds"}},
}

const pageHead = `# Metrics

` + "```" + `sh
curl http://127.0.0.1:8081/metrics       # each process, at its ops_listen
` + "```" + `

Each process exports the metrics below. It also exports those of the Go runtime (` + "`go_*`" + `)
and of the operating system (` + "`process_*`" + `). A scrape calls neither SQL nor Redis.

- Names end in their unit: ` + "`_seconds` or `_bytes`" + `, and ` + "`_total`" + ` for counters.
- All series of a label exist from the start with the value 0. So ` + "`increase`" + ` sees the first event.
  Exceptions: a ` + "`route`" + ` has durations from its first request on, and before only the codes 500 and
  503. A ` + "`task`" + ` begins with its first run.
- No label names a lane, an endpoint, a project or a URL, because their number has no bound.
- All histograms of seconds have the same buckets. Their upper edges:
  ` + "`%s`" + `.

A test writes this page from the running program, and fails if it is not current.
`

// comparePage compares the page with the metrics.
func comparePage(t *testing.T, families map[string]*family) {
	t.Helper()
	var b strings.Builder
	edges := make([]string, 0, len(metric.Durations()))
	for _, e := range metric.Durations() {
		edges = append(edges, fmt.Sprint(e))
	}
	fmt.Fprintf(&b, pageHead, strings.Join(edges, " "))
	left := maps.Clone(families)
	for _, g := range groups {
		fmt.Fprintf(&b, "\n## %s\n\n", g.title)
		if g.text != "" {
			b.WriteString(g.text + "\n\n")
		}
		b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
		for _, name := range g.names {
			f := left[metric.Prefix+name]
			if f == nil {
				t.Errorf("%s is in no installation, or in two groups", name)
				continue
			}
			delete(left, f.name)
			f.row(&b)
		}
	}
	fmt.Fprint(&b, "\n## How busy are the connections to SQL?\n\nThey come from Go's `database/sql`, by "+
		"pool: `writers` and `shared` on PostgreSQL, `readers` on SQLite.\n\n"+
		"| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(left)) {
		if !strings.HasPrefix(name, "go_sql_") {
			t.Errorf("%s is in no group of the page", name)
			continue
		}
		left[name].row(&b)
	}
	b.WriteString("\n## When was the last backup?\n\n" +
		"`dispatcher backup --textfile FILE` writes this metric for a textfile collector, such as that of\n" +
		"node_exporter. It is not at `/metrics`.\n\n" +
		"| metric | type | labels | meaning |\n|---|---|---|---|\n" +
		"| `dispatcher_backup_last_success_timestamp_seconds` | gauge |  | Start of the last backup that " +
		"was completed and checked. |\n")
	transcript.File(t, metricsPage, func(*testing.T, string) string { return b.String() })
}

// row writes the line of a table.
func (f *family) row(b *strings.Builder) {
	var labels []string
	for _, label := range slices.Sorted(maps.Keys(f.labels)) {
		text := openLabels[label]
		if text == "" {
			text = "`" + strings.ReplaceAll(f.values(label), " ", "` `") + "`"
		}
		labels = append(labels, "`"+label+"`: "+text)
	}
	help := strings.ReplaceAll(f.help, "|", `\|`)
	if len(f.in) == 1 {
		help += " Only with " + f.in[0] + "."
	}
	fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", f.name, f.kind, strings.Join(labels, "<br>"), help)
}
