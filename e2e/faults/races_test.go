package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// raceTier is the wait after a failed first attempt. The call may meet the second attempt.
const raceTier = 300 * time.Millisecond

// An arena runs races: it has dispatchers on one backend, two receivers, and a ledger.
type arena struct {
	*trial
	processes []*harness.Process
	// near is the receiver of the callbacks, and far that of some of them after a PATCH. Another host is
	// another lane.
	near, far *harness.Receiver
	counts    map[*contestKind]map[string]int // of each outcome
	// spacing is the time between the due times of two races. It is short, so that many run at once, but long
	// enough for a response within its race.
	spacing time.Duration
	// lag is how long after its due time a first attempt ended, in the median of the last round.
	lag time.Duration
}

// A contest is one call at about the time of an attempt, and everything known about it.
type contest struct {
	kind *contestKind
	n    int // number within its kind, from 0
	ref  string
	due  time.Time
	// fails: the first attempt gets a 500. second: the call meets the second attempt.
	fails, second bool
	// ids are its callbacks. The callback that the race is about comes first, then others that were accepted
	// before the race.
	ids []string

	mu        sync.Mutex
	responses []response
	// busy: a call got a 503 from an overloaded database and was repeated. The effect of the first call is
	// not known.
	busy bool
	// records are the ends of the callbacks in ids.
	records []*record
}

// A response is the response to one call. If the call took effect, it did so between began and ended.
type response struct {
	client.Answer
	refusal      *client.Error // nil: the response is a success
	call         int           // number of the call within its contest, from 0
	began, ended time.Time
}

// reading parses JSON from a process.
func reading[T any](a *arena, body []byte) (v T) {
	a.Helper()
	a.Check(json.Unmarshal(body, &v))
	return v
}

// A record is what happened to one callback: as the API reports it, and its arrivals.
type record struct {
	client.Callback
	attempts []client.Attempt
	arrivals []arrival // in order
}

// An arrival is a request at one of the two receivers.
type arrival struct {
	harness.Arrival
	url string
}

// A contestKind is a kind of call and its possible outcomes.
type contestKind struct {
	name string
	// outcomes must each occur.
	outcomes []string
	// entry is the callback of the race: base with other fields, or a poll.
	entry func(a *arena, c *contest) harness.Submission
	// calls are made at the same time.
	calls func(a *arena, c *contest) []call
	// judge returns the outcome, and what is wrong with it; empty: nothing.
	judge func(a *arena, c *contest) (outcome, wrong string)
}

// A call races the attempt. A callback that it creates belongs to the contest too.
type call struct {
	method, path string
	body         harness.Submission
}

// base is a callback of the race, to /old/REF or /old/REF/fails of the near receiver.
func (a *arena) base(c *contest) harness.Submission {
	where := "/old/" + c.ref
	if c.fails {
		where += "/fails"
	}
	return harness.Submission{
		"url": a.near.URL + where, "ref": c.ref, "payload": harness.Payload(c.ref),
		"headers": harness.Submission{"X-Edit": "old"},
		"policy":  harness.Tiers("10s", raceTier.String(), "1s"),
	}
}

// run runs races of the kinds, in turn, until each outcome has occurred. On a busy machine calls and attempts
// do not come at their time, so it runs up to three rounds.
func (a *arena) run(kinds []*contestKind, n int) {
	a.Helper()
	var missing []string
	for round := range 3 {
		contests := make([]*contest, n)
		for i := range contests {
			k := kinds[i%len(kinds)]
			c := &contest{kind: k, n: round*n + i/len(kinds)}
			// Half of the calls meet the first attempt, which succeeds. The others meet a first attempt that
			// fails, or the one after it.
			c.fails, c.second = c.n%2 == 1, c.n%4 == 1
			c.ref = fmt.Sprintf("%s-%d", k.name, c.n)
			contests[i] = c
		}
		a.enter(contests)
		a.race(contests)
		harness.Await(a.T, a.processes[0].Client, time.Minute)
		a.collect(contests)
		missing = a.decide(kinds, contests)
		if len(missing) == 0 || a.Failed() {
			break
		}
		a.Logf("round %d was not close, attempts being over %s after they are due: %v", round+1, a.lag,
			missing)
	}
	if len(missing) > 0 {
		a.Errorf("outcomes that hardly occurred: %v", missing)
	}
}

