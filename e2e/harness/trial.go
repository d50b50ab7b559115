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

// A Trial is one run of the program under a fault or under load: a backend, the dispatchers on it, a receiver
// that writes down what arrives, and a ledger of what was accepted. It ends with a verdict.
type Trial struct {
	*testing.T
	Title    string // what its reports begin with
	Backend  Backend
	Receiver *Receiver
	Others   []*Receiver // whose arrivals are judged too
	DB       *sql.DB
	Args     []string // of every process that is started
	Times    string   // Launch.Times of every process that is started
	Claims   Claims   // that faults have left

	Mu        sync.Mutex
	processes []*Process
	Accepted  []judge.Accepted
	lastFault time.Time
	outcome   *TrialResult // of the verdict; nil before it
	failures  []string
	remarks   []string
}

// A TrialResult is what the judge found in one trial.
type TrialResult struct {
	Accepted, Lost    int
	Duplicates, Bound int
	Healed            time.Duration
}

// QuickTimes is for Trial.Times: the work of a dead process is taken up after seconds instead of half a
// minute. QuickLease is the lease of a claim in the index. QuickMargin is how long a claim in SQL lives
// beyond its attempt's timeout. The lease is longer than the timeout of Trial.Callback and the margin
// together, as with the usual times: so no attempt needs an extension.
const (
	QuickTimes  = "lease=12s,margin=9s,sweep=2s,slack=2s,leader=4s"
	QuickLease  = 12 * time.Second
	QuickMargin = 9 * time.Second
)

// NewTrial prepares a trial without a backend: call UseBackend. The name begins every report of it.
func NewTrial(t *testing.T, name string) *Trial {
	tr := &Trial{T: t, Title: name, Receiver: NewReceiver(t, Usual)}
	tr.Receiver.Lean = true
	return tr
}

// Result returns what the trial found, when it is over: its outcome, which is nil without a verdict, the
// beginning of each failure, and the figures that it reported.
func (tr *Trial) Result() (outcome *TrialResult, failures, remarks []string) {
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	return tr.outcome, tr.failures, tr.remarks
}

// maxFailure bounds what is kept of the text of one failure, in bytes.
const maxFailure = 2000

// fail keeps the beginning of what went wrong.
func (tr *Trial) fail(text string) {
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	tr.failures = append(tr.failures, text[:min(len(text), maxFailure)])
}

// Remark reports a figure. Durations are rounded to ten milliseconds.
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

// Errorf and its like are the test's own. The matrix repeats what they say below its table, where a reader
// finds it without the logs of every process.
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

// Check ends the trial if there is an error.
func (tr *Trial) Check(err error) {
	tr.Helper()
	Check(tr, err)
}

// Eventually is the function of that name for a condition of the trial, as is AtLeast.
func (tr *Trial) Eventually(limit time.Duration, what string, cond func() error) {
	tr.Helper()
	Eventually(tr, limit, what, cond)
}

func (tr *Trial) AtLeast(limit time.Duration, what string, want int, get func() int) {
	tr.Helper()
	AtLeast(tr, limit, what, want, get)
}

// UseBackend puts the trial on a backend.
func (tr *Trial) UseBackend(b Backend) {
	if b.accounts == nil {
		b.OpenBooks()
	}
	tr.Backend = b
	// Several trials run at once on one PostgreSQL.
	tr.Args = append(tr.Args, "--database-max-conns", "8")
}

// Serve starts a dispatcher on the trial's backend and waits until it is ready.
func (tr *Trial) Serve(args ...string) *Process {
	tr.Helper()
	return tr.Launch(Launch{Args: args})
}

// ServeUntil is Serve for a process that will kill itself at a failpoint, perhaps before it is ready.
func (tr *Trial) ServeUntil(failpoint string, args ...string) *Process {
	tr.Helper()
	return tr.Launch(Launch{Args: args, failpoint: failpoint, mayDie: true})
}

// ServeAll is Serve with a second process where two can share database and index. It returns the first.
func (tr *Trial) ServeAll(args ...string) *Process {
	tr.Helper()
	p := tr.Serve(args...)
	if tr.Shared() {
		tr.Serve(args...)
	}
	return p
}

// Shared says whether several processes can share database and index.
func (tr *Trial) Shared() bool { return tr.Backend.Postgres != "" && tr.Backend.Redis != "" }

