package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// At the end of every run the counts must agree. The callbacks that the API accepted with 202, plus those
// that polls and schedules created, are the accepted ones. These are the sum of succeeded, dead, canceled and
// open. Each process is checked before the end of the test kills it.

// accounts count the callbacks that callers got a 202 for, from all processes on one database, in the default
// project. Only the test's goroutine uses the fields other than accepted.
type accounts struct {
	accepted atomic.Int64
	// skipReason is the reason why this database is not reconciled; empty: it is.
	skipReason string
	// processes counts the started processes whose cleanup is still to come. reconciled counts the
	// reconciliations that succeeded.
	processes, reconciled int
}

// ResetAccounts starts a new count for the backend's database, in which no callback is accepted yet.
func (b *Backend) ResetAccounts() { b.accounts = new(accounts) }

// SkipReconciliation turns reconciliation off for a reason: the test changes the database directly, leaves it
// broken, or ends all its processes. An empty reason turns it on again.
func (b Backend) SkipReconciliation(why string) { b.accounts.skipReason = why }

// ForgetAccepted removes n callbacks from the accepted ones: a fault that no guarantee covers removed them
// from SQL.
func (b Backend) ForgetAccepted(n int) { b.accounts.accepted.Add(int64(-n)) }

// A countingTransport counts the newly accepted callbacks in the API's responses.
type countingTransport struct {
	*http.Transport
	accounts *accounts
}

func (t countingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.Transport.RoundTrip(req)
	if err != nil || t.accounts == nil || req.Method != http.MethodPost {
		return resp, err
	}
	switch path := req.URL.Path; {
	case resp.StatusCode == http.StatusAccepted && (path == "/v1/callbacks" || path == "/v1/polls" ||
		strings.HasPrefix(path, "/v1/schedules/")):
		t.accounts.accepted.Add(1)
	case resp.StatusCode == http.StatusMultiStatus && path == "/v1/callbacks/batch":
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return nil, err
		}
		t.accounts.accepted.Add(int64(bytes.Count(body, []byte(`{"status":202,"callback":`))))
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	return resp, nil
}

// plus adds the counts of two periods.
func plus(b, o client.ReconcileCounts) client.ReconcileCounts {
	return client.ReconcileCounts{Accepted: b.Accepted + o.Accepted, Succeeded: b.Succeeded + o.Succeeded,
		Dead: b.Dead + o.Dead, Canceled: b.Canceled + o.Canceled, Open: b.Open + o.Open,
		Balanced: b.Balanced && o.Balanced}
}

// countsOf returns the counts for the given number of callbacks in each state.
func countsOf(states map[client.State]int64) client.ReconcileCounts {
	b := client.ReconcileCounts{Succeeded: states[client.Succeeded], Dead: states[client.Dead],
		Canceled: states[client.Canceled], Balanced: true}
	for _, n := range states {
		b.Accepted += n
	}
	b.Open = b.Accepted - b.Succeeded - b.Dead - b.Canceled
	return b
}

const (
	// reconcileTimeout is how long the counts may disagree. Counters are published once a second, and the
	// machine also runs other tests.
	reconcileTimeout = 15 * time.Second
	// pauseAfter is how long sending goes on while the counts disagree. After that the check pauses sending,
	// because two counts of moving callbacks are never of the same moment.
	pauseAfter = 2 * time.Second
	// listLimit is the highest number of callbacks that the check also lists and counts.
	listLimit = 2000
	// compareTimeout is the timeout of one comparison.
	compareTimeout = 30 * time.Second
)

// The midnight of reconcileZone differs from that of UTC: the sum must not depend on where a day begins.
const reconcileZone = "Asia/Shanghai"

// reconcileAtEnd checks the counts of the process. It is the last request that a test sends to it.
func (p *Process) reconcileAtEnd(l Launch) {
	a := p.accounts
	a.processes--
	why := a.skipReason
	switch {
	case p.tb.Failed():
		return // its failures are already in the log
	case why != "":
	case p.Ended():
		why = "the process has ended: " + p.Cmd.ProcessState.String()
	case p.endExpected.Load() && !l.MayDie:
		why = "the test is ending it"
	case l.noAPI():
		why = "it serves no API"
	default:
		why = p.awaitEqualCounts(a)
	}
	if why == "" {
		a.reconciled++
	}
	if a.processes == 0 && a.reconciled == 0 && a.accepted.Load() > 0 && a.skipReason == "" {
		p.tb.Errorf("no process on %s was reconciled: %s", l.On.Name, why)
	}
}

// Reconciled is the number of processes on this database whose counts agreed at their end.
func (b Backend) Reconciled() int { return b.accounts.reconciled }

// noAPI says whether the launch has roles, and api is not among them.
func (l Launch) noAPI() bool {
	i := slices.Index(l.Args, "--roles")
	return i >= 0 && i+1 < len(l.Args) && !strings.Contains(l.Args[i+1], "api")
}