// enter accepts the callbacks of the races. They fall due one after the other, once all are accepted.
func (a *arena) enter(contests []*contest) {
	a.Helper()
	begin := time.Now().Add(time.Second + time.Duration(len(contests))*a.spacing/5)
	entries, inBatches := map[*contest]harness.Submission{}, []*contest(nil)
	var polls errgroup.Group
	polls.SetLimit(16)
	for i, c := range contests {
		c.due = begin.Add(time.Duration(i) * a.spacing).Truncate(time.Millisecond)
		s := c.kind.entry(a, c)
		s["due_at"] = c.due.UTC().Format("2006-01-02T15:04:05.000Z")
		if s["request"] == nil {
			entries[c], inBatches = s, append(inBatches, c)
			continue
		}
		polls.Go(func() error {
			cb, err := a.processes[i%len(a.processes)].Accept(a.Context(), s)
			c.ids = []string{cb.ID}
			return err
		})
	}
	for some := range slices.Chunk(inBatches, 500) {
		var batch []harness.Submission
		for _, c := range some {
			batch = append(batch, entries[c])
		}
		got, err := a.processes[0].AcceptBatch(a.Context(), batch)
		a.Check(err)
		for i, cb := range got {
			some[i].ids = append(some[i].ids, cb.ID)
			a.NoteAccepted(cb.ID, some[i].ref)
		}
	}
	a.Check(polls.Wait())
	if late := time.Since(begin); late > 0 {
		a.Logf("the last was accepted %s after the first was due", late)
	}
}

// moment returns a random time for a call around its attempt: a third are long before it, a third at about
// the same time, and a third after it.
func (a *arena) moment(c *contest) time.Time {
	var off int // microseconds
	switch c.n % 3 {
	case 0:
		off = -80_000 + rand.IntN(70_000)
	case 1:
		off = -10_000 + rand.IntN(25_000)
	case 2:
		off = 15_000 + rand.IntN(45_000+4*int(a.lag.Microseconds()))
	}
	at := c.due.Add(time.Duration(off) * time.Microsecond)
	if c.second {
		at = at.Add(raceTier + 10*time.Millisecond)
	}
	return at
}

// race makes all calls. A process with enough slots claims a callback tens of milliseconds before it is due.
func (a *arena) race(contests []*contest) {
	var group errgroup.Group
	for _, c := range contests {
		at := a.moment(c)
		for i, x := range c.kind.calls(a, c) {
			group.Go(func() error {
				time.Sleep(time.Until(at)) // the time of the call
				return a.send(c, i, x)
			})
		}
	}
	a.Check(group.Wait())
}

// send makes one call of the contest and stores the response. Each call goes to another process.
func (a *arena) send(c *contest, i int, x call) error {
	p := a.processes[(c.n+i)%len(a.processes)]
	ctx, cancel := context.WithTimeout(context.Background(), harness.SubmitTimeout)
	defer cancel()
	for {
		var made client.Callback
		s, err := response{call: i, began: time.Now()}, error(nil)
		s.Answer, err = p.Call(ctx, x.method, x.path, x.body, &made)
		s.ended, s.refusal = time.Now(), harness.Refusal(err)
		if err != nil && s.refusal == nil {
			return fmt.Errorf("%s %s: %w", x.method, x.path, err)
		}
		c.mu.Lock()
		if s.refusal != nil && s.refusal.Status == http.StatusServiceUnavailable {
			c.busy = true
			c.mu.Unlock()
			harness.Pause()
			continue
		}
		c.responses = append(c.responses, s)
		if s.refusal == nil && x.path == "/v1/callbacks" {
			c.ids = append(c.ids, made.ID)
			a.Note(made.ID, x.body)
		}
		c.mu.Unlock()
		return nil
	}
}

