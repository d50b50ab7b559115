package ui

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/ui/picture"
)

// An attemptPart is an attempt as a page shows it.
type attemptPart struct {
	store.Attempt
	// Shown is the outcome as it is shown.
	Shown string
	Body  string
	// Cut: the body is longer than what is shown. Link is where all of it is.
	Cut     bool
	Link    string
	Address string
	Timing  []named
	Took    string
	Late    string
}

// newAttempt prepares an attempt of a callback of that kind, which is named with its prefix, with at most
// that much of the answer's body.
func newAttempt(a *store.Attempt, kind store.Kind, most int, callback string) attemptPart {
	part := attemptPart{Attempt: *a, Shown: shownOutcome(a, kind),
		Link: Root + "/callbacks/" + callback + "/attempts/" + strconv.Itoa(a.Number)}
	part.Body, part.Cut = cut(a.ResponseBody, most)
	if a.URL != "" {
		part.Address = store.MaskURL(a.URL)
	}
	for _, t := range []struct {
		name string
		ms   float64
	}{{"dns", a.Timings.DNS}, {"connect", a.Timings.Connect}, {"tls", a.Timings.TLS},
		{"first_byte", a.Timings.FirstByte}, {"total", a.Timings.Total}} {
		if t.ms > 0 {
			part.Timing = append(part.Timing, named{t.name, milliseconds(t.ms)})
		}
	}
	part.Took = milliseconds(float64(max(a.EndedAt-a.StartedAt, 0)))
	if a.Timings.Total > 0 {
		part.Took = milliseconds(a.Timings.Total)
	}
	part.Late = milliseconds(max(a.Lateness, 0))
	return part
}

// milliseconds writes a short time.
func milliseconds(ms float64) string {
	if ms < 10 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return shortDuration(time.Duration(ms * float64(time.Millisecond)))
}

// notFinal is what is shown of a poll that was answered, and not with the final answer: nothing has failed.
const notFinal = "notfinal"

func shownOutcome(a *store.Attempt, kind store.Kind) string {
	if kind == store.Poll && a.Outcome == store.AttemptFailed && a.Class == store.ClassRuleMismatch {
		return notFinal
	}
	return string(a.Outcome)
}

// Kind is the colour of an attempt.
func (a *attemptPart) Kind() string {
	kinds := map[string]string{string(store.AttemptSucceeded): "good", string(store.AttemptFailed): "bad",
		notFinal: "busy"}
	return cmp.Or(kinds[a.Shown], "warn")
}

// ladderTail is how many attempts to come are drawn of a ladder that has no end.
const ladderTail = 3

// ladder draws the present ladder: what was attempted, what is next and what is to come. Of very many
// attempts the newest are known.
func (p *callbackPage) ladder(newest []store.Attempt) template.HTML {
	c := &p.Callback
	position := max(c.AttemptCount-c.LadderBase, 0)
	var charged []*store.Attempt
	for i := range newest {
		if newest[i].Charged && len(charged) < position {
			charged = append(charged, &newest[i])
		}
	}
	slices.Reverse(charged)
	l := picture.Ladder{Label: p.T("ladder.label"), More: func(n int) string {
		return p.T("ladder.more", "n", n)
	}}
	tiers := c.Policy.Tiers
	wait := func(i int) string {
		if d, ok := tierAt(c, i); ok {
			return shortDuration(d)
		}
		return ""
	}
	elsewhere, unknown := max(-c.LadderBase, 0), position-len(charged)
	for i := range position {
		step := picture.Step{
			Number: strconv.Itoa(i + 1), State: picture.Failed, Label: p.T("ladder.earlier"), Wait: wait(i),
		}
		switch {
		case i >= unknown:
			a := charged[i-unknown]
			step.Label, step.Detail, step.Manual = p.Or("outcome.", shownOutcome(a, c.Kind)),
				p.Absolute(a.StartedAt), a.Trigger == store.Manual
			step.Href = "#attempt-" + strconv.Itoa(a.Number)
			if p.NewestLink != "" { // the timeline shows others
				step.Href = Root + "/callbacks/" + p.FullID + "/attempts/" + strconv.Itoa(a.Number)
			}
			if a.Outcome == store.AttemptSucceeded {
				step.State = picture.Succeeded
			}
		case i < elsewhere:
			step.Label = p.T("ladder.elsewhere")
		}
		l.Steps = append(l.Steps, step)
	}
	last := len(tiers)
	if c.Policy.RepeatLast {
		last = max(last, position+ladderTail)
	}
	if !c.State.Terminal() {
		last = max(last, position) // a single retry after the ladder's end
	}
	due, ends := c.DueAt, endOf(c)
	for i := position; i <= last; i++ {
		step := picture.Step{Number: strconv.Itoa(i + 1), State: picture.ToCome, Label: p.T("ladder.tocome"),
			Wait: wait(i)}
		switch {
		case c.State.Terminal():
			step.State, step.Label = picture.Never, p.T("ladder.never")
		case i == position && p.State == store.Attempting:
			step.State, step.Label = picture.Attempting, p.T("ladder.attempting")
		case i == position:
			step.State, step.Label, step.Detail = picture.Next, p.T("ladder.next"), p.Absolute(due)
		case ends != 0 && due > ends:
			step.State, step.Label, step.Detail = picture.Never, p.T("ladder.ends"), p.Absolute(ends)
		default:
			step.Detail = p.Absolute(due)
		}
		if d, ok := tierAt(c, i); ok {
			due += d.Milliseconds()
		}
		l.Steps = append(l.Steps, step)
	}
	if c.State == store.Succeeded {
		l.Steps = l.Steps[:position] // what would have come does not matter any more
	}
	return l.HTML()
}

// endOf is when an open callback ends, whatever its ladder has left: at its expiry or its policy's deadline,
// whichever is earlier; zero: at neither.
func endOf(c *store.Callback) int64 {
	ends := c.ExpiresAt
	if c.Policy.Deadline > 0 {
		if deadline := c.FirstDueAt + c.Policy.Deadline.Milliseconds(); ends == 0 || deadline < ends {
			ends = deadline
		}
	}
	return ends
}

// tierAt is the wait after the failed attempt at a position, counted from 0.
func tierAt(c *store.Callback, i int) (time.Duration, bool) {
	tiers := c.Policy.Tiers
	switch {
	case i < len(tiers):
		return tiers[i], true
	case c.Policy.RepeatLast && len(tiers) > 0:
		return tiers[len(tiers)-1], true
	}
	return 0, false
}

// attemptPage is one attempt with all that was kept of it.
type attemptPage struct {
	base
	FullID  string
	Attempt *attemptPart
}

// attempt is GET /ui/callbacks/{id}/attempts/{number}.
func (u *UI) attempt(r *request) (*answer, error) {
	c, err := load(r, store.CallbackPrefix, u.Store.Get)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(r.params["number"])
	if err != nil {
		return nil, store.ErrNotFound
	}
	a, err := u.Store.Attempt(r.ctx, r.who.Project, c.ID, number)
	if err != nil {
		return nil, err
	}
	part := newAttempt(&a, c.Kind, len(a.ResponseBody), r.params["id"])
	return show("attempt", &attemptPage{
		base:   u.base(r, "callbacks", "attempt.title", "number", number),
		FullID: r.params["id"], Attempt: &part,
	})
}
