package deploy

// A panel is a picture of the dashboard. Its id is final, because alerts link to it.
type panel struct {
	id      int
	title   string
	normal  string // the description: what is normal
	unit    string
	queries []query
	// stat: show the latest value; otherwise a graph over time.
	stat bool
	// limits are the values at which the color turns orange, and then red; a graph has lines there.
	limits []limit
}

// A query has an expression, and the legend of its series. In an expression {J stands for the matcher of the
// chosen job, and {I also has that of the chosen instances. Metrics of the whole installation have no
// instance, because processes take over the measurement from each other.
type query struct{ expr, legend string }

type limit struct {
	at    float64
	color string
}

// A row is a group of panels.
type row struct {
	id     int
	title  string
	panels []panel
}

// promised are the bounds of G5 in docs/guide/guarantees.md: idle, at half load, and without wake-ups.
var promised = []limit{{0.01, "yellow"}, {0.25, "orange"}, {1, "red"}}

// quantiles returns queries for p50, p95 and p99 of a histogram.
func quantiles(selector string) []query {
	var all []query
	for _, q := range []string{"50", "95", "99"} {
		all = append(all, query{"histogram_quantile(0." + q + ", sum by (le) (rate(" + selector +
			"[$__rate_interval])))", "p" + q})
	}
	return all
}

// rateBy returns the expression of a counter's rate by some labels.
func rateBy(labels, selector string) string {
	return "sum by (" + labels + ") (rate(" + selector + "[$__rate_interval]))"
}

const accepts = `route=~"POST /v1/(callbacks|callbacks/batch|events|polls)"`

