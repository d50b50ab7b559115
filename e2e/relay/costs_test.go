package relay

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/procfs"
)

// onBoth runs a measurement on each database, alone on the machine.
func onBoth(t *testing.T, title string, run func(*trial)) {
	t.Helper()
	for _, on := range both {
		t.Run(on.name, func(t *testing.T) {
			tr := newTrial(t, title+", "+on.name, on, overHTTP)
			tr.UseBackend(harness.NewBackend(t, harness.SQLiteEmbedded))
			t.Cleanup(func() {
				_, failures, remarks := tr.Result()
				results.note(tr.Title, failures, remarks)
			})
			run(tr)
		})
	}
}

// The relay hands over at least 0.4 times as many rows a second as four callers submit over the API, in
// batches of a hundred. The goal is 0.6.
func TestCostsRowsASecond(t *testing.T) {
	const atLeast = 0.4
	onBoth(t, "rows a second", func(tr *trial) {
		n := sized(5_000, 40_000, 200_000)
		o := tr.newOutbox("pay", tr.on, tr.on.shared(tr))
		o.settings = harness.Submission{}
		tr.server("")
		before := o.submitBatches("before", n/2)
		o.generate(0, n)
		p := tr.relayTo("http://"+tr.listen, "")
		cpu := secondsOf(tr, p.Cmd.Process.Pid)
		relayed := tr.handOver(p, n)
		cpu = secondsOf(tr, p.Cmd.Process.Pid) - cpu
		after := o.submitBatches("after", n/2)
		ratio := relayed / ((before + after) / 2)
		tr.Remark("%.0f rows a second; %.0f and %.0f callbacks a second in batches of 100 by four callers; "+
			"%.2f of their mean; %.3f s of CPU of the relay per 1,000 rows", relayed, before, after, ratio,
			cpu/float64(n)*1000)
		if ratio < atLeast {
			tr.Errorf("the relay hands over %.2f of the rate of the API, at least %.2f is required", ratio,
				atLeast)
		}
		o.drained(resumedBusy)
		if have := callbackCount(tr); have != 2*n {
			tr.Errorf("%d callbacks, want %d", have, 2*n)
		}
	})
}

// handOver waits until a relay has submitted n rows, and returns the rate after the first page. It reads the
// metrics of the relay, because queries would load the source.
func (tr *trial) handOver(p *harness.Process, n int) (perSecond float64) {
	tr.Helper()
	rows := func() int { return p.Count(rowsMetric) }
	tr.AtLeast(time.Minute, "the first page is submitted", 1, rows)
	first, began := rows(), time.Now()
	tr.AtLeast(10*time.Minute, "all rows are submitted", n, rows)
	return float64(n-first) / time.Since(began).Seconds()
}

// secondsOf returns the CPU seconds of a descendant of the test.
func secondsOf(tr *trial, pid int) float64 {
	tr.Helper()
	family, err := procfs.Family()
	tr.Check(err)
	for _, p := range family {
		if p.PID == pid {
			return p.Seconds
		}
	}
	tr.Fatalf("process %d has ended", pid)
	return 0
}

// secondsOfServers returns the CPU seconds of the processes of the source's database.
func secondsOfServers(tr *trial) (sum float64) {
	tr.Helper()
	family, err := procfs.Family()
	tr.Check(err)
	for _, p := range family {
		if p.Name == tr.on.process {
			sum += p.Seconds
		}
	}
	if sum == 0 {
		tr.Fatalf("no process has the name %s", tr.on.process)
	}
	return sum
}

// To hand a row over costs the source's server at most as much CPU as the INSERT that made it.
func TestCostsOfTheSource(t *testing.T) {
	onBoth(t, "CPU of the source", func(tr *trial) {
		n := sized(3_000, 20_000, 20_000)
		o := tr.newOutbox("pay", tr.on, tr.on.shared(tr))
		o.settings = harness.Submission{}
		tr.server("")
		before := secondsOfServers(tr)
		tr.Check(harness.AtOnce(4, n, func(i int) error {
			return o.on.insert(tr.Context(), o.db, "dispatcher_outbox", o.order(fmt.Sprint("pay-", i),
				harness.Submission{"delay": "1h"}))
		}))
		inserted := secondsOfServers(tr) - before
		before = secondsOfServers(tr)
		tr.handOver(tr.relayTo("http://"+tr.listen, ""), n)
		removed := secondsOfServers(tr) - before
		tr.Remark("CPU of the source's server per 1,000 rows: %.0f ms for the INSERTs, %.0f ms for the relay",
			inserted/float64(n)*1e6, removed/float64(n)*1e6)
		if removed > inserted {
			tr.Errorf("the relay costs the source %.2f s, the INSERTs %.2f s", removed, inserted)
		}
	})
}

