package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// showCallbacks prints a list as a table.
func showCallbacks(c *console.Console, list []client.Callback, now time.Time) {
	console.ShowTable(c, list, []console.Column[client.Callback]{
		{Name: "id", Of: func(cb *client.Callback) any { return console.Printable(cb.ID) }},
		{Name: "state", Of: func(cb *client.Callback) any { return stateText(c, cb) }},
		{Name: "attempts", Of: func(cb *client.Callback) any { return attemptCount(cb) }},
		{Name: "due", Of: func(cb *client.Callback) any { return whenDue(cb, now) }},
		{Name: "last", Of: func(cb *client.Callback) any { return remote.LastOf(cb) }},
		{Name: "topic", Of: func(cb *client.Callback) any { return console.Short(cb.Topic, 32) }},
		{Name: "ref", Of: func(cb *client.Callback) any { return console.Short(cb.Ref, 32) }},
		{Name: "url", Of: func(cb *client.Callback) any { return console.Short(cb.URL, console.Widest) }},
	})
}

// stateText returns state and reason, coloured where that is welcome.
func stateText(c *console.Console, cb *client.Callback) string {
	s := console.Printable(cb.State)
	if cb.Reason != "" {
		s += ": " + console.Printable(cb.Reason)
	}
	return c.Paint(s, console.StateColour(cb.State))
}

func attemptCount(cb *client.Callback) string {
	if cb.MaxAttempts == nil {
		return strconv.Itoa(cb.AttemptCount)
	}
	return fmt.Sprintf("%d/%d", cb.AttemptCount, *cb.MaxAttempts)
}

// whenDue says how far away the next attempt is.
func whenDue(cb *client.Callback, now time.Time) string {
	if cb.DueAt.IsZero() {
		return ""
	}
	d := cb.DueAt.Sub(now)
	if d <= 0 {
		return "now"
	}
	return "in " + console.Brief(d)
}

// showCallback prints one callback, its attempts, and the rest of its ladder. Of a poll it is told what it has beside its callback; nil where
// that is not known.
func showCallback(c *console.Console, cb *client.Callback, attempts []client.Attempt, poll *client.PollDetail, now time.Time) {
	line := c.Line
	if poll != nil {
		line("poll", console.Printable(cb.ID))
	} else {
		line("callback", console.Printable(cb.ID))
	}
	line("state", stateText(c, cb))
	switch {
	case poll != nil:
		line("outcome", console.FirstOf(console.Printable(poll.Outcome), "none yet"))
	case cb.Kind == client.Poll:
		line("kind", "poll (see \"dispatcher poll get "+console.Printable(cb.ID)+"\")")
	}
	line("sends", console.Printable(cb.Method)+" "+console.Printable(cb.URL))
	line("topic", console.Printable(cb.Topic))
	line("ref", console.Printable(cb.Ref))
	if cb.Version != nil {
		line("version", strconv.FormatInt(*cb.Version, 10))
	}
	lock := console.Printable(cb.LockKey)
	if cb.Order != "" {
		lock += " (" + console.Printable(cb.Order) + " order)"
	}
	line("lock key", lock)
	line("endpoint", console.Printable(cb.EndpointID))
	line("lane", console.Printable(cb.Lane))
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(cb.Labels)) {
		labels = append(labels, name+"="+cb.Labels[name])
	}
	line("labels", joined(labels, " "))
	line("attempts", attemptCount(cb)+" charged, "+strconv.Itoa(cb.DivertCount)+" diverted")
	if name := choiceText(cb.Policy); !strings.HasPrefix(name, "{") { // of one given whole, the tiers say it
		line("policy", name)
	}
	line("tiers", tiersText(cb))
	if poll != nil {
		showPoll(c, poll)
	} else {
		line("success", choiceText(cb.Success))
	}
	line("signer", choiceText(cb.Signer))
	line("accepted", console.ClockTime(cb.CreatedAt))
	line("expires", console.ClockTime(cb.ExpiresAt))
	line("finished", console.ClockTime(cb.FinishedAt))
	fmt.Fprintln(c.Out)
	t := c.NewTable("attempt", "started", "late", "outcome", "answer", "next attempt")
	for i := range attempts {
		t.Row(attemptRow(c, cb.Kind, &attempts[i])...)
	}
	for _, step := range ladder(cb, attempts, now) {
		t.Row(step.name, step.at, "", c.Paint("to come", console.Faint), "", step.next)
	}
	t.Render()
}

