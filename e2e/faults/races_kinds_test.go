package faults

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// racePrefetch is how long before its due time SQL may already have an attempt claimed and in flight.
const racePrefetch = 50 * time.Millisecond

// Outcomes of a cancel.
const (
	canceledUnsent   = "canceled, never sent"
	canceledBetween  = "canceled after a failure"
	tooLateSucceeded = "too late, succeeded"
	tooLateFailed    = "too late, failed and canceled"
	alreadyOver      = "already succeeded"
)

// cancelKind cancels by id, or by reference including finished callbacks, as a caller cancels a timer after
// the awaited event. The response must match what happened: no order may be both closed and paid unless the
// response says so.
var cancelKind = contestKind{
	name:     "cancel",
	outcomes: []string{canceledUnsent, canceledBetween, tooLateSucceeded, tooLateFailed, alreadyOver},
	entry:    (*arena).base,
	calls: func(_ *arena, c *contest) []call {
		if c.byRef() {
			return []call{{http.MethodPost, "/v1/callbacks/cancel",
				harness.Submission{"ref": c.ref, "include_terminal": true, "reason": "a race"}}}
		}
		return []call{{http.MethodPost, "/v1/callbacks/" + c.ids[0] + "/cancel", harness.Submission{}}}
	},
	judge: func(a *arena, c *contest) (string, string) {
		if !c.byRef() {
			return c.records[0].canceled(reading[client.CancelResult](a, c.responses[0].Body), c.responses[0])
		}
		given := reading[struct{ Data []client.CancelResult }](a, c.responses[0].Body)
		if len(given.Data) != 1 {
			return "", fmt.Sprintf("%d are named", len(given.Data))
		}
		return c.records[0].canceled(given.Data[0], c.responses[0])
	},
}

// byRef reports whether the contest cancels by reference.
func (c *contest) byRef() bool { return c.n/16%2 == 0 }

// canceled compares the response of a cancel with what happened.
func (s *record) canceled(given client.CancelResult, resp response) (outcome, wrong string) {
	was, made := &given.Callback, len(s.arrivals)
	if was.ID != s.ID {
		return "", fmt.Sprintf("canceled %s, the response is about %s", s.ID, was.ID)
	}
	switch given.Result {
	case "canceled":
		outcome = canceledUnsent
		if made > 0 {
			outcome = canceledBetween
		}
		switch {
		case was.State != "canceled" || was.Reason != "requested" || s.State != "canceled" ||
			s.Reason != "requested":
			wrong = fmt.Sprintf("reported as %s %s, and is %s %s", was.State, was.Reason, s.State, s.Reason)
		case was.AttemptCount != made:
			wrong = fmt.Sprintf("canceled after %d attempts, and %d arrived", was.AttemptCount, made)
		case s.after(resp.ended) > 0:
			wrong = "it arrived after it was canceled"
		}
	case "too_late":
		outcome = tooLateFailed
		if s.State == "succeeded" {
			outcome = tooLateSucceeded
		}
		switch {
		case was.State != "attempting":
			wrong = "too late, and reported as " + string(was.State)
		case made > was.AttemptCount+1:
			wrong = fmt.Sprintf("attempt %d was in flight, and %d arrived", was.AttemptCount+1, made)
		case s.State != "succeeded" && (s.State != "canceled" || s.Reason != "requested"):
			wrong = fmt.Sprintf("it ended %s %s", s.State, s.Reason)
		}
	case "already_terminal":
		outcome = alreadyOver
		switch {
		case was.State != s.State || s.State != "succeeded":
			wrong = fmt.Sprintf("reported as %s, and is %s", was.State, s.State)
		case was.AttemptCount != made || s.after(resp.ended) > 0:
			wrong = fmt.Sprintf("it was over after %d attempts, and %d arrived", was.AttemptCount, made)
		}
	default:
		wrong = "no result " + given.Result
	}
	return outcome, wrong
}

// Outcomes of an older version.
const (
	olderUnsent  = "older never sent"
	olderBetween = "older canceled after a failure"
	olderMeant   = "older succeeded meanwhile"
	olderOver    = "older had succeeded"
	refusedLate  = "a version between them came late"
)

// supersedeKind accepts a newer version of a callback. Every second contest accepts two newer versions at
// once.
var supersedeKind = contestKind{
	name:     "supersede",
	outcomes: []string{olderUnsent, olderBetween, olderMeant, olderOver, refusedLate},
	entry:    func(a *arena, c *contest) harness.Submission { return a.version(c, 1) },
	calls: func(a *arena, c *contest) (newer []call) {
		for v := 2; v <= 2+c.n%2; v++ {
			newer = append(newer, call{http.MethodPost, "/v1/callbacks", a.version(c, v)})
		}
		return newer
	},
	judge: judgeSupersede,
}

