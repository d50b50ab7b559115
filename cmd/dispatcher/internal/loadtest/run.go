// Package loadtest measures a server, one of its own or a running one, with its own load and its own
// receiver. It counts every callback, and what is missing at the end is an error whatever the server says.
package loadtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// A bench is one run.
type bench struct {
	c        *console.Console
	plan     *benchPlan
	receiver *benchReceiver
	cl       *remote.Client
	own      *ownPlace // nil: a running server is measured
	gen      *generator
	bar      *benchBar
	report   benchReport
	// next is the number of the next callback.
	next int
	// each is how long one callback takes to be handed over, as the warm-up found it.
	each time.Duration
	// waited says that what is missing was waited for in vain.
	waited bool
	// finished says that the run's books were closed, and nothing of it is open on a running server.
	finished bool
}

// say tells on the error output what a person must know now; note keeps what belongs to the result.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.c.Err, "bench: %s\n", console.Printable(fmt.Sprintf(format, args...)))
}

func (b *bench) note(format string, args ...any) {
	b.report.Notes = append(b.report.Notes, console.Printable(fmt.Sprintf(format, args...)))
}

// run measures, and leaves nothing open and nothing behind. Its error says what went wrong first.
func (b *bench) run(ctx context.Context) (err error) {
	b.receiver, err = openBenchReceiver(b.plan)
	if err != nil {
		return err
	}
	b.report.Settings.ReceiverURL = b.receiver.base
	// The receiver is there until nothing of the run is open any more.
	receiving, endReceiving := context.WithCancel(context.WithoutCancel(ctx))
	life, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var parts sync.WaitGroup
	parts.Go(func() {
		if err := b.receiver.serve(receiving); err != nil {
			fail(fmt.Errorf("receiver: %w", err))
		}
	})
	defer func() {
		endReceiving()
		parts.Wait()
	}()
	if b.plan.Server == "" {
		b.own, err = b.openOwnPlace(life)
		if err != nil {
			return err
		}
		defer func() { err = b.besides(err, b.own.close(ctx)) }()
		parts.Go(func() { b.watchOwn(receiving, fail) })
	} else if err := b.meetServer(life); err != nil {
		return err
	}
	b.gen, err = newGenerator(b.cl, b.receiver, b.plan)
	if err != nil {
		return err
	}
	b.bar = newBenchBar(b.c)
	err = b.measure(life)
	b.bar.end()
	if cause := context.Cause(life); err != nil && cause != nil {
		err = cause
	}
	return b.besides(err, b.finish(ctx, err))
}

// watchOwn ends the run when its server ends before.
func (b *bench) watchOwn(ctx context.Context, fail context.CancelCauseFunc) {
	select {
	case <-b.own.server.ended:
		fail(fmt.Errorf("the server ended in the middle of the run: %w",
			b.own.server.said.explain(b.own.server.failure())))
	case <-ctx.Done():
	}
}

// meetServer looks at the running server that is to be measured, and says what is going to happen to it. One
// that has callbacks of its own needs the plan's consent.
func (b *bench) meetServer(ctx context.Context) (err error) {
	p := b.plan
	b.cl, err = remote.New(b.c, remote.Flags{Server: p.Server, Key: p.Key, DataDir: p.DataDir})
	if err !=
		nil {
		return err
	}
	b.report.Server.URL = b.cl.Base
	var stats struct {
		States map[string]int64 `json:"states"`
	}
	if _, err := b.cl.Call(ctx, http.MethodGet, "/v1/stats", nil, &stats); err != nil {
		return err
	}
	all := int64(0)
	for _, n := range stats.States {
		all += n
	}
	what := fmt.Sprintf("up to %d callbacks of %d bytes, over %d connections, to bench's own receiver at %s",
		p.total(), p.Size, p.Concurrency, b.receiver.base)
	where := fmt.Sprintf("they are in the lane %s, with that ref, and stay in the server's history; what "+
		"is open at the end is canceled", p.run)
	if all > 0 && !p.Yes {
		return &console.UsageError{Lines: []string{
			fmt.Sprintf("%s has %d callbacks of its own, %d of them open, which share the machine with a "+
				"run of bench", b.cl.Base, all, stats.States["scheduled"]),
			"bench would hand it " + what + ": " + where,
			"give --yes if that is meant",
		}}
	}
	b.say("%s is handed %s", b.cl.Base, what)
	b.say("%s", where)
	if open := stats.States["scheduled"]; open > 0 {
		b.note("The server had %d open callbacks of its own when the run began.", open)
	}
	return nil
}

