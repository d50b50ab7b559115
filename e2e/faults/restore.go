package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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

// farOff is the delay of waiting callbacks. They must not fall due during the trial, even on a slow machine.
const farOff = "30m"

// restoreGroup is the number of callbacks of each group of the trial.
const restoreGroup = 30

// restoredFromBackup takes a backup, goes on, kills everything, and restores the backup. With rebuilt, the
// index is rebuilt after the backup, so the restored database does not know its generation.
func restoredFromBackup(tr *trial, rebuilt bool) {
	pg := testserver.NewPostgres(tr)
	tr.ownServer(pg)
	r := &restoration{trial: tr, old: map[string]string{}, now: map[string]string{},
		refs: map[string][]string{}}
	p := tr.Serve()
	// In the backup: sent, sent only after it, and still waiting at the crash.
	r.accept("sent", "0s")
	r.awaitSent("sent")
	r.accept("resent", farOff)
	r.accept("waiting", farOff)
	dump := r.dump()
	// After the backup: sent, and still waiting. Afterwards only the index has the waiting ones.
	r.accept("gap-sent", "0s")
	r.accept("gap-waiting", farOff)
	r.hurry(p, "resent")
	r.awaitSent("gap-sent")
	r.awaitSent("resent")
	tr.awaitEntries(2*restoreGroup, time.Minute) // the waiting callbacks
	if rebuilt {
		tr.run(0, "rebuild", p)
	}
	p.Kill()
	tr.MarkFault()
	tr.Backend.SkipReconciliation("the trial restores another database")

	r.restore(pg, dump)
	holding := tr.Serve("--hold")
	r.report(holding, rebuilt)
	r.resend(holding)
	tr.run(0, "rebuild", holding)
	tr.run(0, "verify", holding)
	r.hurry(holding, "resent", "waiting", "gap-waiting")
	holding.Exit(time.Minute)
	if n := tr.Receiver.Count(); n != r.before {
		tr.Errorf("%d requests arrived while sending was off", n-r.before)
	}
	tr.Serve()
	tr.Settle(3 * time.Minute)
	r.conclude()
}

// A restoration is the state of the trial.
type restoration struct {
	*trial
	// old maps each ref to the id of the first run, now to the id after the restore. refs are the refs of
	// each group. lines are all submissions as they were sent.
	old    map[string]string
	now    map[string]string
	refs   map[string][]string
	lines  bytes.Buffer
	before int // requests that had arrived before the crash
}

func (r *restoration) accept(group, delay string) {
	r.Helper()
	for i := range restoreGroup {
		s := r.Numbered(group)(i)
		s["delay"] = delay
		line, err := json.Marshal(s)
		r.Check(err)
		r.lines.Write(append(line, '\n'))
		// Submit each callback separately: the import after the restore is another client.
		id, ref := r.SubmitAndNote(s), s["ref"].(string)
		r.old[ref], r.now[ref] = id, id
		r.refs[group] = append(r.refs[group], ref)
	}
}

// hurry retries the callbacks of the groups now. It repeats a call that a slow database refused, unless that
// call took effect: another retry would send the callback again.
func (r *restoration) hurry(p *harness.Process, groups ...string) {
	r.Helper()
	for _, group := range groups {
		for _, ref := range r.refs[group] {
			id := r.now[ref]
			r.Eventually(time.Minute, ref+" is retried", func() error {
				cb, err := p.Callback(r.Context(), id)
				if err != nil || cb.State == "succeeded" || cb.State == "attempting" {
					return err
				}
				_, err = p.Call(r.Context(), http.MethodPost, "/v1/callbacks/"+id+"/retry",
					harness.Submission{"reason": "a trial"}, nil)
				return err
			})
		}
	}
}

// awaitSent waits until the group has arrived and its results are committed.
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

// restore restores the backup into a new database, which the trial uses from now on.
func (r *restoration) restore(pg *testserver.Postgres, dump string) {
	fresh := pg.Database(r)
	postgresTool(r, "pg_restore", "--exit-on-error", "--dbname="+fresh, dump)
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Backend.Postgres, r.DB = fresh, nil
	r.Backend.ResetAccounts()
}

