// Package loadtest measures a server, its own or a running one, with its own load and receiver. It counts
// every callback. A callback that is missing at the end is an error, even if the server reports success.
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

// bench is one run.
type bench struct {
	c        *console.Console
	plan     *benchPlan
	receiver *benchReceiver
	cl       *remote.Client
	env      *environment // nil: a running server is measured
	gen      *generator
	bar      *benchBar
	report   benchReport
	// next is the number of the next callback.
	next int
	// each is the duration of one submission in the warm-up.
	each time.Duration
	// waited: the run waited for missing callbacks until the timeout.
	waited bool
	// finished: the tally is complete, and no callback of the run is open on a running server.
	finished bool
}

// printf prints a line on the error output. note adds a line to the report.
func (b *bench) printf(format string, args ...any) {
	fmt.Fprintf(b.c.Err, "bench: %s\n", console.Printable(fmt.Sprintf(format, args...)))
}

func (b *bench) note(format string, args ...any) {
	b.report.Notes = append(b.report.Notes, console.Printable(fmt.Sprintf(format, args...)))
}

// run measures and cleans up. It returns the first error.
func (b *bench) run(ctx context.Context) (err error) {
	b.receiver, err = openBenchReceiver(b.plan)
	if err != nil {
		return err
	}
	b.report.Settings.ReceiverURL = b.receiver.base
	// The receiver runs until no callback of the run is open.
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
		b.env, err = b.openEnvironment(life)
		if err != nil {
			return err
		}
		defer func() { err = b.firstError(err, b.env.close(ctx)) }()
		parts.Go(func() { b.watchServer(receiving, fail) })
	} else if err := b.connectServer(life); err != nil {
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
	return b.firstError(err, b.finish(ctx, err))
}

// watchServer ends the run if its server ends.
func (b *bench) watchServer(ctx context.Context, fail context.CancelCauseFunc) {
	select {
	case <-b.env.server.ended:
		fail(fmt.Errorf("the server ended during the run: %w",
			b.env.server.log.explain(b.env.server.failure())))
	case <-ctx.Done():
	}
}

// connectServer checks the running server and prints what bench will do. A server that already has callbacks
// needs --yes.
func (b *bench) connectServer(ctx context.Context) (err error) {
	p := b.plan
	b.cl, err = remote.New(b.c, remote.Flags{Server: p.Server, Key: p.Key, DataDir: p.DataDir})
	if err != nil {
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
	where := fmt.Sprintf("lane and ref are %s; the callbacks stay in the server's history, and open ones "+
		"are canceled at the end", p.run)
	if all > 0 && !p.Yes {
		return &console.UsageError{Lines: []string{
			fmt.Sprintf("%s already has %d callbacks, %d of them open; they share the machine with bench",
				b.cl.Base, all, stats.States["scheduled"]),
			"bench submits " + what + "; " + where,
			"use --yes to continue",
		}}
	}
	b.printf("submitting to %s: %s", b.cl.Base, what)
	b.printf("%s", where)
	if open := stats.States["scheduled"]; open > 0 {
		b.note("The server had %d open callbacks before the run.", open)
	}
	return nil
}

// measure runs the phases and checks the result.
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
	return b.checkResult(ctx)
}

// nextSpan returns the numbers of the next n callbacks.
func (b *bench) nextSpan(n int) span {
	s := span{b.next, n}
	b.next += n
	return s
}

// checkResult returns what is wrong although all callbacks arrived.
func (b *bench) checkResult(ctx context.Context) error {
	var dead client.Page[client.Callback]
	err := b.call(ctx, http.MethodGet, b.list("state=dead&state=canceled&limit=5"), nil, &dead)
	if err != nil {
		return fmt.Errorf("list callbacks that did not succeed: %w", err)
	}
	tally := &b.report.Tally
	tally.Changed = int(b.receiver.changed.Load())
	tally.Repeated, tally.Strange = int(b.receiver.repeated.Load()), int(b.receiver.strange.Load())
	var wrong []string
	if tally.Early > 0 {
		wrong = append(wrong, fmt.Sprintf("%d callbacks arrived before they were due", tally.Early))
	}
	if tally.Changed > 0 {
		wrong = append(wrong, fmt.Sprintf("%d arrivals had another body than submitted", tally.Changed))
	}
	for _, cb := range dead.Data {
		wrong = append(wrong, fmt.Sprintf("%s arrived and ended %s %s", cb.ID, cb.State, cb.Reason))
	}
	if len(wrong) > 0 {
		return errors.New(console.Printable(strings.Join(wrong, "; ")))
	}
	return nil
}

// call calls the API and retries while the server is busy with the run.
func (b *bench) call(ctx context.Context, method, path string, in, out any) error {
	_, err := retryBusy(ctx, func() error {
		_, err := b.cl.Call(ctx, method, path, in, out)
		return err
	})
	return err
}

// list returns the path of a list of the run's callbacks.
func (b *bench) list(query string) string {
	return "/v1/callbacks?ref=" + url.QueryEscape(b.plan.run) + "&" + query
}