// version returns a version of the contest's callback, with its own path.
func (a *arena) version(c *contest, v int) harness.Submission {
	s := a.base(c)
	s["topic"], s["supersede"], s["version"] = "race.order", true, v
	if v > 1 {
		s["url"] = strings.Replace(s["url"].(string), "/old/", fmt.Sprintf("/v%d/", v), 1)
	}
	return s
}

// judgeSupersede requires that the newest version is delivered once, and that no attempt of an older one
// began after the newest was accepted.
func judgeSupersede(a *arena, c *contest) (string, string) {
	byID, given := map[string]response{}, map[string]client.Callback{}
	newest := client.Callback{}
	for _, s := range c.responses {
		v := reading[client.Callback](a, s.Body)
		byID[v.ID], given[v.ID] = s, v
		if newest.Version == nil || *v.Version > *newest.Version {
			newest = v
		}
	}
	outcome := ""
	for i, s := range c.records {
		switch {
		case s.ID == newest.ID:
			if newest.State != "scheduled" || s.State != "succeeded" {
				return "", fmt.Sprintf("the newest was reported as %s, and is %s", newest.State, s.State)
			}
		case i > 0 && given[s.ID].State == "canceled":
			// It came after the commit of a newer version.
			outcome = refusedLate
			if given[s.ID].Reason != "superseded" || s.Reason != "superseded" || len(s.arrivals) > 0 {
				return outcome, fmt.Sprintf("accepted as canceled, %s; it is %s %s and arrived %d times",
					given[s.ID].Reason, s.State, s.Reason, len(s.arrivals))
			}
		default:
			how, wrong := s.superseded(byID[newest.ID])
			if wrong != "" {
				return how, wrong
			}
			if i == 0 && outcome == "" {
				outcome = how
			}
		}
	}
	return outcome, ""
}

// superseded judges an older version.
func (s *record) superseded(newer response) (outcome, wrong string) {
	if s.State != "succeeded" && (s.State != "canceled" || s.Reason != "superseded") {
		return "", fmt.Sprintf("an older one ended %s %s", s.State, s.Reason)
	}
	if n := s.after(newer.ended); n > 1 {
		return "", fmt.Sprintf("an older one arrived %d times after the newer was accepted", n)
	}
	for _, at := range s.attempts {
		if at.DueAt.After(newer.ended.Add(racePrefetch)) {
			return "", fmt.Sprintf("attempt %d of an older one was due %s after the newer was accepted",
				at.Number, at.DueAt.Sub(newer.ended))
		}
	}
	switch {
	case s.State == "canceled" && len(s.arrivals) == 0:
		return olderUnsent, ""
	case s.State == "canceled":
		return olderBetween, ""
	case s.arrivals[len(s.arrivals)-1].End.Before(newer.began):
		return olderOver, ""
	}
	return olderMeant, ""
}

// Outcomes of a PATCH and of a reschedule.
const (
	changedFirst   = "changed before the first attempt"
	changedBetween = "changed after a failure"
	changedDead    = "changed when dead"
	refusedInWork  = "409 attempting"
	refusedOver    = "409 terminal"
)

// editKind changes the URL and the headers, of every second callback to another host. Some have a single
// attempt, which fails, so they are dead after it.
var editKind = contestKind{
	name:     "patch",
	outcomes: []string{changedFirst, changedBetween, changedDead, refusedInWork, refusedOver},
	entry: func(a *arena, c *contest) harness.Submission {
		s := a.base(c)
		if c.dies() {
			s["policy"] = harness.Tiers("10s")
		}
		if c.n%8 == 5 {
			s["lane"] = fmt.Sprint("own-", c.n%16) // a PATCH of the URL does not change an explicit lane
		}
		return s
	},
	calls: func(a *arena, c *contest) []call {
		return []call{{http.MethodPatch, "/v1/callbacks/" + c.ids[0], harness.Submission{
			"url": a.editedURL(c), "headers": harness.Submission{"X-Edit": "new"}, "reason": "a race"}}}
	},
	judge: judgeEdit,
}

// dies reports whether the first attempt is the only one, and fails.
func (c *contest) dies() bool { return c.n%8 == 3 }

// editedURL is the URL after the PATCH.
func (a *arena) editedURL(c *contest) string {
	to := a.near.URL
	if c.n/8%2 == 1 {
		to = a.far.URL
	}
	return to + strings.Replace(strings.TrimPrefix(a.base(c)["url"].(string), a.near.URL), "/old/", "/new/",
		1)
}

