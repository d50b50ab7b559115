package outbound

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// concludePoll is conclude for a poll: it decides what an answer is and what it says. What asks to wait comes first, whatever the status;
// then statuses that are not evaluated, which say nothing. An answer that broke off is never final, not even where its status would decide:
// nobody knows what else it was to say.
func (resp *Response) concludePoll(ctx context.Context, a *attempt, ans *answer, by judgement) {
	resp.Charged = true
	resp.Outcome = store.AttemptFailed
	resp.TimedOut = ans.readErr != nil && isTimeout(a, ans.readErr)
	d := ans.document(true)
	d.Partial = ans.readErr != nil || ans.decodeErr != nil
	verdict, why := by.poll.Conclude(by.name, &d, by.hidden)
	resp.Rule = why
	switch {
	case verdict == rule.VerdictHold:
		resp.hold(ans)
		return
	case !by.poll.Evaluates(ans.status):
		resp.byStatus(ans, rule.DefaultDeferAfter, rule.DefaultMaxDefers)
		if resp.Class != store.ClassReceiverBusy {
			resp.Verdict = rule.VerdictError
		}
		return
	}
	resp.RetryAfter, _ = askedWait(ans)
	resp.Verdict = verdict
	switch {
	case resp.brokeOff(ctx, ans):
		if resp.Class == store.ClassInterrupted {
			resp.Verdict = ""
		}
	case verdict == rule.VerdictSuccess || verdict == rule.VerdictFailure:
		resp.Class, resp.Outcome = store.ClassOK, store.AttemptSucceeded
	default:
		resp.Class = store.ClassRuleMismatch
	}
}

// hold puts the poll off: the upstream asks to wait. A Retry-After that asks for no time at all is not heeded, for that is no wait.
func (resp *Response) hold(ans *answer) {
	wait, _ := retryAfter(ans.header, time.Now())
	resp.RetryAfter = wait
	if wait == 0 {
		wait = rule.PollHold
	}
	resp.Verdict = rule.VerdictHold
	resp.busy(wait, rule.MostDefers)
}
