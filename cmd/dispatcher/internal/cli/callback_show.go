package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// stateText formats state and reason in the colour of the state.
func stateText(c *session, cb *client.Callback) string {
	return c.Paint(remote.StateOf(cb), console.StateColour(cb.State))
}

func attemptCount(cb *client.Callback) string {
	if cb.MaxAttempts == nil {
		return strconv.Itoa(cb.AttemptCount)
	}
	return fmt.Sprintf("%d/%d", cb.AttemptCount, *cb.MaxAttempts)
}

// whenDue formats the time until the next attempt.
func whenDue(cb *client.Callback, now time.Time) string {
	if cb.DueAt.IsZero() {
		return ""
	}
	return until(cb.DueAt, now)
}

// showCallback prints one callback, its attempts and the times of the remaining ones. For a poll, the
// parameter poll has its rule and outcome; else it is nil.
func showCallback(c *session, cb *client.Callback, attempts []client.Attempt, poll *client.PollDetail,
	now time.Time) {
	what, outcome, kind, version, policy, success := "callback", "", "", "", choiceText(cb.Policy),
		choiceText(cb.Success)
	var rule []string
	switch {
	case poll != nil:
		what, outcome, success, rule = "poll", cmp.Or(string(poll.Outcome), "none yet"), "", pollLines(poll)
	case cb.Kind == client.Poll:
		kind = "poll (see \"dispatcher poll get " + cb.ID + "\")"
	}
	if cb.Version != nil {
		version = strconv.FormatInt(*cb.Version, 10)
	}
	lock := cb.LockKey
	if cb.Order != "" {
		lock += " (" + string(cb.Order) + " order)"
	}
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(cb.Labels)) {
		labels = append(labels, name+"="+cb.Labels[name])
	}
	if strings.HasPrefix(policy, "{") { // the tiers show the policy
		policy = ""
	}
	c.Lines(10, slices.Concat([]string{
		what, cb.ID, "state", stateText(c, cb), "outcome", outcome, "kind", kind, "sends",
		cb.Method + " " + cb.URL,
		"topic", cb.Topic, "ref", cb.Ref, "version", version, "lock key", lock, "endpoint", cb.EndpointID,
		"lane", cb.Lane,
		"labels", strings.Join(labels, " "),
		"attempts", attemptCount(cb) + " counted, " + strconv.Itoa(cb.DivertCount) + " postponed",
		"policy", policy, "tiers", tiersText(cb), "success", success,
	}, rule, []string{
		"signer", choiceText(cb.Signer), "accepted", console.ClockTime(cb.CreatedAt),
		"created by", cb.CreatedBy,
		"expires", console.ClockTime(cb.ExpiresAt), "finished", console.ClockTime(cb.FinishedAt),
	})...)
	fmt.Fprintln(c.Out)
	t := c.NewTable("attempt", "started", "late", "outcome", "response", "next attempt")
	for i := range attempts {
		t.Row(attemptRow(c, cb.Kind, &attempts[i])...)
	}
	for _, step := range laterAttempts(cb, attempts, now) {
		t.Row(step.name, step.at, "", c.Paint("upcoming", console.Faint), "", step.next)
	}
	t.Render()
}

// tiersText formats the waits of a callback. If the last one repeats, it also prints the deadline.
func tiersText(cb *client.Callback) string {
	s := joined(cb.Tiers, " ")
	if cb.MaxAttempts != nil {
		return s
	}
	s += " …, the last one repeats"
	var policy struct {
		Deadline string `json:"deadline"`
	}
	if json.Unmarshal(cb.Policy.Object, &policy) == nil && policy.Deadline != "" {
		s += ", for " + console.Printable(policy.Deadline)
	}
	return s
}

// attemptRow returns the cells of an attempt. A poll's response is final or pending instead of succeeded or
// failed.
func attemptRow(c *session, kind client.Kind, a *client.Attempt) []any {
	number := "#" + strconv.Itoa(a.Number)
	if a.Trigger == "manual" {
		number += " manual"
	}
	outcome, answer := string(a.Outcome), answerText(a)
	if !a.Charged {
		outcome += ", not counted"
	}
	colour := console.Red
	switch {
	case kind == client.Poll && a.Outcome == "succeeded":
		// The poll's own state says whether the upstream reported a success or a failure.
		outcome, colour = "final", console.Green
	case kind == client.Poll && a.Class == client.ClassRuleMismatch && a.StatusCode != 0 && a.Rule != nil:
		// This is no failure, and the rule is printed above.
		outcome, colour = "pending", console.Yellow
		answer = strconv.Itoa(a.StatusCode) + ": " + console.Short(a.Rule.Saw, console.Widest)
	case a.Outcome == "succeeded":
		colour = console.Green
	}
	late := fmt.Sprintf("%.1fms", a.LatenessMs)
	return []any{number, console.ClockTime(a.StartedAt), late, c.Paint(outcome, colour), answer,
		console.ClockTime(a.NextDueAt)}
}

