package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// raceFaults are callers who ask at the worst moment.
func raceFaults() []fault {
	return []fault{
		{id: "F52", title: "cancel races send", short: harness.BothEnds, full: harness.BothEnds, run: cancelRaces},
		{id: "F53", title: "one idempotency key from many clients at once", short: harness.BothEnds, full: harness.AllFour, run: oneKeyAtOnce},
	}
}

// A race is one callback whose cancel was asked for about when it was due.
type race struct {
	id, ref string
	due     time.Time
	results []string // of the cancels, in no order
	said    string   // the state that already_terminal came with
	again   bool     // one was not answered, and asked for again: what it did, the next answer says
}

// raceTier is the wait after the first attempt, which fails for half of the callbacks: their cancel may meet the second one.
const raceTier = 300 * time.Millisecond

// cancelRaces cancels callbacks within milliseconds of their sends, and holds each answer against what happened.
func cancelRaces(tr *trial) {
	n := long(tr, 10_000, 1_000)
	tr.Recorder.SetScript(func(h *harness.Request) harness.Reply {
		if h.Kind() == "retry" && h.Nth == 1 {
			return harness.Reply{Status: 500, After: 3 * time.Millisecond}
		}
		return harness.Reply{Status: 200, After: 3 * time.Millisecond}
	})
	tr.Serve()
	if tr.Backend.Redis != "" {
		tr.Serve()
	}
	races := make([]*race, n)
	const batch = 500
	for first := 0; first < n; first += batch {
		tr.acceptRaces(races[first:min(first+batch, n)], first)
		tr.cancelAll(races[first:min(first+batch, n)])
	}
	tr.Settle(time.Minute)
	tr.judgeRaces(races)
}

