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

// Outcomes of a cancel by reference.
const (
	ofBoth = "of both"
	// toldOver: asked for those too that had ended, the answer names one.
	toldOver = "already succeeded, and named"
)

var cancelOutcomes = []string{canceledUnsent, canceledBetween, tooLateSucceeded, tooLateFailed, alreadyOver}

// A canceledAnswer is what a cancel is answered.
type canceledAnswer struct {
	Result   string           `json:"result"`
	Callback harness.Callback `json:"callback"`
}

// cancelKind cancels by id.
func cancelKind() *contestKind {
	return &contestKind{
		name:      "cancel",
		outcomes:  cancelOutcomes,
		callbacks: func(a *arena, c *contest) []harness.Submission { return []harness.Submission{a.base(c)} },
		ask: func(ctx context.Context, a *arena, c *contest) error {
			got, err := a.ask(ctx, c, 0, http.MethodPost, "/v1/callbacks/"+c.ids[0]+"/cancel", nil)
			if err == nil && got.Status != http.StatusOK {
				err = fmt.Errorf("cancel answered %d: %s", got.Status, got.Body)
			}
			return err
		},
		judge: func(_ *arena, c *contest) (string, string) {
			var given canceledAnswer
			if err := c.said[0].Decode(&given); err != nil {
				return "", err.Error()
			}
			return c.fates[0].canceled(given, c.said[0])
		},
	}
}

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

// cancelRefKind cancels by the reference that two callbacks have, by that of one topic or of both; it is how
// a timer is canceled because what it waits for has happened. Half of the calls want to hear of what had
// ended, too: then the caller learns of each one what became of it, and no order is both closed and paid
// without the answer saying so.
func cancelRefKind() *contestKind {
	return &contestKind{
		name:     "cancel-ref",
		outcomes: append([]string{ofBoth, toldOver}, cancelOutcomes...),
		callbacks: func(a *arena, c *contest) []harness.Submission {
			paid, note := a.base(c), a.base(c)
			paid["topic"], note["topic"] = "race.paid", "race.note"
			return []harness.Submission{paid, note}
		},
		ask: func(ctx context.Context, a *arena, c *contest) error {
			body := harness.Submission{"ref": c.ref, "reason": "a race"}
			if c.ofOneTopic() {
				body["topic"] = "race.paid"
			}
			if c.ofAll() {
				body["include_terminal"] = true
			}
			encoded, err := json.Marshal(body)
			if err != nil {
				return err
			}
			got, err := a.ask(ctx, c, 0, http.MethodPost, "/v1/callbacks/cancel", encoded)
			if err == nil && got.Status != http.StatusOK {
				err = fmt.Errorf("cancel by reference answered %d: %s", got.Status, got.Body)
			}
			return err
		},
		judge: judgeCancelRef,
	}
}

// ofOneTopic says whether a reference is canceled of one topic only.
func (c *contest) ofOneTopic() bool { return c.n%16 < 12 }

// ofAll says whether those are asked for, too, that have ended.
func (c *contest) ofAll() bool { return c.n/16%2 == 0 }

func judgeCancelRef(_ *arena, c *contest) (string, string) {
	var given struct {
		Data []canceledAnswer `json:"data"`
	}
	said := c.said[0]
	if err := said.Decode(&given); err != nil {
		return "", err.Error()
	}
	var outcomes []string
	named := 0
	for i, s := range c.fates {
		if i > 0 && c.ofOneTopic() {
			if s.State != "succeeded" {
				return "", "the one of the other topic is " + s.State
			}
			continue
		}
		// One that is not named was not open.
		mine, times := canceledAnswer{Result: "already_terminal", Callback: s.Callback}, 0
		for _, one := range given.Data {
			if one.Callback.ID == s.ID {
				mine = one
				times++
			}
		}
		if times > 1 || times == 0 && c.ofAll() {
			return "", fmt.Sprintf("%s is named %d times", s.ID, times)
		}
		named += times
		outcome, wrong := s.canceled(mine, said)
		if wrong != "" {
			return outcome, wrong
		}
		switch {
		case outcome == alreadyOver && times == 1 && !c.ofAll():
			return outcome, "it had ended, and was not asked for"
		case outcome == alreadyOver && times == 1:
			outcome = toldOver
		}
		outcomes = append(outcomes, outcome)
	}
	if named != len(given.Data) {
		return "", fmt.Sprintf("%d were named, of which %d were asked for", len(given.Data), named)
	}
	if len(outcomes) == 2 {
		return ofBoth, ""
	}
	return outcomes[0], ""
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