// awaitEqualCounts compares until the counts agree, and fails the test if they do not. It returns why they
// could not be compared; empty: they agree.
func (p *Process) awaitEqualCounts(a *accounts) (why string) {
	began := time.Now()
	stopped := false
	for {
		ctx, cancel := context.WithTimeout(context.Background(), compareTimeout)
		err := p.compareCounts(ctx, a)
		// A dispatcher with a read-only SQL may report equal counts, but it is not healthy.
		if status, body, _ := p.Readyz(); err == nil && status == http.StatusServiceUnavailable {
			err = fmt.Errorf("/readyz answers 503: %s", body)
		}
		if err != nil && !stopped && time.Since(began) > pauseAfter {
			_, err := p.Call(ctx, http.MethodPost, "/v1/pause", Submission{"reason": "the test ends"},
				nil)
			stopped = err == nil
		}
		cancel()
		switch {
		case err == nil:
			return ""
		case p.Ended():
			return "the process ended meanwhile: " + p.Cmd.ProcessState.String()
		case time.Since(began) > reconcileTimeout:
			p.tb.Errorf("the counts do not agree: %v", err)
			return "the counts do not agree"
		}
		time.Sleep(100 * time.Millisecond) // slower than Pause: each comparison counts rows
	}
}

// compareCounts compares the reconciliation of all days since the day before this run with the counters and
// with the API's responses. If there are at most listLimit callbacks it also lists and counts them.
func (p *Process) compareCounts(ctx context.Context, a *accounts) error {
	answered := a.accepted.Load()
	report, err := p.Reconcile(ctx, client.ReconcileQuery{From: reconcileFrom.Format(time.RFC3339),
		To: time.Now().Add(time.Hour).UTC().Format(time.RFC3339), GroupBy: "day", Timezone: reconcileZone})
	if err != nil {
		return err
	}
	stats, err := p.Stats(ctx)
	if err != nil {
		return err
	}
	t := report.Total
	days, counters := client.ReconcileCounts{Balanced: true}, countsOf(stats.States)
	for _, day := range report.Data {
		days = plus(days, day.ReconcileCounts)
	}
	var errs []error
	note := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	note(!t.Balanced || t.Accepted != t.Succeeded+t.Dead+t.Canceled+t.Open, "%+v does not add up", t)
	note(days != t, "the days sum up to %+v, the total is %+v", days, t)
	note(counters != t, "the counters are %+v, the reconciliation has %+v", counters, t)
	note(t.Accepted < answered, "the API accepted %d callbacks, the reconciliation has %d", answered,
		t.Accepted)
	if t.Accepted > listLimit {
		return errors.Join(errs...)
	}
	all, err := p.ListAll(client.Filter{})
	states := map[client.State]int64{}
	for _, cb := range all {
		states[cb.State]++
	}
	if listed := countsOf(states); err == nil && listed != t {
		err = fmt.Errorf("the list has %+v, the reconciliation %+v", listed, t)
	}
	if err == nil {
		err = p.compareMade(ctx, all, answered)
	}
	return errors.Join(append(errs, err)...)
}

// compareMade checks the callbacks that no caller submitted: the results of polls, and the callbacks of
// schedules. Each must be listed. Without them, the list must still have at least the callbacks that the API
// accepted.
func (p *Process) compareMade(ctx context.Context, all []client.Callback, answered int64) error {
	made, listed := map[string]string{}, map[string]bool{}
	for _, cb := range all {
		listed[cb.ID] = true
		if cb.Kind != "poll" {
			continue
		}
		poll, err := p.Poll(ctx, cb.ID)
		if err != nil {
			return err
		}
		switch id := poll.Poll.ResultCallbackID; {
		case id == "" && poll.Poll.OnResult != nil && !poll.FinishedAt.IsZero():
			return fmt.Errorf("%s has ended without a result callback", cb.ID)
		case id != "" && made[id] != "":
			return fmt.Errorf("%s is the result of %s and of %s", id, made[id], cb.ID)
		case id != "":
			made[id] = cb.ID
		}
	}
	schedules, err := Collect(p.Schedules("", nil))
	if err != nil {
		return err
	}
	for _, s := range schedules {
		runs, err := p.ScheduleRuns(ctx, s.ID)
		if err != nil {
			return err
		}
		for _, r := range runs {
			if r.Trigger == "schedule" { // the API answered a manual run
				made[r.CallbackID] = s.ID
			}
		}
	}
	for id, by := range made {
		if !listed[id] {
			return fmt.Errorf("%s, which %s created, is not in the list", id, by)
		}
	}
	if known := int64(len(all) - len(made)); known < answered {
		return fmt.Errorf("the API accepted %d callbacks; the list has %d, and %d that polls and schedules "+
			"created", answered, known, len(made))
	}
	return nil
}

// reconcileFrom is before anything that this run accepts, in any time zone.
var reconcileFrom = time.Now().Add(-24 * time.Hour).UTC()
