package importer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

const (
	// retryLimit is how long a batch is retried without progress.
	retryLimit = 15 * time.Minute
	// callLimit is the timeout of one call.
	callLimit = time.Minute
	// maxNamed is the maximum number of canceled callbacks that are printed.
	maxNamed = 20
)

// importer sends the lines of a source.
type importer struct {
	c          *console.Console
	cl         *remote.Client
	source     *Source
	checkpoint *checkpoint
	progress   *console.Progress
	// rate is the maximum number of callbacks per second; zero: no limit. next is the earliest time of the
	// next batch.
	rate float64
	next time.Time
	sum  summary
	// lastWarning is the time of the last warning.
	lastWarning time.Time
	// refusals are the refused lines of the current batch.
	refusals []*Line
}

// run sends batches until the source ends. It stores the checkpoint after each batch. After a crash between
// the two, --resume sends the batch again. Its lines get the same idempotency keys, so no callback is created
// twice.
func (im *importer) run(ctx context.Context) error {
	for {
		read, err := im.source.Batch(im.batchSize(), func(line *Line) { im.refused(line, line.Problem) })
		if err != nil {
			return err
		}
		for _, line := range read.Lines {
			line.sent, err = im.source.withKey(line)
			if err != nil {
				return fmt.Errorf("line %d: %w", line.Number, err)
			}
		}
		if err := im.pace(ctx, len(read.Lines)); err != nil {
			return err
		}
		if err := im.sendBatch(ctx, read.Lines); err != nil {
			return err
		}
		if err := im.writeRefusals(); err != nil {
			return err
		}
		if read.Last != nil {
			if err := im.checkpoint.advance(read.Last, read.Read); err != nil {
				return err
			}
			im.sum.Lines += read.Read
			im.progress.Set(read.Last.Number, im.source.Lines)
		}
		if !read.More {
			return im.checkpoint.finish()
		}
	}
}

// batchSize is the number of lines of the next batch. With a rate, it is about a quarter of a second's worth.
func (im *importer) batchSize() int {
	if im.rate == 0 {
		return MaxCount
	}
	return max(1, min(MaxCount, int(im.rate/4)))
}

// pace waits until the rate allows a batch of n lines.
func (im *importer) pace(ctx context.Context, n int) error {
	if im.rate == 0 {
		return ctx.Err()
	}
	console.Pause(ctx, time.Until(im.next))
	if now := time.Now(); im.next.Before(now) {
		im.next = now
	}
	im.next = im.next.Add(time.Duration(float64(n) / im.rate * float64(time.Second)))
	return ctx.Err()
}

// sendBatch sends a batch. It retries for up to retryLimit after the last progress, while the server is down,
// busy or cannot commit.
func (im *importer) sendBatch(ctx context.Context, batch []*Line) error {
	deadline := time.Now().Add(retryLimit)
	for try := 0; len(batch) > 0; try++ {
		left, err := im.sendOnce(ctx, batch)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && len(left) == 0 {
			return nil
		}
		if err == nil {
			err = &remote.BusyError{Left: len(left), Of: len(batch)}
		}
		wait, again := remote.Backoff(err, try)
		if !again {
			return err
		}
		if len(left) < len(batch) {
			deadline = time.Now().Add(retryLimit) // there was progress
		}
		if time.Now().Add(wait).After(deadline) {
			return fmt.Errorf("line %d: gave up after %s: %w", left[0].Number, retryLimit, err)
		}
		im.warn(fmt.Sprintf("%s; retrying in %s", err, wait.Round(100*time.Millisecond)))
		console.Pause(ctx, wait)
		batch = left
	}
	return nil
}

// Results is the response to a batch, with one result per element.
type Results struct {
	Results []struct {
		Status   int             `json:"status"`
		Callback client.Callback `json:"callback"`
		Problem  *client.Problem `json:"problem"`
	} `json:"results"`
}

// sendOnce makes one call for a batch and returns the lines to retry. If the server refuses the whole batch,
// it halves the batch, until the line that the server cannot parse is alone.
func (im *importer) sendOnce(ctx context.Context, batch []*Line) (left []*Line, err error) {
	var answer Results
	call, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_, err = im.cl.Call(call, http.MethodPost, "/v1/callbacks/batch", bodyOf(batch), &answer)
	if refused, ok := errors.AsType[*client.Error](err); ok &&
		(refused.Status == http.StatusBadRequest || refused.Status == http.StatusUnprocessableEntity ||
			refused.Status == http.StatusRequestEntityTooLarge) {
		if len(batch) == 1 {
			im.refused(batch[0], &refused.Problem)
			return nil, nil
		}
		half := len(batch) / 2
		first, err := im.sendOnce(ctx, batch[:half])
		if err != nil {
			return slices.Concat(first, batch[half:]), err
		}
		second, err := im.sendOnce(ctx, batch[half:])
		return slices.Concat(first, second), err
	}
	if err != nil {
		return batch, err
	}
	if len(answer.Results) != len(batch) {
		return batch, fmt.Errorf("%s returned %d results for %d lines: it is no dispatcher, or another "+
			"version", im.cl.Base, len(answer.Results), len(batch))
	}
	for i, r := range answer.Results {
		switch {
		case r.Status == http.StatusAccepted:
			im.sum.Accepted++
		case r.Status == http.StatusOK:
			im.sum.Replayed++
			if cb := r.Callback; cb.State == client.Canceled {
				im.sum.Canceled++
				if im.sum.Canceled > maxNamed {
					continue // the summary counts it
				}
				im.progress.Log(console.Printable(fmt.Sprintf(
					"dispatcher: line %d was accepted before, and its callback %s is canceled: it is not "+
						"sent; \"callback retry\" sends it", batch[i].Number, cb.ID)))
			}
		case r.Status >= 500 || r.Status == http.StatusConflict || r.Status == http.StatusTooManyRequests:
			left = append(left, batch[i])
		default:
			problem := r.Problem
			if problem == nil {
				problem = &client.Problem{Title: http.StatusText(r.Status)}
			}
			problem.Status = r.Status
			im.refused(batch[i], problem)
		}
	}
	return left, nil
}

func bodyOf(batch []*Line) json.RawMessage {
	var b bytes.Buffer
	b.WriteString(`{"callbacks":[`)
	for i, line := range batch {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(line.sent)
	}
	b.WriteString("]}")
	return b.Bytes()
}

func (im *importer) refused(line *Line, why *client.Problem) {
	im.sum.Refused++
	line.Problem = why
	im.refusals = append(im.refusals, line)
}

// writeRefusals stores the refused lines of a batch in their order.
func (im *importer) writeRefusals() error {
	slices.SortFunc(im.refusals, func(a, b *Line) int { return a.Number - b.Number })
	for _, line := range im.refusals {
		if err := im.checkpoint.refuse(line); err != nil {
			return err
		}
	}
	im.refusals = im.refusals[:0]
	return nil
}

// warnInterval is the minimum time between two warnings.
const warnInterval = 10 * time.Second

// warn prints why the import waits, at most once per warnInterval.
func (im *importer) warn(text string) {
	if time.Since(im.lastWarning) < warnInterval {
		return
	}
	im.lastWarning = time.Now()
	im.progress.Log("dispatcher: " + console.Printable(text))
}
