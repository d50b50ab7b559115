package relay

import (
	"database/sql"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// backoffLimit is the longest pause of a relay before it connects again, with jitter. A hung query may take
// ten more seconds.
const backoffLimit = 45 * time.Second

// sourceAway cuts the connections to the source, and later hangs them. The other source goes on.
func sourceAway(tr *trial) {
	lasts := testserver.Sized(0, 35*time.Second, 10*time.Minute)
	o := tr.src
	other := tr.newOutbox("other", tr.on, o.server)
	proxy, through := harness.InFrontOf(tr, o.dsn)
	o.dsn = through
	p := tr.relay("")
	o.fill(0, page)
	o.drained(resumedBusy)
	next, others := page, 0
	for _, how := range []struct {
		what   string
		strike func()
	}{{"down", proxy.Refuse}, {"hanging", proxy.Hang}} {
		how.strike()
		began := time.Now()
		o.fill(next, next+page)
		next += page
		tr.degraded(p, o.name)
		// The fault lasts for a fixed time. Meanwhile the other source works.
		for ; time.Since(began) < lasts; others += 10 {
			other.fill(others, others+10)
			other.drained(10 * time.Second)
		}
		lag, err := p.Metric("dispatcher_relay_lag_seconds", `source="pay"`)
		tr.Check(err)
		if lag < lasts.Seconds()*0.8 {
			tr.Errorf("%s for %s: its lag is %v s", how.what, lasts, lag)
		}
		proxy.Pass()
		tr.MarkFault()
		healed := time.Now()
		o.drained(backoffLimit)
		tr.Remark("source %s for %s: rows again after %s; lag %.0f s", how.what, time.Since(began),
			time.Since(healed), lag)
		tr.undegraded(p)
	}
	tr.conclude(backoffLimit)
}

// degraded waits until /readyz lists the source as degraded. It stays 200.
func (tr *trial) degraded(p *harness.Process, source string) {
	tr.Helper()
	tr.Eventually(time.Minute, "/readyz lists relay:"+source, func() error {
		status, body, err := p.Readyz()
		if err == nil && (status != http.StatusOK || !strings.Contains(body, "relay:"+source)) {
			err = fmt.Errorf("/readyz returned %d %s", status, body)
		}
		return err
	})
}

func (tr *trial) undegraded(p *harness.Process) {
	tr.Helper()
	tr.Eventually(resumedBusy, "/readyz lists no source", func() error {
		status, body, err := p.Readyz()
		if err == nil && (status != http.StatusOK || strings.Contains(body, "relay:")) {
			err = fmt.Errorf("/readyz returned %d %s", status, body)
		}
		return err
	})
}

// dispatcherAway kills the dispatcher's PostgreSQL. Rows wait, and the application does not notice.
func dispatcherAway(tr *trial) {
	pg, o := tr.ownPostgres(), tr.src
	tr.relay("")
	l := o.load(0, 100)
	tr.AtLeast(time.Minute, "the load arrives", 200, tr.Receiver.Count)
	before := l.end()
	tr.Check(pg.Kill())
	l = o.load(l.next, 100)
	tr.AtLeast(time.Minute, "rows wait", 600, o.waiting)
	during := l.end()
	pg.Start(tr)
	tr.MarkFault()
	tr.healedIn(backoffLimit)
	p99, usual := judge.Quantile(during, 0.99), judge.Quantile(before, 0.99)
	most := max(2*usual, 100*time.Millisecond)
	tr.Remark("INSERT while SQL of the dispatcher is down: p99 %s, before %s; at most %s is allowed", p99,
		usual, most)
	if p99 > most {
		tr.Errorf("business transactions took %s at p99 while SQL was down, before %s", p99, usual)
	}
}

// healedIn judges a trial whose rows may wait for the longest backoff.
func (tr *trial) healedIn(limit time.Duration) {
	tr.Helper()
	tr.allowed.Heal = limit + resumedBusy
	tr.conclude(limit + resumedBusy)
}

// connectionLimit takes all connections of the source's server, and gives them back.
func connectionLimit(tr *trial) {
	settings := []string{"-c", "max_connections=12", "-c", "superuser_reserved_connections=3"}
	if tr.on == mariadb {
		settings = []string{"--max-connections=10"}
	}
	s := tr.on.own(tr, settings...)
	o := tr.newOutbox("pay", tr.on, s)
	tr.src = o
	o.db.SetMaxOpenConns(1)
	p := tr.relay("")
	o.fill(0, page)
	o.drained(resumedBusy)
	ids := o.relaySessions()
	taken := o.takeConnections()
	o.end(ids)
	taken = append(taken, o.takeConnections()...) // before the relay connects again
	tr.Eventually(time.Minute, "the relay cannot connect", func() error {
		n, err := p.Counter("dispatcher_relay_errors_total", `side="source"`)
		if err == nil && n < 2 {
			err = fmt.Errorf("%v errors", n)
		}
		return err
	})
	o.fill(page, 2*page)
	for _, db := range taken {
		tr.Check(db.Close())
	}
	tr.MarkFault()
	tr.healedIn(backoffLimit)
}

// takeConnections opens connections as the relay's user until the server refuses one.
func (o *outbox) takeConnections() (taken []*sql.DB) {
	o.tr.Helper()
	for range 50 {
		db := testserver.DB(o.tr, o.dsn)
		db.SetMaxOpenConns(1)
		if err := db.PingContext(o.tr.Context()); err != nil {
			return taken
		}
		taken = append(taken, db)
	}
	o.tr.Fatal("the server refuses no connection")
	return nil
}

// relaySessions returns the sessions of the relay's user.
func (o *outbox) relaySessions() []int64 {
	o.tr.Helper()
	if o.on == postgres {
		return o.numbers(`SELECT pid FROM pg_stat_activity
			WHERE usename = 'relay' AND datname = current_database()`)
	}
	return o.numbers(`SELECT id FROM information_schema.processlist WHERE user = 'relay' AND db = database()`)
}

// end ends sessions of the server.
func (o *outbox) end(sessions []int64) {
	o.tr.Helper()
	if len(sessions) == 0 {
		o.tr.Error("the relay has no session")
	}
	for _, id := range sessions {
		if o.on == postgres {
			o.exec(fmt.Sprintf(`SELECT pg_terminate_backend(%d)`, id))
		} else {
			o.exec(fmt.Sprint("KILL ", id))
		}
	}
}

// readOnly makes the source read-only, as a standby after a failover is. The relay waits for the primary.
func readOnly(tr *trial) {
	o := tr.newOutbox("pay", tr.on, tr.on.own(tr))
	tr.src = o
	says := "the session is read-only"
	set, reset := `ALTER DATABASE `+o.database()+` SET default_transaction_read_only = on`,
		`ALTER DATABASE `+o.database()+` RESET default_transaction_read_only`
	if tr.on == mariadb {
		set, reset = `SET GLOBAL read_only = 1`, `SET GLOBAL read_only = 0`
		says = "the server is read-only"
	}
	p := tr.relay("")
	o.fill(0, page)
	o.drained(resumedBusy)
	o.commit(o.plain(page))
	o.drained(resumedBusy)
	o.exec(set)
	o.end(o.relaySessions())
	tr.degraded(p, o.name)
	o.errs(time.Minute, says)
	o.exec(reset)
	tr.MarkFault()
	o.fill(page+1, 2*page)
	tr.healedIn(backoffLimit)
}

// database is the name of the outbox's database.
func (o *outbox) database() string {
	u, err := url.Parse(o.url)
	o.tr.Check(err)
	return strings.TrimPrefix(u.Path, "/")
}

// numbers reads rows with one number.
func (o *outbox) numbers(query string) (all []int64) {
	o.tr.Helper()
	o.tr.Check(judge.Each(o.tr.Context(), o.db, func(scan func(...any) error) error {
		var n int64
		err := scan(&n)
		all = append(all, n)
		return err
	}, query))
	return all
}
