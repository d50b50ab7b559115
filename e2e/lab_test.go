package e2e

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
)

// A Trial is one run of the program under a fault or under load: a backend, the dispatchers on it, a receiver that writes
// down what arrives, and a ledger of what was accepted. It ends with a verdict.
type Trial struct {
	*testing.T
	name string // what its reports begin with
	full bool   // the full size
	on   backend
	w    *witness
	db   *sql.DB
	args []string // of every process that is started

	mu        sync.Mutex
	processes []*process
	accepted  []judge.Accepted
	lastFault time.Time
	outcome   *Outcome // of the verdict; nil before it
	failures  []string
	remarks   []string
}

// An Outcome is what the judge found in one trial.
type Outcome struct {
	Accepted, Lost    int
	Duplicates, Bound int
	Healed            time.Duration
}

// NewTrial prepares a trial without a backend: call use. The name begins every report of it.
func NewTrial(t *testing.T, name string, full bool) *Trial {
	return &Trial{T: t, name: name, full: full, w: newWitness(t, usual)}
}

// Result returns what the trial found: its outcome, which is nil without a verdict, the beginning of each failure, and
// the figures that it reported.
func (l *Trial) Result() (outcome *Outcome, failures, remarks []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outcome, slices.Clone(l.failures), slices.Clone(l.remarks)
}

// maxFailure bounds what is kept of the text of one failure, in bytes.
const maxFailure = 2000

// fail keeps the beginning of what went wrong.
func (l *Trial) fail(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, text[:min(len(text), maxFailure)])
}

// remark reports a figure.
func (l *Trial) remark(format string, args ...any) {
	text := l.name + " on " + l.on.name + ": " + fmt.Sprintf(format, args...)
	l.Log(text)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remarks = append(l.remarks, text)
}

// Errorf and its like are the test's own. The matrix repeats what they say below its table, where a reader finds it
// without the logs of every process.
func (l *Trial) Errorf(format string, args ...any) {
	l.Helper()
	l.fail(fmt.Sprintf(format, args...))
	l.T.Errorf(format, args...)
}

func (l *Trial) Error(args ...any) {
	l.Helper()
	l.fail(fmt.Sprint(args...))
	l.T.Error(args...)
}

func (l *Trial) Fatalf(format string, args ...any) {
	l.Helper()
	l.fail(fmt.Sprintf(format, args...))
	l.T.Fatalf(format, args...)
}

func (l *Trial) Fatal(args ...any) {
	l.Helper()
	l.fail(fmt.Sprint(args...))
	l.T.Fatal(args...)
}

// use puts the lab on a backend.
func (l *Trial) use(b backend) {
	l.on = b
	// Several labs run at once on one PostgreSQL.
	l.args = append(l.args, "--database-max-conns", "8")
}

// serve starts a dispatcher on the lab's backend and waits until it is ready.
func (l *Trial) serve(args ...string) *process {
	l.Helper()
	p := serve(l.T, launch{on: l.on, args: slices.Concat(l.args, args)})
	l.join(p)
	return p
}

// serveUntil is serve for a process that will kill itself at a failpoint, perhaps before it is ready.
func (l *Trial) serveUntil(failpoint string, args ...string) *process {
	l.Helper()
	p := serve(l.T, launch{on: l.on, args: slices.Concat(l.args, args), failpoint: failpoint, mayDie: true})
	l.join(p)
	return p
}

// join makes a process one of those that the load goes to.
func (l *Trial) join(p *process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.processes = append(l.processes, p)
}

// alive are the processes that have not ended.
func (l *Trial) alive() []*process {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.processes), (*process).ended)
}

// one returns a process that lives; a lab without any fails.
func (l *Trial) one() *process {
	l.Helper()
	alive := l.alive()
	if len(alive) == 0 {
		l.Fatal("no dispatcher is alive")
	}
	return alive[0]
}

// database opens the lab's SQL beside the program.
func (l *Trial) database() *sql.DB {
	l.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.db == nil {
		l.db = l.on.database(l.T)
	}
	return l.db
}

// struck notes that a fault has just hit, or has just ended: healing is counted from the last one.
func (l *Trial) struck() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastFault = time.Now()
}

// note writes an accepted callback into the books; its body was payload(ref).
func (l *Trial) note(id, ref string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted = append(l.accepted, judge.Accepted{ID: id, Ref: ref, Hash: sha256.Sum256(payload(ref))})
}

