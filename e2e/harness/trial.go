package harness

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// A Trial is one run of the program under a fault or under load. It has a backend, the dispatchers on it, a
// receiver that records arrivals, and a ledger of accepted callbacks. It ends with a verdict.
type Trial struct {
	*testing.T
	Title    string // the prefix of its reports
	Backend  Backend
	Receiver *Receiver
	Others   []*Receiver // their arrivals are judged too
	DB       *sql.DB
	Args     []string // for every process
	Times    string   // Launch.Times of every process
	Claims   Claims   // open claims that faults left

	Mu        sync.Mutex
	processes []*Process
	relays    []*Process // of the command relay
	Accepted  []judge.Accepted
	lastFault time.Time
	outcome   *TrialResult // of the verdict; nil before it
	failures  []string
	remarks   []string
}

// TrialResult is the result of the judge for one trial.
type TrialResult struct {
	Accepted, Lost    int
	Duplicates, Bound int
	Healed            time.Duration
}

// QuickTimes is a value of Trial.Times: other processes take over the work of a dead process after seconds,
// not after half a minute. QuickLease is the lease of a claim in the index. QuickMargin is the life of a
// claim in SQL beyond its attempt's timeout. The lease is longer than the timeout of Trial.Callback plus the
// margin, as with the usual times. So no attempt needs an extension of its lease.
const (
	QuickTimes  = "lease=12s,margin=9s,sweep=2s,slack=2s,leader=4s"
	QuickLease  = 12 * time.Second
	QuickMargin = 9 * time.Second
)

// NewTrial creates a trial without a backend; call UseBackend next. The name is the prefix of its reports.
func NewTrial(t *testing.T, name string) *Trial {
	tr := &Trial{T: t, Title: name, Receiver: NewReceiver(t, Usual)}
	tr.Receiver.Lean = true
	return tr
}

// Result returns the outcome of a finished trial, the beginning of each failure, and the reported figures.
// The outcome is nil without a verdict.
func (tr *Trial) Result() (outcome *TrialResult, failures, remarks []string) {
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	return tr.outcome, tr.failures, tr.remarks
}

// maxFailure bounds the stored text of one failure, in bytes.
const maxFailure = 2000

// fail stores the beginning of a failure.
func (tr *Trial) fail(text string) {
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	tr.failures = append(tr.failures, text[:min(len(text), maxFailure)])
}

// Remark reports a figure. Durations are rounded to 10 ms.
func (tr *Trial) Remark(format string, args ...any) {
	for i, arg := range args {
		if d, ok := arg.(time.Duration); ok {
			args[i] = d.Round(10 * time.Millisecond)
		}
	}
	text := tr.Title + " on " + tr.Backend.Name + ": " + fmt.Sprintf(format, args...)
	tr.Log(text)
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	tr.remarks = append(tr.remarks, text)
}

// Errorf and the methods below also store the text. The matrix prints these texts below its table, so that a
// reader finds them without the processes' logs.
func (tr *Trial) Errorf(format string, args ...any) {
	tr.Helper()
	tr.fail(fmt.Sprintf(format, args...))
	tr.T.Errorf(format, args...)
}

func (tr *Trial) Error(args ...any) {
	tr.Helper()
	tr.Errorf("%s", fmt.Sprint(args...))
}

func (tr *Trial) Fatalf(format string, args ...any) {
	tr.Helper()
	tr.fail(fmt.Sprintf(format, args...))
	tr.T.Fatalf(format, args...)
}

func (tr *Trial) Fatal(args ...any) {
	tr.Helper()
	tr.Fatalf("%s", fmt.Sprint(args...))
}

// Check ends the trial on an error.
func (tr *Trial) Check(err error) {
	tr.Helper()
	Check(tr, err)
}

// Eventually and AtLeast are the functions with these names, for the trial.
func (tr *Trial) Eventually(limit time.Duration, what string, cond func() error) {
	tr.Helper()
	Eventually(tr, limit, what, cond)
}

func (tr *Trial) AtLeast(limit time.Duration, what string, want int, get func() int) {
	tr.Helper()
	AtLeast(tr, limit, what, want, get)
}

// UseBackend sets the trial's backend.
func (tr *Trial) UseBackend(b Backend) {
	if b.accounts == nil {
		b.ResetAccounts()
	}
	tr.Backend = b
	// Several trials share one PostgreSQL at the same time.
	tr.Args = append(tr.Args, "--database-max-conns", "8")
}

