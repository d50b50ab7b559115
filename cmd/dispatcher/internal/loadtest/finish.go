package loadtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

const (
	// finishLimit is how long what is open at the end is waited for.
	finishLimit = time.Minute
	// shownLines is how many lines of its own server's log, which has warnings only, are shown.
	shownLines = 3
	// finishPause is between two looks.
	finishPause = 200 * time.Millisecond
)

// finish closes the books of the run, whatever ended it. On a running server nothing stays open: what is, is canceled.
func (b *bench) finish(ctx context.Context, ended error) error {
	by, precision := b.gen.clock.ahead()
	b.report.Server.ClockAheadMs, b.report.Server.ClockPrecisionMs = millis(by), millis(precision)
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishLimit)
	defer cancel()
	if b.own != nil {
		b.closeBooks(nil, ended)
		lines := b.own.server.said.all()
		for _, line := range lines[max(0, len(lines)-shownLines):] {
			b.say("the server's log: %s", line)
		}
		// The most memory is known at the end only.
		used, err := b.own.server.usage(limited)
		switch {
		case err == nil && used.Known:
			b.report.Server.PeakRSSBytes = &used.PeakBytes
		case ended != nil:
			return nil // what ended the run may be that it does not answer any more
		}
		return err
	}
	canceled, left, err := b.cancelOpen(limited, ended != nil)
	b.closeBooks(canceled, ended)
	b.report.Books.HistoryCallbacks = b.report.Books.Accepted
	if err != nil {
		b.report.Books.OpenLeft = left
		return fmt.Errorf("callbacks of the run may still be open; \"dispatcher callback cancel --ref %s --server %s\" cancels them: %w", b.plan.run, b.cl.Base, err)
	}
	b.finished = true
	return nil
}

// closeBooks counts what became of everything that was accepted. What a run that broke off did not wait for is given up: of a
// running server's, what was canceled.
func (b *bench) closeBooks(canceled map[string]bool, ended error) {
	all, books := span{0, b.next}, &b.report.Books
	books.Accepted, books.Arrived, books.Canceled = b.receiver.count(all), b.receiver.arrivedOf(all), len(canceled)
	books.RefusedRequests = int(b.gen.refused.Load())
	for _, number := range b.receiver.missing(all) {
		id := b.receiver.ids[number]
		if !b.waited && ended != nil && (b.own != nil || canceled[id]) {
			books.GivenUp++
			continue
		}
		if books.Missing++; len(books.MissingIDs) < keptLost {
			books.MissingIDs = append(books.MissingIDs, id)
		}
	}
}

// cancelOpen cancels what is open of the run, and returns when nothing is: what was canceled, and how many were being attempted
// when it was last looked. Where the run broke off it looks again a moment later: a request that was given up may have had its
// effect since.
func (b *bench) cancelOpen(ctx context.Context, broken bool) (canceled map[string]bool, left int, err error) {
	canceled = map[string]bool{}
	for last := !broken; ; {
		open, err := b.open(ctx)
		if err != nil {
			return canceled, left, err
		}
		if !open && last {
			return canceled, 0, nil
		}
		if last = !open; open {
			var answer struct {
				Data []client.CancelResult `json:"data"`
			}
			in := map[string]string{"ref": b.plan.run, "reason": "bench has ended"}
			if err := b.call(ctx, http.MethodPost, "/v1/callbacks/cancel", in, &answer); err != nil {
				return canceled, left, fmt.Errorf("cancel what is open: %w", err)
			}
			before := len(canceled)
			left = 0
			for _, r := range answer.Data {
				switch r.Result {
				case "canceled":
					canceled[r.Callback.ID] = true
				case "too_late": // it is being attempted, and ends by itself
					left++
				}
			}
			if len(canceled) > before {
				continue // there may be more than one call cancels
			}
		}
		if console.Pause(ctx, finishPause); ctx.Err() != nil {
			return canceled, left, fmt.Errorf("wait for what is being attempted: %w", ctx.Err())
		}
	}
}

// besides returns the first error of the run; one that comes while the run is ended for another is only said.
func (b *bench) besides(first, second error) error {
	if first == nil || second == nil {
		return errors.Join(first, second)
	}
	b.say("%s", second)
	return first
}
