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
	resolvedUnsent   = "resolved before the first request"
	resolvedBetween  = "resolved after a response that was not final"
	resolvedInFlight = "resolved during a request"
	resolvedLate     = "already terminal"
)

// resolveKind resolves a poll at about the time of its last request, sometimes twice at once. The near
// receiver is the upstream, and the far one is the merchant.
var resolveKind = contestKind{
	name:     "resolve",
	outcomes: []string{resolvedUnsent, resolvedBetween, resolvedInFlight, resolvedLate},
	entry: func(a *arena, c *contest) harness.Submission {
		where := "/poll/" + c.ref
		if c.second {
			where += "/second"
		}
		return harness.Submission{
			"ref": c.ref, "request": harness.Submission{"url": a.near.URL + where}, "until": harness.Finals(),
			"policy": harness.Tiers("10s", raceTier.String(), "1s"),
			"on_result": harness.Submission{"url": a.far.URL + "/result",
				"policy": harness.Tiers("1s", "200ms", "1s")},
		}
	},
	calls: func(_ *arena, c *contest) (calls []call) {
		for i := range 1 + (c.n%8)/6 { // every fourth twice; the data has the number of the call
			calls = append(calls, call{http.MethodPost, "/v1/polls/" + c.ids[0] + "/resolve",
				harness.Submission{
					"data": harness.Submission{"call": i}, "reason": "the notification came"}})
		}
		return calls
	},
	judge: judgeResolve,
}

// judgeResolve compares the responses with the end of the poll and with the result that the merchant got.
func judgeResolve(a *arena, c *contest) (outcome, wrong string) {
	p, err := a.processes[0].Poll(a.Context(), c.ids[0])
	a.Check(err)
	results, err := a.processes[0].ListAll(client.Filter{Ref: c.ref, Kind: "notify"})
	a.Check(err)
	outcome, want := resolvedLate, "success"
	var winner *response
	for i := range c.responses {
		s := &c.responses[i]
		given := reading[client.ResolveResult](a, s.Body)
		switch is := &given.Callback; {
		case is.ID != p.ID || is.State != p.State || is.Reason != p.Reason:
			return outcome, fmt.Sprintf("reported as %s %s; %s is %s %s", is.State, is.Reason, p.ID, p.State,
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
	if wrong := a.checkResult(&p, results, want, winner); wrong != "" {
		return outcome, wrong
	}
	s := c.records[0]
	requests, charged := len(s.arrivals), 0
	for _, at := range s.attempts {
		if at.Charged {
			charged++
		}
	}
	switch {
	case requests > len(s.attempts) || charged > requests || p.AttemptCount > requests:
		wrong = fmt.Sprintf("%d requests; %d attempts, %d charged; attempt_count %d",
			requests, len(s.attempts), charged, p.AttemptCount)
	case winner == nil && (p.AttemptCount != requests || requests == 0):
		wrong = fmt.Sprintf("ended by a response, %d requests, attempt_count %d", requests, p.AttemptCount)
	case winner != nil:
		wrong = s.afterResolve(winner)
	}
	return outcome, wrong
}

// resolved returns when the call resolved the poll, relative to its requests.
func (c *contest) resolved(by *response) string {
	requests := c.records[0].arrivals
	switch n := len(requests); {
	case n == 0:
		return resolvedUnsent
	case requests[n-1].End.After(by.began) || n == 2 || !c.second:
		return resolvedInFlight // its response was on the way
	}
	return resolvedBetween
}

// afterResolve returns what is wrong with the requests after a poll was resolved. One request may have been
// claimed before, and is then sent.
func (s *record) afterResolve(by *response) string {
	if n := s.after(by.ended); n > 1 {
		return fmt.Sprintf("%d requests arrived after it had been resolved", n)
	}
	for _, at := range s.attempts {
		if at.DueAt.After(by.ended.Add(racePrefetch)) {
			return fmt.Sprintf("request %d was due %s after it had been resolved", at.Number,
				at.DueAt.Sub(by.ended))
		}
	}
	return ""
}

// checkResult returns what is wrong with the result: there must be exactly one, it must arrive once, and it
// must have the outcome of the poll.
func (a *arena) checkResult(p *client.PollCallback, results []client.Callback, want string,
	winner *response) string {
	if p.State != "succeeded" || string(p.Reason) != want || string(p.Poll.Outcome) != want {
		return fmt.Sprintf("it is %s %s with the outcome %s; the responses say %s",
			p.State, p.Reason, p.Poll.Outcome, want)
	}
	arrivals := a.far.Of(p.Poll.ResultCallbackID)
	if len(results) != 1 || results[0].ID != p.Poll.ResultCallbackID || len(arrivals) != 1 {
		return fmt.Sprintf("it has %d results, and the merchant got %d of them", len(results),
			len(arrivals))
	}
	result, data := reading[client.PollResult](a, arrivals[0].Body), struct{ Call *int }{}
	if len(result.Data) > 0 {
		a.Check(json.Unmarshal(result.Data, &data))
	}
	switch {
	case result.PollID != p.ID || string(result.Outcome) != want || result.Reason != want ||
		result.Polls != p.AttemptCount:
		return fmt.Sprintf("the merchant got %+v", result)
	case winner == nil && (data.Call != nil || result.Last == nil || result.Last.Body != succeeded):
		return fmt.Sprintf("ended by a response, and the merchant got %s", arrivals[0].Body)
	case winner != nil && (data.Call == nil || *data.Call != winner.call):
		return fmt.Sprintf("resolved by call %d, and the merchant got %s", winner.call, arrivals[0].Body)
	}
	return ""
}
