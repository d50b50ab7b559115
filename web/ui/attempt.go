package ui

import (
	"cmp"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/ui/picture"
)

// An attemptPart is an attempt in a page.
type attemptPart struct {
	store.Attempt
	// DisplayOutcome is the outcome, or one of a poll's answers.
	DisplayOutcome string
	// Request and Response are the two messages as text, without the request's payload.
	Request, Response string
	// Cut is true if Response has only the beginning of the body. Link is the page with the whole body.
	Cut    bool
	Link   string
	Took   string
	Phases template.HTML
}

// newAttempt prepares an attempt of a callback for a page. limit bounds the bytes of the response body.
func newAttempt(b *base, a *store.Attempt, c *store.Callback, limit int) attemptPart {
	part := attemptPart{Attempt: *a, DisplayOutcome: displayOutcome(a, c),
		Link: Root + "/callbacks/" + store.CallbackPrefix + c.ID + "/attempts/" + strconv.Itoa(a.Number)}
	part.Request = c.Method + " " + store.MaskURL(cmp.Or(a.URL, c.URL)) + headerText(a.RequestHeaders)
	if a.Status != 0 {
		body, shortened := cut(a.ResponseBody, limit)
		part.Response, part.Cut = "HTTP "+strconv.Itoa(a.Status)+headerText(a.ResponseHeaders), shortened
		if body != "" {
			part.Response += "\n\n" + body
		}
	}
	part.Took = b.lang.millis(float64(max(a.EndedAt-a.StartedAt, 0)))
	if a.Timings.Total > 0 {
		part.Took = b.lang.millis(a.Timings.Total)
	}
	part.Phases = b.phases(a)
	return part
}

// headerText returns headers as lines, each after a line break.
func headerText(headers []store.Header) string {
	var out strings.Builder
	for _, h := range headers {
		out.WriteString("\n" + h.Name + ": " + h.Value)
	}
	return out.String()
}

// phases draws the delay before an attempt and the phases of its request.
func (b *base) phases(a *store.Attempt) template.HTML {
	t := &a.Timings
	connected := t.DNS + t.Connect + t.TLS
	p := picture.Phases{Label: b.T("timing.label")}
	for i, phase := range []struct {
		name string
		ms   float64
	}{
		{"queue", a.Lateness}, {"dns", t.DNS}, {"connect", t.Connect}, {"tls", t.TLS},
		// The store has the first byte since the start.
		{"first_byte", t.FirstByte - connected}, {"rest", t.Total - max(t.FirstByte, connected)},
	} {
		if phase.ms < 0.05 || i == 0 && a.Trigger == store.Manual {
			continue
		}
		p.Parts = append(p.Parts, picture.Phase{Kind: i, Length: phase.ms,
			Text: b.T("timing."+phase.name) + " " + b.lang.millis(phase.ms)})
	}
	return p.HTML()
}

// The displayed outcomes of a poll's answers. One that is not final yet is no failure, and a final failure is
// no success.
const (
	notFinal     = "notfinal"
	finalSuccess = "final_success"
	finalFailure = "final_failure"
)

// displayOutcome returns the outcome that pages display.
func displayOutcome(a *store.Attempt, c *store.Callback) string {
	switch {
	case c.Kind != store.Poll:
	case a.Outcome == store.AttemptFailed && a.Class == store.ClassRuleMismatch:
		return notFinal
	case a.Outcome == store.AttemptSucceeded && a.Number == c.AttemptSeq && c.Reason == store.PollFailed:
		return finalFailure
	case a.Outcome == store.AttemptSucceeded && a.Number == c.AttemptSeq && c.Reason == store.PollSucceeded:
		return finalSuccess
	}
	return string(a.Outcome)
}

// Kind returns the colour of the attempt's badge.
func (a *attemptPart) Kind() string {
	kinds := map[string]string{string(store.AttemptSucceeded): "good", string(store.AttemptFailed): "bad",
		notFinal: "busy", finalSuccess: "good", finalFailure: "bad"}
	return cmp.Or(kinds[a.DisplayOutcome], "warn")
}

// ladderTail is the number of future attempts in the drawing of a ladder without an end.
const ladderTail = 3

// ladder draws the callback's current ladder: charged attempts, the next attempt and the later ones. newest
// are the newest attempts, the newest first.
func (p *callbackPage) ladder(newest []store.Attempt) template.HTML {
	l := picture.Ladder{Label: p.T("ladder.label"), More: func(n int) string {
		return p.T("ladder.more", "n", n)
	}}
	l.Steps = p.pastSteps(newest)
	if p.Callback.State != store.Succeeded { // a delivered callback has no further attempt
		l.Steps = append(l.Steps, p.futureSteps(len(l.Steps))...)
	}
	return l.HTML()
}