// Serve starts a dispatcher on the trial's backend and waits until it is ready.
func (tr *Trial) Serve(args ...string) *Process {
	tr.Helper()
	return tr.Launch(Launch{Args: args})
}

// ServeUntil is Serve for a process that kills itself at a failpoint, perhaps before it is ready.
func (tr *Trial) ServeUntil(failpoint string, args ...string) *Process {
	tr.Helper()
	return tr.Launch(Launch{Args: args, Failpoint: failpoint, MayDie: true})
}

// ServeAll is Serve, with a second process if two can share the database and the index. It returns the first.
func (tr *Trial) ServeAll(args ...string) *Process {
	tr.Helper()
	p := tr.Serve(args...)
	if tr.Shared() {
		tr.Serve(args...)
	}
	return p
}

// Shared reports whether several processes can share the database and the index.
func (tr *Trial) Shared() bool { return tr.Backend.Postgres != "" && tr.Backend.Redis != "" }

// Launch is Serve with more options. It adds the trial's backend, arguments and times.
func (tr *Trial) Launch(l Launch) *Process {
	tr.Helper()
	l.On, l.Args, l.Times = tr.Backend, slices.Concat(tr.Args, l.Args), tr.Times
	p := Serve(tr.T, l)
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	tr.processes = append(tr.processes, p)
	return p
}

// Alive returns the processes that have not ended.
func (tr *Trial) Alive() []*Process {
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	return slices.DeleteFunc(slices.Clone(tr.processes), (*Process).Ended)
}

// AnyProcess returns a live process. It fails the trial if there is none.
func (tr *Trial) AnyProcess() *Process {
	tr.Helper()
	alive := tr.Alive()
	if len(alive) == 0 {
		tr.Fatal("no dispatcher is alive")
	}
	return alive[0]
}

// Repeat calls do in the background, at once and then every period, until stop. stop waits for the running
// call. It may be called twice, and the trial's end calls it too.
func (tr *Trial) Repeat(period time.Duration, do func(i int)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		ticker := time.NewTicker(period)
		defer ticker.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			do(i)
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
	stop = func() {
		cancel()
		group.Wait()
	}
	tr.Cleanup(stop)
	return stop
}

// Database opens the trial's SQL, separate from the program's connections.
func (tr *Trial) Database() *sql.DB {
	tr.Helper()
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	if tr.DB == nil {
		tr.DB = tr.Backend.Database(tr.T)
	}
	return tr.DB
}

// MarkFault notes that a fault began or ended now. Healing is measured from the last mark.
func (tr *Trial) MarkFault() {
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	tr.lastFault = time.Now()
}

// NoteAccepted notes an accepted callback in the ledger. Its body must be Payload(ref).
func (tr *Trial) NoteAccepted(id, ref string) {
	tr.Note(id, Submission{"ref": ref, "payload": Payload(ref)})
}

// Note notes an accepted submission in the ledger.
func (tr *Trial) Note(id string, s Submission) {
	payload := s["payload"]
	if request, isPoll := s["request"].(Submission); isPoll {
		payload = request["payload"]
	}
	body, _ := payload.(json.RawMessage) // the judge detects a body of another type by its hash
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	tr.Accepted = append(tr.Accepted, judge.Accepted{ID: id, Ref: s["ref"].(string),
		Hash: sha256.Sum256(body)})
}

// Count returns the number of accepted callbacks.
func (tr *Trial) Count() int {
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	return len(tr.Accepted)
}

// Callback is a submission for a kind of receiver behaviour, with short tiers. Its idempotency key comes from
// its ref.
func (tr *Trial) Callback(kind, ref string) Submission {
	return Submission{
		"url": tr.Receiver.URL + "/" + kind + "/" + ref, "ref": ref, "payload": Payload(ref),
		"idempotency_key": "key-" + ref,
		"policy":          Tiers("2s", "500ms", "1s", "1s", "2s", "2s", "5s", "5s", "5s"),
	}
}

// Numbered returns a shape for callbacks of one kind. Their references are the kind and the number.
func (tr *Trial) Numbered(kind string) func(int) Submission {
	return func(i int) Submission { return tr.Callback(kind, fmt.Sprintf("%s-%d", kind, i)) }
}