// count is how many were accepted.
func (l *Trial) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.accepted)
}

// callback is a submission for a kind of receiver behaviour, under short tiers. Its ref is its idempotency key too.
func (l *Trial) callback(kind, ref string) submission {
	return submission{
		"url": l.w.url + "/" + kind + "/" + ref, "ref": ref, "payload": payload(ref), "idempotency_key": "key-" + ref,
		"policy": submission{"tiers": []string{"500ms", "1s", "1s", "2s", "2s", "5s", "5s", "5s"}, "timeout": "2s"},
	}
}

// mixed is the usual load: every fifth fails once, every tenth is slow, every eighth has one of fifty lock keys.
func (l *Trial) mixed(i int) submission {
	kind := "plain"
	switch {
	case i%5 == 0:
		kind = "retry"
	case i%10 == 3:
		kind = "slow"
	}
	s := l.callback(kind, fmt.Sprintf("%s-%d", kind, i))
	if i%8 == 1 {
		s["lock_key"] = fmt.Sprint("lock-", i%50)
	}
	return s
}

// settle waits until SQL holds no open callback.
func (l *Trial) settle(limit time.Duration) {
	l.Helper()
	db := l.database()
	deadline := time.Now().Add(limit)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		open, example, err := countOpen(ctx, db)
		cancel()
		if err == nil && open == 0 {
			return
		}
		if time.Now().After(deadline) {
			l.Errorf("%d callbacks are still open after %s, among them cb_%s: %v", open, limit, example, err)
			return // the judge names them
		}
		time.Sleep(100 * time.Millisecond) // a poll, slower than pause: it counts
	}
}

// indexPatience is how long the index may go on holding what SQL has ended: a dead process's leases run out in it, and what
// an old copy of the index brought back falls due and is refused.
const indexPatience = 75 * time.Second

// noneFell fails the lab if a dispatcher ended that nobody ended: one of several is missed by nobody else.
func (l *Trial) noneFell() {
	l.Helper()
	l.mu.Lock()
	processes := slices.Clone(l.processes)
	l.mu.Unlock()
	for _, p := range processes {
		if p.ended() && !p.meant.Load() {
			l.Errorf("a dispatcher ended by itself (%s):\n%s", p.cmd.ProcessState, p.story(1500))
		}
	}
}

// verdict gathers the evidence, judges it, and enters the run in the table. The test fails if anything was broken.
func (l *Trial) verdict(b judge.Bounds) judge.Verdict {
	l.Helper()
	deadline := time.Now().Add(indexPatience)
	var v judge.Verdict
	var e judge.Evidence
	for {
		var err error
		if e, err = l.evidence(); err != nil {
			l.Fatalf("gather the evidence: %v", err)
		}
		v = judge.Judge(e, b)
		onlyIndex := !v.OK() && !slices.ContainsFunc(v.Violations, func(x judge.Violation) bool { return x.Invariant != "I8" })
		if !onlyIndex || time.Now().After(deadline) {
			break
		}
		time.Sleep(250 * time.Millisecond) // the index is still being told
	}
	l.noneFell()
	if !v.OK() {
		l.Errorf("the guarantees are broken: %s", &v)
	}
	l.Logf("%s on %s: %s; healed in %s", l.name, l.on.name, &v, e.Healed.Round(10*time.Millisecond))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outcome = &Outcome{
		Accepted: v.Accepted, Lost: v.Lost, Duplicates: v.Duplicates, Bound: b.Duplicates, Healed: e.Healed,
	}
	return v
}

// evidence is what is known now.
func (l *Trial) evidence() (judge.Evidence, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	db := l.database()
	var e judge.Evidence
	var errs [4]error
	e.Rows, errs[0] = readRows(ctx, db)
	e.Attempts, errs[1] = readAttempts(ctx, db)
	e.Arrivals, errs[2] = l.w.journal.read()
	if l.on.redis != "" {
		e.Index, errs[3] = l.on.readIndex(ctx)
		e.IndexRead = true
	} else if alive := l.alive(); len(alive) > 0 {
		e.Index, errs[3] = embeddedIndex(ctx, alive[0].client, e.Rows)
		e.IndexRead = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.Accepted = slices.Clone(l.accepted)
	if !l.lastFault.IsZero() {
		for i := range e.Rows {
			if healed := e.Rows[i].FinishedAt.Sub(l.lastFault); healed > e.Healed {
				e.Healed = healed
			}
		}
	}
	return e, errors.Join(errs[:]...)
}
