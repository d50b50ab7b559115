package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// MaxReport is the most attempts in a report, the latest ones: a poll may have tens of thousands. reportPage
// is how many one query reads.
const (
	MaxReport  = 1000
	reportPage = 250
)

// A Report is what the records say of a callback, for a receiver that claims it was never notified. It has no
// credentials: show its URLs with store.MaskURL and its texts with Mask. Times are Unix milliseconds.
type Report struct {
	At       int64 // when the report was made
	Callback store.Callback
	// FirstDue is when the callback, or the first attempt of one that was retried, was first due.
	FirstDue int64
	// Attempts are the latest attempts, oldest first. Total counts all.
	Attempts []store.Attempt
	Total    int
	// PayloadSize and PayloadSum are the bytes and the SHA-256 of the payload. PayloadSum is empty if the
	// callback has none, or if it is no longer kept.
	PayloadSize int
	PayloadSum  string
	// PayloadHidden: the payload is not the reader's. PayloadSize and PayloadSum are empty.
	PayloadHidden bool

	masks bool
}

// Mask masks card numbers in a text, if the settings say so.
func (r *Report) Mask(text string) string {
	if r.masks {
		return store.MaskPANText(text)
	}
	return text
}

// Older counts the attempts that are left out.
func (r *Report) Older() int {
	if len(r.Attempts) == 0 {
		return 0
	}
	return r.Attempts[0].Number - 1
}

// Report returns the report about a callback with its latest most attempts, at most MaxReport. Its error is
// store.ErrNotFound for an unknown callback.
func (ct *Controller) Report(ctx context.Context, project, id string, most int) (*Report, error) {
	fail := func(err error) (*Report, error) { return nil, fmt.Errorf("report about %s: %w", id, err) }
	c, err := ct.o.Store.Get(ctx, project, id)
	if err != nil {
		return fail(err)
	}
	r := &Report{At: ct.clock.Now(), Callback: c, masks: ct.o.PanGuard.Masks()}
	r.Attempts, err = ct.lastAttempts(ctx, project, id, min(most, MaxReport))
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

// lastAttempts returns the latest attempts, at most most, oldest first.
func (ct *Controller) lastAttempts(
	ctx context.Context, project, id string, most int,
) (all []store.Attempt, err error) {
	for before := 0; len(all) < most; before = all[len(all)-1].Number {
		size := min(reportPage, most-len(all))
		page, err := ct.o.Store.Attempts(ctx, project, id, before, size)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < size {
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