// Launch is Serve of a process of its own kind, to which the backend, arguments and times of all are added.
func (tr *Trial) Launch(l Launch) *Process {
	tr.Helper()
	l.On, l.Args, l.Times = tr.Backend, slices.Concat(tr.Args, l.Args), tr.Times
	p := Serve(tr.T, l)
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	tr.processes = append(tr.processes, p)
	return p
}

// Alive are the processes that have not ended.
func (tr *Trial) Alive() []*Process {
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	return slices.DeleteFunc(slices.Clone(tr.processes), (*Process).Ended)
}

// AnyProcess returns a process that lives; a trial without any fails.
func (tr *Trial) AnyProcess() *Process {
	tr.Helper()
	alive := tr.Alive()
	if len(alive) == 0 {
		tr.Fatal("no dispatcher is alive")
	}
	return alive[0]
}

// Repeat does something beside the trial, at once and then in each period, until stop, which returns when it
// is over. It may be called twice; the trial's end calls it too.
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

// Database opens the trial's SQL beside the program.
func (tr *Trial) Database() *sql.DB {
	tr.Helper()
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	if tr.DB == nil {
		tr.DB = tr.Backend.Database(tr.T)
	}
	return tr.DB
}

// MarkFault notes that a fault has just hit, or has just ended: healing is counted from the last one.
func (tr *Trial) MarkFault() {
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	tr.lastFault = time.Now()
}

// NoteAccepted writes an accepted callback into the books; its body was payload(ref).
func (tr *Trial) NoteAccepted(id, ref string) {
	tr.Note(id, Submission{"ref": ref, "payload": Payload(ref)})
}

// Note writes what was accepted into the books.
func (tr *Trial) Note(id string, s Submission) {
	payload := s["payload"]
	if request, isPoll := s["request"].(Submission); isPoll {
		payload = request["payload"]
	}
	body, _ := payload.(json.RawMessage) // the judge finds out a body of another kind
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	tr.Accepted = append(tr.Accepted, judge.Accepted{ID: id, Ref: s["ref"].(string),
		Hash: sha256.Sum256(body)})
}

// Count is how many were accepted.
func (tr *Trial) Count() int {
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	return len(tr.Accepted)
}

// Callback is a submission for a kind of receiver behaviour, under short tiers. Its ref is its idempotency
// key too.
func (tr *Trial) Callback(kind, ref string) Submission {
	return Submission{
		"url": tr.Receiver.URL + "/" + kind + "/" + ref, "ref": ref, "payload": Payload(ref),
		"idempotency_key": "key-" + ref,
		"policy":          Tiers("2s", "500ms", "1s", "1s", "2s", "2s", "5s", "5s", "5s"),
	}
}

// Numbered is a shape of callbacks of one kind, whose references are that and their number.
func (tr *Trial) Numbered(kind string) func(int) Submission {
	return func(i int) Submission { return tr.Callback(kind, fmt.Sprintf("%s-%d", kind, i)) }
}

// Payload makes a body of its own for each reference, so that no two could be mixed up unseen. It is compact,
// because encoding/json makes it so on its way out.
func Payload(ref string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"order":%q,"paid":10000}`, ref))
}

// Mixed is the usual load: every fifth fails once, every tenth is slow, every eighth has one of fifty lock
// keys.
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

// Settle waits until SQL holds no open callback.
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
			return // the judge names them
		}
		time.Sleep(100 * time.Millisecond) // a poll, slower than pause: it counts
	}
}

// IndexSettles is how long the index may go on holding what SQL has ended: a dead process's leases run out in
// it, and what an old copy of the index brought back falls due and is refused.
const IndexSettles = 75 * time.Second

// noneFell fails the trial if a dispatcher ended that the trial did not end: no other check misses one of
// several.
func (tr *Trial) noneFell() {
	tr.Mu.Lock()
	processes := slices.Clone(tr.processes)
	tr.Mu.Unlock()
	for _, p := range processes {
		if p.Ended() && !p.meant.Load() {
			tr.Errorf("a dispatcher ended by itself (%s):\n%s", p.Cmd.ProcessState, p.story(1500))
		}
	}
}

// End is the verdict once everything is terminal.
func (tr *Trial) End(settle time.Duration, b judge.Bounds) judge.Verdict {
	tr.Helper()
	tr.Settle(settle)
	return tr.Verdict(b)
}

// Verdict gathers the evidence, judges it, and enters the run in the table. The test fails if anything was
// broken.
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
		time.Sleep(250 * time.Millisecond) // the index is still being told
	}
	tr.noneFell()
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

// Evidence is what is known now.
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
