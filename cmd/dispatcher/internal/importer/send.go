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
	// patience is how long a server that does not take a batch is asked again.
	patience = 15 * time.Minute
	// callLimit bounds one call.
	callLimit = time.Minute
)

// An importer sends the lines of a source.
type importer struct {
	c      *console.Console
	cl     *remote.Client
	source *Source
	books  *books
	bar    *Bar
	// rate is how many callbacks may be sent each second; zero: any number. next is when the next batch may
	// be.
	rate float64
	next time.Time
	sum  summary
	// bad are the lines of the present batch that were refused.
	bad []*Line
}

// run sends batch after batch until the source ends. After each one the books say so.
func (im *importer) run(ctx context.Context) error {
	for {
		read, err := im.source.Batch(im.batchSize(), func(line *Line) { im.refused(line, line.Problem) })
		if err != nil {
			return err
		}
		for _, line := range read.Lines {
			line.sent, err = im.source.keyed(line)
			if err != nil {
				return fmt.Errorf("line %d: %w", line.Number, err)
			}
		}
		if err := im.pace(ctx, len(read.Lines)); err != nil {
			return err
		}
		if err := im.deliver(ctx, read.Lines); err != nil {
			return err
		}
		if err := im.writeRefusals(); err != nil {
			return err
		}
		if read.Last != nil {
			if err := im.books.reached(read.Last, read.Read); err != nil {
				return err
			}
			im.sum.Lines += read.Read
			im.bar.At(read.Last.Number)
		}
		if !read.More {
			return im.books.finished()
		}
	}
}

// batchSize is how many lines the next batch takes: with a rate, about a quarter of a second's worth.
func (im *importer) batchSize() int {
	if im.rate == 0 {
		return MaxCount
	}
	return max(1, min(MaxCount, int(im.rate/4)))
}

// pace waits until the rate allows the next batch.
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

// deliver hands the batch over, and asks again for as long as the server is away, busy, or cannot commit.
func (im *importer) deliver(ctx context.Context, batch []*Line) error {
	deadline := time.Now().Add(patience)
	for try := 0; len(batch) > 0; try++ {
		left, err := im.hand(ctx, batch)
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
			deadline = time.Now().Add(patience) // it moves
		}
		if time.Now().Add(wait).After(deadline) {
			return fmt.Errorf("line %d: given up after %s: %w", left[0].Number, patience, err)
		}
		im.bar.say(fmt.Sprintf("%s; trying again in %s", err, wait.Round(100*time.Millisecond)))
		console.Pause(ctx, wait)
		batch = left
	}
	return nil
}

// Results are the answer to a batch, one for each element.
type Results struct {
	Results []struct {
		Status  int             `json:"status"`
		Problem *client.Problem `json:"problem"`
	} `json:"results"`
}

// hand makes one call for the batch, and returns the lines that are to be tried again. A batch that is
// refused as a whole is halved until the line that the server cannot even read stands alone.
func (im *importer) hand(ctx context.Context, batch []*Line) (left []*Line, err error) {
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
		first, err := im.hand(ctx, batch[:half])
		if err != nil {
			return slices.Concat(first, batch[half:]), err
		}
		second, err := im.hand(ctx, batch[half:])
		return slices.Concat(first, second), err
	}
	if err != nil {
		return batch, err
	}
	if len(answer.Results) != len(batch) {
		return batch, fmt.Errorf("%s answered %d results for %d lines: it is not a dispatcher, or not this "+
			"version", im.cl.Base, len(answer.Results), len(batch))
	}
	for i, r := range answer.Results {
		switch {
		case r.Status == http.StatusAccepted:
			im.sum.Accepted++
		case r.Status == http.StatusOK:
			im.sum.Replayed++
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
	im.bad = append(im.bad, line)
}

// writeRefusals writes down what was refused of a batch, in the order of its lines.
func (im *importer) writeRefusals() error {
	slices.SortFunc(im.bad, func(a, b *Line) int { return a.Number - b.Number })
	for _, line := range im.bad {
		if err := im.books.refuse(line); err != nil {
			return err
		}
	}
	im.bad = im.bad[:0]
	return nil
}

// A Bar shows on a terminal how far an import is; elsewhere it only says what goes wrong.
type Bar struct {
	c       *console.Console
	Bar     *console.Drawing
	tracker *console.Tracker
	// said is when a complaint was last shown.
	said time.Time
}

// sayEvery bounds how often a complaint is repeated where nobody sees a bar.
const sayEvery = 10 * time.Second

// NewBar begins to draw; lines is zero where nobody knows how many there are.
func NewBar(c *console.Console, lines, done int) *Bar {
	b := &Bar{c: c}
	if !c.ErrTerminal {
		return b
	}
	b.Bar = c.NewDrawing(c.Err)
	b.Bar.Style().Visibility.Speed = true
	b.tracker = &console.Tracker{Message: "lines", Total: int64(lines)}
	b.tracker.SetValue(int64(done))
	b.Bar.AppendTracker(b.tracker)
	b.Bar.Begin()
	return b
}

// At shows that everything up to the line is done.
func (b *Bar) At(line int) {
	if b.tracker != nil {
		b.tracker.SetValue(int64(line))
	}
}

// say shows what the import waits for.
func (b *Bar) say(text string) {
	if time.Since(b.said) < sayEvery {
		return
	}
	b.said = time.Now()
	if b.Bar != nil {
		b.Bar.Log("%s", console.Printable(text))
		return
	}
	fmt.Fprintf(b.c.Err, "dispatcher: %s\n", console.Printable(text))
}

// End stops drawing; broken says that the import did not come to its end.
func (b *Bar) End(broken bool) {
	if b.Bar == nil {
		return
	}
	console.EndTracker(b.tracker, broken)
	b.Bar.End()
}