// dashboardRows are the rows of the dashboard, in order.
var dashboardRows = []row{
	{1, "Now", []panel{
		{id: 11, title: "Oldest overdue", stat: true, unit: "s",
			limits:  []limit{{30, "orange"}, {120, "red"}},
			normal:  "0: every due callback is sent within seconds. DispatcherOverdue fires above 120 s.",
			queries: []query{{`max(dispatcher_oldest_overdue_seconds{J,held="no"})`, ""}}},
		{id: 12, title: "Overdue", stat: true, unit: "short",
			normal: "0 with held=no. Callbacks of a paused, limited or broken lane are held=yes, and " +
				"wait on purpose. No data: no process measures, and DispatcherNothingMeasured fires.",
			queries: []query{{`max by (held) (dispatcher_overdue_callbacks{J})`, "held: {{held}}"}}},
		{id: 13, title: "Dead in 24 hours", stat: true, unit: "short",
			normal: "As many as usual for your receivers. DispatcherDeadSpike fires when over 5 % of " +
				"those that end are dead.",
			queries: []query{
				{`sum(increase(dispatcher_callbacks_terminal_total{J,state="dead"}[24h]))`, ""}}},
		{id: 14, title: "Success share", stat: true, unit: "percentunit",
			normal: "Close to 100 % of the callbacks that ended in the chosen time. No data: none ended.",
			queries: []query{{`sum(increase(dispatcher_callbacks_terminal_total{J,state="succeeded"}` +
				`[$__range])) / sum(increase(dispatcher_callbacks_terminal_total{J}[$__range]))`, ""}}},
		{id: 15, title: "Degraded", stat: true, unit: "short", limits: []limit{{1, "red"}},
			normal:  "0 for each reason. /readyz names the same reasons.",
			queries: []query{{`max by (reason) (dispatcher_degraded{J})`, "{{reason}}"}}},
		{id: 16, title: "Processes", stat: true, unit: "short",
			normal: "As many as you started, all of one version. \"seen by SQL\" are those with a " +
				"heartbeat in SQL.",
			queries: []query{{`count by (version) (dispatcher_build_info{J})`, "{{version}}"},
				{`max(dispatcher_processes{J})`, "seen by SQL"}}},
		{id: 17, title: "SQL and index", unit: "short", limits: []limit{{1, "red"}},
			normal: "0. 1 while SQL does not commit, the index does not answer, or Redis may evict its " +
				"keys.",
			queries: []query{{`max(dispatcher_sql_down{J})`, "SQL is down"},
				{`max(dispatcher_index_down{J})`, "index is down"},
				{`max(dispatcher_index_unsafe{J})`, "Redis is unsafe"}}},
	}},
	{2, "Flow", []panel{
		{id: 21, title: "Accepted and ended", unit: "cps",
			normal: "Both follow your traffic. Ended is behind accepted while receivers fail, because " +
				"callbacks wait for their next tier.",
			queries: []query{
				{`sum(rate(dispatcher_callbacks_accepted_total{I}[$__rate_interval]))`, "accepted"},
				{rateBy("state", `dispatcher_callbacks_terminal_total{I}`), "{{state}}"}}},
		{id: 22, title: "Ended by reason", unit: "cps",
			normal: "Only succeeded. Poison and unresolved have their own alerts.",
			queries: []query{{rateBy("state, reason", `dispatcher_callbacks_terminal_total{I}`),
				"{{state}} {{reason}}"}}},
		{id: 23, title: "Attempts by class", unit: "cps",
			normal:  "Mostly ok. docs/guide/sending.md explains the classes.",
			queries: []query{{rateBy("class", `dispatcher_attempts_total{I}`) + " > 0", "{{class}}"}}},
		{id: 24, title: "Postponed by reason", unit: "cps",
			normal: "lock_conflict and receiver_busy as your traffic causes them. local_infra is " +
				"trouble of our own machine or network, and is 0.",
			queries: []query{{rateBy("reason", `dispatcher_diverts_total{I}`), "{{reason}}"}}},
	}},
	{3, "Time", []panel{
		{id: 31, title: "Lateness of attempts", unit: "s", limits: promised,
			normal: "p99 below 10 ms on an idle machine, below 250 ms at half load, and never above 1 s " +
				"for long. After an outage or a resume the backlog is late.",
			queries: quantiles(`dispatcher_attempt_lateness_seconds_bucket{I}`)},
		{id: 32, title: "Duration of attempts", unit: "s",
			normal:  "The time that your receivers take. Slow receivers fill slots.",
			queries: quantiles(`dispatcher_attempt_duration_seconds_bucket{I}`)},
		{id: 33, title: "Duration of accepts", unit: "s", limits: promised,
			normal:  "p99 is a few group commits of SQL: milliseconds on a fast disk.",
			queries: quantiles(`dispatcher_http_request_duration_seconds_bucket{I,` + accepts + `}`)},
		{id: 34, title: "Refused accepts", unit: "percentunit", limits: []limit{{0.01, "red"}},
			normal: "0. The share of accepts that were answered 5xx; DispatcherAcceptErrors fires above " +
				"1 %.",
			queries: []query{{`dispatcher:accept_errors:ratio5m{J}`, "5xx"}}},
	}},
	{4, "Backlog", []panel{
		{id: 41, title: "Open callbacks by tier", unit: "short",
			normal: "Tier 0 waits for its first attempt, tier 1 for its first retry. Many in high " +
				"tiers: receivers have failed for hours.",
			queries: []query{{`max by (tier) (dispatcher_open_callbacks{J})`, "tier {{tier}}"}}},
		{id: 42, title: "Lanes held by reason", unit: "short",
			normal: "0, or the lanes that you paused. A breaker is open while a receiver gives no " +
				"answer.",
			queries: []query{{`max by (reason) (dispatcher_lanes_held{J})`, "{{reason}}"}}},
		{id: 43, title: "Records of the index", unit: "short",
			normal: "Delayed are the open callbacks (within the horizon), ready and leased are few. " +
				"Redis needs about 220 bytes for each.",
			queries: []query{{`max by (place) (dispatcher_index_items{J})`, "{{place}}"}}},
		{id: 44, title: "Locks and waiters", unit: "short",
			normal: "Locks are at most the attempts in flight. Waiters that stay high: many callbacks " +
				"share one lock key.",
			queries: []query{{`max(dispatcher_index_locks{J})`, "locks"},
				{`max(dispatcher_index_lock_waiters{J})`, "waiters"}}},
		{id: 45, title: "Failing endpoints", unit: "short",
			normal:  "As many as usual. The events dispatcher.endpoint.failing name them.",
			queries: []query{{`max(dispatcher_endpoints_failing{J})`, "failing"}}},
	}},
	{5, "SQL", []panel{
		{id: 52, title: "Rows in a group commit", unit: "short",
			normal: "1 when idle, up to 256 under load.",
			queries: []query{{rateBy("kind", `dispatcher_sql_group_rows_sum{I}`) + " / " +
				rateBy("kind", `dispatcher_sql_group_rows_count{I}`), "{{kind}}"}}},
		{id: 53, title: "Duration of group commits, p99", unit: "s", limits: promised,
			normal: "Below 50 ms. This is the time of a commit on your database's disk.",
			queries: []query{{"histogram_quantile(0.99, " +
				rateBy("kind, le", `dispatcher_sql_group_duration_seconds_bucket{I}`) + ")", "{{kind}}"}}},
		{id: 54, title: "Connections to SQL", unit: "short",
			normal: "On PostgreSQL below database_max_conns. Waiting is the number of queries that wait " +
				"for a connection; DispatcherSQLPool fires above 1.",
			queries: []query{
				{`sum by (instance, db_name) (go_sql_in_use_connections{I})`,
					"in use {{db_name}} {{instance}}"},
				{rateBy("instance, db_name", `go_sql_wait_duration_seconds_total{I}`),
					"waiting {{db_name}} {{instance}}"}}},
		{id: 55, title: "Retried and refused", unit: "cps",
			normal: "0, and single retries under load. Refused groups are in the log.",
			queries: []query{
				{`sum(rate(dispatcher_sql_transaction_retries_total{I}[$__rate_interval]))`, "retried"},
				{`sum(rate(dispatcher_sql_group_errors_total{I}[$__rate_interval]))`, "refused"}}},
	}},
	{6, "Index", []panel{
		{id: 61, title: "Calls to the index, p99", unit: "s", limits: promised,
			normal: "Below 10 ms. No data with the embedded index.",
			queries: []query{{"histogram_quantile(0.99, " +
				rateBy("operation, le", `dispatcher_index_call_duration_seconds_bucket{I}`) + ")",
				"{{operation}}"}}},
		{id: 62, title: "Failed calls to the index", unit: "cps",
			normal: "0. \"gave up\" are operations that failed after their retries.",
			queries: []query{
				{rateBy("operation", `dispatcher_index_call_errors_total{I}`) + " > 0", "{{operation}}"},
				{rateBy("operation", `dispatcher_index_operation_failures_total{I}`) + " > 0",
					"{{operation}} gave up"}}},
		{id: 63, title: "Losses of the index", unit: "short",
			normal: "0. A rebuild follows a loss of Redis's data, and each start with the embedded " +
				"index.",
			queries: []query{
				{`sum(increase(dispatcher_rebuilds_total{I}[$__rate_interval]))`, "rebuilds"},
				{`sum(increase(dispatcher_index_rollbacks_total{I}[$__rate_interval]))`, "rollbacks"},
				{`sum(increase(dispatcher_index_parts_gone_total{I}[$__rate_interval]))`, "parts gone"},
				{`sum(increase(dispatcher_index_records_quarantined_total{I}[$__rate_interval]))`,
					"unreadable records"},
				{`sum(increase(dispatcher_index_evicted_keys_total{I}[$__rate_interval]))`, "evicted keys"}}},
		{id: 64, title: "Repairs", unit: "cps",
			normal: "0, and a few after a fault. Repairs that do not end have a cause.",
			queries: []query{
				{`sum(rate(dispatcher_enqueues_dropped_total{I}[$__rate_interval]))`, "late enqueues"},
				{`sum(rate(dispatcher_sweep_healed_total{I}[$__rate_interval]))`, "put back by the sweep"},
				{`sum(rate(dispatcher_audit_repaired_total{I}[$__rate_interval]))`, "repaired by an audit"},
				{`sum(rate(dispatcher_leases_reaped_total{I}[$__rate_interval]))`, "expired leases"},
				{`sum(rate(dispatcher_results_stale_total{I}[$__rate_interval]))`, "stale results"},
				{`sum(rate(dispatcher_stamps_refused_total{I}[$__rate_interval]))`, "refused claims"},
				{`sum(rate(dispatcher_index_catchups_total{I}[$__rate_interval]))`, "catch-ups"}}},
		{id: 65, title: "Horizon", unit: "s",
			normal: "The lag is at most a quarter of the horizon. Both are 0 without a horizon.",
			queries: []query{{`max(dispatcher_horizon_lag_seconds{I})`, "lag"},
				{`max(dispatcher_horizon_seconds{I})`, "horizon"}}},
		{id: 66, title: "Connections to Redis", unit: "short",
			normal:  "A few for each process. No data with the embedded index.",
			queries: []query{{`sum by (state) (dispatcher_redis_connections{I})`, "{{state}}"}}},
		{id: 67, title: "Age of the last success of a task", unit: "s", limits: []limit{{1800, "red"}},
			normal: "Each task is younger than a few of its periods: seconds, or ten minutes (failing). " +
				"DispatcherSweepStale fires above 120 s, DispatcherTaskStale above 30 minutes.",
			queries: []query{{`time() - max by (task) (dispatcher_task_last_success_timestamp_seconds{J})`,
				"{{task}}"}}},
	}},
	{7, "Process", []panel{
		{id: 71, title: "Slots", unit: "percentunit", limits: []limit{{0.9, "orange"}},
			normal: "Below 90 %. Full slots: too few processes or workers, or slow receivers.",
			queries: []query{{`sum by (instance) (dispatcher_slots_in_use{I}) / ` +
				`sum by (instance) (dispatcher_slots{I} > 0)`, "{{instance}}"}}},
		{id: 72, title: "Memory", unit: "bytes",
			normal: "Level. The heap grows with the number of lanes and of attempts in flight.",
			queries: []query{{`sum by (instance) (go_memstats_heap_alloc_bytes{I})`, "heap {{instance}}"},
				{`sum by (instance) (process_resident_memory_bytes{I})`, "resident {{instance}}"}}},
		{id: 73, title: "CPU", unit: "short",
			normal:  "Cores in use. Follows the traffic.",
			queries: []query{{rateBy("instance", `process_cpu_seconds_total{I}`), "{{instance}}"}}},
		{id: 74, title: "File descriptors", unit: "percentunit", limits: []limit{{0.8, "orange"}},
			normal: "Far below 100 % of the limit of the process (LimitNOFILE).",
			queries: []query{{`max by (instance) (process_open_fds{I}) / ` +
				`max by (instance) (process_max_fds{I})`, "{{instance}}"}}},
		{id: 75, title: "Disk", unit: "bytes",
			normal: "Free space above 1 GB, and not falling fast. With SQLite the files are shown too.",
			queries: []query{{`min by (instance) (dispatcher_data_free_bytes{I})`, "free {{instance}}"},
				{`max by (file) (dispatcher_sqlite_bytes{I})`, "{{file}}"}}},
		{id: 76, title: "Schedules", unit: "cps",
			normal:  "Fired as your schedules say. Failed is 0: those created no callback.",
			queries: []query{{rateBy("result", `dispatcher_schedule_firings_total{I}`), "{{result}}"}}},
		{id: 77, title: "Retention overdue", unit: "s", limits: []limit{{3600, "red"}},
			normal:  "0. DispatcherRetentionOverdue fires above an hour.",
			queries: []query{{`max by (kind) (dispatcher_retention_overdue_seconds{I})`, "{{kind}}"}}},
		{id: 78, title: "Clock of the index less ours", unit: "s",
			normal:  "Within 100 ms of 0. 0 with the embedded index.",
			queries: []query{{`max by (instance) (dispatcher_clock_offset_seconds{I})`, "{{instance}}"}}},
		{id: 79, title: "Restarts and crashed attempts in 15 minutes", unit: "short",
			normal: "0. Each process restarts once in an upgrade.",
			queries: []query{{`sum(changes(process_start_time_seconds{I}[15m]))`, "restarts"},
				{`sum(increase(dispatcher_attempts_crashed_total{I}[15m]))`, "crashed attempts"}}},
		{id: 80, title: "Purged rows", unit: "cps",
			normal:  "Follows the traffic of the days that retention ends for.",
			queries: []query{{rateBy("kind", `dispatcher_purged_total{I}`), "{{kind}}"}}},
		{id: 81, title: "Traces that were not exported", unit: "cps",
			normal: "0. Callbacks do not depend on traces.",
			queries: []query{{`sum(rate(dispatcher_trace_export_failures_total{I}[$__rate_interval]))`,
				"failures"}}},
		{id: 82, title: "Master keys and secrets", unit: "short", limits: []limit{{1, "red"}},
			normal: "0. Key ids that SQL names and a process lacks, and secrets that could not be " +
				"decrypted in 15 minutes.",
			queries: []query{{`max(dispatcher_key_ring_missing{I})`, "missing keys"},
				{`sum(increase(dispatcher_unreadable_secrets_total{I}[15m]))`, "unreadable secrets"}}},
		{id: 83, title: "Age of the last backup", unit: "s", limits: []limit{{90000, "red"}},
			normal: "Below 25 hours. No data where another tool makes the backups.",
			queries: []query{{`time() - max by (instance) (dispatcher_backup_last_success_timestamp_seconds)`,
				"{{instance}}"}}},
	}},
	{8, "Relay", []panel{
		{id: 91, title: "Lag of outbox tables", unit: "s", limits: []limit{{60, "red"}},
			normal: "Below a second: the age of the oldest row that waits. No data without the setting " +
				"relay. DispatcherRelayLag fires above 60 s.",
			queries: []query{{`max by (source) (dispatcher_relay_lag_seconds{J})`, "{{source}}"}}},
		{id: 92, title: "Rows of outbox tables by result", unit: "cps",
			normal: "Accepted follows your traffic. Replayed rows had been accepted before: a few after " +
				"a restart or a fault.",
			queries: []query{{rateBy("source, result", `dispatcher_relay_rows_total{I}`),
				"{{source}} {{result}}"}}},
		{id: 93, title: "Rows that wait or were refused", unit: "short",
			normal: "Refused is 0, and waiting is a few. Both are counted to 10,001.",
			queries: []query{{`max by (source) (dispatcher_relay_rows_waiting{J})`, "waiting {{source}}"},
				{`max by (source) (dispatcher_relay_refused_rows{J})`, "refused {{source}}"}}},
		{id: 94, title: "Holders of outbox tables", unit: "short",
			normal:  "1 for each source: one process reads it. DispatcherRelayWithoutHolder fires at 0.",
			queries: []query{{`sum by (source) (dispatcher_relay_leader{J})`, "{{source}}"}}},
		{id: 95, title: "Errors of the relay", unit: "cps",
			normal: "0. Side source is the database of the application.",
			queries: []query{{rateBy("source, side", `dispatcher_relay_errors_total{I}`) + " > 0",
				"{{source}} {{side}}"}}},
		{id: 96, title: "Rows committed late", unit: "cps",
			normal:  "0, or as many as your long transactions insert. They are found within a minute.",
			queries: []query{{rateBy("source", `dispatcher_relay_late_rows_total{I}`), "{{source}}"}}},
	}},
}
