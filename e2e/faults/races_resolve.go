package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// Outcomes of a resolve.
const (
	resolvedUnasked = "resolved, never asked"
	resolvedBetween = "resolved after an answer that was not final"
	resolvedAsking  = "resolved while it was asked"
	resolvedLate    = "already terminal"
)

var resolveOutcomes = []string{resolvedUnasked, resolvedBetween, resolvedAsking, resolvedLate}

// A resolving is one poll that is resolved at about the moment of its last request, and all that is known of
// it.
type resolving struct {
	n   int
	ref string
	due time.Time
	// second: the first answer is not final, and the call meets the second request. twice: two calls are made
	// at once.
	second, twice bool
	id            string
	said          []spoken
	// busy are the calls that were answered 503 first, for the database had too much to do: what that has done
	// is not known.
	busy []bool
}

// resolveSpacing is how far apart they are due: of each come a request, a call and a result.
const resolveSpacing = 2 * raceSpacing

// A resolveArena is where they are run.
type resolveArena struct {
	*testing.T
	processes    []*harness.Process
	up, merchant *harness.Receiver
	lag          time.Duration
}

// enter accepts the polls, due one after the other once all of them are accepted.
func (a *resolveArena) enter(races []*resolving) {
	a.Helper()
	begin := time.Now().Add(time.Second + time.Duration(len(races))*2*time.Millisecond)
	var group errgroup.Group
	group.SetLimit(16)
	for i, r := range races {
		r.due = begin.Add(time.Duration(i) * resolveSpacing).Truncate(time.Millisecond)
		where := "/ask/" + r.ref
		if r.second {
			where += "/second"
		}
		s := harness.Submission{
			"ref": r.ref, "request": harness.Submission{"url": a.up.URL + where},
			"due_at": r.due.UTC().Format("2006-01-02T15:04:05.000Z"),
			"policy": harness.Submission{"tiers": []string{raceTier.String(), "1s"}, "timeout": "10s"},
			"until":  harness.Finals(),
			"on_result": harness.Submission{"url": a.merchant.URL + "/told",
				"policy": harness.AskAfter("200ms", "1s")},
		}
		p := a.processes[i%len(a.processes)]
		group.Go(func() error {
			cb, err := p.AcceptPoll(a.Context(), s)
			r.id = cb.ID
			return err
		})
	}
	if err := group.Wait(); err != nil {
		a.Fatal(err)
	}
	if late := time.Since(begin); late > 0 {
		a.Logf("the last was accepted %s after the first was due", late)
	}
}

// race makes every call at a moment about the last request: a third before it, a third while it is likely to
// be made, a third after.
func (a *resolveArena) race(races []*resolving) {
	a.Helper()
	moments := spread{likely: -5_000, likelyFor: 20_000, after: 10_000, afterFor: 40_000}
	var group errgroup.Group
	for _, r := range races {
		at := moments.about(r.n, r.due, a.lag, r.second)
		group.Go(func() error {
			timer := time.NewTimer(time.Until(at))
			defer timer.Stop()
			<-timer.C
			calls := 1
			if r.twice {
				calls = 2
			}
			r.said, r.busy = make([]spoken, calls), make([]bool, calls)
			var both errgroup.Group
			for i := range calls {
				both.Go(func() error { return a.resolve(r, i) })
			}
			return both.Wait()
		})
	}
	if err := group.Wait(); err != nil {
		a.Fatal(err)
	}
}

// resolve makes one call, until it is answered.
func (a *resolveArena) resolve(r *resolving, i int) error {
	p := a.processes[(r.n+i)%len(a.processes)]
	ctx, cancel := context.WithTimeout(context.Background(), harness.AskTimeout)
	defer cancel()
	began := time.Now()
	for {
		got, err := raw(ctx, p.Client, "/v1/polls/"+r.id+"/resolve",
			harness.Submission{"data": harness.Submission{"call": i}, "reason": "the notification came"})
		switch {
		case err != nil:
			return fmt.Errorf("resolve %s: %w", r.ref, err)
		case got.Status == http.StatusServiceUnavailable:
			r.busy[i] = true
			harness.Pause()
			continue
		case got.Status != http.StatusOK:
			return fmt.Errorf("resolve %s answered %d: %s", r.ref, got.Status, got.Body)
		}
		r.said[i] = spoken{got, began, time.Now()}
		return nil
	}
}

// decide judges every race and counts what came of it.
func (a *resolveArena) decide(races []*resolving, counts map[string]int) {
	a.Helper()
	complain := harness.Violations(a)
	heard := map[string][]harness.Arrival{}
	for _, at := range a.merchant.All() {
		told, err := toldBy(at.Body)
		if err != nil {
			a.Fatal(err)
		}
		heard[told.PollID] = append(heard[told.PollID], at)
	}
	outcomes := make([]string, len(races))
	wrongs := make([]string, len(races))
	var group errgroup.Group
	group.SetLimit(8)
	busy := 0
	for i, r := range races {
		p := a.processes[i%len(a.processes)]
		if slices.Contains(r.busy, true) {
			busy++
			continue
		}
		group.Go(func() (err error) {
			outcomes[i], wrongs[i], err = a.judge(p.Client, r, heard[r.id])
			return err
		})
	}
	if err := group.Wait(); err != nil {
		a.Fatal(err)
	}
	var lags []time.Duration
	for i, r := range races {
		if asked := a.up.Of(r.id); len(asked) > 0 {
			lags = append(lags, asked[0].End.Sub(r.due))
		}
		if slices.Contains(r.busy, true) {
			continue
		}
		if wrongs[i] != "" {
			var said []string
			for _, s := range r.said {
				said = append(said, fmt.Sprintf("%s–%s %.200s", s.began.Format("05.000000"),
					s.ended.Format("05.000000"),
					s.Body))
			}
			complain("%s (%s, due %s): %s\n%s", r.ref, outcomes[i], r.due.Format("05.000000"), wrongs[i],
				strings.Join(said, "\n"))
			continue
		}
		counts[outcomes[i]]++
	}
	a.lag = max(harness.Quantile(lags, 0.5), 0)
	if busy > len(races)/50 {
		a.Errorf("%d of %d races met a database that had too much to do", busy, len(races))
	}
}

