package outbound

import (
	"context"
	"errors"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// concludePoll is conclude for a poll: it decides what an answer is and what it says. What asks to wait comes first, whatever the status;
// then statuses that are not evaluated, which say nothing. An answer that broke off is never final, not even where its status would decide:
// nobody knows what else it was to say.
func (resp *Response) concludePoll(ctx context.Context, a *attempt, ans *answer, by judgement) {
	resp.Charged = true
	resp.Outcome = store.AttemptFailed
	resp.TimedOut = ans.readErr != nil && isTimeout(a, ans.readErr)
	r := by.poll
	d := Document{status: ans.status, text: ans.plain, broken: ans.fault()}
	hold := r.holdIf.judge(&d)
	if hold == isTrue {
		resp.hold(ans)
		resp.Rule = &store.Rule{Name: by.name, Expected: r.expectedHold, Saw: r.holdIf.saw(&d, bodySeen(ans), by.hidden)}
		return
	}
	if !r.evaluate.has(ans.status) {
		resp.byStatus(ans, DefaultDeferAfter, DefaultMaxDefers)
		if resp.Class != store.ClassReceiverBusy {
			resp.Verdict = VerdictError
		}
		resp.Rule = &store.Rule{Name: by.name, Expected: r.expectedStatus, Saw: statusSeen(ans.status)}
		return
	}
	resp.RetryAfter, _ = askedWait(ans)
	resp.Rule = &store.Rule{Name: by.name, Expected: r.expected, Saw: d.broken}
	switch {
	case resp.TimedOut:
		resp.Class, resp.Verdict = store.ClassTimeoutBody, VerdictError
	case ans.readErr != nil && errors.Is(ctx.Err(), context.Canceled):
		resp.Class, resp.Outcome, resp.Charged = store.ClassInterrupted, store.AttemptUnknown, false
	case ans.decodeErr != nil:
		resp.Class, resp.Verdict = store.ClassDecode, VerdictError
	case ans.readErr != nil:
		resp.Class, resp.Verdict = store.ClassRuleMismatch, VerdictError
	default:
		resp.judgePoll(&d, hold, ans, by)
	}
}

// judgePoll judges an answer that was read to its end, or up to the limit.
func (resp *Response) judgePoll(d *Document, hold truth, ans *answer, by judgement) {
	r := by.poll
	var remark string
	resp.Verdict, remark = r.judge(d, hold)
	resp.Class = store.ClassRuleMismatch
	told := r.until
	switch {
	case resp.Verdict == VerdictError:
		return // it saw what is wrong with the body
	case resp.Verdict == VerdictSuccess || resp.Verdict == VerdictFailure:
		resp.Class, resp.Outcome = store.ClassOK, store.AttemptSucceeded
	case hold == isUnsure:
		told = r.all // what keeps it open may be there
	}
	resp.Rule.Saw = shorten(remark+told.saw(d, bodySeen(ans), by.hidden), maxSentence)
}

// hold puts the poll off: the upstream asks to wait. A Retry-After that asks for no time at all is not heeded, for that is no wait.
func (resp *Response) hold(ans *answer) {
	wait, _ := retryAfter(ans.header, time.Now())
	resp.RetryAfter = wait
	if wait == 0 {
		wait = pollHold
	}
	resp.Verdict = VerdictHold
	resp.busy(wait, mostDefers)
}
