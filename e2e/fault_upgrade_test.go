package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
)

// upgradeFaults run two binaries side by side: the one of this checkout, and one that has a migration more, which exists in the
// tests alone and is overlaid on the build.
func upgradeFaults() []fault {
	return []fault{
		{id: "F46", title: "rolling upgrade and back", short: []combination{full}, full: []combination{sqliteRedis, full}, run: rollingUpgrade},
		{id: "F47", title: "migration that fails half-way", short: []combination{full}, full: allFour, run: brokenMigration},
		{id: "F47", title: "five start at once on nothing", short: []combination{full}, full: []combination{full, sqliteRedis}, run: fiveAtOnce},
		{id: "F47", title: "killed in a migration", short: []combination{full}, full: []combination{full}, run: killedInMigration},
	}
}

// expansion is a migration as the house makes them: it adds, and an older process works on beside it.
const expansion = `-- +goose Up
CREATE TABLE notes_of_tomorrow (callback_id TEXT NOT NULL, note TEXT NOT NULL);
ALTER TABLE callbacks ADD COLUMN note_of_tomorrow TEXT NOT NULL DEFAULT '';
CREATE INDEX callbacks_note_of_tomorrow ON callbacks (note_of_tomorrow) WHERE note_of_tomorrow <> '';
`

// broken does as much, and fails at its last statement.
const broken = expansion + `INSERT INTO a_table_that_nobody_has (id) VALUES (1);
`

// Binaries with one more migration. Their numbers are far beyond those that the product may come to.
var (
	buildTomorrow = sync.OnceValues(func() (string, error) { return compileWith("tomorrow", "9001_tomorrow.sql", expansion) })
	buildBroken   = sync.OnceValues(func() (string, error) { return compileWith("broken", "9001_tomorrow.sql", broken) })
)

// compileWith builds a binary with one more migration, which no file of the checkout holds.
func compileWith(dir, name, text string) (string, error) {
	migrations, err := filepath.Abs("../../migrations")
	if err != nil {
		return "", err
	}
	place := filepath.Join(workDir, dir)
	if err := os.MkdirAll(place, 0o700); err != nil {
		return "", err
	}
	migration, overlay := filepath.Join(place, name), filepath.Join(place, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(migrations, name): migration}})
	if err != nil {
		return "", err
	}
	for file, content := range map[string][]byte{migration: []byte(text), overlay: replace} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return "", err
		}
	}
	program := filepath.Join(place, "dispatcher")
	cmd := exec.Command("go", "build", "-overlay", overlay, "-tags", buildTags+" failpoints", "-o", program, "github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return program, nil
}

// built is a binary, or the end of the lab.
func (l *lab) built(build func() (string, error)) string {
	l.Helper()
	program, err := build()
	if err != nil {
		l.Fatal(err)
	}
	return program
}

// serveWith is serve with another binary.
func (l *lab) serveWith(program string, args ...string) *process {
	l.Helper()
	p := serve(l.T, launch{on: l.on, program: program, args: slices.Concat(l.args, args)})
	l.join(p)
	return p
}

// exit ends a process in order; what it had in flight ends.
func (l *lab) exit(p *process) {
	l.Helper()
	p.terminate()
	if code := p.exitCode(40 * time.Second); code != 0 {
		l.Errorf("exit code %d, want 0\n%s", code, p.logTail(2000))
	}
}

