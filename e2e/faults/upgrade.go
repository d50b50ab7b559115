package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// expansion is a typical migration: it only adds, so that an older process can run at the same time.
const expansion = `-- +goose Up
CREATE TABLE notes_of_tomorrow (callback_id TEXT NOT NULL, note TEXT NOT NULL);
ALTER TABLE callbacks ADD COLUMN note_of_tomorrow TEXT NOT NULL DEFAULT '';
CREATE INDEX callbacks_note_of_tomorrow ON callbacks (note_of_tomorrow) WHERE note_of_tomorrow <> '';
`

// broken is the same, with a failing last statement.
const broken = expansion + `INSERT INTO a_table_that_does_not_exist (id) VALUES (1);
`

// Binaries with another migration. Its number is far beyond those of the product.
var (
	buildTomorrow = sync.OnceValues(func() (string, error) { return compileWith("tomorrow", expansion) })
	buildBroken   = sync.OnceValues(func() (string, error) { return compileWith("broken", broken) })
)

// compileWith builds a binary with another migration, which is in no file of the checkout.
func compileWith(dir, text string) (string, error) {
	const name = "9001_tomorrow.sql"
	migrations, err := filepath.Abs("../../migrations")
	if err != nil {
		return "", err
	}
	place := filepath.Join(harness.WorkDir, dir)
	if err := os.MkdirAll(place, 0o700); err != nil {
		return "", err
	}
	migration, overlay := filepath.Join(place, name), filepath.Join(place, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(migrations,
		name): migration}})
	if err != nil {
		return "", err
	}
	for file, content := range map[string][]byte{migration: []byte(text), overlay: replace} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return "", err
		}
	}
	return harness.Build(filepath.Join(place, "dispatcher"), "-overlay", overlay)
}

// built returns a binary, or ends the trial.
func (tr *trial) built(build func() (string, error)) string {
	tr.Helper()
	program, err := build()
	tr.Check(err)
	return program
}

// exitLimit is the limit of an orderly end, in which the attempts in flight finish.
const exitLimit = 40 * time.Second

// ofTomorrow counts the effects of the new migration in the database: its table, its column, and each record
// that it was applied.
func (tr *trial) ofTomorrow() (n int) {
	tr.Helper()
	for _, query := range []string{`SELECT note FROM notes_of_tomorrow WHERE 1 = 0`,
		`SELECT note_of_tomorrow FROM callbacks WHERE 1 = 0`} {
		if _, err := tr.Database().ExecContext(tr.Context(), query); err == nil {
			n++
		}
	}
	return n + tr.sqlCount(`SELECT count(*) FROM schema_migrations WHERE version_id = 9001`)
}

// launchTomorrow starts the binary with the new migration. It must have migrated the database exactly once.
func (tr *trial) launchTomorrow() *harness.Process {
	tr.Helper()
	p := tr.Launch(harness.Launch{Program: tr.built(buildTomorrow)})
	if n := tr.ofTomorrow(); n != 3 {
		tr.Fatalf("the new process did not migrate, or twice: %d of 3", n)
	}
	return p
}

// rollingUpgrade replaces two of three old processes with new ones, which migrate, and then goes back to old
// ones, all under load. Each process ends in order, so nothing is sent twice.
//
// The new process is the one of this checkout, and the old one the newest release. Before the first release
// there is none: then the old process is the one of this checkout, and the new one has one more migration.
func rollingUpgrade(tr *trial) {
	tag, err := newestRelease()
	tr.Check(err)
	launchOld, launchNew := tr.Serve, func(...string) *harness.Process { return tr.launchTomorrow() }
	if tag != "" {
		old := tr.built(buildRelease)
		launchOld = func(args ...string) *harness.Process {
			return tr.Launch(harness.Launch{Program: old, Args: args})
		}
		launchNew = tr.Serve
	} else {
		tr.built(buildTomorrow) // builds before the load starts
	}
	one, two := launchOld(), launchOld()
	ld := tr.Load(40, tr.Mixed)
	const phase = 4 * time.Second
	stay := func(what string) {
		sent := tr.Receiver.Count()
		time.Sleep(phase) // the phase lasts for a fixed time
		if now := tr.Receiver.Count(); now == sent {
			tr.Errorf("nothing was sent while %s", what)
		}
	}
	stay("two old processes ran")
	three := launchNew()
	one.Exit(exitLimit)
	four := launchNew()
	stay("one old and two new processes ran")
	tr.ready(two)
	two.Exit(exitLimit)
	stay("two new processes ran")
	// Back again: an old process starts on the newer schema, with and without running its own migrations.
	five := launchOld()
	six := launchOld("--migrate=false")
	three.Exit(exitLimit)
	four.Exit(exitLimit)
	stay("two old processes ran on the new schema")
	tr.ready(five)
	tr.ready(six)
	report := ld.Finish()
	v := tr.End(time.Minute, judge.Bounds{})
	if v.Uncertain > 0 {
		tr.Errorf("%d attempts have an unknown outcome after orderly ends", v.Uncertain)
	}
	between := "this build and the same with one more migration"
	if tag != "" {
		between = tag + " and this build"
	}
	tr.Remark("%s: two old, one old and two new, two new, two old on the new schema: %d accepted, each sent "+
		"by its tiers only; accepts %s, lateness %s", between, v.Accepted, report.Took, v.Lateness)
}