// measure runs the phases, and judges.
func (b *bench) measure(ctx context.Context) error {
	if err := b.warmUp(ctx); err != nil {
		return err
	}
	type phase struct {
		wanted bool
		run    func(context.Context) error
	}
	for _, phase := range []phase{
		{b.plan.has(acceptPhase) || b.plan.has(drainPhase), b.backlog},
		{b.plan.has(steadyPhase), b.steady},
		{b.plan.has(delayedPhase), b.delayed},
	} {
		if phase.wanted {
			if err := phase.run(ctx); err != nil {
				return err
			}
		}
	}
	return b.judge(ctx)
}

// take returns the numbers of the next n callbacks.
func (b *bench) take(n int) span {
	s := span{b.next, n}
	b.next += n
	return s
}

// judge says what is wrong although everything has arrived.
func (b *bench) judge(ctx context.Context) error {
	var dead client.Page[client.Callback]
	if err := b.call(ctx, http.MethodGet, b.list("state=dead&state=canceled&limit=5"), nil, &dead); err !=
		nil {
		return fmt.Errorf("look for callbacks that did not succeed: %w", err)
	}
	books := &b.report.Books
	books.Changed, books.Repeated, books.Strange = int(b.receiver.changed.Load()),
		int(b.receiver.repeated.Load()), int(b.receiver.strange.Load())
	var wrong []string
	if books.Early > 0 {
		wrong = append(wrong, fmt.Sprintf("%d callbacks arrived before they were due", books.Early))
	}
	if books.Changed > 0 {
		wrong = append(wrong, fmt.Sprintf("%d arrivals had other bytes than were handed over", books.Changed))
	}
	for _, cb := range dead.Data {
		wrong = append(wrong, fmt.Sprintf("%s arrived and ended %s %s", cb.ID, cb.State, cb.Reason))
	}
	if len(wrong) > 0 {
		return errors.New(console.Printable(strings.Join(wrong, "; ")))
	}
	return nil
}

// call is the client's, for a server that may be busy with the run.
func (b *bench) call(ctx context.Context, method, path string, in, out any) error {
	_, err := patiently(ctx, func() error {
		_, err := b.cl.Call(ctx, method, path, in, out)
		return err
	})
	return err
}

// list is the address of a list of the run's callbacks.
func (b *bench) list(query string) string {
	return "/v1/callbacks?ref=" + url.QueryEscape(b.plan.run) + "&" + query
}

// open says whether any callback of the run is open.
func (b *bench) open(ctx context.Context) (bool, error) {
	query := b.list("state=scheduled&state=attempting&limit=1")
	if b.own != nil {
		// Nobody else's are there, and by due time only open ones are looked at.
		query = "/v1/callbacks?order=due&limit=1"
	}
	var page client.Page[client.Callback]
	if err := b.call(ctx, http.MethodGet, query, nil, &page); err != nil {
		return false, fmt.Errorf("look for open callbacks: %w", err)
	}
	return len(page.Data) > 0, nil
}

