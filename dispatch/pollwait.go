package dispatch

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// finalReason is the reason of a callback that has succeeded: of a poll, which final answer the upstream gave.
func finalReason(resp *outbound.Response) store.Reason {
	switch resp.Verdict {
	case rule.VerdictSuccess:
		return store.PollSucceeded
	case rule.VerdictFailure:
		return store.PollFailed
	}
	return ""
}

// pollWait is how long a poll waits that is not final, and whether it goes on. An answer that says so moves it on to the next tier. An
// error does not: the tier that came before is waited for again, the first if there was none, as often in a row as the error budget says.
func pollWait(w *store.Stamped, resp *outbound.Response, r *store.Result) (wait time.Duration, more bool) {
	tiers, moved := schedule.Tiers(w.Policy.Tiers), w.AttemptCount-w.LadderBase
	if resp.Verdict == rule.VerdictOpen {
		return tiers.Wait(moved+1, w.Policy.RepeatLast)
	}
	r.Stays, r.PollErrors = true, w.PollErrors+1
	if r.PollErrors > resp.MaxErrors {
		return 0, false
	}
	return tiers.Wait(max(moved, 1), w.Policy.RepeatLast)
}

// pollHold is how long a poll, and its lane, wait whose upstream has asked for it: at least as long as lanes are held for anybody, and at
// most as its policy hears of Retry-After.
func pollHold(w *store.Stamped, asked time.Duration) time.Duration {
	return min(asked, max(w.Policy.RetryAfterCap, maxHold))
}
