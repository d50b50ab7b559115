package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// farOff is when what waits is due: later than any trial needs to get there, however slow the machine.
const farOff = "30m"

// restoreGroup is how many callbacks each group of the trial has.
const restoreGroup = 30

// restoredFromBackup takes a backup in the middle of things, goes on, kills everything, and puts the backup
// back. With rebuilt the index was rebuilt in between, so that its generation is one that the restored
// database has never heard of.
func restoredFromBackup(tr *trial, rebuilt bool) {
	pg := testserver.NewPostgres(tr)
	tr.ownServer(pg)
	r := &restoration{trial: tr, old: map[string]string{}, now: map[string]string{},
		refs: map[string][]string{}}
	p := tr.Serve()
	// In the backup: sent; sent only after it; still waiting at the crash.
	r.accept("sent", "0s")
	r.awaitSent("sent")
	r.accept("resent", farOff)
	r.accept("waiting", farOff)
	dump := r.dump()
	// After the backup: sent; still waiting, so that the index alone knows of it afterwards.
	r.accept("gap-sent", "0s")
	r.accept("gap-waiting", farOff)
	r.hurry(p, "resent")
	r.awaitSent("gap-sent")
	r.awaitSent("resent")
	tr.awaitHeld(2*restoreGroup, time.Minute) // what waits, and nothing else
	if rebuilt {
		tr.run(0, "rebuild", p)
	}
	p.Kill()
	tr.MarkFault()
	tr.Backend.SkipReconciliation("another database takes its place")

	r.restore(pg, dump)
	held := tr.Serve("--hold")
	r.report(held, rebuilt)
	r.resend(held)
	tr.run(0, "rebuild", held)
	tr.run(0, "verify", held)
	r.hurry(held, "resent", "waiting", "gap-waiting")
	held.Exit(time.Minute)
	if n := tr.Receiver.Count(); n != r.before {
		tr.Errorf("%d requests arrived while sending was held", n-r.before)
	}
	tr.Serve()
	tr.Settle(3 * time.Minute)
	r.conclude()
}

// A restoration is the trial's own books.
type restoration struct {
	*trial
	// old are the ids of the first run, by ref, and now those that are the orders' at present; refs, those of
	// each group; lines, every submission as it was sent.
	old    map[string]string
	now    map[string]string
	refs   map[string][]string
	lines  bytes.Buffer
	before int // requests that had arrived when everything was killed
}

func (r *restoration) accept(group, delay string) {
	r.Helper()
	for i := range restoreGroup {
		s := r.Numbered(group)(i)
		s["delay"] = delay
		line, err := json.Marshal(s)
		r.Check(err)
		r.lines.Write(append(line, '\n'))
		// Each by itself: the client of the first run is not the one of the second.
		id, ref := r.SubmitAndNote(s), s["ref"].(string)
		r.old[ref], r.now[ref] = id, id
		r.refs[group] = append(r.refs[group], ref)
	}
}

// hurry has the groups attempted now instead of far off.
func (r *restoration) hurry(p *harness.Process, groups ...string) {
	r.Helper()
	for _, group := range groups {
		for _, ref := range r.refs[group] {
			p.Post("/v1/callbacks/"+r.now[ref]+"/retry", harness.Submission{"reason": "a trial"}, nil)
		}
	}
}

// awaitSent waits until the group has arrived and its results are committed and out of the index.
func (r *restoration) awaitSent(group string) {
	r.Helper()
	r.Eventually(time.Minute, group+" has arrived and is terminal", func() error {
		for _, ref := range r.refs[group] {
			cb, err := r.AnyProcess().Callback(r.Context(), r.old[ref])
			if err != nil || cb.State != "succeeded" {
				return fmt.Errorf("%s is %s: %w", ref, cb.State, err)
			}
		}
		return nil
	})
	r.before = r.Receiver.Count()
}

// dump writes a backup of the trial's database.
func (r *restoration) dump() string {
	r.Helper()
	path := filepath.Join(r.TempDir(), "backup.dump")
	postgresTool(r, "pg_dump", "--format=custom", "--file="+path, "--dbname="+r.Backend.Postgres)
	return path
}

// restore puts the backup into a fresh database, which the trial works with from now on.
func (r *restoration) restore(pg *testserver.Postgres, dump string) {
	fresh := pg.Database(r)
	postgresTool(r, "pg_restore", "--exit-on-error", "--dbname="+fresh, dump)
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Backend.Postgres, r.DB = fresh, nil
	r.Backend.ResetAccounts()
}

