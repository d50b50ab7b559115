package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// widest is how many characters of a text from elsewhere stand in one column.
const widest = 60

// showCallbacks prints a list as a table.
func showCallbacks(c *console, list []shownCallback, now time.Time) {
	t := c.newTable("id", "state", "attempts", "due", "last", "topic", "ref", "url")
	for i := range list {
		cb := &list[i]
		t.AppendRow([]any{
			printable(cb.ID), c.state(cb), attemptCount(cb), whenDue(cb, now), lastOf(cb),
			short(cb.Topic, 32), short(cb.Ref, 32), short(cb.URL, widest),
		})
	}
	t.Render()
}

// state returns state and reason, coloured where that is welcome.
func (c *console) state(cb *shownCallback) string {
	s := printable(cb.State)
	if cb.Reason != "" {
		s += ": " + printable(cb.Reason)
	}
	return c.paint(s, stateColour(cb.State))
}

func attemptCount(cb *shownCallback) string {
	if cb.MaxAttempts == nil {
		return strconv.Itoa(cb.AttemptCount)
	}
	return fmt.Sprintf("%d/%d", cb.AttemptCount, *cb.MaxAttempts)
}

func lastOf(cb *shownCallback) string {
	s := printable(cb.LastClass)
	if cb.LastStatus != nil {
		s = strings.TrimSpace(strconv.Itoa(*cb.LastStatus) + " " + s)
	}
	return s
}

// whenDue says how far away the next attempt is.
func whenDue(cb *shownCallback, now time.Time) string {
	if cb.DueAt == nil {
		return ""
	}
	d := cb.DueAt.Sub(now)
	if d <= 0 {
		return "now"
	}
	return "in " + brief(d)
}

// brief prints a duration to the second, or to the millisecond below one.
func brief(d time.Duration) string {
	if d.Abs() < time.Second {
		return schedule.FormatDuration(d.Round(time.Millisecond))
	}
	return schedule.FormatDuration(d.Round(time.Second))
}

// clockTime prints a time for people: in their zone, with date and offset, to the millisecond.
func clockTime(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05.000 -07:00")
}

// short makes a text from elsewhere safe and at most n characters long.
func short(s string, n int) string {
	r := []rune(printable(s))
	if len(r) <= n {
		return string(r)
	}
	return string(r[:n-1]) + "…"
}

// line prints one line of what is shown of a callback or a schedule; nothing for an empty value.
func (c *console) line(name, value string) {
	if value != "" {
		fmt.Fprintf(c.out, "%-10s %s\n", name, value)
	}
}

// showCallback prints one callback, its attempts, and the rest of its ladder. Of a poll it is told what it has beside its callback; nil where
// that is not known.
func showCallback(c *console, cb *shownCallback, attempts []shownAttempt, poll *pollDetail, now time.Time) {
	line := c.line
	if poll != nil {
		line("poll", printable(cb.ID))
	} else {
		line("callback", printable(cb.ID))
	}
	line("state", c.state(cb))
	switch {
	case poll != nil:
		line("outcome", firstOf(printable(poll.Outcome), "none yet"))
	case cb.Kind == kindPoll:
		line("kind", "poll (see \"dispatcher poll get "+printable(cb.ID)+"\")")
	}
	line("sends", printable(cb.Method)+" "+printable(cb.URL))
	line("topic", printable(cb.Topic))
	line("ref", printable(cb.Ref))
	if cb.Version != nil {
		line("version", strconv.FormatInt(*cb.Version, 10))
	}
	lock := printable(cb.LockKey)
	if cb.Order != "" {
		lock += " (" + printable(cb.Order) + " order)"
	}
	line("lock key", lock)
	line("endpoint", printable(cb.EndpointID))
	line("lane", printable(cb.Lane))
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(cb.Labels)) {
		labels = append(labels, printable(name+"="+cb.Labels[name]))
	}
	line("labels", strings.Join(labels, " "))
	line("attempts", attemptCount(cb)+" charged, "+strconv.Itoa(cb.DivertCount)+" diverted")
	if name := choiceText(cb.Policy); !strings.HasPrefix(name, "{") { // of one given whole, the tiers say it
		line("policy", name)
	}
	line("tiers", tiersText(cb))
	if poll != nil {
		poll.show(c)
	} else {
		line("success", choiceText(cb.Success))
	}
	line("signer", choiceText(cb.Signer))
	line("accepted", clockTime(&cb.CreatedAt))
	line("expires", clockTime(cb.ExpiresAt))
	line("finished", clockTime(cb.FinishedAt))
	fmt.Fprintln(c.out)
	t := c.newTable("attempt", "started", "late", "outcome", "answer", "next attempt")
	for i := range attempts {
		t.AppendRow(attemptRow(c, cb.Kind, &attempts[i]))
	}
	for _, step := range ladder(cb, attempts, now) {
		t.AppendRow([]any{step.name, step.at, "", c.paint("to come", text.Faint), "", step.next})
	}
	t.Render()
}