// pastSteps returns a step for each charged attempt of the current ladder. Attempts that are older than
// newest have steps without details. A negative LadderBase counts the attempts that the sender has made
// itself.
func (p *callbackPage) pastSteps(newest []store.Attempt) (steps []picture.Step) {
	c := &p.Callback
	position := max(c.AttemptCount-c.LadderBase, 0)
	var charged []*store.Attempt
	for i := range newest {
		if newest[i].Charged && len(charged) < position {
			charged = append(charged, &newest[i])
		}
	}
	slices.Reverse(charged)
	elsewhere, unknown := max(-c.LadderBase, 0), position-len(charged)
	for i := range position {
		step := picture.Step{
			Number: strconv.Itoa(i + 1), State: picture.Failed, Label: p.T("ladder.earlier"),
			Wait: p.waitText(c, i),
		}
		switch {
		case i >= unknown:
			a := charged[i-unknown]
			step.Label, step.Detail = p.Or("outcome.", displayOutcome(a, c)), p.Absolute(a.StartedAt)
			step.Manual = a.Trigger == store.Manual
			step.Href = "#attempt-" + strconv.Itoa(a.Number)
			if p.NewestLink != "" { // the timeline shows older attempts, so there is no anchor
				step.Href = Root + "/callbacks/" + p.FullID + "/attempts/" + strconv.Itoa(a.Number)
			}
			step.State = stepState(displayOutcome(a, c))
		case i < elsewhere:
			step.Label = p.T("ladder.elsewhere")
		}
		steps = append(steps, step)
	}
	return steps
}

// stepState returns the mark of a past attempt with a displayed outcome.
func stepState(outcome string) picture.State {
	switch outcome {
	case string(store.AttemptSucceeded), finalSuccess:
		return picture.Succeeded
	case notFinal:
		return picture.Pending
	}
	return picture.Failed
}

// futureSteps returns the steps from a position on: the attempt in flight or the next one, and those after it
// if each one fails. Steps after the callback's end are marked as never.
func (p *callbackPage) futureSteps(position int) (steps []picture.Step) {
	c := &p.Callback
	last := len(c.Policy.Tiers)
	if c.Policy.RepeatLast {
		last = max(last, position+ladderTail)
	}
	if !c.State.Terminal() {
		last = max(last, position) // a manual single retry can follow the last tier
	}
	due, ends := c.DueAt, endOf(c)
	for i := position; i <= last; i++ {
		step := picture.Step{
			Number: strconv.Itoa(i + 1), State: picture.ToCome, Label: p.T("ladder.tocome"),
			Wait: p.waitText(c, i),
		}
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
		steps = append(steps, step)
	}
	return steps
}

// waitText formats the wait after the failed attempt at position i. It is empty if no attempt follows.
func (b *base) waitText(c *store.Callback, i int) string {
	if d, ok := tierAt(c, i); ok {
		return b.duration(d)
	}
	return ""
}

// endOf returns when an open callback ends even if its ladder has attempts left: at its expiry or at its
// policy's deadline, whichever is earlier. Zero means never.
func endOf(c *store.Callback) int64 {
	ends := c.ExpiresAt
	if c.Policy.Deadline > 0 {
		if deadline := c.FirstDueAt + c.Policy.Deadline.Milliseconds(); ends == 0 || deadline < ends {
			ends = deadline
		}
	}
	return ends
}

// tierAt returns the wait after the failed attempt at position i, counted from 0. ok is false if no attempt
// follows.
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

// attemptPage is the page of one attempt.
type attemptPage struct {
	base
	FullID  string
	Attempt *attemptPart
}

// attempt is GET /ui/callbacks/{id}/attempts/{number}.
func (u *UI) attempt(r *request) (*response, error) {
	c, err := load(r, store.CallbackPrefix, u.Store.Get)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(r.params["number"])
	if err != nil {
		return nil, store.ErrNotFound
	}
	a, err := u.Store.Attempt(r.ctx, r.caller.Project, c.ID, number)
	if err != nil {
		return nil, err
	}
	p := &attemptPage{base: u.base(r, "callbacks", "attempt.title", "number", number), FullID: r.params["id"]}
	part := newAttempt(&p.base, &a, &c, len(a.ResponseBody))
	p.Attempt = &part
	return show("attempt", p)
}
