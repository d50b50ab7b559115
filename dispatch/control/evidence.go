package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// evidenceAttempts is the most attempts in the evidence, the latest ones: a poll may have tens of thousands.
// evidencePage is how many one query reads.
const (
	evidenceAttempts = 1000
	evidencePage     = 250
)

// A Report is what the records say of a callback, for a receiver that claims it was never notified. It has no
// credentials: show its URLs with store.MaskURL and its texts with Mask. Times are Unix milliseconds.
type Report struct {
	At       int64 // when the report was made
	Callback store.Callback
	// FirstDue is when the callback, or the first attempt of one that was retried, was first due.
	FirstDue int64
	// Attempts are the latest evidenceAttempts attempts, oldest first. Total counts all.
	Attempts []store.Attempt
	Total    int
	// PayloadSize and PayloadSum are the bytes and the SHA-256 of the payload. PayloadSum is empty if the
	// callback has none, or if it is no longer kept.
	PayloadSize int
	PayloadSum  string

	masks bool
}

// Mask masks card numbers in a text, if the settings say so.
func (r *Report) Mask(text string) string {
	if r.masks {
		return store.MaskPANText(text)
	}
	return text
}

// Older counts the attempts that are too old for the report.
func (r *Report) Older() int {
	if len(r.Attempts) == 0 {
		return 0
	}
	return r.Attempts[0].Number - 1
}

// Report returns the report about a callback. Its error is store.ErrNotFound for an unknown callback.
func (ct *Controller) Report(ctx context.Context, project, id string) (*Report, error) {
	fail := func(err error) (*Report, error) { return nil, fmt.Errorf("report about %s: %w", id, err) }
	c, err := ct.o.Store.Get(ctx, project, id)
	if err != nil {
		return fail(err)
	}
	r := &Report{At: ct.clock.Now(), Callback: c, masks: ct.o.PanGuard.Masks()}
	r.Attempts, err = ct.lastAttempts(ctx, project, id)
	if err != nil {
		return fail(err)
	}
	r.Total = max(len(r.Attempts), c.AttemptSeq)
	r.FirstDue, err = ct.firstDue(ctx, &c, r.Attempts)
	if err != nil {
		return fail(err)
	}
	body, err := ct.o.Store.Payload(ctx, project, id)
	switch {
	case err == nil && c.PayloadID != "":
		sum := sha256.Sum256(body.Body)
		r.PayloadSize, r.PayloadSum = len(body.Body), hex.EncodeToString(sum[:])
	case err != nil && !errors.Is(err, store.ErrPayloadPurged) && !errors.Is(err, store.ErrNotFound):
		return fail(err)
	}
	return r, nil
}

// Text returns the report as plain text in English.
func (r *Report) Text() string {
	var b strings.Builder
	c := &r.Callback
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-14s %s\n", name+":", value)
		}
	}
	line("reported", clock.Instant(r.At))
	line("callback", store.CallbackPrefix+c.ID)
	line("reference", c.Ref)
	line("topic", c.Topic)
	if c.EndpointID != "" {
		line("endpoint", store.EndpointPrefix+c.EndpointID)
	}
	line("request", c.Method+" "+store.MaskURL(c.URL))
	line("webhook-id", store.CallbackPrefix+c.ID+" (the same on every attempt)")
	line("accepted", clock.Instant(c.CreatedAt))
	due := "first due"
	if r.FirstDue != c.FirstDueAt {
		due = "attempt 1 due"
	}
	line(due, clock.Instant(r.FirstDue))
	line("content type", c.ContentType)
	switch {
	case r.PayloadSum != "":
		line("payload", fmt.Sprintf("%d bytes, SHA-256 %s", r.PayloadSize, r.PayloadSum))
	case c.PayloadPurged:
		line("payload", "no longer kept")
	default:
		line("payload", "none")
	}
	state := string(c.StateAt(r.At))
	if c.Kind == store.Poll && c.State == store.Succeeded {
		state = "final"
	}
	if c.Reason != "" {
		state += ", " + string(c.Reason)
	}
	line("state", state)
	if c.FinishedAt != 0 {
		line("ended", clock.Instant(c.FinishedAt))
	}
	fmt.Fprintf(&b, "attempts:      %d, of which %d count\n", r.Total, c.AttemptCount)
	if older := r.Older(); older > 0 {
		fmt.Fprintf(&b, "               the last %d of them follow; the %d older ones are not shown\n",
			len(r.Attempts), older)
	}
	for i := range r.Attempts {
		writeAttempt(&b, c, &r.Attempts[i])
	}
	if c.DueAt != 0 && c.State == store.Scheduled {
		fmt.Fprintf(&b, "\nnext attempt due %s\n", at(c.DueAt))
	}
	b.WriteString("\nTimes are UTC by the sender's clock. Credentials and the values of the URL's " +
		"query are masked.\n")
	return r.Mask(b.String())
}

