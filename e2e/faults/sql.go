package faults

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// sqlRate is the load of trials that break SQL, in callbacks a second.
const sqlRate = 40

// sqlFails starts a process and breaks its SQL under load.
func (tr *trial) sqlFails(strike func(*faultTrial)) {
	tr.Helper()
	tr.Serve("--workers", "128")
	tr.suffer(scenario{rate: sqlRate, around: sqlRate, strike: strike, refuses: true,
		bounds: func() judge.Bounds {
			b := exact()
			if len(tr.Alive()) > 1 {
				// Claims that could not be committed may come again, because another process may claim them.
				b = tr.Hit(b)
			}
			return b
		}})
}

// ownServer starts a PostgreSQL only for the trial and sets the trial's backend to it.
func (tr *trial) ownServer(pg *testserver.Postgres) {
	tr.Helper()
	name := tr.Backend.Name
	b := harness.Backend{Name: name, DataDir: tr.TempDir(), Prefix: "e2e", Postgres: pg.Database(tr)}
	if strings.HasSuffix(name, "+redis") {
		b.Redis = testserver.StartRedis(tr)
	}
	tr.UseBackend(b)
}

// databaseName returns the name of the trial's database on PostgreSQL.
func (tr *trial) databaseName() string {
	tr.Helper()
	return tr.texts(`SELECT current_database()`)[0]
}

