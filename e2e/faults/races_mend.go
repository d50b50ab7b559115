package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// Outcomes of a PATCH and of a reschedule.
const (
	changedFirst   = "changed before the first attempt"
	changedBetween = "changed after a failure"
	changedDead    = "changed when dead"
	refusedInWork  = "409 attempting"
	refusedOver    = "409 terminal"
)

// mendKind changes address and headers, of every second one to another host. Some have one attempt only,
// which fails: they are dead after it.
func mendKind() *contestKind {
	return &contestKind{
		name:     "patch",
		outcomes: []string{changedFirst, changedBetween, changedDead, refusedInWork, refusedOver},
		callbacks: func(a *arena, c *contest) []harness.Submission {
			s := a.base(c)
			if c.dies() {
				s["policy"] = harness.Submission{"tiers": []string{}, "timeout": "10s"}
			}
			if c.n%8 == 5 {
				s["lane"] = fmt.Sprint("own-", c.n%16) // which it stays in wherever it goes
			}
			return []harness.Submission{s}
		},
		ask: func(ctx context.Context, a *arena, c *contest) error {
			body, err := json.Marshal(harness.Submission{"url": a.mended(c),
				"headers": harness.Submission{"X-Mend": "new"}, "reason": "a race"})
			if err != nil {
				return err
			}
			_, err = a.ask(ctx, c, 0, http.MethodPatch, "/v1/callbacks/"+c.ids[0], body)
			return err
		},
		judge: judgeMend,
	}
}

// dies says whether the first attempt is the only one, and fails.
func (c *contest) dies() bool { return c.n%8 == 3 }

// mended is where a PATCH sends it.
func (a *arena) mended(c *contest) string {
	to := a.near.URL
	if c.n/8%2 == 1 {
		to = a.far.URL
	}
	return to + strings.Replace(strings.TrimPrefix(a.base(c)["url"].(string), a.near.URL), "/old/", "/new/", 1)
}

// refused is what a change was refused with; empty: it was not.
func (s *spoken) refused() (string, error) {
	if s.Status == http.StatusOK {
		return "", nil
	}
	var p harness.Problem
	if err := s.Decode(&p); err != nil {
		return "", err
	}
	switch {
	case s.Status == http.StatusConflict && p.Code == "attempting":
		return refusedInWork, nil
	case s.Status == http.StatusConflict && p.Code == "terminal":
		return refusedOver, nil
	}
	return "", fmt.Errorf("answered %d %s", s.Status, p.Code)
}

// changed names the outcome of a change, of which it holds against what happened all that does not depend on
// what was changed: k is how many attempts had been made at the change; -1: it was refused.
func (c *contest) changed() (k int, outcome, wrong string) {
	said, s := &c.said[0], c.fates[0]
	outcome, err := said.refused()
	switch {
	case err != nil:
		return -1, "", err.Error()
	case outcome == refusedOver && (s.State != "succeeded" || s.after(said.ended) > 0):
		return -1, outcome, fmt.Sprintf("it is %s, and arrived %d times more", s.State, s.after(said.ended))
	case outcome == refusedInWork && len(s.arrivals) == 0:
		return -1, outcome, "it was never attempted"
	case outcome != "":
		return -1, outcome, ""
	}
	var given shown
	if err := said.Decode(&given); err != nil {
		return -1, "", err.Error()
	}
	k = given.AttemptCount
	switch {
	case given.State == "dead" && (s.State != "dead" || len(s.arrivals) != k):
		return k, changedDead, fmt.Sprintf("dead after %d attempts, it is %s and arrived %d times", k, s.State,
			len(s.arrivals))
	case given.State == "dead":
		return k, changedDead, ""
	case given.State != "scheduled":
		return k, "", "it was changed while it was " + given.State
	case len(s.arrivals) <= k:
		return k, "", fmt.Sprintf("it was scheduled after %d attempts, and no more arrived", k)
	case k == 0:
		return k, changedFirst, ""
	}
	return k, changedBetween, ""
}

// judgeMend wants every attempt after the change to go to the new address with the new header, and every one
// before it, or of a callback that could not be changed, to the old one.
func judgeMend(a *arena, c *contest) (string, string) {
	k, outcome, wrong := c.changed()
	if wrong != "" {
		return outcome, wrong
	}
	s := c.fates[0]
	for i, r := range s.arrivals {
		isNew := k >= 0 && i >= k
		header, url := "old", a.base(c)["url"].(string)
		if isNew {
			header, url = "new", a.mended(c)
		}
		if got := r.Header.Get("X-Mend"); got != header || r.url != url {
			return outcome, fmt.Sprintf("attempt %d went to %s with %q; want %s with %q", i+1, r.url, got, url, header)
		}
		if isNew && r.At.Before(c.said[0].began) {
			return outcome, "it went to the new address before that was asked for"
		}
		if !isNew && k >= 0 && r.At.After(c.said[0].ended) {
			return outcome, "it went to the old address after it had been changed"
		}
	}
	want, ends := a.base(c)["url"].(string), "succeeded"
	if k >= 0 {
		want = a.mended(c)
	}
	if c.dies() {
		ends = "dead"
	}
	if s.URL != want || s.State != ends {
		return outcome, fmt.Sprintf("it is %s, to %s; want %s, to %s", s.State, s.URL, ends, want)
	}
	return outcome, ""
}

// raceDelay is how far a reschedule puts a callback off: by more than the tier, so that no wait becomes
// shorter.
const raceDelay = 500 * time.Millisecond

// moveKind puts off what is about to be sent.
func moveKind() *contestKind {
	return &contestKind{
		name:      "reschedule",
		outcomes:  []string{changedFirst, changedBetween, refusedInWork, refusedOver},
		callbacks: func(a *arena, c *contest) []harness.Submission { return []harness.Submission{a.base(c)} },
		ask: func(ctx context.Context, a *arena, c *contest) error {
			_, err := a.ask(ctx, c, 0, http.MethodPost, "/v1/callbacks/"+c.ids[0]+"/reschedule",
				[]byte(`{"delay": "`+raceDelay.String()+`"}`))
			return err
		},
		judge: judgeMove,
	}
}

// judgeMove wants each attempt to have been due when it was said to be, and none to arrive earlier. What was
// put back because its lane had no place is due a little later than that, and counted as a divert.
func judgeMove(_ *arena, c *contest) (string, string) {
	k, outcome, wrong := c.changed()
	if wrong != "" {
		return outcome, wrong
	}
	s := c.fates[0]
	due := c.due
	for i, at := range s.attempts {
		if i == k {
			var given harness.Callback
			if err := c.said[0].Decode(&given); err != nil {
				return outcome, err.Error()
			}
			if due = *given.DueAt; due.Before(c.said[0].began.Add(raceDelay-time.Millisecond)) ||
				due.After(c.said[0].ended.Add(raceDelay+time.Millisecond)) {
				return outcome, fmt.Sprintf("put off by %s until %s", raceDelay, due)
			}
		}
		if at.DueAt == nil || at.DueAt.Before(due) || s.DivertCount == 0 && at.DueAt.After(due) {
			return outcome, fmt.Sprintf("attempt %d was due %v, want %s; %d diverts", i+1, at.DueAt, due,
				s.DivertCount)
		}
		due = *at.DueAt
		if early := due.Sub(s.arrivals[i].At); early > 0 {
			return outcome, fmt.Sprintf("attempt %d arrived %s before it was due", i+1, early)
		}
		if at.NextDueAt != nil {
			due = *at.NextDueAt
		}
	}
	if s.State != "succeeded" {
		return outcome, "it is " + s.State
	}
	return outcome, ""
}