// answerText formats the response of an attempt and, for a failure, its cause.
func answerText(a *client.Attempt) string {
	answer := string(a.Class)
	if a.StatusCode != 0 {
		answer = strconv.Itoa(a.StatusCode) + " " + answer
	}
	switch {
	case a.Error != "":
		answer += ": " + console.Short(a.Error, console.Widest)
	case a.Rule != nil && a.Outcome != "succeeded":
		answer += ": expected " + console.Short(a.Rule.Expected, console.Widest) + ", got " +
			console.Short(a.Rule.Saw, console.Widest)
	case a.ResponseBody != "":
		answer += ": " + console.Short(a.ResponseBody, console.Widest)
	}
	return answer
}

// laterAttempt is an attempt that has not been made yet.
type laterAttempt struct{ name, at, next string }

// laterAttempts returns the attempts that follow if each one fails, with their earliest times. An attempt
// takes time, so the real ones are later. A policy without an end has none to list.
func laterAttempts(cb *client.Callback, attempts []client.Attempt, now time.Time) []laterAttempt {
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
	var steps []laterAttempt
	for i := range left {
		step := laterAttempt{name: "#" + strconv.Itoa(made+1+i), at: console.ClockTime(at)}
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

// callbackExplain shows why a callback is waiting.
type callbackExplain struct {
	ID string `arg:"" help:"Id of the callback."`
	answerFlags
}

// Run prints the explanation.
func (cmd *callbackExplain) Run(c *session) error {
	r := get(remote.CallbackPath(cmd.ID) + "/explain")
	return printResponse(c, r, func(x *client.Explanation) { showExplanation(c, c.Out, x) })
}

// showExplanation prints an explanation.
func showExplanation(c *session, w io.Writer, x *client.Explanation) {
	fmt.Fprintln(w, x.Summary)
	if !x.NextAt.IsZero() {
		fmt.Fprintf(w, "next attempt: not before %s\n", console.ClockTime(x.NextAt))
	}
	for i := range x.Blocking {
		b := &x.Blocking[i]
		span := ""
		if !b.Since.IsZero() {
			span += "  since " + console.ClockTime(b.Since)
		}
		if !b.Until.IsZero() {
			span += "  until " + console.ClockTime(b.Until)
		}
		fmt.Fprintf(w, "\n%s%s\n  %s\n", c.Paint(string(b.Code), console.Bold), span, b.Detail)
		if b.Cure != "" {
			fmt.Fprintf(w, "  what to do: %s\n", shellCure(b.Cure))
		}
	}
}

// shellCures maps cures that are calls of the API to commands.
var shellCures = []struct {
	call    *regexp.Regexp
	command string
}{
	{regexp.MustCompile(`^POST /v1/resume$`), "dispatcher resume"},
	{regexp.MustCompile(`^POST /v1/endpoints/([^/ ]+)/resume$`), "dispatcher endpoint resume $1"},
	{regexp.MustCompile(`^PATCH /v1/endpoints/([^/ ]+) \{"enabled": true\}$`),
		"dispatcher endpoint set $1 --enable"},
	{regexp.MustCompile(`^POST /v1/lanes/(\S+)/resume$`), "dispatcher lane resume $1"},
	{
		regexp.MustCompile(`PUT /v1/lanes/(\S+)/limits \{"(rate|concurrency)": "?([^"}]+)"?\}`),
		"dispatcher lane limit $1 --$2 $3",
	},
	{regexp.MustCompile(`POST /v1/callbacks/([^/ ]+)/(retry|cancel)\b`), "dispatcher callback $2 $1"},
}

// shellCure replaces API calls in a cure with the commands that make them.
func shellCure(cure string) string {
	for _, c := range shellCures {
		cure = c.call.ReplaceAllString(cure, c.command)
	}
	return cure
}

// callbackEvidence prints the delivery report of a callback.
type callbackEvidence struct {
	serverFlags
	ID   string `arg:"" help:"Id of the callback."`
	Lang string `placeholder:"CODE" help:"Language of the report: en or zh-CN. Default: en."`
}

// Help is the text below the summary of callback evidence --help.
func (*callbackEvidence) Help() string {
	return "The report lists each attempt with its time and its response. It has no credentials, and only " +
		"the SHA-256 of the payload. So you can give it to the receiver: " +
		"dispatcher callback evidence ID --lang zh-CN > evidence.txt."
}

// Run prints the report. On a terminal it escapes control characters, because receivers wrote parts of it.
func (cmd *callbackEvidence) Run(c *session) error {
	path := remote.CallbackPath(cmd.ID) + "/evidence"
	if cmd.Lang != "" {
		path += "?" + url.Values{"lang": {cmd.Lang}}.Encode()
	}
	answer, err := c.call(get(path), nil)
	if err != nil {
		return err
	}
	if c.OutTerminal {
		printLines(c, strings.TrimRight(string(answer), "\n"))
		return nil
	}
	_, err = c.Out.Write(answer)
	return err
}