// endSessions ends the program's sessions on the trial's database, and returns their number.
func (tr *trial) endSessions() int {
	tr.Helper()
	return tr.sqlCount(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'dispatcher'`)
}

// postgresEnds stops the server at once, then kills it, and then kills one of its sessions, which ends all
// sessions for a second.
func postgresEnds(tr *trial) {
	pg := testserver.NewPostgres(tr)
	tr.ownServer(pg)
	tr.sqlFails(func(r *faultTrial) {
		database := tr.databaseName()
		for _, how := range []struct {
			what string
			end  func() error
		}{{"stopped at once", pg.Stop}, {"killed", pg.Kill}} {
			r.blackout(blackout{what: how.what, lasts: 4 * time.Second, hit: func() { tr.Check(how.end()) },
				heal: func() { pg.Start(tr) }})
			tr.awaitSends(sqlRate)
		}
		for range 2 {
			tr.Check(pg.KillBackend(tr.Context(), database))
			tr.Eventually(30*time.Second, "the server has recovered",
				func() error { return pg.Exec(tr.Context(), "SELECT 1") })
			tr.awaitSends(sqlRate)
		}
		if pg.HasEnded() {
			tr.Error("the server has ended with one of its sessions")
		}
	})
}

// sessionsEnded ends every session of the program once a second. No group may be committed twice or dropped.
func sessionsEnded(tr *trial) {
	tr.sqlFails(func(r *faultTrial) {
		ended := 0
		for range 6 {
			ended += tr.endSessions()
			time.Sleep(time.Second) // the period of the fault
		}
		if ended == 0 {
			tr.Error("there were no sessions to end")
		}
		if err := r.p.AwaitReady(30 * time.Second); err != nil {
			tr.Error(err)
		}
		tr.Remark("%d sessions ended", ended)
	})
}

// postgresHangs forwards nothing for longer than a lease, so that every connection of every pool hangs. A
// process commits its own results before it claims again. With two processes, one may claim what the other
// has not yet committed.
func postgresHangs(tr *trial) {
	tr.Backend.Direct = tr.Backend.Postgres
	proxy, through := harness.InFrontOf(tr, tr.Backend.Postgres)
	tr.Backend.Postgres = through
	tr.sqlFails(func(r *faultTrial) {
		if tr.Shared() {
			tr.Serve("--workers", "128")
		}
		tr.awaitSends(sqlRate)
		r.blackout(blackout{what: "PostgreSQL hangs", lasts: harness.QuickLease + 2*time.Second,
			hit: proxy.Hang, heal: func() {
				tr.Take(time.Now(), 0)
				proxy.Pass()
			}})
	})
}

// lockedOut takes SQLite's lock, as a second program that writes to the file does, or a lock on the table of
// callbacks, as a careless schema change does. Accepts are refused in time, and nothing accumulates.
func lockedOut(tr *trial) {
	lock := "BEGIN EXCLUSIVE"
	if tr.Backend.Postgres != "" {
		lock = "BEGIN; LOCK TABLE callbacks IN ACCESS EXCLUSIVE MODE"
	}
	tr.sqlFails(func(r *faultTrial) {
		locker, err := tr.Database().Conn(tr.Context())
		tr.Check(err)
		defer locker.Close()
		execute := func(text string) func() {
			return func() {
				_, err := locker.ExecContext(tr.Context(), text)
				tr.Check(err)
			}
		}
		g := r.blackout(blackout{what: "locked", lasts: 7 * time.Second, locked: true, hit: execute(lock),
			heal: execute("ROLLBACK")})
		if g.accepts[http.StatusServiceUnavailable] == 0 && tr.Backend.Postgres != "" {
			tr.Errorf("want accepts refused in time with 503: %s", g)
		}
	})
}

// readOnly makes the database read-only, as after a failover to a standby. Sessions that were opened
// meanwhile stay read-only after the setting is gone, so the program must open new ones.
func readOnly(tr *trial) {
	tr.sqlFails(func(r *faultTrial) {
		name := tr.databaseName()
		set := func(change string) {
			tr.Check(testserver.SharedPostgres(tr).Exec(tr.Context(), "ALTER DATABASE "+name+" "+change))
		}
		var unread error
		r.blackout(blackout{what: "read-only", lasts: 4 * time.Second, hit: func() {
			set("SET default_transaction_read_only = on")
			tr.endSessions()
		}, heal: func() {
			for range 20 {
				if _, err := r.p.ListAll(client.Filter{}); err != nil {
					unread = err
				}
			}
			set("RESET default_transaction_read_only")
		}})
		if unread != nil {
			tr.Errorf("not all of 20 lists were read: %v", unread)
		}
	})
}

// smallDisk mounts a file system in memory with that size, and returns its directory.
func (tr *trial) smallDisk(size string) string {
	tr.Helper()
	dir, err := os.MkdirTemp("", "small-disk-*")
	tr.Check(err)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755,size="+size); err != nil {
		os.Remove(dir) // the failure below matters more
		tr.Fatalf("mount a file system of %s (only root may): %v", size, err)
	}
	tr.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			tr.Errorf("unmount %s: %v", dir, err)
		}
		if err := os.Remove(dir); err != nil {
			tr.Error(err)
		}
	})
	return dir
}

// fill takes all free space on the disk of the directory. Removing the returned file frees it.
func (tr *trial) fill(dir string) (ballast string) {
	tr.Helper()
	f, err := os.Create(filepath.Join(dir, "ballast"))
	tr.Check(err)
	defer f.Close()
	for size := 1 << 20; size >= 512; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	return f.Name()
}

// diskFull takes all free space on the disk of the directory. The database still uses the free space within
// its files, so press makes it need more; nil: the load does. Then the space is freed and freed is called,
// and everything goes on.
func (r *faultTrial) diskFull(dir string, press func(), freed func()) {
	r.Helper()
	var ballast string
	r.blackout(blackout{what: "disk full", lasts: 6 * time.Second, hit: func() {
		ballast = r.fill(dir)
		r.Eventually(time.Minute, "SQL cannot commit", func() error {
			if press != nil {
				press()
			}
			if status, _, err := r.p.Readyz(); err != nil || status != http.StatusServiceUnavailable {
				return fmt.Errorf("/readyz returned %d %w", status, err)
			}
			return nil
		})
	}, heal: func() {
		err := os.Remove(ballast)
		if freed != nil {
			freed()
		}
		r.Check(err)
	}})
}

// postgresDiskFull takes all free space of PostgreSQL's file system. The server cannot grow its tables, then
// panics at its log, and may end. Then the trial restarts it.
func postgresDiskFull(tr *trial) {
	dir := tr.smallDisk("192m")
	place := filepath.Join(dir, "server")
	tr.Check(os.Mkdir(place, 0o700))
	// Segments of 1 MB: with the default size the log has room for minutes of this load.
	pg := testserver.NewPostgresIn(tr, place, "--wal-segsize=1")
	for _, statement := range []string{"ALTER SYSTEM SET min_wal_size = '2MB'",
		"ALTER SYSTEM SET max_wal_size = '8MB'", "ALTER SYSTEM SET wal_recycle = off",
		"SELECT pg_reload_conf()"} {
		tr.Check(pg.Exec(tr.Context(), statement))
	}
	tr.ownServer(pg)
	tr.sqlFails(func(r *faultTrial) {
		// The rest of a log segment lasts for a minute, so force a new one. The error is expected.
		r.diskFull(dir, func() { pg.Exec(tr.Context(), "SELECT pg_switch_wal()") }, func() {
			ended := pg.HasEnded()
			tr.Remark("the server had ended: %t", ended)
			if ended {
				pg.Start(tr)
			}
		})
	})
}

// sqliteDiskFull takes all free space of the data directory's file system.
func sqliteDiskFull(tr *trial) {
	dir := tr.smallDisk("64m")
	tr.UseBackend(harness.Backend{Name: tr.Backend.Name, DataDir: dir, Prefix: "e2e"})
	tr.sqlFails(func(r *faultTrial) { r.diskFull(dir, nil, nil) })
}

// intact lets SQLite check its file.
func (tr *trial) intact() {
	tr.Helper()
	var result string
	err := tr.Database().QueryRowContext(tr.Context(), "PRAGMA integrity_check").Scan(&result)
	if err != nil || result != "ok" {
		tr.Errorf("integrity_check returned %q: %v", result, err)
	}
}

// logCutOff truncates SQLite's write-ahead log while no process runs, as a damaged disk does. Only commits
// behind the cut are lost, which no guarantee covers. Everything before it is there, and the process starts
// and works.
func logCutOff(tr *trial) {
	const n = 60
	p := tr.Serve()
	var order []string
	for i := range n {
		s := tr.Numbered("plain")(i)
		s["delay"] = "20s"
		order = append(order, tr.SubmitAndNote(s))
	}
	p.Kill()
	wal := filepath.Join(tr.Backend.DataDir, "dispatcher.db-wal")
	info, err := os.Stat(wal)
	tr.Check(err)
	tr.MarkFault()
	// Not at the end of a frame, so that the last frame is torn.
	tr.Check(os.Truncate(wal, info.Size()*3/4+100))
	p = tr.Serve()
	there := tr.inSQL()
	lost := map[string]bool{}
	for i, id := range order {
		if !there[id] {
			lost[id] = true
		} else if len(lost) > 0 {
			tr.Errorf("callback %d is there, and an earlier one is not: the cut lost too much",
				i)
		}
	}
	if len(lost) == 0 || len(lost) == n {
		tr.Errorf("%d of %d were lost: the cut hit nothing, or everything", len(lost), n)
	}
	tr.Backend.ForgetAccepted(len(lost))
	tr.Remark("log of %d bytes cut to three quarters: %d of %d callbacks behind the cut are gone",
		info.Size(), len(lost), n)
	tr.intact()
	tr.SubmitAndNote(tr.Callback("plain", "after-the-cut"))
	tr.End(time.Minute, judge.Bounds{Unknown: lost, Heal: time.Minute})
	if p.Ended() {
		tr.Error("the process has ended")
	}
}