// changed returns the outcome of a change, and checks everything that does not depend on what was changed. k
// is the number of attempts before the change; -1: it was refused.
func (a *arena) changed(c *contest) (k int, outcome, wrong string) {
	resp, s := &c.responses[0], c.records[0]
	if resp.refusal != nil {
		outcome = fmt.Sprint(resp.refusal.Status, " ", resp.refusal.Code)
	}
	switch {
	case outcome == refusedOver && (s.State != "succeeded" || s.after(resp.ended) > 0):
		return -1, outcome, fmt.Sprintf("it is %s, and arrived %d times more", s.State, s.after(resp.ended))
	case outcome == refusedInWork && len(s.arrivals) == 0:
		return -1, outcome, "it was never attempted"
	case outcome != "":
		return -1, outcome, ""
	}
	given := reading[client.Callback](a, resp.Body)
	k = given.AttemptCount
	switch {
	case given.State == "dead" && (s.State != "dead" || len(s.arrivals) != k):
		return k, changedDead, fmt.Sprintf("dead after %d attempts, it is %s and arrived %d times", k,
			s.State, len(s.arrivals))
	case given.State == "dead":
		return k, changedDead, ""
	case given.State != "scheduled":
		return k, "", "it was changed while it was " + string(given.State)
	case len(s.arrivals) <= k:
		return k, "", fmt.Sprintf("it was scheduled after %d attempts, and no more arrived", k)
	case k == 0:
		return k, changedFirst, ""
	}
	return k, changedBetween, ""
}

// judgeEdit requires that every attempt after the change goes to the new URL with the new header. Attempts
// before it, and those of a callback that could not be changed, go to the old URL.
func judgeEdit(a *arena, c *contest) (string, string) {
	k, outcome, wrong := a.changed(c)
	if wrong != "" {
		return outcome, wrong
	}
	s := c.records[0]
	for i, r := range s.arrivals {
		isNew := k >= 0 && i >= k
		header, url := "old", a.base(c)["url"].(string)
		if isNew {
			header, url = "new", a.editedURL(c)
		}
		if got := r.Header.Get("X-Edit"); got != header || r.url != url {
			return outcome, fmt.Sprintf("attempt %d went to %s with %q; want %s with %q", i+1, r.url, got,
				url, header)
		}
		if isNew && r.At.Before(c.responses[0].began) {
			return outcome, "it went to the new address before the request"
		}
		if !isNew && k >= 0 && r.At.After(c.responses[0].ended) {
			return outcome, "it went to the old address after it had been changed"
		}
	}
	want, ends := a.base(c)["url"].(string), client.State("succeeded")
	if k >= 0 {
		want = a.editedURL(c)
	}
	if c.dies() {
		ends = "dead"
	}
	if s.URL != want || s.State != ends {
		return outcome, fmt.Sprintf("it is %s, to %s; want %s, to %s", s.State, s.URL, ends, want)
	}
	return outcome, ""
}

// raceDelay is the delay of a reschedule, from the time of the request. It is longer than the tier and the
// time until the commit together, so that no wait becomes shorter.
const raceDelay = 3 * time.Second

// moveKind postpones a callback that is about to be sent.
var moveKind = contestKind{
	name:     "reschedule",
	outcomes: []string{changedFirst, changedBetween, refusedInWork, refusedOver},
	entry:    (*arena).base,
	calls: func(_ *arena, c *contest) []call {
		return []call{{http.MethodPost, "/v1/callbacks/" + c.ids[0] + "/reschedule",
			harness.Submission{"delay": raceDelay.String()}}}
	},
	judge: judgeMove,
}

// judgeMove requires that each attempt has the reported due time, and does not arrive earlier. An attempt
// that was diverted because its lane was full is due a little later, and counts as a divert.
func judgeMove(a *arena, c *contest) (string, string) {
	k, outcome, wrong := a.changed(c)
	if wrong != "" {
		return outcome, wrong
	}
	s := c.records[0]
	due := c.due
	for i, at := range s.attempts {
		if i == k {
			due = reading[client.Callback](a,
				c.responses[0].Body).DueAt
			if due.Before(c.responses[0].began.Add(raceDelay-time.Millisecond)) ||
				due.After(c.responses[0].ended.Add(raceDelay+time.Millisecond)) {
				return outcome, fmt.Sprintf("postponed by %s until %s", raceDelay, due)
			}
		}
		if at.DueAt.Before(due) || s.DivertCount == 0 && at.DueAt.After(due) {
			return outcome, fmt.Sprintf("attempt %d was due %v, want %s; %d diverts", i+1, at.DueAt, due,
				s.DivertCount)
		}
		due = at.DueAt
		if early := due.Sub(s.arrivals[i].At); early > 0 {
			return outcome, fmt.Sprintf("attempt %d arrived %s before it was due", i+1, early)
		}
		if !at.NextDueAt.IsZero() {
			due = at.NextDueAt
		}
	}
	if s.State != "succeeded" {
		return outcome, "it is " + string(s.State)
	}
	return outcome, ""
}