// postgresTool runs one of PostgreSQL's client programs, which stand where its server does.
func postgresTool(tb testing.TB, name string, args ...string) {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		found, globErr := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
		if globErr != nil || len(found) == 0 {
			tb.Fatalf("%s is neither on the PATH nor below /usr/lib/postgresql: %v", name, err)
		}
		path = found[len(found)-1]
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// run runs a command against a server; its exit code must be the wanted one.
func (tr *trial) run(code int, name string, p *harness.Process, args ...string) harness.Finished {
	tr.Helper()
	got := harness.Command(tr, 2*time.Minute, nil,
		slices.Concat([]string{name}, args, []string{"--server", p.Base, "--key", harness.AdminKey})...)
	if got.Code != code {
		tr.Errorf("%s ended with %d, want %d\n%s%s", name, got.Code, code, got.Stdout, got.Stderr)
	}
	return got
}

// report looks at what an operator is told: by the probe, by doctor, by verify.
func (r *restoration) report(held *harness.Process, rebuilt bool) {
	if status, body, err := held.Readyz(); err != nil || status != 200 || !strings.Contains(body, `"held"`) {
		r.Errorf("/readyz answers %d %s, %v", status, body, err)
	}
	// A process is ready before it has looked at the index.
	r.Eventually(time.Minute, "the log says what is held back, and how to go on", func() error {
		if log := held.LogTail(1 << 20); !strings.Contains(log, "start it without --hold") ||
			strings.Contains(log, "left unchanged although it does not match SQL") != rebuilt {
			return errors.New(log)
		}
		return nil
	})
	examined := harness.Command(r, time.Minute, harness.Keys,
		append([]string{"doctor"}, r.Backend.Args()...)...)
	if newer := strings.Contains(examined.Stdout, "--hold"); newer != rebuilt {
		r.Errorf("doctor ended with %d and said\n%s%s", examined.Code, examined.Stdout, examined.Stderr)
	}
	var unknown []string
	for _, ref := range r.refs["gap-waiting"] {
		unknown = append(unknown, r.old[ref])
	}
	slices.Sort(unknown)
	verified := r.run(1, "verify", held, "--unknown")
	if got := strings.Fields(verified.Stdout); !slices.Equal(got, unknown) {
		r.Errorf("verify names %d ids as unknown: %v\nwant %d: %v\n%s", len(got), got, len(unknown), unknown,
			verified.Stderr)
	}
	if !strings.Contains(verified.Stderr, fmt.Sprintf("missing: %d ", restoreGroup)) {
		r.Errorf("verify does not say what SQL has to send again:\n%s", verified.Stderr)
	}
}

// resend hands over everything that the client ever sent, with the keys of the first time: it need not know
// where the gap began.
func (r *restoration) resend(held *harness.Process) {
	path := filepath.Join(r.TempDir(), "all.ndjson")
	r.Check(os.WriteFile(path, r.lines.Bytes(), 0o600))
	var sum struct{ Accepted, Replayed, Refused int }
	got := r.run(0, "import", held, path, "--json")
	if err := json.Unmarshal([]byte(got.Stdout), &sum); err != nil {
		r.Fatalf("%v: %s", err, got.Stdout)
	}
	if sum.Accepted != 2*restoreGroup || sum.Replayed != 3*restoreGroup || sum.Refused != 0 {
		r.Errorf("the import came to %+v: the gap's %d are new, and the backup's %d known", sum,
			2*restoreGroup,
			3*restoreGroup)
	}
	rows, err := judge.ReadRows(r.Context(), r.Database())
	r.Check(err)
	for i := range rows {
		r.now[rows[i].Ref] = rows[i].ID
		if r.old[rows[i].Ref] != rows[i].ID {
			r.NoteAccepted(rows[i].ID, rows[i].Ref)
		}
	}
	if len(rows) != 5*restoreGroup {
		r.Errorf("SQL has %d callbacks, not %d", len(rows), 5*restoreGroup)
	}
}

// conclude judges: what is in the backup and was sent after it is sent once more, and its first send is
// recorded nowhere; what was accepted after it is forgotten, and lives on under another id.
func (r *restoration) conclude() {
	forgotten := map[string]bool{}
	for _, group := range []string{"gap-sent", "gap-waiting"} {
		for _, ref := range r.refs[group] {
			forgotten[r.old[ref]] = true
		}
	}
	r.Verdict(judge.Bounds{Duplicates: restoreGroup, PerCallback: 1, Unrecorded: restoreGroup,
		Unknown: forgotten, Heal: 2 * time.Minute})
	// By order, whatever its ids: only what was sent between the backup and the crash may arrive twice.
	times := map[string]int{}
	for _, a := range r.Accepted {
		times[a.Ref] += r.Receiver.Times(a.ID)
	}
	twice := 0
	for group, want := range map[string]int{"sent": 1, "resent": 2, "waiting": 1, "gap-sent": 2,
		"gap-waiting": 1} {
		for _, ref := range r.refs[group] {
			if times[ref] != want {
				r.Errorf("%s arrived %d times, want %d", ref, times[ref], want)
			}
			if times[ref] > 1 {
				twice++
			}
		}
	}
	r.Remark("%d of %d orders arrived twice: those that were sent between the backup and the crash", twice,
		len(times))
}
