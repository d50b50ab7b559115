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

// criteria are what an answer is checked against: a success rule or a poll rule.
type criteria struct {
	rule *rule.Rule
	// poll is the rule of a poll. It is nil for a notification; then rule is set.
	poll *rule.Poll
	// name is the rule's name in the stored attempt.
	name string
	// hidden are the credentials to mask in explanations.
	hidden []string
}

// conclude classifies an answer: its class, whether it succeeded and whether it is charged.
//
// defer_if is checked before permanent_if, and both before success: they are the rule's exceptions for
// certain answers.
func (resp *Response) conclude(ctx context.Context, a *attempt, ans *answer, want criteria) {
	resp.Charged = true
	resp.Outcome = store.AttemptFailed
	resp.TimedOut = ans.readErr != nil && isTimeout(a, ans.readErr)
	if want.poll != nil {
		resp.concludePoll(ctx, ans, want)
		return
	}
	d := ans.document(want.rule.ReadsBody())
	conclusion, why := want.rule.Conclude(want.name, &d, want.hidden)
	resp.Rule = why
	deferAfter, maxDefers := time.Duration(want.rule.DeferAfter), want.rule.MaxDefers
	switch conclusion {
	case rule.Deferred:
		resp.RetryAfter, _ = retryAfterOf(ans)
		resp.deferBusy(deferAfter, maxDefers)
	case rule.Permanent:
		resp.RetryAfter, _ = retryAfterOf(ans)
		resp.Class, resp.Permanent = store.ClassRejected, true
	case rule.Successful:
		resp.Class, resp.Outcome = store.ClassOK, store.AttemptSucceeded
	default:
		if conclusion == rule.WrongStatus || !resp.classifyBadBody(ctx, ans) {
			resp.classifyStatus(ans, deferAfter, maxDefers)
		}
	}
}

// classifyBadBody classifies an answer whose rule needs a body that is incomplete or cannot be decoded. It
// returns false if the body has no such fault.
func (resp *Response) classifyBadBody(ctx context.Context, ans *answer) bool {
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

// deferBusy marks the attempt as deferred: the receiver is busy and did nothing. It is not charged.
func (resp *Response) deferBusy(deferAfter time.Duration, maxDefers int) {
	resp.Class, resp.Charged = store.ClassReceiverBusy, false
	resp.DeferAfter, resp.MaxDefers = deferAfter, maxDefers
}

// retryAfterOf returns the wait that Retry-After asks for. valid is false if the status does not permit
// Retry-After or its value is invalid.
func retryAfterOf(ans *answer) (wait time.Duration, valid bool) {
	switch ans.status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusLocked:
		return retryAfter(ans.header, time.Now())
	}
	return 0, false
}

// classifyStatus classifies an answer that does not satisfy the rule. deferAfter and maxDefers apply if the
// receiver is busy, which is a 423 with Retry-After.
func (resp *Response) classifyStatus(ans *answer, deferAfter time.Duration, maxDefers int) {
	wait, valid := retryAfterOf(ans)
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
	case s == http.StatusLocked && valid:
		resp.deferBusy(deferAfter, maxDefers)
	case s == http.StatusTooManyRequests:
		resp.Class = store.ClassThrottled
	case s < 500:
		resp.Class = store.ClassHTTP4xx
	default:
		resp.Class = store.ClassHTTP5xx
	}
}

// concludePoll is conclude for a poll. It also sets the poll state.
//
// hold_if is checked first, whatever the status. An answer with a status that the rule does not evaluate says
// nothing about the order: it is an error, or the receiver is busy. An incomplete answer is never final, even
// if its status alone would decide: its missing part may contradict it.
func (resp *Response) concludePoll(ctx context.Context, ans *answer, want criteria) {
	d := ans.document(true)
	d.Partial = ans.readErr != nil || ans.decodeErr != nil
	state, why := want.poll.Conclude(want.name, &d, want.hidden)
	resp.Rule = why
	switch {
	case state == rule.StateHold:
		resp.holdPoll(ans)
		return
	case !want.poll.Evaluates(ans.status):
		resp.classifyStatus(ans, rule.DefaultDeferAfter, rule.DefaultMaxDefers)
		if resp.Class != store.ClassReceiverBusy {
			resp.PollState = rule.StateError
		}
		return
	}
	resp.RetryAfter, _ = retryAfterOf(ans)
	resp.PollState = state
	switch {
	case resp.classifyBadBody(ctx, ans):
		if resp.Class == store.ClassInterrupted {
			resp.PollState = ""
		}
	case state == rule.StateSuccess || state == rule.StateFailure:
		resp.Class, resp.Outcome = store.ClassOK, store.AttemptSucceeded
	default:
		resp.Class = store.ClassRuleMismatch
	}
}

// holdPoll marks the poll as deferred: the upstream asks to wait, for its Retry-After or for rule.PollHold. A
// Retry-After of zero is no wait and is ignored.
func (resp *Response) holdPoll(ans *answer) {
	wait, _ := retryAfter(ans.header, time.Now())
	resp.RetryAfter = wait
	if wait == 0 {
		wait = rule.PollHold
	}
	resp.PollState = rule.StateHold
	resp.deferBusy(wait, rule.MostDefers)
}

// maxRetryAfter is the maximum of Retry-After; larger values are reduced to it. It is longer than any wait of
// a policy and small enough that sums with it cannot overflow.
const maxRetryAfter = 10_000 * 24 * time.Hour

// retryAfter returns the wait that a Retry-After header asks for, and whether its value is valid.
//
// A number must be whole and not negative. A date is relative to the answer's Date header, so that a wrong
// clock of the receiver does not matter. Without a Date header it is relative to now. A date in the past is a
// wait of zero.
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
