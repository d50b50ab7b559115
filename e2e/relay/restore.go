package relay

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// dispatcherRestored restores the dispatcher's SQL from a backup. A replay of the kept rows brings back the
// callbacks that it lost.
func dispatcherRestored(tr *trial) {
	o := tr.src
	server := tr.server("")
	relay := tr.relayTo("http://"+tr.listen, "")
	o.fill(0, page)
	o.drained(resumedBusy)
	tr.Settle(settleTime)
	server.Exit(time.Minute)
	kept := tr.callbacks()
	backup := tr.databaseFile()
	server = tr.server("")
	since := time.Now()
	o.fill(page, 3*page)
	o.drained(backoffLimit)
	tr.Settle(settleTime)
	server.Exit(time.Minute)
	tr.allowed.Unknown = map[string]bool{}
	for ref, ids := range tr.callbacks() {
		if len(kept[ref]) == 0 {
			tr.allowed.Unknown[ids[0]] = true
		}
	}
	tr.restore(backup)
	tr.MarkFault()
	tr.server("")
	if n := len(tr.callbacks()); n != page || len(tr.allowed.Unknown) != 2*page {
		tr.Fatalf("the backup has %d callbacks, and %d are lost; want %d and %d", n, len(tr.allowed.Unknown),
			page, 2*page)
	}
	o.held(relay, backoffLimit)
	o.replayed(since)
	tr.conclude(resumedBusy)
}

// replayed replays the rows that were removed since then: first dry, then for good.
func (o *outbox) replayed(since time.Time) {
	tr := o.tr
	tr.Helper()
	from := since.Format(time.RFC3339Nano)
	dry := o.act("replay", harness.Submission{"since": from, "dry_run": true})
	if dry.Matched < 2*page || dry.Accepted+dry.Replayed > 0 {
		tr.Errorf("the dry replay: %+v", dry)
	}
	act := o.act("replay", harness.Submission{"since": from, "rate": 1000})
	if act.Accepted != 2*page || act.Matched != act.Accepted+act.Replayed {
		tr.Errorf("the replay: %+v, want %d accepted", act, 2*page)
	}
	tr.Remark("replay after a restore: %d rows, %d accepted, %d accepted before", act.Matched, act.Accepted,
		act.Replayed)
}

// databaseFile reads the file of the trial's SQLite while no process has it open.
func (tr *trial) databaseFile() []byte {
	tr.Helper()
	tr.closeDatabase()
	b, err := os.ReadFile(filepath.Join(tr.Backend.DataDir, "dispatcher.db"))
	tr.Check(err)
	return b
}

// restore replaces the file of the trial's SQLite.
func (tr *trial) restore(backup []byte) {
	tr.Helper()
	tr.closeDatabase()
	tr.Backend.SkipReconciliation("the trial restores another database")
	file := filepath.Join(tr.Backend.DataDir, "dispatcher.db")
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Remove(file + suffix); err != nil && !os.IsNotExist(err) {
			tr.Fatal(err)
		}
	}
	tr.Check(os.WriteFile(file, backup, 0o600))
}

// closeDatabase closes the test's own connections. The next query opens others.
func (tr *trial) closeDatabase() {
	tr.Helper()
	tr.Check(tr.Database().Close())
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	tr.DB = nil
}

// sourceRestored brings removed rows back, as a restore of the source does. They are replayed.
func sourceRestored(tr *trial) {
	o := tr.src
	tr.relay("")
	o.fill(0, 2*page)
	o.drained(resumedBusy)
	tr.MarkFault()
	columns := `(id, kind, request, body, created_at)`
	o.exec(`INSERT INTO dispatcher_outbox ` + columns + ` SELECT ` + columns[1:len(columns)-1] +
		` FROM dispatcher_outbox_done`)
	if n := o.waiting(); n == 0 {
		tr.Log("the relay has removed all rows again already")
	}
	tr.conclude(resumedBusy)
	if tr.result.replayed != 2*page {
		tr.Errorf("%d rows were replayed, want %d", tr.result.replayed, 2*page)
	}
}

// minimumAge leaves young rows alone. A commit that an asynchronous failover forgets has no callback then.
func minimumAge(tr *trial) {
	const age = 3 * time.Second
	o := tr.src
	o.settings["min_age"] = age.String()
	p := tr.relay("")
	o.held(p, resumed)
	o.fill(0, page)
	committed := time.Now()
	// A row that is removed before that age, as a failover removes it, leaves no trace.
	o.commit(o.plain(page))
	o.exec(fmt.Sprintf(`DELETE FROM dispatcher_outbox WHERE id = '%s-%d'`, o.name, page))
	o.exec(fmt.Sprintf(`DELETE FROM orders WHERE id = '%s-%d'`, o.name, page))
	tr.MarkFault()
	o.drained(resumedBusy)
	if took := time.Since(committed); took < age-100*time.Millisecond {
		tr.Errorf("rows were read after %s, and min_age is %s", took, age)
	}
	tr.conclude(resumedBusy)
}

// behindPgBouncer reads the source through a pool in transaction mode. The setting origin says that it is the
// same table.
func behindPgBouncer(tr *trial) {
	pg := testserver.NewPostgres(tr, "-c", "fsync=off")
	o := tr.newOutbox("pay", postgres, pg)
	tr.src = o
	direct := tr.relay("")
	o.fill(0, page)
	o.drained(resumedBusy)
	o.commit(row{id: "bad", request: "{"})
	o.exec(`DELETE FROM orders WHERE id = 'bad'`)
	o.settings["origin"] = tr.origin(o)
	direct.Exit(time.Minute)
	pool := testserver.NewPgBouncer(tr, pg, 3)
	o.dsn = pool.URL(o.url) // the pool knows only this user
	p := tr.relay("")
	l := o.load(page, 100)
	tr.AtLeast(time.Minute, "the load arrives", 5*page, tr.Receiver.Count)
	tr.kill(p)
	tr.relay("")
	tr.AtLeast(time.Minute, "the load arrives again", tr.Receiver.Count()+page, tr.Receiver.Count)
	l.end()
	tr.healedIn(backoffLimit)
	if n := o.refused("not_json"); n != 1 {
		tr.Errorf("%d rows are refused as not_json, want one", n)
	}
}

// origin is the table that the source's name stands for, as the API reports it.
func (tr *trial) origin(o *outbox) string {
	tr.Helper()
	s, err := o.status()
	tr.Check(err)
	if s.Origin == "" {
		tr.Error("the source has no origin")
	}
	return s.Origin
}

// modeChanged kills a relay of one mode between accept and remove, and goes on with the other mode. Both must
// compute the same fingerprints, or rows would be refused.
func modeChanged(tr *trial) {
	o := tr.src
	o.fill(0, killRows)
	before := tr.mode
	tr.awaitDeath(tr.relay("relay_before_remove:2"))
	for _, p := range tr.Alive() {
		p.Exit(time.Minute)
	}
	tr.MarkFault()
	tr.mode = inProcess
	if before == inProcess {
		tr.mode = overHTTP
	}
	tr.relay("")
	tr.healed()
	if tr.result.replayed == 0 {
		tr.Error("no row was replayed, so the trial proves nothing")
	}
	if n := o.count(`SELECT count(*) FROM dispatcher_outbox_refused`); n > 0 {
		tr.Errorf("%d rows were refused", n)
	}
}