// collect reads every callback from the API, and adds its arrivals.
func (a *arena) collect(contests []*contest) {
	a.Helper()
	a.Check(harness.AtOnce(8, len(contests), func(i int) error {
		c, p := contests[i], a.processes[i%len(a.processes)]
		for _, id := range c.ids {
			s := &record{}
			for _, r := range []*harness.Receiver{a.near, a.far} {
				for _, arrived := range r.Of(id) {
					s.arrivals = append(s.arrivals, arrival{arrived, r.URL + arrived.Path})
				}
			}
			slices.SortFunc(s.arrivals, func(x, y arrival) int { return x.At.Compare(y.At) })
			var err, err2 error
			s.Callback, err = p.Callback(a.Context(), id)
			s.attempts, err2 = p.AttemptsOf(id)
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			slices.SortFunc(s.attempts, func(x, y client.Attempt) int { return x.Number - y.Number })
			c.records = append(c.records, s)
		}
		return nil
	}))
}

// decide judges every race, and returns the outcomes that have hardly occurred so far.
func (a *arena) decide(kinds []*contestKind, contests []*contest) (missing []string) {
	violation := harness.Violations(a)
	counts := a.counts
	for _, k := range kinds {
		if counts[k] == nil {
			counts[k] = map[string]int{}
		}
	}
	busy := 0
	var lags []time.Duration
	for _, c := range contests {
		if s := c.records[0]; len(s.arrivals) > 0 {
			lags = append(lags, s.arrivals[0].End.Sub(c.due))
		}
		if c.busy {
			busy++ // the verdict still covers its callbacks
			continue
		}
		outcome, wrong := c.kind.judge(a, c)
		for i := range c.records {
			if wrong == "" && c.records[i].Kind == client.Notify {
				wrong = c.records[i].contradiction()
			}
		}
		if wrong != "" {
			violation("%s (%s, due %s): %s\n%s", c.ref, outcome, c.due.Format("05.000"), wrong, c.timeline())
			continue
		}
		counts[c.kind][outcome]++
	}
	a.lag = max(judge.Quantile(lags, 0.5), 0)
	if busy > len(contests)/50 {
		a.Errorf("%d of %d races met an overloaded database", busy, len(contests))
	}
	for _, k := range kinds {
		all := 0
		for _, n := range counts[k] {
			all += n
		}
		a.Logf("%d races of %s: %v", all, k.name, counts[k])
		for _, outcome := range k.outcomes {
			if counts[k][outcome] <= all/400 {
				missing = append(missing, fmt.Sprintf("%s: %s (%d of %d)", k.name, outcome,
					counts[k][outcome], all))
			}
		}
		for outcome := range counts[k] {
			if !slices.Contains(k.outcomes, outcome) {
				a.Errorf("%s: %q is no known outcome", k.name, outcome)
			}
		}
	}
	return missing
}

// contradiction returns what is wrong with a callback, whatever the call was.
func (s *record) contradiction() string {
	if len(s.attempts) != len(s.arrivals) || s.AttemptCount != len(s.attempts) {
		return fmt.Sprintf("%s: %d arrivals, %d attempts, attempt_count %d", s.ID, len(s.arrivals),
			len(s.attempts), s.AttemptCount)
	}
	for i := range s.attempts {
		at, ar := &s.attempts[i], &s.arrivals[i]
		if at.Number != i+1 || ar.Number != i+1 || !at.Charged || at.StatusCode == 0 {
			return fmt.Sprintf("%s: attempt %d has charged %t, status %d and number %d; it arrived as %d",
				s.ID, i+1, at.Charged, at.StatusCode, at.Number, ar.Number)
		}
		if (at.Outcome == "succeeded") != (s.State == "succeeded" && i == len(s.attempts)-1) {
			return fmt.Sprintf("%s: attempt %d of %d %s, and it is %s", s.ID, i+1, len(s.attempts),
				at.Outcome, s.State)
		}
	}
	if !s.DueAt.IsZero() || s.FinishedAt.IsZero() {
		return fmt.Sprintf("%s is %s, due %v, finished %v", s.ID, s.State, s.DueAt, s.FinishedAt)
	}
	return ""
}