// tiersText prints the waits of a callback. Of a policy given whole that goes on with the last one it says until when.
func tiersText(cb *client.Callback) string {
	s := joined(cb.Tiers, " ")
	if cb.MaxAttempts != nil {
		return s
	}
	s += " …, the last one again and again"
	var policy struct {
		Deadline string `json:"deadline"`
	}
	if json.Unmarshal(cb.Policy.Object, &policy) == nil && policy.Deadline != "" {
		s += ", for " + console.Printable(policy.Deadline)
	}
	return s
}

func attemptRow(c *console.Console, kind client.Kind, a *client.Attempt) []any {
	number := "#" + strconv.Itoa(a.Number)
	if a.Trigger == "manual" {
		number += " manual"
	}
	outcome, answer := console.Printable(a.Outcome), answerText(a)
	if !a.Charged {
		outcome += ", not charged"
	}
	colour := console.Red
	switch {
	case kind == client.Poll && a.Outcome == "succeeded":
		// Whether the upstream has succeeded is the poll's own state.
		outcome, colour = "final", console.Green
	case kind == client.Poll && a.Class == client.ClassRuleMismatch && a.StatusCode != 0 && a.Rule != nil:
		// It is no failure, and the rule stands above.
		outcome, colour = "not final", console.Yellow
		answer = strconv.Itoa(a.StatusCode) + ": " + console.Short(a.Rule.Saw, console.Widest)
	case a.Outcome == "succeeded":
		colour = console.Green
	}
	return []any{number, console.ClockTime(a.StartedAt), lateness(a.LatenessMs), c.Paint(outcome, colour), answer, console.ClockTime(a.NextDueAt)}
}

// answerText says what came back, and of a failure why it is one.
func answerText(a *client.Attempt) string {
	answer := console.Printable(a.Class)
	if a.StatusCode != 0 {
		answer = strconv.Itoa(a.StatusCode) + " " + answer
	}
	switch {
	case a.Error != "":
		answer += ": " + console.Short(a.Error, console.Widest)
	case a.Rule != nil && a.Outcome != "succeeded":
		answer += ": expected " + console.Short(a.Rule.Expected, console.Widest) + ", got " + console.Short(a.Rule.Saw, console.Widest)
	case a.ResponseBody != "":
		answer += ": " + console.Short(a.ResponseBody, console.Widest)
	}
	return answer
}

func lateness(ms float64) string {
	return fmt.Sprintf("%.1fms", ms)
}

// A ladderStep is an attempt that has not been made.
type ladderStep struct{ name, at, next string }

// ladder returns the attempts that follow if each fails: at the earliest times, since an attempt takes a while itself.
func ladder(cb *client.Callback, attempts []client.Attempt, now time.Time) []ladderStep {
	if cb.DueAt.IsZero() || cb.MaxAttempts == nil {
		return nil
	}
	at := cb.DueAt
	if at.Before(now) {
		at = now
	}
	left, made := *cb.MaxAttempts-cb.AttemptCount, 0
	if n := len(attempts); n > 0 {
		made = attempts[n-1].Number
	}
	var steps []ladderStep
	for i := range left {
		step := ladderStep{name: "#" + strconv.Itoa(made+1+i), at: console.ClockTime(at)}
		position := len(cb.Tiers) - left + 1 + i
		if position < 0 || position >= len(cb.Tiers) {
			steps = append(steps, step)
			break
		}
		wait, err := schedule.ParseDuration(string(cb.Tiers[position]))
		if err != nil {
			return steps
		}
		step.next = "after " + string(cb.Tiers[position])
		at = at.Add(wait)
		steps = append(steps, step)
	}
	return steps
}