// judge holds the answers against how the poll ended and what the merchant heard. It names the outcome, and
// what is wrong with it.
func (a *resolveArena) judge(c *harness.Client, r *resolving, heard []harness.Arrival) (outcome, wrong string,
	err error) {
	p, err := c.Poll(a.Context(), r.id)
	if err != nil {
		return "", "", err
	}
	attempts, err := c.Attempts(a.Context(), r.id)
	if err != nil {
		return "", "", err
	}
	results, err := c.List(a.Context(), url.Values{"ref": {r.ref}, "kind": {"notify"}})
	if err != nil {
		return "", "", err
	}
	winner := -1
	outcome = resolvedLate
	for i, s := range r.said {
		var given struct {
			Result   string           `json:"result"`
			Callback harness.Callback `json:"callback"`
		}
		if err := s.Decode(&given); err != nil {
			return "", "", err
		}
		switch {
		case given.Callback.ID != r.id || given.Callback.State != p.State || given.Callback.Reason != p.Reason:
			return outcome, fmt.Sprintf("said to be %s %s; %s is %s %s", given.Callback.State, given.Callback.Reason,
				r.id, p.State, p.Reason), nil
		case given.Result == "resolved" && winner >= 0:
			return outcome, "two calls have resolved it", nil
		case given.Result == "resolved":
			winner = i
		case given.Result != "already_terminal":
			return outcome, "no result " + given.Result, nil
		}
	}
	want := "success"
	if winner >= 0 {
		want = "resolved"
		outcome = r.how(a.up.Of(r.id), r.said[winner])
	}
	if wrong := a.told(r, &p, results, heard, want, winner); wrong != "" {
		return outcome, wrong, nil
	}
	asked := a.up.Of(r.id)
	charged := 0
	for _, at := range attempts {
		if at.Charged {
			charged++
		}
	}
	switch {
	case len(asked) > len(attempts) || charged > len(asked) || p.AttemptCount > len(asked):
		wrong = fmt.Sprintf("asked %d times; %d attempts, %d charged; attempt_count %d", len(asked), len(attempts),
			charged, p.AttemptCount)
	case winner < 0 && (p.AttemptCount != len(asked) || len(asked) == 0):
		wrong = fmt.Sprintf("ended by an answer, asked %d times, attempt_count %d", len(asked), p.AttemptCount)
	case winner >= 0:
		wrong = unasked(asked, attempts, r.said[winner])
	}
	return outcome, wrong, nil
}

// unasked says what is wrong with what was asked after a poll had been resolved. One request may have been
// claimed by then, and be made.
func unasked(asked []harness.Arrival, attempts []harness.Attempt, by spoken) string {
	after := 0
	for _, at := range asked {
		if at.At.After(by.ended) {
			after++
		}
	}
	if after > 1 {
		return fmt.Sprintf("it was asked %d times after it had been resolved", after)
	}
	for _, at := range attempts {
		if at.DueAt != nil && at.DueAt.After(by.ended.Add(raceLead)) {
			return fmt.Sprintf("request %d was due %s after it had been resolved", at.Number, at.DueAt.Sub(by.ended))
		}
	}
	return ""
}

// told says what is wrong with the result: there is one, it arrived once, and it says how the poll ended.
func (a *resolveArena) told(r *resolving, p *harness.PollShown, results []harness.Callback,
	heard []harness.Arrival, want string, winner int) string {
	if p.State != "succeeded" || p.Reason != want || p.Poll.Outcome != want {
		return fmt.Sprintf("it is %s %s with the outcome %s; the answers say %s", p.State, p.Reason, p.Poll.Outcome,
			want)
	}
	if len(results) != 1 || results[0].ID != p.Poll.ResultID || len(heard) != 1 ||
		heard[0].ID != p.Poll.ResultID {
		return fmt.Sprintf("it has %d results, and the merchant heard of it %d times", len(results), len(heard))
	}
	told, err := toldBy(heard[0].Body)
	if err != nil {
		return err.Error()
	}
	var data struct {
		Call *int `json:"call"`
	}
	if len(told.Data) > 0 {
		if err := json.Unmarshal(told.Data, &data); err != nil {
			return err.Error()
		}
	}
	switch {
	case told.Outcome != want || told.Reason != want || told.Polls != p.AttemptCount:
		return fmt.Sprintf("the merchant heard %+v", told)
	case winner < 0 && (data.Call != nil || told.Last == nil || told.Last.Body != succeeded):
		return fmt.Sprintf("ended by an answer, and the merchant heard %s", heard[0].Body)
	case winner >= 0 && (data.Call == nil || *data.Call != winner):
		return fmt.Sprintf("resolved by call %d, and the merchant heard %s", winner, heard[0].Body)
	}
	return ""
}

// how says when it was that a call resolved the poll.
func (r *resolving) how(asked []harness.Arrival, by spoken) string {
	switch n := len(asked); {
	case n == 0:
		return resolvedUnasked
	case asked[n-1].End.After(by.began) || n == 2 || !r.second:
		return resolvedAsking // its answer was on the way
	}
	return resolvedBetween
}