// An idle source gets one query in each poll, and few others.
func TestCostsOfAnIdleSource(t *testing.T) {
	onBoth(t, "idle source", func(tr *trial) {
		const poll = 100 * time.Millisecond
		span := sized(5*time.Second, 20*time.Second, 30*time.Second)
		o := tr.newOutbox("pay", tr.on, tr.on.shared(tr))
		o.settings = harness.Submission{"poll": poll.String()}
		p := tr.relay("")
		o.held(p, resumed)
		o.fill(0, page)
		o.drained(resumedBusy)
		counter := `SELECT variable_value FROM information_schema.global_status
			WHERE variable_name = 'Questions'`
		if tr.on == postgres {
			counter = `SELECT xact_commit + xact_rollback FROM pg_stat_database
				WHERE datname = current_database()`
		}
		time.Sleep(2 * time.Second) // statistics of PostgreSQL come within a second
		cpu, before, began := secondsOfServers(tr), o.count(counter), time.Now()
		time.Sleep(span) // the measured time: nothing happens
		each := float64(o.count(counter)-before-1) / time.Since(began).Seconds()
		cpu = secondsOfServers(tr) - cpu
		tr.Remark("an idle source gets %.2f queries a second with a poll of %s; its server uses %.2f %% of "+
			"a core", each, poll, 100*cpu/span.Seconds())
		if most := 1.05 / poll.Seconds(); each > most || each == 0 {
			tr.Errorf("an idle source gets %.2f queries a second, at most %.2f are allowed", each, most)
		}
	})
}

// Half of the orders are attempted within a poll interval and ten milliseconds of their commit.
func TestCostsLatency(t *testing.T) {
	onBoth(t, "latency", func(tr *trial) {
		n := sized(400, 3_000, 3_000)
		for i, poll := range []time.Duration{100 * time.Millisecond, 10 * time.Millisecond} {
			o := tr.newOutbox(fmt.Sprint("pay", i), tr.on, tr.on.shared(tr))
			o.settings = harness.Submission{"poll": poll.String()}
			tr.sources = []*outbox{o}
			p := tr.relay("")
			o.held(p, resumed)
			stretched := harness.Stretch(tr)
			q := judge.QuantilesOf(o.latencies(0, n, 200))
			stretch := stretched()
			tr.Remark("commit to first attempt at 200 a second with a poll of %s: %s; the goal is p50 %s, "+
				"p99 250 ms; other programs slowed the machine by a factor of %.1f", poll, q,
				poll+10*time.Millisecond, stretch)
			if most := time.Duration(stretch * float64(2*poll+100*time.Millisecond)); q.P50 > most {
				tr.Errorf("p50 is %s, at most %s is allowed", q.P50, most)
			}
			if most := time.Duration(stretch * float64(time.Second)); q.P99 > most {
				tr.Errorf("p99 is %s, at most %s is allowed", q.P99, most)
			}
			p.Exit(time.Minute)
		}
	})
}

