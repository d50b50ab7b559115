package faults

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// Outcomes of a resolve.
const (
	resolvedUnasked = "resolved, never asked"
	resolvedBetween = "resolved after an answer that was not final"
	resolvedAsking  = "resolved while it was asked"
	resolvedLate    = "already terminal"
)

// resolveKind resolves a poll at about the moment of its last request, sometimes twice at once. The near
// receiver is asked, the far one is told.
var resolveKind = contestKind{
	name:     "resolve",
	outcomes: []string{resolvedUnasked, resolvedBetween, resolvedAsking, resolvedLate},
	entry: func(a *arena, c *contest) harness.Submission {
		where := "/ask/" + c.ref
		if c.second {
			where += "/second"
		}
		return harness.Submission{
			"ref": c.ref, "request": harness.Submission{"url": a.near.URL + where}, "until": harness.Finals(),
			"policy": harness.Tiers("10s", raceTier.String(), "1s"),
			"on_result": harness.Submission{"url": a.far.URL + "/told",
				"policy": harness.Tiers("1s", "200ms", "1s")},
		}
	},
	calls: func(_ *arena, c *contest) (calls []call) {
		for i := range 1 + (c.n%8)/6 { // every fourth twice; its data says which call it is
			calls = append(calls, call{http.MethodPost, "/v1/polls/" + c.ids[0] + "/resolve",
				harness.Submission{
					"data": harness.Submission{"call": i}, "reason": "the notification came"}})
		}
		return calls
	},
	judge: judgeResolve,
}

// judgeResolve holds the answers against how the poll ended and what the merchant heard.
func judgeResolve(a *arena, c *contest) (outcome, wrong string) {
	p, err := a.processes[0].Poll(a.Context(), c.ids[0])
	a.Check(err)
	results, err := a.processes[0].ListAll(client.Filter{Ref: c.ref, Kind: "notify"})
	a.Check(err)
	outcome, want := resolvedLate, "success"
	var winner *spoken
	for i := range c.said {
		s := &c.said[i]
		given := reading[client.ResolveResult](a, s.Body)
		switch is := &given.Callback; {
		case is.ID != p.ID || is.State != p.State || is.Reason != p.Reason:
			return outcome, fmt.Sprintf("said to be %s %s; %s is %s %s", is.State, is.Reason, p.ID, p.State,
				p.Reason)
		case given.Result == "resolved" && winner != nil:
			return outcome, "two calls have resolved it"
		case given.Result == "resolved":
			winner, want = s, "resolved"
			outcome = c.resolved(s)
		case given.Result != "already_terminal":
			return outcome, "no result " + given.Result
		}
	}
	if wrong := a.told(&p, results, want, winner); wrong != "" {
		return outcome, wrong
	}
	s := c.fates[0]
	asked, charged := len(s.arrivals), 0
	for _, at := range s.attempts {
		if at.Charged {
			charged++
		}
	}
	switch {
	case asked > len(s.attempts) || charged > asked || p.AttemptCount > asked:
		wrong = fmt.Sprintf("asked %d times; %d attempts, %d charged; attempt_count %d",
			asked, len(s.attempts), charged, p.AttemptCount)
	case winner == nil && (p.AttemptCount != asked || asked == 0):
		wrong = fmt.Sprintf("ended by an answer, asked %d times, attempt_count %d", asked, p.AttemptCount)
	case winner != nil:
		wrong = s.unasked(winner)
	}
	return outcome, wrong
}

// resolved says when it was that a call resolved the poll.
func (c *contest) resolved(by *spoken) string {
	asked := c.fates[0].arrivals
	switch n := len(asked); {
	case n == 0:
		return resolvedUnasked
	case asked[n-1].End.After(by.began) || n == 2 || !c.second:
		return resolvedAsking // its answer was on the way
	}
	return resolvedBetween
}

// unasked says what is wrong with what was asked after a poll had been resolved. One request may have been
// claimed by then, and be made.
func (s *fate) unasked(by *spoken) string {
	if n := s.after(by.ended); n > 1 {
		return fmt.Sprintf("it was asked %d times after it had been resolved", n)
	}
	for _, at := range s.attempts {
		if at.DueAt.After(by.ended.Add(raceLead)) {
			return fmt.Sprintf("request %d was due %s after it had been resolved", at.Number,
				at.DueAt.Sub(by.ended))
		}
	}
	return ""
}

// told says what is wrong with the result: there is one, it arrived once, and it says how the poll ended.
func (a *arena) told(p *client.PollCallback, results []client.Callback, want string, winner *spoken) string {
	if p.State != "succeeded" || string(p.Reason) != want || string(p.Poll.Outcome) != want {
		return fmt.Sprintf("it is %s %s with the outcome %s; the answers say %s", p.State, p.Reason,
			p.Poll.Outcome,
			want)
	}
	heard := a.far.Of(p.Poll.ResultCallbackID)
	if len(results) != 1 || results[0].ID != p.Poll.ResultCallbackID || len(heard) != 1 {
		return fmt.Sprintf("it has %d results, and the merchant heard of it %d times", len(results),
			len(heard))
	}
	told, data := reading[client.PollResult](a, heard[0].Body), struct{ Call *int }{}
	if len(told.Data) > 0 {
		a.Check(json.Unmarshal(told.Data, &data))
	}
	switch {
	case told.PollID != p.ID || string(told.Outcome) != want || told.Reason != want ||
		told.Polls != p.AttemptCount:
		return fmt.Sprintf("the merchant heard %+v", told)
	case winner == nil && (data.Call != nil || told.Last == nil || told.Last.Body != succeeded):
		return fmt.Sprintf("ended by an answer, and the merchant heard %s", heard[0].Body)
	case winner != nil && (data.Call == nil || *data.Call != winner.call):
		return fmt.Sprintf("resolved by call %d, and the merchant heard %s", winner.call, heard[0].Body)
	}
	return ""
}