// tiersText prints the waits of a callback. Of a policy given whole that goes on with the last one it says until when.
func tiersText(cb *shownCallback) string {
	s := printable(strings.Join(cb.Tiers, " "))
	if cb.MaxAttempts != nil {
		return s
	}
	s += " …, the last one again and again"
	var policy struct {
		Deadline string `json:"deadline"`
	}
	if json.Unmarshal(cb.Policy, &policy) == nil && policy.Deadline != "" {
		s += ", for " + printable(policy.Deadline)
	}
	return s
}

func attemptRow(c *console, kind string, a *shownAttempt) []any {
	number := "#" + strconv.Itoa(a.Number)
	if a.Trigger == "manual" {
		number += " manual"
	}
	outcome, answer := printable(a.Outcome), answerText(a)
	if !a.Charged {
		outcome += ", not charged"
	}
	colour := text.FgRed
	switch {
	case kind == kindPoll && a.Outcome == "succeeded":
		// Whether the upstream has succeeded is the poll's own state.
		outcome, colour = "final", text.FgGreen
	case kind == kindPoll && a.Class == "rule_mismatch" && a.StatusCode != nil && a.Rule != nil:
		// It is no failure, and the rule stands above.
		outcome, colour = "not final", text.FgYellow
		answer = strconv.Itoa(*a.StatusCode) + ": " + short(a.Rule.Saw, widest)
	case a.Outcome == "succeeded":
		colour = text.FgGreen
	}
	return []any{number, clockTime(a.StartedAt), lateness(a.LatenessMs), c.paint(outcome, colour), answer, clockTime(a.NextDueAt)}
}

// answerText says what came back, and of a failure why it is one.
func answerText(a *shownAttempt) string {
	answer := printable(a.Class)
	if a.StatusCode != nil {
		answer = strconv.Itoa(*a.StatusCode) + " " + answer
	}
	switch {
	case a.Error != "":
		answer += ": " + short(a.Error, widest)
	case a.Rule != nil && a.Outcome != "succeeded":
		answer += ": expected " + short(a.Rule.Expected, widest) + ", got " + short(a.Rule.Saw, widest)
	case a.ResponseBody != "":
		answer += ": " + short(a.ResponseBody, widest)
	}
	return answer
}

func lateness(ms float64) string {
	return fmt.Sprintf("%.1fms", ms)
}

// A ladderStep is an attempt that has not been made.
type ladderStep struct{ name, at, next string }

// ladder returns the attempts that follow if each fails: at the earliest times, since an attempt takes a while itself.
func ladder(cb *shownCallback, attempts []shownAttempt, now time.Time) []ladderStep {
	if cb.DueAt == nil || cb.MaxAttempts == nil {
		return nil
	}
	at := *cb.DueAt
	if at.Before(now) {
		at = now
	}
	left, made := *cb.MaxAttempts-cb.AttemptCount, 0
	if n := len(attempts); n > 0 {
		made = attempts[n-1].Number
	}
	var steps []ladderStep
	for i := range left {
		step := ladderStep{name: "#" + strconv.Itoa(made+1+i), at: clockTime(&at)}
		position := len(cb.Tiers) - left + 1 + i
		if position < 0 || position >= len(cb.Tiers) {
			steps = append(steps, step)
			break
		}
		wait, err := schedule.ParseDuration(cb.Tiers[position])
		if err != nil {
			return steps
		}
		step.next = "after " + cb.Tiers[position]
		at = at.Add(wait)
		steps = append(steps, step)
	}
	return steps
}
