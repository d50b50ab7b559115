package e2e

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

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
)

// raceFaults are callers who ask at the worst moment.
func raceFaults() []fault {
	return []fault{
		{id: "F52", title: "cancel races send", short: bothEnds, full: bothEnds, run: cancelRaces},
		{id: "F53", title: "one idempotency key from many clients at once", short: bothEnds, full: allFour, run: oneKeyAtOnce},
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
func cancelRaces(l *lab) {
	n := long(l, 10_000, 1_000)
	l.w.behave(func(h *hit) reply {
		if h.kind() == "retry" && h.nth == 1 {
			return reply{status: 500, after: 3 * time.Millisecond}
		}
		return reply{status: 200, after: 3 * time.Millisecond}
	})
	l.serve()
	if l.on.redis != "" {
		l.serve()
	}
	races := make([]*race, n)
	const batch = 500
	for first := 0; first < n; first += batch {
		l.acceptRaces(races[first:min(first+batch, n)], first)
		l.cancelAll(races[first:min(first+batch, n)])
	}
	l.settle(time.Minute)
	l.judgeRaces(races)
}

// acceptRaces accepts callbacks that fall due one after the other, from a second from now on.
func (l *lab) acceptRaces(races []*race, number int) {
	l.Helper()
	var submissions []submission
	begin := time.Now().Add(time.Second)
	for i := range races {
		kind := "plain"
		if i%2 == 0 {
			kind = "retry"
		}
		r := &race{ref: fmt.Sprintf("%s-%d", kind, number+i), due: begin.Add(time.Duration(i) * 8 * time.Millisecond)}
		s := l.callback(kind, r.ref)
		s["due_at"] = r.due.UTC().Format("2006-01-02T15:04:05.000Z")
		s["policy"] = submission{"tiers": []string{raceTier.String(), "1s"}, "timeout": "10s"}
		s["lane"] = fmt.Sprint("lane-", i%16)
		submissions = append(submissions, s)
		races[i] = r
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got, err := l.one().acceptBatch(ctx, submissions)
	if err != nil {
		l.Fatal(err)
	}
	for i, cb := range got {
		races[i].id = cb.ID
		l.note(cb.ID, races[i].ref)
	}
}

// cancelAll asks for each cancel at a moment about a send, every tenth twice at once.
func (l *lab) cancelAll(races []*race) {
	l.Helper()
	var group errgroup.Group
	alive := l.alive()
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
			c := alive[(i+k)%len(alive)].client
			group.Go(func() error {
				timer := time.NewTimer(time.Until(at))
				defer timer.Stop()
				<-timer.C
				ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
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
		l.Fatalf("cancel: %v", err)
	}
}

// A canceledAnswer is what a cancel is answered.
type canceledAnswer struct {
	Result   string   `json:"result"`
	Callback callback `json:"callback"`
}

// askCancel asks until it is answered: 503 is for a database that has too much to do at the moment.
func askCancel(ctx context.Context, c *client, id string) (answer canceledAnswer, again bool, err error) {
	for {
		got, err := c.raw(ctx, http.MethodPost, "/v1/callbacks/"+id+"/cancel", nil, nil)
		switch {
		case err != nil:
			return answer, again, err
		case got.status == http.StatusOK:
			return answer, again, got.decode(&answer)
		case got.status != http.StatusServiceUnavailable:
			return answer, again, fmt.Errorf("answered %d: %.300s", got.status, got.body)
		}
		again = true
		pause()
	}
}

// judgeRaces compares answers, SQL and the witness. That nothing arrives after a canceled one was canceled is among what the
// judge decides (I7), by the time at which SQL says it was.
func (l *lab) judgeRaces(races []*race) {
	l.Helper()
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
	l.verdict(judge.Bounds{Expect: func(ref string) string { return expected[ref] }})
	e, err := l.evidence()
	if err != nil {
		l.Fatal(err)
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
	complain := complaints(l)
	for _, r := range races {
		if why := raced(r, rows[r.id], attempts[r.id], arrivals[r.id]); why != "" {
			complain("%s %s: asked %v: %s", r.id, r.ref, r.results, why)
		}
	}
	for _, result := range []string{"canceled", "too_late", "already_terminal"} {
		if counts[result] < len(races)/100 {
			l.Errorf("only %d of %d were answered %s: the races were not close", counts[result], len(races), result)
		}
	}
	l.remark("%d cancels against sends: %d canceled, %d too late, %d already terminal; every answer is what happened",
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
func oneKeyAtOnce(l *lab) {
	const clients = 12
	keys := long(l, 300, 60)
	processes := []*process{l.serve()}
	if l.on.redis != "" {
		processes = append(processes, l.serve(), l.serve())
	}
	fresh, replayed, again := 0, 0, 0
	var mu sync.Mutex
	for k := range keys {
		s := l.callback("plain", fmt.Sprint("plain-", k))
		ids := map[string]bool{}
		var first int
		var group errgroup.Group
		start := make(chan struct{})
		for i := range clients {
			c := processes[i%len(processes)].client
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
						pause()
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
			l.Fatal(err)
		}
		if len(ids) != 1 || first != 1 {
			l.Errorf("key %d: %d ids, %d answers of 202; want one of each", k, len(ids), first)
		}
		for id := range ids {
			l.note(id, s["ref"].(string))
		}
	}
	other := l.callback("plain", "plain-0")
	other["topic"] = "another"
	if status, _, err := handIn(processes[0].client, other); err != nil || status != http.StatusUnprocessableEntity {
		l.Errorf("other bytes with the same key were answered %d %v, want 422", status, err)
	}
	l.settle(time.Minute)
	v := l.verdict(judge.Bounds{})
	if v.Accepted != keys || v.Sends != keys {
		l.Errorf("%d keys made %d callbacks, which arrived %d times", keys, v.Accepted, v.Sends)
	}
	l.remark("%d keys, each from %d clients at once: %d answers of 202, %d replays, %d asked again", keys, clients, fresh, replayed, again)
}

// handIn hands over a callback and returns the status and the id.
func handIn(c *client, s submission) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	body, err := json.Marshal(s)
	if err != nil {
		return 0, "", err
	}
	got, err := c.raw(ctx, http.MethodPost, "/v1/callbacks", body, nil)
	if err != nil || got.status > http.StatusAccepted {
		return got.status, "", err
	}
	var cb callback
	return got.status, cb.ID, got.decode(&cb)
}