// acceptRaces accepts callbacks that fall due one after the other, from a second from now on.
func (tr *trial) acceptRaces(races []*race, number int) {
	tr.Helper()
	var submissions []harness.Submission
	begin := time.Now().Add(time.Second)
	for i := range races {
		kind := "plain"
		if i%2 == 0 {
			kind = "retry"
		}
		r := &race{ref: fmt.Sprintf("%s-%d", kind, number+i), due: begin.Add(time.Duration(i) * 8 * time.Millisecond)}
		s := tr.Callback(kind, r.ref)
		s["due_at"] = r.due.UTC().Format("2006-01-02T15:04:05.000Z")
		s["policy"] = harness.Submission{"tiers": []string{raceTier.String(), "1s"}, "timeout": "10s"}
		s["lane"] = fmt.Sprint("lane-", i%16)
		submissions = append(submissions, s)
		races[i] = r
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got, err := tr.AnyProcess().AcceptBatch(ctx, submissions)
	if err != nil {
		tr.Fatal(err)
	}
	for i, cb := range got {
		races[i].id = cb.ID
		tr.NoteAccepted(cb.ID, races[i].ref)
	}
}

// cancelAll asks for each cancel at a moment about a send, every tenth twice at once.
func (tr *trial) cancelAll(races []*race) {
	tr.Helper()
	var group errgroup.Group
	alive := tr.Alive()
	for i, r := range races {
		// From a little before the claim until the result must be committed.
		at := r.due.Add(time.Duration(-5+rand.IntN(25)) * time.Millisecond)
		if i%4 == 0 {
			at = at.Add(raceTier)
		}
		asked := 1
		if i%10 == 0 {
			asked = 2
		}
		var mu sync.Mutex
		for k := range asked {
			c := alive[(i+k)%len(alive)].Client
			group.Go(func() error {
				timer := time.NewTimer(time.Until(at))
				defer timer.Stop()
				<-timer.C
				ctx, cancel := context.WithTimeout(context.Background(), harness.AskTimeout)
				defer cancel()
				answer, again, err := askCancel(ctx, c, r.id)
				mu.Lock()
				defer mu.Unlock()
				r.results = append(r.results, answer.Result)
				if answer.Result == "already_terminal" {
					r.said = answer.Callback.State
				}
				r.again = r.again || again
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		tr.Fatalf("cancel: %v", err)
	}
}

// A canceledAnswer is what a cancel is answered.
type canceledAnswer struct {
	Result   string           `json:"result"`
	Callback harness.Callback `json:"callback"`
}

// askCancel asks until it is answered: 503 is for a database that has too much to do at the moment.
func askCancel(ctx context.Context, c *harness.Client, id string) (answer canceledAnswer, again bool, err error) {
	for {
		got, err := c.Raw(ctx, http.MethodPost, "/v1/callbacks/"+id+"/cancel", nil, nil)
		switch {
		case err != nil:
			return answer, again, err
		case got.Status == http.StatusOK:
			return answer, again, got.Decode(&answer)
		case got.Status != http.StatusServiceUnavailable:
			return answer, again, fmt.Errorf("answered %d: %.300s", got.Status, got.Body)
		}
		again = true
		harness.Pause()
	}
}

// judgeRaces compares answers, SQL and the recorder. That nothing arrives after a canceled one was canceled is among what the
// judge decides (I7), by the time at which SQL says it was.
func (tr *trial) judgeRaces(races []*race) {
	tr.Helper()
	expected := map[string]string{}
	counts := map[string]int{}
	for _, r := range races {
		switch {
		case slices.Contains(r.results, "canceled"):
			counts["canceled"]++
			expected[r.ref] = "canceled"
		case slices.Contains(r.results, "too_late"):
			counts["too_late"]++
			expected[r.ref] = "" // the attempt in flight decides: see below
		case r.again && r.said == "canceled":
			expected[r.ref] = "canceled" // by the cancel that was not answered
		default:
			counts["already_terminal"]++
			expected[r.ref] = r.said
		}
	}
	tr.Verdict(judge.Bounds{Expect: func(ref string) string { return expected[ref] }})
	e, err := tr.Evidence()
	if err != nil {
		tr.Fatal(err)
	}
	rows, attempts, arrivals := map[string]*judge.Row{}, map[string][]judge.Attempt{}, map[string]int{}
	for i := range e.Rows {
		rows[e.Rows[i].ID] = &e.Rows[i]
	}
	for _, a := range e.Attempts {
		attempts[a.ID] = append(attempts[a.ID], a)
	}
	for _, a := range e.Arrivals {
		arrivals[a.ID]++
	}
	complain := harness.Violations(tr)
	for _, r := range races {
		if why := raced(r, rows[r.id], attempts[r.id], arrivals[r.id]); why != "" {
			complain("%s %s: asked %v: %s", r.id, r.ref, r.results, why)
		}
	}
	for _, result := range []string{"canceled", "too_late", "already_terminal"} {
		if counts[result] < len(races)/100 {
			tr.Errorf("only %d of %d were answered %s: the races were not close", counts[result], len(races), result)
		}
	}
	tr.Remark("%d cancels against sends: %d canceled, %d too late, %d already terminal; every answer is what happened",
		len(races), counts["canceled"], counts["too_late"], counts["already_terminal"])
}

// raced says what is wrong with the answers of one race; empty: nothing.
func raced(r *race, row *judge.Row, attempts []judge.Attempt, arrivals int) string {
	if row == nil {
		return "SQL does not know it"
	}
	charged, won := 0, false
	for _, a := range attempts {
		if a.Charged {
			charged++
		}
		won = won || a.Outcome == "succeeded"
	}
	winners := 0
	for _, result := range r.results {
		if result == "canceled" {
			winners++
		}
	}
	switch {
	case len(attempts) != arrivals || charged != arrivals:
		return fmt.Sprintf("%d arrivals, %d attempts, %d of them charged", arrivals, len(attempts), charged)
	case winners > 1:
		return "two cancels were told that they canceled it"
	case winners == 1 && (row.State != "canceled" || won):
		return "it is " + row.State
	case winners == 1:
		return ""
	case slices.Contains(r.results, "too_late") && charged == 0 && row.State != "canceled":
		// It was claimed. Where it was not sent after all, having found no place on the wire, the cancel counts.
		return "no attempt was in flight, and it is " + row.State
	case slices.Contains(r.results, "too_late") && won != (row.State == "succeeded"):
		return fmt.Sprintf("it is %s, and that an attempt succeeded is %t", row.State, won)
	case r.said != "" && r.said != row.State:
		return fmt.Sprintf("it was said to be %s, and is %s", r.said, row.State)
	}
	return ""
}

// oneKeyAtOnce posts the same callback with the same key from a dozen clients at the same moment, to all dispatchers.
func oneKeyAtOnce(tr *trial) {
	const clients = 12
	keys := long(tr, 300, 60)
	processes := []*harness.Process{tr.Serve()}
	if tr.Backend.Redis != "" {
		processes = append(processes, tr.Serve(), tr.Serve())
	}
	fresh, replayed, again := 0, 0, 0
	var mu sync.Mutex
	for k := range keys {
		s := tr.Callback("plain", fmt.Sprint("plain-", k))
		ids := map[string]bool{}
		var first int
		var group errgroup.Group
		start := make(chan struct{})
		for i := range clients {
			c := processes[i%len(processes)].Client
			group.Go(func() error {
				<-start
				for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
					status, id, err := handIn(c, s)
					mu.Lock()
					switch {
					case err == nil && status == http.StatusAccepted:
						fresh, first = fresh+1, first+1
					case err == nil && status == http.StatusOK:
						replayed++
					case err == nil && status == http.StatusConflict:
						again++ // the first is still in progress
						mu.Unlock()
						harness.Pause()
						continue
					default:
						mu.Unlock()
						return fmt.Errorf("answered %d: %w", status, err)
					}
					ids[id] = true
					mu.Unlock()
					return nil
				}
				return fmt.Errorf("still in progress")
			})
		}
		close(start)
		if err := group.Wait(); err != nil {
			tr.Fatal(err)
		}
		if len(ids) != 1 || first != 1 {
			tr.Errorf("key %d: %d ids, %d answers of 202; want one of each", k, len(ids), first)
		}
		for id := range ids {
			tr.NoteAccepted(id, s["ref"].(string))
		}
	}
	other := tr.Callback("plain", "plain-0")
	other["topic"] = "another"
	if status, _, err := handIn(processes[0].Client, other); err != nil || status != http.StatusUnprocessableEntity {
		tr.Errorf("other bytes with the same key were answered %d %v, want 422", status, err)
	}
	tr.Settle(time.Minute)
	v := tr.Verdict(judge.Bounds{})
	if v.Accepted != keys || v.Sends != keys {
		tr.Errorf("%d keys made %d callbacks, which arrived %d times", keys, v.Accepted, v.Sends)
	}
	tr.Remark("%d keys, each from %d clients at once: %d answers of 202, %d replays, %d asked again", keys, clients, fresh, replayed, again)
}

// handIn hands over a callback and returns the status and the id.
func handIn(c *harness.Client, s harness.Submission) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.AskTimeout)
	defer cancel()
	body, err := json.Marshal(s)
	if err != nil {
		return 0, "", err
	}
	got, err := c.Raw(ctx, http.MethodPost, "/v1/callbacks", body, nil)
	if err != nil || got.Status > http.StatusAccepted {
		return got.Status, "", err
	}
	var cb harness.Callback
	return got.Status, cb.ID, got.Decode(&cb)
}
