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

// evidenceAttempts is how many attempts the evidence has at most, the last ones: a poll may have tens of
// thousands. evidencePage is how many are read at a time.
const (
	evidenceAttempts = 1000
	evidencePage     = 250
)

// Evidence returns what the records say of a callback, as text that may be given to its receiver in the
// dispute "you never told us": with the last evidenceAttempts attempts, and how many older ones there are;
// without credentials, and without the payload, of which it has the SHA-256. It is store.ErrNotFound for one
// that does not exist.
func (ct *Controller) Evidence(ctx context.Context, project, id string) (string, error) {
	fail := func(err error) (string, error) { return "", fmt.Errorf("evidence of %s: %w", id, err) }
	c, err := ct.o.Store.Get(ctx, project, id)
	if err != nil {
		return fail(err)
	}
	attempts, err := ct.lastAttempts(ctx, project, id)
	if err != nil {
		return fail(err)
	}
	body, err := ct.o.Store.Payload(ctx, project, id)
	if err != nil && !errors.Is(err, store.ErrPayloadPurged) && !errors.Is(err, store.ErrNotFound) {
		return fail(err)
	}
	var b strings.Builder
	now := ct.clock.Now()
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-14s %s\n", name+":", value)
		}
	}
	line("callback", store.CallbackPrefix+c.ID)
	line("reference", c.Ref)
	line("topic", c.Topic)
	if c.EndpointID != "" {
		line("endpoint", store.EndpointPrefix+c.EndpointID)
	}
	line("request", c.Method+" "+store.MaskURL(c.URL))
	line("webhook-id", store.CallbackPrefix+c.ID+" (the same on every attempt)")
	line("accepted", clock.Instant(c.CreatedAt))
	line("first due", clock.Instant(c.FirstDueAt))
	line("content type", c.ContentType)
	switch {
	case err == nil && c.PayloadID != "":
		sum := sha256.Sum256(body.Body)
		line("payload", fmt.Sprintf("%d bytes, SHA-256 %s", len(body.Body), hex.EncodeToString(sum[:])))
	case c.PayloadPurged:
		line("payload", "no longer kept")
	default:
		line("payload", "none")
	}
	state := string(c.StateAt(now))
	if c.Reason != "" {
		state += ", " + string(c.Reason)
	}
	line("state", state+" "+at(now))
	if c.FinishedAt != 0 {
		line("ended", clock.Instant(c.FinishedAt))
	}
	fmt.Fprintf(&b, "attempts:      %d, of which %d charged\n", max(len(attempts), c.AttemptSeq),
		c.AttemptCount)
	if n := len(attempts); n > 0 && attempts[0].Number > 1 {
		fmt.Fprintf(&b, "               the last %d of them follow; the %d older ones are not shown\n",
			n, attempts[0].Number-1)
	}
	for i := range attempts {
		testify(&b, &attempts[i])
	}
	if c.DueAt != 0 && c.State == store.Scheduled {
		fmt.Fprintf(&b, "\nnext attempt due %s\n", at(c.DueAt))
	}
	b.WriteString("\nTimes are UTC by the sender's clock. Credentials and the values of the address's " +
		"query are masked.\n")
	if ct.o.PanGuard.Masks() {
		return store.MaskPANText(b.String()), nil
	}
	return b.String(), nil
}

// lastAttempts are those that the evidence has, by number.
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

// testify writes what is known of an attempt.
func testify(b *strings.Builder, a *store.Attempt) {
	fmt.Fprintf(b, "\nattempt %d (%s), started %s, ended %s\n", a.Number, a.Trigger,
		clock.Instant(a.StartedAt), clock.Instant(a.EndedAt))
	if a.URL != "" {
		fmt.Fprintf(b, "  sent to %s\n", store.MaskURL(a.URL))
	}
	switch {
	case a.Status != 0:
		fmt.Fprintf(b, "  the receiver answered with status %d (%s)\n", a.Status, a.Class)
	case a.Error != "":
		fmt.Fprintf(b, "  %s: %s\n", a.Class, a.Error)
	default:
		fmt.Fprintf(b, "  %s\n", a.Class)
	}
	switch a.Outcome {
	case store.AttemptSucceeded:
		b.WriteString("  outcome: succeeded\n")
	case store.AttemptUnknown:
		b.WriteString("  outcome: unknown; the receiver may have acted on the request\n")
	default:
		b.WriteString("  outcome: failed\n")
	}
	if a.KeyID != "" {
		fmt.Fprintf(b, "  signed with key %s\n", a.KeyID)
	}
	if a.Rule != nil {
		fmt.Fprintf(b, "  rule %s expected %s; saw %s\n", a.Rule.Name, a.Rule.Expected, a.Rule.Saw)
	}
	for _, h := range a.ResponseHeaders {
		fmt.Fprintf(b, "  answer header %s: %s\n", h.Name, h.Value)
	}
	if a.ResponseBody != "" {
		fmt.Fprintf(b, "  answer body: %s\n",
			strings.ReplaceAll(strings.TrimSpace(a.ResponseBody), "\n", "\n    "))
	}
	if a.NextDueAt != 0 {
		fmt.Fprintf(b, "  next attempt was due %s\n", clock.Instant(a.NextDueAt))
	}
}