// postgresTool runs a client program of PostgreSQL, from the PATH or from the directory of the server.
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

// run runs a command against a server. Its exit code must be code.
func (tr *trial) run(code int, name string, p *harness.Process, args ...string) harness.Finished {
	tr.Helper()
	got := harness.Command(tr, 2*time.Minute, nil,
		slices.Concat([]string{name}, args, []string{"--server", p.Base, "--key", harness.AdminKey})...)
	if got.Code != code {
		tr.Errorf("%s ended with %d, want %d\n%s%s", name, got.Code, code, got.Stdout, got.Stderr)
	}
	return got
}

// report checks what the operator sees: in /readyz, doctor and verify.
func (r *restoration) report(holding *harness.Process, rebuilt bool) {
	status, body, err := holding.Readyz()
	if err != nil || status != 200 || !strings.Contains(body, `"held"`) {
		r.Errorf("/readyz returned %d %s, %v", status, body, err)
	}
	// A process is ready before it has checked the index.
	r.Eventually(time.Minute, "the log explains that sending is off, and how to go on", func() error {
		if log := holding.LogTail(1 << 20); !strings.Contains(log, "restart without --hold") ||
			strings.Contains(log, "left unchanged although it does not match SQL") != rebuilt {
			return errors.New(log)
		}
		return nil
	})
	examined := harness.Command(r, time.Minute, harness.Keys,
		append([]string{"doctor"}, r.Backend.Args()...)...)
	if newer := strings.Contains(examined.Stdout, "--hold"); newer != rebuilt {
		r.Errorf("doctor ended with %d and printed\n%s%s", examined.Code, examined.Stdout, examined.Stderr)
	}
	var unknown []string
	for _, ref := range r.refs["gap-waiting"] {
		unknown = append(unknown, r.old[ref])
	}
	slices.Sort(unknown)
	verified := r.run(1, "verify", holding, "--unknown")
	if got := strings.Fields(verified.Stdout); !slices.Equal(got, unknown) {
		r.Errorf("verify lists %d ids as unknown: %v\nwant %d: %v\n%s", len(got), got, len(unknown), unknown,
			verified.Stderr)
	}
	if !strings.Contains(verified.Stderr, fmt.Sprintf("missing: %d ", restoreGroup)) {
		r.Errorf("verify does not say what SQL has to send again:\n%s", verified.Stderr)
	}
}

// resend imports everything that the client ever sent, with the same keys. The client need not know where the
// gap began.
func (r *restoration) resend(holding *harness.Process) {
	path := filepath.Join(r.TempDir(), "all.ndjson")
	r.Check(os.WriteFile(path, r.lines.Bytes(), 0o600))
	var sum struct{ Accepted, Replayed, Refused int }
	got := r.run(0, "import", holding, path, "--json")
	if err := json.Unmarshal([]byte(got.Stdout), &sum); err != nil {
		r.Fatalf("%v: %s", err, got.Stdout)
	}
	if sum.Accepted != 2*restoreGroup || sum.Replayed != 3*restoreGroup || sum.Refused != 0 {
		r.Errorf("the import ended as %+v; want the gap's %d as new, and the backup's %d as known", sum,
			2*restoreGroup, 3*restoreGroup)
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
		r.Errorf("SQL has %d callbacks, want %d", len(rows), 5*restoreGroup)
	}
}

// conclude judges the trial. A callback in the backup that was sent after it is sent once more, and its first
// send is recorded nowhere. A callback accepted after the backup is lost, and exists again under another id.
func (r *restoration) conclude() {
	forgotten := map[string]bool{}
	for _, group := range []string{"gap-sent", "gap-waiting"} {
		for _, ref := range r.refs[group] {
			forgotten[r.old[ref]] = true
		}
	}
	r.Verdict(judge.Bounds{Duplicates: restoreGroup, PerCallback: 1, Unrecorded: restoreGroup,
		Unknown: forgotten, Heal: 2 * time.Minute})
	// By order, whichever ids it has: only orders sent between the backup and the crash may arrive twice.
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
