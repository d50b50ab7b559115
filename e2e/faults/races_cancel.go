package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// raceLead bounds how long before it is due an attempt may be claimed, and be in flight for SQL.
const raceLead = 50 * time.Millisecond

// Outcomes of a cancel.
const (
	canceledUnsent   = "canceled, never sent"
	canceledBetween  = "canceled after a failure"
	tooLateSucceeded = "too late, succeeded"
	tooLateFailed    = "too late, failed and canceled"
	alreadyOver      = "already succeeded"
)

// A canceledAnswer is what a cancel is answered.
type canceledAnswer struct {
	Result   string           `json:"result"`
	Callback harness.Callback `json:"callback"`
}

// cancelKind cancels by id, or by the reference with what has ended, as a timer is canceled because what it
// waits for has happened: no order is both closed and paid without the answer saying so.
func cancelKind() *contestKind {
	return &contestKind{
		name:      "cancel",
		outcomes:  []string{canceledUnsent, canceledBetween, tooLateSucceeded, tooLateFailed, alreadyOver},
		callbacks: func(a *arena, c *contest) []harness.Submission { return []harness.Submission{a.base(c)} },
		ask: func(ctx context.Context, a *arena, c *contest) error {
			path, body := "/v1/callbacks/"+c.ids[0]+"/cancel", harness.Submission{}
			if c.byRef() {
				path = "/v1/callbacks/cancel"
				body = harness.Submission{"ref": c.ref, "include_terminal": true, "reason": "a race"}
			}
			encoded, err := json.Marshal(body)
			if err != nil {
				return err
			}
			got, err := a.ask(ctx, c, 0, http.MethodPost, path, encoded)
			if err == nil && got.Status != http.StatusOK {
				err = fmt.Errorf("cancel answered %d: %s", got.Status, got.Body)
			}
			return err
		},
		judge: func(_ *arena, c *contest) (string, string) {
			given := struct {
				canceledAnswer
				Data []canceledAnswer `json:"data"`
			}{}
			if err := c.said[0].Decode(&given); err != nil {
				return "", err.Error()
			}
			if !c.byRef() {
				return c.fates[0].canceled(given.canceledAnswer, c.said[0])
			}
			if len(given.Data) != 1 {
				return "", fmt.Sprintf("%d are named", len(given.Data))
			}
			return c.fates[0].canceled(given.Data[0], c.said[0])
		},
	}
}

// byRef says whether a cancel is one by reference.
func (c *contest) byRef() bool { return c.n/16%2 == 0 }