// after counts the arrivals after at.
func (s *record) after(at time.Time) int {
	n := 0
	for i := range s.arrivals {
		if s.arrivals[i].At.After(at) {
			n++
		}
	}
	return n
}

// timeline lists the events of a race in the order of time.
func (c *contest) timeline() string {
	var lines []string
	event := func(at time.Time, format string, args ...any) {
		lines = append(lines, at.UTC().Format("  05.000000 ")+fmt.Sprintf(format, args...))
	}
	for _, s := range c.responses {
		event(s.began, "call")
		event(s.ended, "response %s %v", s.Body, s.refusal)
	}
	for _, s := range c.records {
		for _, r := range s.arrivals {
			event(r.At, "%s arrives, number %d, at %s", s.ID, r.Number, r.url)
			event(r.End, "%s gets its response", s.ID)
		}
		for _, t := range s.attempts {
			event(t.StartedAt, "%s attempt %d starts", s.ID, t.Number)
			event(t.EndedAt, "%s attempt %d ended: %s, next %v", s.ID, t.Number, t.Outcome, t.NextDueAt)
		}
		if !s.FinishedAt.IsZero() {
			event(s.FinishedAt, "%s %s %s", s.ID, s.State, s.Reason)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// inArena runs races on both ends, with receivers that use the script. It starts one dispatcher, or two if
// they can share an index.
func inArena(t *testing.T, spacing time.Duration, answers harness.Script, run func(*arena)) {
	t.Helper()
	runOn(t, "races", heavy|unlimited, harness.BothEnds, func(tr *trial) {
		a := &arena{trial: tr, spacing: spacing, counts: map[*contestKind]map[string]int{}}
		a.near, a.far = harness.NewReceiver(tr, answers), harness.NewReceiver(tr, answers)
		a.Others = []*harness.Receiver{a.near, a.far}
		a.ServeAll()
		a.processes = a.Alive()
		run(a)
	})
}

// The response to a call is true even at the moment of a claim. A canceled callback is not sent any more. No
// attempt of a superseded one starts after its newer version was accepted. An edited one goes to its new
// address, and a rescheduled one is not early.
func TestRacesAgainstTheClaim(t *testing.T) {
	inArena(t, 5*time.Millisecond, func(a *harness.Arrival) harness.Reply {
		if strings.Contains(a.Path, "/fails") && a.Number == 1 {
			return harness.Reply{Status: 500, After: 4 * time.Millisecond}
		}
		return harness.Reply{After: 4 * time.Millisecond}
	}, func(a *arena) {
		kinds := []*contestKind{&cancelKind, &supersedeKind, &editKind, &moveKind}
		a.run(kinds, testserver.Sized(500, 10_000, 10_000))
		a.Verdict(judge.Bounds{
			SharedRefs: true,                              // versions of one order
			Expect:     func(string) string { return "" }, // each race knows its expected end
		})
	})
}

// A caller resolves a poll at any moment. The response says whether the resolve or an answer came first. The
// merchant gets exactly one result, with that end.
func TestRacesOfResolveAgainstTheLastAnswer(t *testing.T) {
	// Each contest has a request, a call and a result.
	inArena(t, 10*time.Millisecond, func(a *harness.Arrival) harness.Reply {
		if strings.HasSuffix(a.Path, "/second") && a.Nth == 1 {
			return harness.Reply{Body: processing, After: 4 * time.Millisecond}
		}
		return harness.Reply{Body: succeeded, After: 4 * time.Millisecond}
	}, func(a *arena) { a.run([]*contestKind{&resolveKind}, testserver.Sized(200, 4_000, 10_000)) })
}