// Payload makes a different body for each reference, so that the judge detects a mix-up. The JSON is compact
// because encoding/json compacts it anyway.
func Payload(ref string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"order":%q,"paid":10000}`, ref))
}

// Mixed is the usual load: every fifth callback fails once, every tenth is slow, and every eighth has one of
// 50 lock keys.
func (tr *Trial) Mixed(i int) Submission {
	kind := "plain"
	switch {
	case i%5 == 0:
		kind = "retry"
	case i%10 == 3:
		kind = "slow"
	}
	s := tr.Numbered(kind)(i)
	if i%8 == 1 {
		s["lock_key"] = fmt.Sprint("lock-", i%50)
	}
	return s
}

// Settle waits until SQL has no open callback.
func (tr *Trial) Settle(limit time.Duration) {
	tr.Helper()
	db := tr.Database()
	deadline := time.Now().Add(limit)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		open, example, err := CountOpen(ctx, db)
		cancel()
		if err == nil && open == 0 {
			return
		}
		if time.Now().After(deadline) {
			tr.Errorf("%d callbacks are still open after %s, among them cb_%s: %v", open, limit, example, err)
			return // the judge names the callbacks
		}
		time.Sleep(100 * time.Millisecond) // slower than Pause: the query counts rows
	}
}

// IndexSettles is how long the index may keep callbacks that are terminal in SQL. The leases of a dead
// process must expire, and entries of an old copy of the index must fall due and be refused.
const IndexSettles = 75 * time.Second

// noUnexpectedEnds fails the trial if a dispatcher ended unexpectedly. With several processes, no other check
// notices that.
func (tr *Trial) noUnexpectedEnds() {
	tr.Mu.Lock()
	processes := slices.Concat(tr.processes, tr.relays)
	tr.Mu.Unlock()
	for _, p := range processes {
		if p.Ended() && !p.endExpected.Load() {
			tr.Errorf("a dispatcher ended unexpectedly (%s):\n%s", p.Cmd.ProcessState, p.logEnd(1500))
		}
	}
}

// End waits until every callback is terminal, and returns the verdict.
func (tr *Trial) End(settle time.Duration, b judge.Bounds) judge.Verdict {
	tr.Helper()
	tr.Settle(settle)
	return tr.Verdict(b)
}

// Verdict gathers the evidence, judges it, and adds the result to the table. The test fails if an invariant
// is broken.
func (tr *Trial) Verdict(b judge.Bounds) judge.Verdict {
	tr.Helper()
	deadline := time.Now().Add(IndexSettles)
	var v judge.Verdict
	var e judge.Evidence
	for {
		var err error
		e, err = tr.Evidence()
		if err != nil {
			tr.Fatalf("gather the evidence: %v", err)
		}
		v = judge.Judge(e, b)
		onlyIndex := !v.OK() && !slices.ContainsFunc(v.Violations,
			func(x judge.Violation) bool { return x.Invariant != "I8" })
		if !onlyIndex || time.Now().After(deadline) {
			break
		}
		time.Sleep(250 * time.Millisecond) // the index gets the results a little later
	}
	tr.noUnexpectedEnds()
	if !v.OK() {
		tr.Errorf("the guarantees are broken: %s", &v)
	}
	tr.Logf("%s on %s: %s; healed in %s", tr.Title, tr.Backend.Name, &v, e.Healed.Round(10*time.Millisecond))
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	tr.outcome = &TrialResult{
		Accepted: v.Accepted, Lost: v.Lost, Duplicates: v.Duplicates, Bound: b.Duplicates, Healed: e.Healed,
	}
	return v
}

// Evidence collects what is known now.
func (tr *Trial) Evidence() (judge.Evidence, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	db := tr.Database()
	var e judge.Evidence
	var errs [3]error
	e.Rows, errs[0] = judge.ReadRows(ctx, db)
	e.Attempts, errs[1] = judge.ReadAttempts(ctx, db)
	for _, r := range append(tr.Others, tr.Receiver) {
		for _, a := range r.All() {
			e.Arrivals = append(e.Arrivals, a.Arrival)
		}
	}
	if tr.Backend.Redis != "" {
		e.Index, errs[2] = tr.Backend.ReadIndex(ctx)
		e.IndexRead = true
	} else if alive := tr.Alive(); len(alive) > 0 {
		e.Index, errs[2] = embeddedIndex(ctx, alive[0].Client, e.Rows)
		e.IndexRead = true
	}
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	e.Accepted = slices.Clone(tr.Accepted)
	if !tr.lastFault.IsZero() {
		for i := range e.Rows {
			if healed := e.Rows[i].FinishedAt.Sub(tr.lastFault); healed > e.Healed {
				e.Healed = healed
			}
		}
	}
	return e, errors.Join(errs[:]...)
}