// open reports whether any callback of the run is open.
func (b *bench) open(ctx context.Context) (bool, error) {
	query := b.list("state=scheduled&state=attempting&limit=1")
	if b.env != nil {
		// The server has no other callbacks, and a list by due time reads only open ones.
		query = "/v1/callbacks?order=due&limit=1"
	}
	var page client.Page[client.Callback]
	if err := b.call(ctx, http.MethodGet, query, nil, &page); err != nil {
		return false, fmt.Errorf("list open callbacks: %w", err)
	}
	return len(page.Data) > 0, nil
}

// await waits until every accepted callback of the span has arrived and is settled. from is the due time of
// the last one.
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

// settled waits until the results of all arrived callbacks are committed.
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

// namedLost is how many lost callbacks the error describes; reportedLost is how many the report lists.
const (
	namedLost    = 3
	reportedLost = 20
)

// lost returns the error of accepted callbacks of the span that have not arrived.
func (b *bench) lost(ctx context.Context, s span) error {
	missing := b.receiver.missing(s)
	b.waited = true
	var some []string
	for _, number := range missing[:min(len(missing), namedLost)] {
		some = append(some, b.receiver.ids[number]+" ("+b.describe(ctx, b.receiver.ids[number])+")")
	}
	if len(missing) > len(some) {
		some = append(some, fmt.Sprintf("and %d more", len(missing)-len(some)))
	}
	return fmt.Errorf("%d of %d accepted callbacks have not arrived, and nothing came for %s: %s",
		len(missing), b.receiver.count(s), console.Brief(b.plan.timeout), strings.Join(some, ", "))
}

// describe returns the server's view of a callback.
func (b *bench) describe(ctx context.Context, id string) string {
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
	// finishLimit is the time limit of finish.
	finishLimit = time.Minute
	// printedLines is how many lines of the own server's log are printed. It has only warnings and errors.
	printedLines = 3
	// finishPause is the time between two looks at open callbacks.
	finishPause = 200 * time.Millisecond
)

// finish completes the tally after any end of the run. On a running server it cancels the open callbacks.
func (b *bench) finish(ctx context.Context, ended error) error {
	by, precision := b.gen.clock.ahead()
	b.report.Server.ClockAheadMs, b.report.Server.ClockPrecisionMs = millis(by), millis(precision)
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishLimit)
	defer cancel()
	if b.env != nil {
		b.countResults(nil, ended)
		lines := b.env.server.log.all()
		for _, line := range lines[max(0, len(lines)-printedLines):] {
			b.printf("server log: %s", line)
		}
		// The peak memory is known only now.
		used, err := b.env.server.usage(limited)
		switch {
		case err == nil && used.Known:
			b.report.Server.PeakRSSBytes = &used.PeakBytes
		case ended != nil:
			return nil // the server may have ended the run
		}
		return err
	}
	canceled, left, err := b.cancelOpen(limited, ended != nil)
	b.countResults(canceled, ended)
	b.report.Tally.HistoryCallbacks = b.report.Tally.Accepted
	if err != nil {
		b.report.Tally.OpenLeft = left
		return fmt.Errorf("callbacks of the run may still be open; cancel them with "+
			"\"dispatcher callback cancel --ref %s --server %s\": %w", b.plan.run, b.cl.Base, err)
	}
	b.finished = true
	return nil
}

// countResults fills the tally. An interrupted run did not wait for missing callbacks, so they are given up:
// of a running server, those that were canceled.
func (b *bench) countResults(canceled map[string]bool, ended error) {
	all, tally := span{0, b.next}, &b.report.Tally
	tally.Accepted, tally.Arrived = b.receiver.count(all), b.receiver.arrivedOf(all)
	tally.Canceled = len(canceled)
	tally.RefusedRequests = int(b.gen.refused.Load())
	for _, number := range b.receiver.missing(all) {
		id := b.receiver.ids[number]
		if !b.waited && ended != nil && (b.env != nil || canceled[id]) {
			tally.GivenUp++
			continue
		}
		tally.Missing++
		if len(tally.MissingIDs) < reportedLost {
			tally.MissingIDs = append(tally.MissingIDs, id)
		}
	}
}

// cancelOpen cancels the open callbacks of the run until none is open. It returns the canceled ones, and how
// many were in flight at the last look. After an interrupted run it looks twice: an abandoned request can
// still take effect on the server.
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
				return canceled, left, fmt.Errorf("cancel open callbacks: %w", err)
			}
			before := len(canceled)
			left = 0
			for _, r := range answer.Data {
				switch r.Result {
				case "canceled":
					canceled[r.Callback.ID] = true
				case "too_late": // in flight
					left++
				}
			}
			if len(canceled) > before {
				continue // one call cancels a limited number
			}
		}
		console.Pause(ctx, finishPause)
		if ctx.Err() != nil {
			return canceled, left, fmt.Errorf("wait for attempts in flight: %w", ctx.Err())
		}
	}
}

// firstError returns the first error of a run. It prints the second one if there are two.
func (b *bench) firstError(first, second error) error {
	if first == nil || second == nil {
		return errors.Join(first, second)
	}
	b.printf("%s", second)
	return first
}