// canceled holds a cancel's answer against what happened.
func (s *fate) canceled(given canceledAnswer, said spoken) (outcome, wrong string) {
	was, made := &given.Callback, len(s.arrivals)
	if was.ID != s.ID {
		return "", fmt.Sprintf("asked for %s, answered with %s", s.ID, was.ID)
	}
	switch given.Result {
	case "canceled":
		if outcome = canceledUnsent; made > 0 {
			outcome = canceledBetween
		}
		switch {
		case was.State != "canceled" || was.Reason != "requested" || s.State != "canceled" ||
			s.Reason != "requested":
			wrong = fmt.Sprintf("said to be %s %s, and is %s %s", was.State, was.Reason, s.State, s.Reason)
		case was.AttemptCount != made:
			wrong = fmt.Sprintf("canceled after %d attempts, and %d arrived", was.AttemptCount, made)
		case s.after(said.ended) > 0:
			wrong = "it arrived after it was canceled"
		}
	case "too_late":
		if outcome = tooLateFailed; s.State == "succeeded" {
			outcome = tooLateSucceeded
		}
		switch {
		case was.State != "attempting":
			wrong = "too late, and said to be " + was.State
		case made > was.AttemptCount+1:
			wrong = fmt.Sprintf("attempt %d was in flight, and %d arrived", was.AttemptCount+1, made)
		case s.State != "succeeded" && (s.State != "canceled" || s.Reason != "requested"):
			wrong = fmt.Sprintf("it ended %s %s", s.State, s.Reason)
		}
	case "already_terminal":
		outcome = alreadyOver
		switch {
		case was.State != s.State || s.State != "succeeded":
			wrong = fmt.Sprintf("said to be %s, and is %s", was.State, s.State)
		case was.AttemptCount != made || s.after(said.ended) > 0:
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

// supersedeKind accepts a newer version of a callback; of every second one two newer ones at once.
func supersedeKind() *contestKind {
	version := func(a *arena, c *contest, v int) harness.Submission {
		s := a.base(c)
		s["topic"], s["supersede"], s["version"] = "race.order", true, v
		if v > 1 {
			s["url"] = strings.Replace(s["url"].(string), "/old/", fmt.Sprintf("/v%d/", v), 1)
		}
		return s
	}
	return &contestKind{
		name:     "supersede",
		outcomes: []string{olderUnsent, olderBetween, olderMeant, olderOver, refusedLate},
		callbacks: func(a *arena, c *contest) []harness.Submission {
			return []harness.Submission{version(a, c,
				1)}
		},
		ask: func(ctx context.Context, a *arena, c *contest) error {
			var group errgroup.Group
			for v := 2; v <= 2+c.n%2; v++ {
				group.Go(func() error {
					body, err := json.Marshal(version(a, c, v))
					if err != nil {
						return err
					}
					got, err := a.ask(ctx, c, v, http.MethodPost, "/v1/callbacks", body)
					if err != nil {
						return err
					}
					var cb harness.Callback
					if got.Status != http.StatusAccepted {
						return fmt.Errorf("version %d answered %d: %s", v, got.Status, got.Body)
					}
					if err := got.Decode(&cb); err != nil {
						return err
					}
					a.books.Accepted(cb.ID, c.ref)
					c.mu.Lock()
					defer c.mu.Unlock()
					c.ids = append(c.ids, cb.ID)
					return nil
				})
			}
			return group.Wait()
		},
		judge: judgeSupersede,
	}
}

// judgeSupersede wants the newest to be delivered once, and of the older ones nothing that began after it was
// accepted.
func judgeSupersede(_ *arena, c *contest) (string, string) {
	type version struct {
		harness.Callback
		Version int `json:"version"`
	}
	said, given := map[string]spoken{}, map[string]version{}
	newest := version{}
	for _, s := range c.said {
		var v version
		if err := s.Decode(&v); err != nil {
			return "", err.Error()
		}
		said[v.ID], given[v.ID] = s, v
		if v.Version > newest.Version {
			newest = v
		}
	}
	outcome := ""
	for i, s := range c.fates {
		switch {
		case s.ID == newest.ID:
			if newest.State != "scheduled" || s.State != "succeeded" {
				return "", fmt.Sprintf("the newest was answered %s, and is %s", newest.State, s.State)
			}
		case i > 0 && given[s.ID].State == "canceled":
			// It came after the newer one had been committed.
			outcome = refusedLate
			if given[s.ID].Reason != "superseded" || s.Reason != "superseded" || len(s.arrivals) > 0 {
				return outcome, fmt.Sprintf("accepted as canceled, %s; it is %s %s and arrived %d times",
					given[s.ID].Reason, s.State, s.Reason, len(s.arrivals))
			}
		default:
			how, wrong := s.superseded(said[newest.ID])
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

// superseded says what became of an older version.
func (s *fate) superseded(newer spoken) (outcome, wrong string) {
	if s.State != "succeeded" && (s.State != "canceled" || s.Reason != "superseded") {
		return "", fmt.Sprintf("an older one ended %s %s", s.State, s.Reason)
	}
	if n := s.after(newer.ended); n > 1 {
		return "", fmt.Sprintf("an older one arrived %d times after the newer was accepted", n)
	}
	for _, at := range s.attempts {
		if at.DueAt != nil && at.DueAt.After(newer.ended.Add(raceLead)) {
			return "", fmt.Sprintf("attempt %d of an older one was due %s after the newer was accepted", at.Number,
				at.DueAt.Sub(newer.ended))
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