// lastAttempts returns the latest evidenceAttempts attempts, oldest first.
func (ct *Controller) lastAttempts(ctx context.Context, project, id string) ([]store.Attempt, error) {
	var all []store.Attempt
	for before := 0; len(all) < evidenceAttempts; before = all[len(all)-1].Number {
		page, err := ct.o.Store.Attempts(ctx, project, id, before, evidencePage)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < evidencePage {
			break
		}
	}
	slices.Reverse(all)
	return all, nil
}

// firstDue returns when a callback was first due, or when its first attempt was due if it was retried: a
// retry moves FirstDueAt to its own due time. attempts are the latest ones, oldest first.
func (ct *Controller) firstDue(
	ctx context.Context, c *store.Callback, attempts []store.Attempt,
) (due int64, err error) {
	if len(attempts) > 0 && attempts[0].Number > 1 {
		attempts, err = ct.o.Store.Attempts(ctx, c.Project, c.ID, 2, 1)
	}
	due = c.FirstDueAt
	if len(attempts) > 0 {
		due = min(due, attempts[0].DueAt)
	}
	return due, err
}

// writeAttempt writes one attempt of a callback. A poll's answer that is not final yet is no failure, and its
// final answer may be one.
func writeAttempt(b *strings.Builder, c *store.Callback, a *store.Attempt) {
	notFinal := c.Kind == store.Poll && a.Class == store.ClassRuleMismatch
	fmt.Fprintf(b, "\nattempt %d (%s), started %s, ended %s\n", a.Number, a.Trigger,
		clock.Instant(a.StartedAt), clock.Instant(a.EndedAt))
	if a.URL != "" {
		fmt.Fprintf(b, "  sent to %s\n", store.MaskURL(a.URL))
	}
	switch {
	case notFinal:
		fmt.Fprintf(b, "  the upstream answered with status %d\n", a.Status)
	case a.Status != 0:
		fmt.Fprintf(b, "  the receiver answered with status %d (%s)\n", a.Status, a.Class)
	case a.Error != "":
		fmt.Fprintf(b, "  %s: %s\n", a.Class, a.Error)
	default:
		fmt.Fprintf(b, "  %s\n", a.Class)
	}
	switch {
	case c.Kind == store.Poll && a.Outcome == store.AttemptSucceeded && a.Number == c.AttemptSeq:
		fmt.Fprintf(b, "  outcome: final, %s\n", c.PollOutcome())
	case a.Outcome == store.AttemptSucceeded:
		b.WriteString("  outcome: succeeded\n")
	case notFinal:
		b.WriteString("  outcome: pending (not final yet)\n")
	case a.Outcome == store.AttemptUnknown:
		b.WriteString("  outcome: unknown; the receiver may have acted on the request\n")
	default:
		b.WriteString("  outcome: failed\n")
	}
	if a.KeyID != "" {
		fmt.Fprintf(b, "  signed with key %s\n", a.KeyID)
	}
	if a.Rule != nil {
		b.WriteString("  rule ")
		if a.Rule.Name != "" {
			b.WriteString(a.Rule.Name + " ")
		}
		fmt.Fprintf(b, "expected %s; saw %s\n", a.Rule.Expected, a.Rule.Saw)
	}
	for _, h := range a.ResponseHeaders {
		fmt.Fprintf(b, "  response header %s: %s\n", h.Name, h.Value)
	}
	if a.ResponseBody != "" {
		fmt.Fprintf(b, "  response body: %s\n",
			strings.ReplaceAll(strings.TrimSpace(a.ResponseBody), "\n", "\n    "))
	}
	if a.NextDueAt != 0 {
		fmt.Fprintf(b, "  next attempt was due %s\n", clock.Instant(a.NextDueAt))
	}
}
