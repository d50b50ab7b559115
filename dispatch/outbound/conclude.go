package outbound

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A judgement is what an answer is judged by.
type judgement struct {
	rule *rule.Rule
	// poll stands in the place of the rule for a poll; nil: it is none.
	poll *rule.Poll
	// name is what the attempt calls the rule.
	name string
	// hidden are values that must not be shown.
	hidden []string
}

// conclude decides what an answer is: its class, whether it succeeded and whether it is charged. What puts
// the callback off comes before what ends it, and both before what is a success: they are exceptions that a
// rule makes for the answers that they name.
func (resp *Response) conclude(ctx context.Context, a *attempt, ans *answer, by judgement) {
	resp.Charged = true
	resp.Outcome = store.AttemptFailed
	resp.TimedOut = ans.readErr != nil && isTimeout(a, ans.readErr)
	if by.poll != nil {
		resp.concludePoll(ctx, ans, by)
		return
	}
	d := ans.document(by.rule.ReadsBody())
	conclusion, why := by.rule.Conclude(by.name, &d, by.hidden)
	resp.Rule = why
	deferAfter, maxDefers := time.Duration(by.rule.DeferAfter), by.rule.MaxDefers
	switch conclusion {
	case rule.Deferred:
		resp.RetryAfter, _ = askedWait(ans)
		resp.busy(deferAfter, maxDefers)
	case rule.Permanent:
		resp.RetryAfter, _ = askedWait(ans)
		resp.Class, resp.Permanent = store.ClassRejected, true
	case rule.Successful:
		resp.Class, resp.Outcome = store.ClassOK, store.AttemptSucceeded
	default:
		if conclusion == rule.WrongStatus || !resp.brokeOff(ctx, ans) {
			resp.byStatus(ans, deferAfter, maxDefers)
		}
	}
}

// brokeOff classifies an answer whose body was to decide and did not come whole, or could not be decoded.
func (resp *Response) brokeOff(ctx context.Context, ans *answer) bool {
	switch {
	case resp.TimedOut:
		resp.Class = store.ClassTimeoutBody
	case ans.readErr != nil && errors.Is(ctx.Err(), context.Canceled):
		resp.Class, resp.Outcome, resp.Charged = store.ClassInterrupted, store.AttemptUnknown, false
	case ans.decodeErr != nil:
		resp.Class = store.ClassDecode
	default:
		return false
	}
	return true
}

// busy puts the callback off: the receiver has a lock conflict of its own, and did nothing.
func (resp *Response) busy(deferAfter time.Duration, maxDefers int) {
	resp.Class, resp.Charged = store.ClassReceiverBusy, false
	resp.DeferAfter, resp.MaxDefers = deferAfter, maxDefers
}

// askedWait returns what the Retry-After of an answer asks for, and whether it means anything, for the
// statuses where it is heeded.
func askedWait(ans *answer) (wait time.Duration, asked bool) {
	switch ans.status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusLocked:
		return retryAfter(ans.header, time.Now())
	}
	return 0, false
}

// byStatus classifies an answer that does not satisfy the rule. deferAfter and maxDefers are for a receiver
// that is busy.
func (resp *Response) byStatus(ans *answer, deferAfter time.Duration, maxDefers int) {
	wait, asked := askedWait(ans)
	resp.RetryAfter = wait
	switch s := ans.status; {
	case s < 200 || s > 599:
		resp.Class = store.ClassProtocol
	case s < 300:
		resp.Class = store.ClassRuleMismatch
	case s < 400:
		resp.Class = store.ClassRedirect
	case s == http.StatusGone:
		resp.Class = store.ClassGone
	case s == http.StatusRequestEntityTooLarge:
		resp.Class = store.ClassHTTP413
	case s == http.StatusLocked && asked:
		// It says when to come back.
		resp.busy(deferAfter, maxDefers)
	case s == http.StatusTooManyRequests:
		resp.Class = store.ClassThrottled
	case s < 500:
		resp.Class = store.ClassHTTP4xx
	default:
		resp.Class = store.ClassHTTP5xx
	}
}

// concludePoll is conclude for a poll: it decides what an answer is and what it says. What asks to wait comes
// first, whatever the status; then statuses that are not evaluated, which say nothing. An answer that broke
// off is never final, not even where its status would decide: nobody knows what else it was to say.
func (resp *Response) concludePoll(ctx context.Context, ans *answer, by judgement) {
	d := ans.document(true)
	d.Partial = ans.readErr != nil || ans.decodeErr != nil
	verdict, why := by.poll.Conclude(by.name, &d, by.hidden)
	resp.Rule = why
	switch {
	case verdict == rule.StateHold:
		resp.hold(ans)
		return
	case !by.poll.Evaluates(ans.status):
		resp.byStatus(ans, rule.DefaultDeferAfter, rule.DefaultMaxDefers)
		if resp.Class != store.ClassReceiverBusy {
			resp.PollState = rule.StateError
		}
		return
	}
	resp.RetryAfter, _ = askedWait(ans)
	resp.PollState = verdict
	switch {
	case resp.brokeOff(ctx, ans):
		if resp.Class == store.ClassInterrupted {
			resp.PollState = ""
		}
	case verdict == rule.StateSuccess || verdict == rule.StateFailure:
		resp.Class, resp.Outcome = store.ClassOK, store.AttemptSucceeded
	default:
		resp.Class = store.ClassRuleMismatch
	}
}

// hold puts the poll off: the upstream asks to wait. A Retry-After that asks for no time at all is not
// heeded, for that is no wait.
func (resp *Response) hold(ans *answer) {
	wait, _ := retryAfter(ans.header, time.Now())
	resp.RetryAfter = wait
	if wait == 0 {
		wait = rule.PollHold
	}
	resp.PollState = rule.StateHold
	resp.busy(wait, rule.MostDefers)
}

// maxRetryAfter is where a Retry-After saturates: no policy waits longer, and sums with it cannot overflow.
const maxRetryAfter = 10_000 * 24 * time.Hour

// retryAfter returns the wait that an answer asks for, and whether its Retry-After means anything. A number
// must be whole and not negative. A date is taken relative to the answer's own Date, so that a receiver's
// wrong clock does not matter, and to now when there is none; a date that has passed is zero.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0, false
	}
	if parse.IsDigits(value) {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter, true
		}
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), maxRetryAfter), true
}
