package attempt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// pastAttempts is a store that only has the attempts of one callback.
type pastAttempts struct {
	Store
	List []store.Attempt
	err  error
}

// Attempts numbers the list from 1, and returns pages as a store does.
func (p *pastAttempts) Attempts(
	_ context.Context, _, _ string, before, limit int,
) (page []store.Attempt, err error) {
	for i := len(p.List); i > 0 && len(page) < limit; i-- {
		if before == 0 || i < before {
			a := p.List[i-1]
			a.Number = i
			page = append(page, a)
		}
	}
	return page, p.err
}

// A decision is an attempt that has ended: the input of decide.
type decision struct {
	cb    store.Stamped
	lease schedule.Lease
	resp  outbound.Response
	past  pastAttempts
}

// decisionEnd is when the attempts of these tests end. They began 40 ms before, and were due 50 ms before.
var decisionEnd = time.UnixMilli(1_800_000_000_000)

// newDecision is the first attempt of a callback with two tiers. Its receiver answered 500; its lane is
// answering.
func newDecision() *decision {
	d := &decision{
		cb: store.Stamped{Callback: store.Callback{
			ID: "x", Project: "p", DueAt: decisionEnd.UnixMilli() - 50, FirstDueAt: decisionEnd.UnixMilli(),
			Fence: 7,
			Policy: store.Policy{Tiers: []time.Duration{10 * time.Second, 20 * time.Second},
				RetryAfterCap: time.Minute, OverloadFloor: 30 * time.Second},
		}},
		lease: schedule.Lease{Health: schedule.Answering},
	}
	d.failed(store.ClassHTTP5xx)
	d.answered(500)
	return d
}

// failed ends the attempt in that class, without an answer.
func (d *decision) failed(class store.Class) {
	d.resp = outbound.Response{
		Class: class, Outcome: store.AttemptFailed, Charged: true,
		StartedAt: decisionEnd.Add(-40 * time.Millisecond), EndedAt: decisionEnd,
	}
}

func (d *decision) answered(status int) { d.resp.Answered, d.resp.Status = true, status }

func (d *decision) runner(log slog.Handler) *Runner {
	return &Runner{o: Options{Store: &d.past}, clock: new(clock.Clock), log: slog.New(log)}
}

func (d *decision) decide(t *testing.T) ended {
	return d.runner(slog.DiscardHandler).decide(t.Context(), &d.cb, &d.lease, d.resp)
}

// describe returns everything that was decided; times are relative to the attempt's end.
func describe(out *ended) string {
	r := &out.result
	parts := []string{strings.TrimSpace(string(r.State) + " " + string(r.Reason))}
	since := func(ms int64) time.Duration {
		return time.Duration(ms-decisionEnd.UnixMilli()) * time.Millisecond
	}
	add := func(yes bool, format string, args ...any) {
		if yes {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(r.DueAt != 0, "in %s", since(r.DueAt))
	add(r.Charge, "charged")
	add(r.Attempt == nil, "no row")
	add(r.Attempt != nil && r.Attempt.Charged != r.Charge, "its row differs")
	add(r.Diverts > 0, "%d divert", r.Diverts)
	add(r.FreeRetry, "free")
	add(r.KeepClaimsWithoutResult, "claims without a result stay")
	add(r.Stays, "stays, %d errors", r.PollErrors)
	add(out.hold != 0, "lane held %s", since(out.hold))
	add(out.signal != schedule.Answered, "%s", map[schedule.Signal]string{
		schedule.NoSignal: "no signal", schedule.TimedOut: "timed out", schedule.Unanswered: "unanswered",
	}[out.signal])
	add(out.urgent, "urgent")
	return strings.Join(parts, ", ")
}

// change changes the attempt as a word of testdata/decide.txt says.
func (d *decision) change(word, value string, _ bool) error {
	number, nerr := strconv.Atoi(value)
	wait, werr := time.ParseDuration(value)
	numbers := map[string]*int{
		"before": &d.cb.AttemptCount, "base": &d.cb.LadderBase, "crashed": &d.cb.ClaimsWithoutResult,
		"errors": &d.cb.PollErrors, "max_defers": &d.resp.MaxDefers,
	}
	waits := map[string]*time.Duration{
		"retry_after": &d.resp.RetryAfter, "retry_cap": &d.cb.Policy.RetryAfterCap,
		"deadline":    &d.cb.Policy.Deadline,
		"defer_after": &d.resp.DeferAfter, "first_tier": &d.cb.Policy.Tiers[0],
	}
	switch {
	case numbers[word] != nil:
		*numbers[word] = number
		return nerr
	case waits[word] != nil:
		*waits[word] = wait
		return werr
	}
	switch word {
	case "class":
		d.failed(store.Class(value))
	case "status":
		d.answered(number)
		return nerr
	case "busy": // a busy receiver, after so many attempts, of which so many counted
		d.failed(store.ClassReceiverBusy)
		d.answered(423)
		d.resp.Charged = false
		_, err := fmt.Sscanf(value, "%d/%d", &d.cb.AttemptSeq, &d.cb.AttemptCount)
		d.cb.LadderBase = d.cb.AttemptCount
		return err
	case "poll": // a poll, with this state in its answer
		d.cb.Kind, d.resp.PollState, d.resp.MaxErrors = store.Poll, rule.PollState(value), 2
	case "expires":
		d.cb.ExpiresAt = decisionEnd.Add(wait).UnixMilli()
		return werr
	case "stops":
		d.cb.Policy.StopOn = []int{404, 410}
	case "uncharged":
		d.resp.Charged = false
	case "unknown":
		d.resp.Outcome = store.AttemptUnknown
	case "succeeded":
		d.resp.Outcome = store.AttemptSucceeded
	case "timed_out":
		d.resp.TimedOut = true
	case "stale":
		d.resp.Stale = true
	case "locked":
		d.lease.Lock = "k"
	case "unproven":
		d.lease.Health = schedule.Unproven
	default:
		return errors.New("no such word")
	}
	return nil
}