// await waits until every accepted callback of the span has arrived and is settled. from is when the last of
// them falls due.
func (b *bench) await(ctx context.Context, s span, from time.Duration) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	want, seen, moved := b.receiver.count(s), int64(-1), from
	for {
		now := time.Since(b.receiver.began)
		if n := b.receiver.arrivals.Load(); n != seen {
			seen, moved = n, max(from, now)
		}
		if seen >= b.gen.accepted.Load() && b.receiver.arrivedOf(s) == want {
			return b.settled(ctx)
		}
		if now-moved > b.plan.timeout {
			return b.lost(ctx, s)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// settled waits until the results of everything that arrived are committed.
func (b *bench) settled(ctx context.Context) error {
	for deadline := time.Now().Add(b.plan.timeout); ; console.Pause(ctx, 50*time.Millisecond) {
		open, err := b.open(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && !open:
			return nil
		case time.Now().After(deadline) && err != nil:
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("callbacks that arrived are still open after %s", console.Brief(b.plan.timeout))
		}
	}
}

// shownLost is how many ids of lost callbacks are named, and looked after, in the error; keptLost, in the
// report.
const (
	shownLost = 3
	keptLost  = 20
)

// lost is the error of accepted callbacks of the span that have not arrived.
func (b *bench) lost(ctx context.Context, s span) error {
	missing := b.receiver.missing(s)
	b.waited = true
	var some []string
	for _, number := range missing[:min(len(missing), shownLost)] {
		some = append(some, b.receiver.ids[number]+" ("+b.fate(ctx, b.receiver.ids[number])+")")
	}
	if len(missing) > len(some) {
		some = append(some, fmt.Sprintf("and %d more", len(missing)-len(some)))
	}
	return fmt.Errorf("%d of %d accepted callbacks have not arrived, and for %s nothing came: %s",
		len(missing), b.receiver.count(s), console.Brief(b.plan.timeout), strings.Join(some, ", "))
}

// fate says what the server knows of a callback.
func (b *bench) fate(ctx context.Context, id string) string {
	var cb client.Callback
	if _, err := b.cl.Call(ctx, http.MethodGet, remote.CallbackPath(id), nil, &cb); err != nil {
		return err.Error()
	}
	parts := []string{string(cb.State), string(cb.Reason), remote.LastOf(&cb)}
	if cb.AttemptCount == 0 {
		parts = append(parts, "not attempted")
	}
	var newest struct {
		Data []client.Attempt `json:"data"`
	}
	_, err := b.cl.Call(ctx, http.MethodGet, remote.CallbackPath(id)+"/attempts?limit=1", nil, &newest)
	if err == nil && len(newest.Data) > 0 {
		parts = append(parts, newest.Data[0].Error)
	}
	return console.Printable(strings.Join(console.NonEmpty(parts), ", "))
}

const (
	// finishLimit is how long what is open at the end is waited for.
	finishLimit = time.Minute
	// shownLines is how many lines of its own server's log, which has warnings only, are shown.
	shownLines = 3
	// finishPause is between two looks.
	finishPause = 200 * time.Millisecond
)

// finish closes the books of the run, whatever ended it. On a running server nothing stays open: what is, is
// canceled.
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
		return fmt.Errorf("callbacks of the run may still be open; \"dispatcher callback cancel --ref %s "+
			"--server %s\" cancels them: %w", b.plan.run, b.cl.Base, err)
	}
	b.finished = true
	return nil
}

// closeBooks counts what became of everything that was accepted. What a run that broke off did not wait for
// is given up: of a running server's, what was canceled.
func (b *bench) closeBooks(canceled map[string]bool, ended error) {
	all, books := span{0, b.next}, &b.report.Books
	books.Accepted, books.Arrived, books.Canceled = b.receiver.count(all), b.receiver.arrivedOf(all),
		len(canceled)
	books.RefusedRequests = int(b.gen.refused.Load())
	for _, number := range b.receiver.missing(all) {
		id := b.receiver.ids[number]
		if !b.waited && ended != nil && (b.own != nil || canceled[id]) {
			books.GivenUp++
			continue
		}
		books.Missing++
		if len(books.MissingIDs) < keptLost {
			books.MissingIDs = append(books.MissingIDs, id)
		}
	}
}

// cancelOpen cancels what is open of the run, and returns when nothing is: what was canceled, and how many
// were being attempted when it was last looked. Where the run broke off it looks again a moment later: a
// request that was given up may have had its effect since.
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
		last = !open
		if open {
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
		console.Pause(ctx, finishPause)
		if ctx.Err() != nil {
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