// The relay does not block INSERTs of the application: it adds at most a quarter to their p99, and the server
// counts no wait for a lock.
func TestCostsOfTheApplication(t *testing.T) {
	const pairs, most = 5, 1.25
	onBoth(t, "INSERTs of the application", func(tr *trial) {
		settings := []string{"-c", "fsync=on", "-c", "log_lock_waits=on", "-c", "deadlock_timeout=1ms"}
		if tr.on == mariadb {
			settings = []string{"--innodb-flush-log-at-trx-commit=1"}
		}
		s := tr.on.own(tr, settings...)
		o := tr.newOutbox("pay", tr.on, s)
		span, next := sized(2*time.Second, 4*time.Second, 10*time.Second), 0
		tr.server("")
		waits := o.lockWaits()
		measure := func() time.Duration {
			l := o.load(next, 200)
			time.Sleep(span) // the measured time
			took := l.end()
			next = l.next
			return judge.Quantile(took, 0.99)
		}
		measure()
		stretched := harness.Stretch(tr)
		var ratios []float64
		for range pairs {
			without := measure()
			p := tr.relayTo("http://"+tr.listen, "")
			o.held(p, resumed)
			o.drained(resumedBusy)
			with := measure()
			o.drained(resumedBusy)
			p.Exit(time.Minute)
			ratios = append(ratios, with.Seconds()/without.Seconds())
		}
		slices.Sort(ratios)
		middle, stretch := ratios[pairs/2], stretched()
		tr.Remark("p99 of business transactions with the relay is %.2f of that without, in %d pairs: %.2f; "+
			"other programs slowed the machine by a factor of %.1f", middle, pairs, ratios, stretch)
		if middle > most*stretch {
			tr.Errorf("p99 with the relay is %.2f of that without, at most %.2f is allowed", middle, most)
		}
		if n := o.lockWaits() - waits; n > 0 {
			tr.Errorf("the server counts %d waits for locks", n)
		}
	})
}

// lockWaits returns how often a session of the server had to wait for a lock. PostgreSQL logs each wait of a
// millisecond.
func (o *outbox) lockWaits() int {
	o.tr.Helper()
	if o.on == postgres {
		return strings.Count(o.server.(interface{ Log() string }).Log(), "still waiting for")
	}
	return o.count(`SELECT variable_value FROM information_schema.global_status
		WHERE variable_name = 'Innodb_row_lock_waits'`)
}

// A snapshot that another session holds for ten minutes slows the relay by at most a tenth.
func TestCostsOfAHeldSnapshot(t *testing.T) {
	const atLeast = 0.9
	onBoth(t, "R30 snapshot held", func(tr *trial) {
		held := sized(5*time.Second, 30*time.Second, 10*time.Minute)
		o := tr.newOutbox("pay", tr.on, tr.on.own(tr))
		o.settings = harness.Submission{}
		p := tr.relay("")
		stop, stretched := o.saturate(p), harness.Stretch(tr)
		tr.removed(p, held/5)
		before := tr.removed(p, held/3)
		tx, err := o.db.BeginTx(tr.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		tr.Check(err)
		tr.Cleanup(func() { tx.Rollback() }) // fails after a rollback
		var n int
		tr.Check(tx.QueryRowContext(tr.Context(), `SELECT count(*) FROM orders`).Scan(&n))
		first := tr.removed(p, held/3)
		tr.removed(p, held/3)
		last := tr.removed(p, held/3)
		tr.Check(tx.Rollback())
		after := tr.removed(p, held/3)
		stop()
		usual, stretch := (before+after)/2, stretched()
		tr.Remark("%.0f and %.0f rows a second without a snapshot; held for %s: %.0f at first, %.0f at last"+
			", %.2f of the mean; other programs slowed the machine by a factor of %.1f", before, after, held,
			first, last, last/usual, stretch)
		if last*stretch < atLeast*usual {
			tr.Errorf("a held snapshot leaves %.2f of the rate, at least %.2f is required", last/usual,
				atLeast)
		}
		o.drained(5 * time.Minute)
		if have, want := callbackCount(tr), o.count(`SELECT count(*) FROM orders`); have != want {
			tr.Errorf("%d callbacks, want %d", have, want)
		}
	})
}

// saturate commits orders whenever fewer than backlogged wait, and returns a function that ends it.
func (o *outbox) saturate(p *harness.Process) (stop func()) {
	next := 0
	return o.tr.Repeat(20*time.Millisecond, func(int) {
		done, err := p.Counter(rowsMetric)
		if err == nil && next-int(done) < backlogged {
			o.generate(next, next+generated)
			next += generated
		}
	})
}

const (
	backlogged = 20_000
	rowsMetric = "dispatcher_relay_rows_total"
)

// removed returns the rows that the relay hands over a second during the time.
func (tr *trial) removed(p *harness.Process, span time.Duration) float64 {
	tr.Helper()
	before, began := p.Count(rowsMetric), time.Now()
	time.Sleep(span) // the measured time
	return float64(p.Count(rowsMetric)-before) / time.Since(began).Seconds()
}