// versions are the migrations that the database says it has.
func (l *lab) versions() ([]int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	rows, err := l.database().QueryContext(ctx, `SELECT version_id FROM schema_migrations ORDER BY version_id`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var versions []int
	for rows.Next() {
		var v int
		if err := rows.Scan(&v); err != nil {
			return nil, err
		}
		versions = append(versions, v)
	}
	return versions, rows.Err()
}

// has says whether the database has a table or a column of the migration of tomorrow.
func (l *lab) has(query string) bool {
	l.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	rows, err := l.database().QueryContext(ctx, query)
	if err != nil {
		return false // there is no such table, or column
	}
	defer rows.Close()
	return rows.Err() == nil
}

func (l *lab) hasTomorrow() (table, column bool) {
	l.Helper()
	return l.has(`SELECT note FROM notes_of_tomorrow LIMIT 1`), l.has(`SELECT note_of_tomorrow FROM callbacks LIMIT 1`)
}

// rollingUpgrade replaces two of three old processes by new ones, which migrate, and goes back to old ones, under load all
// the while. Each process ends in order, so that nothing is sent twice.
func rollingUpgrade(l *lab) {
	tomorrow := l.built(buildTomorrow)
	one, two := l.serve(), l.serve()
	ld := l.load(long(l, 100, 40), l.mixed)
	phase := long(l, 20*time.Second, 4*time.Second)
	stay := func(what string) {
		sent := l.w.count()
		timer := time.NewTimer(phase)
		defer timer.Stop()
		<-timer.C
		if now := l.w.count(); now == sent {
			l.Errorf("nothing was sent while %s", what)
		}
	}
	stay("two old processes ran")
	three := l.serveWith(tomorrow)
	if table, column := l.hasTomorrow(); !table || !column {
		l.Fatalf("the new process did not migrate: table %t, column %t", table, column)
	}
	l.exit(one)
	four := l.serveWith(tomorrow)
	stay("one old and two new processes ran")
	l.ready(two)
	l.exit(two)
	stay("two new processes ran")
	// And back: an old process starts on the newer schema, with and without its own migrations.
	five := l.serve()
	six := l.serve("--migrate=false")
	l.exit(three)
	l.exit(four)
	stay("two old processes ran on the new schema")
	l.ready(five)
	l.ready(six)
	report := ld.finish()
	l.settle(time.Minute)
	v := l.verdict(judge.Bounds{})
	if v.Uncertain > 0 {
		l.Errorf("%d attempts have an unknown outcome after orderly ends", v.Uncertain)
	}
	versions, err := l.versions()
	if err != nil || !slices.Contains(versions, 9001) {
		l.Errorf("the schema has the versions %v: %v", versions, err)
	}
	l.remark("two old, one old and two new, two new, two old on the new schema: %d accepted, each sent by its tiers only; accepts p99 %s most %s, lateness p99 %s",
		v.Accepted, report.took.P99.Round(time.Millisecond), report.took.Most.Round(time.Millisecond), v.Lateness.P99)
}

// ready fails the lab if a process is not; one that has just started may still look at its index.
func (l *lab) ready(p *process) {
	l.Helper()
	eventually(l, 15*time.Second, "the process is ready and not degraded", func() error {
		status, body, err := p.readyz()
		if err == nil && (status != http.StatusOK || strings.Contains(body, "degraded")) {
			err = fmt.Errorf("/readyz answers %d %s", status, body)
		}
		return err
	})
}

// brokenMigration starts, beside an old process, a new one whose migration fails at its last statement, and then a mended
// one. On an index of its own the old process has to make room.
func brokenMigration(l *lab) {
	failing, tomorrow := l.built(buildBroken), l.built(buildTomorrow)
	shared := l.on.redis != "" // else one process at a time
	p := l.serve()
	l.acceptMore(0, 50)
	before, err := l.versions()
	if err != nil {
		l.Fatal(err)
	}
	if !shared {
		l.exit(p)
	}
	serving := slices.Concat([]string{"serve", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"}, l.on.args())
	for _, args := range [][]string{slices.Concat([]string{"migrate"}, l.on.storage()), serving} {
		got := runProgram(l, failing, time.Minute, keys, args...)
		text := got.stdout + got.stderr
		last := lastLine(text)
		if got.code != 1 || !strings.Contains(last, "9001_tomorrow.sql") || !strings.Contains(last, "a_table_that_nobody_has") {
			l.Errorf("%s with a broken migration ended with code %d, want 1 and a line that names it:\n%s", args[0], got.code, text)
		}
		l.Logf("%s: exit %d: %s", args[0], got.code, last)
		after, err := l.versions()
		if table, column := l.hasTomorrow(); err != nil || table || column || !slices.Equal(before, after) {
			l.Errorf("something of it stays: table %t, column %t, versions %v and before %v: %v", table, column, after, before, err)
		}
	}
	if !shared {
		p = l.serve()
	}
	l.ready(p)
	l.acceptMore(50, 50)
	if !shared {
		l.exit(p)
	}
	p = l.serveWith(tomorrow)
	if table, column := l.hasTomorrow(); !table || !column {
		l.Errorf("the mended one did not migrate: table %t, column %t", table, column)
	}
	l.ready(p)
	l.acceptMore(100, 50)
	l.settle(time.Minute)
	v := l.verdict(judge.Bounds{})
	if v.Uncertain > 0 {
		l.Errorf("%d attempts have an unknown outcome", v.Uncertain)
	}
	l.remark("nothing of it stays, exit 1 with one line; an old process went on, a mended one migrated; %d accepted meanwhile", v.Accepted)
}

// storage are the settings that say where the database is.
func (b backend) storage() []string {
	if b.postgres != "" {
		return []string{"--database-url", b.postgres}
	}
	return []string{"--data-dir", b.dataDir}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// fiveAtOnce starts five processes at the same moment on an empty database and an empty index.
func fiveAtOnce(l *lab) {
	binary(l) // which may have to be built first
	began := time.Now()
	processes := make([]*process, 5)
	for i := range processes {
		processes[i] = spawn(l.T, launch{on: l.on, args: l.args})
		l.join(processes[i])
	}
	var group errgroup.Group
	for _, p := range processes {
		group.Go(func() error {
			if err := p.awaitReady(startTime); err != nil {
				return fmt.Errorf("%w\n%s", err, p.logTail(2000))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		l.Fatal(err)
	}
	ready := time.Since(began)
	versions, err := l.versions()
	if err != nil || len(slices.Compact(slices.Clone(versions))) != len(versions) {
		l.Errorf("a migration was applied twice: %v %v", versions, err)
	}
	migrated := 0
	for _, p := range processes {
		text, err := os.ReadFile(p.logFile)
		if err != nil {
			l.Fatal(err)
		}
		if strings.Contains(string(text), "migration applied") {
			migrated++
		}
	}
	if migrated != 1 {
		l.Errorf("%d processes say that they migrated, want one", migrated)
	}
	left := l.acceptAll(numbers(100), l.mixed)
	if len(left) > 0 {
		l.Errorf("%d callbacks were not accepted", len(left))
	}
	l.settle(time.Minute)
	l.verdict(judge.Bounds{})
	l.remark("one of five migrated, all were ready after %s", ready.Round(100*time.Millisecond))
}

// killedInMigration kills a process between the first statement of its migration and the second, for which it waits: the
// table is locked. The server ends its session once it notices, and with it goes the lock of the migrations.
func killedInMigration(l *lab) {
	tomorrow := l.built(buildTomorrow)
	l.serve()
	if left := l.acceptAll(numbers(50), l.mixed); len(left) > 0 {
		l.Errorf("%d callbacks were not accepted", len(left))
	}
	l.settle(time.Minute)
	held := l.lockCallbacks()
	p := spawn(l.T, launch{on: l.on, program: tomorrow, args: l.args})
	eventually(l, 30*time.Second, "the migration waits in its second statement", func() error {
		var waiting int
		err := l.database().QueryRowContext(l.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%ADD COLUMN note_of_tomorrow%'`).Scan(&waiting)
		if err == nil && waiting == 0 {
			err = fmt.Errorf("none does\n%s", p.logTail(500))
		}
		return err
	})
	p.kill()
	l.struck()
	if err := held.Rollback(); err != nil {
		l.Fatal(err)
	}
	began := time.Now()
	l.serveWith(tomorrow)
	ready := time.Since(began)
	if table, column := l.hasTomorrow(); !table || !column {
		l.Errorf("the next one did not migrate: table %t, column %t", table, column)
	}
	versions, err := l.versions()
	if err != nil || len(slices.Compact(slices.Clone(versions))) != len(versions) {
		l.Errorf("a migration was applied twice: %v %v", versions, err)
	}
	l.acceptMore(50, 50)
	l.settle(time.Minute)
	l.verdict(judge.Bounds{Heal: time.Minute})
	l.remark("killed in the middle of its migration; the next one had migrated and was ready after %s", ready.Round(100*time.Millisecond))
}

// acceptMore hands over n callbacks from a number on; each must be accepted.
func (l *lab) acceptMore(from, n int) {
	l.Helper()
	left := l.acceptAll(numbers(n), func(i int) submission { return l.mixed(from + i) })
	if len(left) > 0 {
		l.Errorf("%d callbacks were not accepted", len(left))
	}
}

// lockCallbacks keeps everybody from changing the table, as a migration or a careless session would.
func (l *lab) lockCallbacks() *sql.Tx {
	l.Helper()
	held, err := l.database().BeginTx(l.Context(), nil)
	if err != nil {
		l.Fatal(err)
	}
	if _, err := held.ExecContext(l.Context(), `LOCK TABLE callbacks IN SHARE ROW EXCLUSIVE MODE`); err != nil {
		l.Fatal(err)
	}
	return held
}