// brokenMigration starts a new process whose migration fails at its last statement, while an old one runs,
// and then one with a correct migration. With the embedded index the old process must stop first.
func brokenMigration(tr *trial) {
	failing := tr.built(buildBroken)
	shared := tr.Backend.Redis != "" // otherwise only one process can run at a time
	p := tr.Serve()
	tr.acceptMore(0)
	if !shared {
		p.Exit(exitLimit)
	}
	serving := slices.Concat([]string{"serve", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"},
		tr.Backend.Args())
	storage := []string{"migrate", "--data-dir", tr.Backend.DataDir}
	if tr.Backend.Postgres != "" {
		storage = []string{"migrate", "--database-url", tr.Backend.Postgres}
	}
	for _, args := range [][]string{storage, serving} {
		got := harness.RunProgram(tr, failing, time.Minute, harness.Keys, args...)
		text := got.Stdout + got.Stderr
		lines := strings.Split(strings.TrimSpace(text), "\n")
		last := lines[len(lines)-1]
		if got.Code != 1 || !strings.Contains(last, "9001_tomorrow.sql") ||
			!strings.Contains(last, "a_table_that_does_not_exist") {
			tr.Errorf("%s with a broken migration ended with code %d, want 1 and a line that names it:\n%s",
				args[0], got.Code, text)
		}
		tr.Logf("%s: exit %d: %s", args[0], got.Code, last)
		if n := tr.ofTomorrow(); n > 0 {
			tr.Errorf("%d parts of the broken migration remain", n)
		}
	}
	if !shared {
		p = tr.Serve()
	}
	tr.ready(p)
	tr.acceptMore(50)
	if !shared {
		p.Exit(exitLimit)
	}
	p = tr.launchTomorrow()
	tr.ready(p)
	tr.acceptMore(100)
	v := tr.End(time.Minute, judge.Bounds{})
	if v.Uncertain > 0 {
		tr.Errorf("%d attempts have an unknown outcome", v.Uncertain)
	}
	tr.Remark("the broken migration left nothing behind and ended with exit code 1 and one line; an old "+
		"process went on; the corrected migration was applied; %d accepted meanwhile", v.Accepted)
}

// killedInMigration kills a process during its migration, while the second statement waits for a locked
// table. The server ends the session once it notices, and so releases the lock of the migrations.
func killedInMigration(tr *trial) {
	tomorrow := tr.built(buildTomorrow)
	tr.Serve()
	tr.acceptMore(0)
	tr.Settle(time.Minute)
	// The lock is that of a migration or of a careless session, which keeps others from changing the table.
	locker, err := tr.Database().BeginTx(tr.Context(), nil)
	tr.Check(err)
	_, err = locker.ExecContext(tr.Context(), `LOCK TABLE callbacks IN SHARE ROW EXCLUSIVE MODE`)
	tr.Check(err)
	p := harness.Spawn(tr.T, harness.Launch{On: tr.Backend, Program: tomorrow, Args: tr.Args})
	tr.Eventually(30*time.Second, "the migration waits in its second statement", func() error {
		if tr.sqlCount(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND wait_event_type = 'Lock' AND query LIKE '%ADD COLUMN note_of_tomorrow%'`) == 0 {
			return fmt.Errorf("it does not wait\n%s", p.LogTail(500))
		}
		return nil
	})
	p.Kill()
	tr.MarkFault()
	tr.Check(locker.Rollback())
	began := time.Now()
	tr.launchTomorrow()
	ready := time.Since(began)
	tr.acceptMore(50)
	tr.End(time.Minute, judge.Bounds{Heal: time.Minute})
	tr.Remark("killed in the middle of its migration; the next one had migrated and was ready after %s",
		ready)
}

// acceptMore accepts fifty callbacks, with numbers from `from` on.
func (tr *trial) acceptMore(from int) {
	tr.Helper()
	tr.AcceptEach(50, func(i int) harness.Submission { return tr.Mixed(from + i) })
}
