package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// AlertCommand has the commands for alerts.
type AlertCommand struct {
	Create  alertCreate  `cmd:"" help:"Create an alert: a condition, and where its messages go."`
	List    alertList    `cmd:"" help:"List alerts with their state, newest first."`
	Get     alertGet     `cmd:"" help:"Show one alert."`
	Set     alertSet     `cmd:"" aliases:"edit" help:"Change an alert. Only the given fields change."`
	Silence alertSilence `cmd:"" help:"Send no messages for a while. What still fires afterwards is sent then."`
	Test    alertTest    `cmd:"" help:"Send a test message, and print the callback that carries it."`
	Firings alertFirings `cmd:"" help:"List the last 100 firings of an alert, newest first."`
	Delete  alertDelete  `cmd:"" help:"Delete an alert. Its messages stay."`
}

// forAlert completes a request whose path is relative to an alert.
func (r request) forAlert(id string) request {
	r.path = "/v1/alerts/" + url.PathEscape(id) + r.path
	if !strings.HasPrefix(id, store.AlertPrefix) {
		return r.onMissing(fmt.Sprintf("%q is not the id of an alert; "+
			"\"dispatcher alert list --search NAME\" shows ids", id))
	}
	return r.onMissing(fmt.Sprintf("no alert has the id %q", id))
}

// alertArg is the argument that names an alert.
type alertArg struct {
	ID string `arg:"" help:"Id of the alert, al_ and 26 characters."`
}

// alertFields are the flags of alert create and alert set.
type alertFields struct {
	Name        string  `in:"name" placeholder:"TEXT" help:"Name, unique in the project."`
	Kind        string  `in:"when.kind" placeholder:"KIND" help:"Condition: oldest_due, dead_rate, endpoint_success, breaker_open, poll_unresolved, schedule_late, reconcile, relay_lag or relay_refused."`
	Above       string  `placeholder:"VALUE" help:"Threshold: a duration such as 5m, or a number."`
	Below       float64 `in:"when.below" placeholder:"PERCENT" help:"Lowest success rate of an endpoint, in percent. Default: 90."`
	For         string  `in:"when.for" placeholder:"DURATION" help:"How long the condition holds before the alert fires."`
	Window      string  `in:"when.window" placeholder:"DURATION" help:"Time that is counted, 1m to 2h."`
	MinAttempts int64   `in:"when.min_attempts" placeholder:"N" help:"Fewest attempts in the window for a verdict. Default: 20."`
	Endpoint    string  `in:"when.endpoint" placeholder:"ID|EXTERNAL_ID" help:"Only this endpoint."`
	Lane        string  `in:"when.lane" placeholder:"LANE" help:"Only this lane."`
	Schedule    string  `in:"when.schedule" placeholder:"ID" help:"Only this schedule."`
	Sink        string  `in:"sink,json" placeholder:"JSON|@FILE|-" help:"Where messages go: {\"type\": \"slack\", \"url\": \"https://…\"}. Use a file for credentials."`
	DigestAt    string  `in:"digest.at" placeholder:"HH:MM" help:"Time of the daily summary."`
	DigestZone  string  `in:"digest.timezone" placeholder:"ZONE" help:"Time zone of the daily summary, such as Asia/Shanghai. Default: UTC."`
	changeFlags
}

// body returns the request body of a command that embeds these flags.
func (f *alertFields) body(c *session, cmd any) (body, error) {
	in, err := bodyOf(c, cmd)
	if err != nil || f.Above == "" {
		return in, err
	}
	var threshold any = f.Above
	if n, err := strconv.ParseInt(f.Above, 10, 64); err == nil {
		threshold = json.Number(strconv.FormatInt(n, 10))
	}
	in.nested("when")["above"] = threshold
	return in, nil
}

// send makes the request that creates or changes an alert, and prints the result.
func (f *alertFields) send(c *session, r request, done string) error {
	return printResponse(c, r, func(a *client.Alert) {
		c.printf("%s  %s  %s; %s\n", a.ID, console.Short(a.Name, console.Widest), done, alertState(c, a))
	})
}

// alertCreate creates an alert.
type alertCreate struct {
	alertFields
	SilenceUntil string `in:"silence_until" placeholder:"TIME" help:"No messages until this time, RFC 3339."`
	Disabled     bool   `in:"enabled,not" aliases:"disable" help:"Create the alert disabled."`
}

// Run creates the alert.
func (cmd *alertCreate) Run(c *session) error {
	in, err := cmd.body(c, cmd)
	switch {
	case err != nil:
		return err
	case cmd.Name == "":
		return console.Wrong("give --name")
	case cmd.Kind == "":
		return console.Wrong("give --kind: what the alert watches")
	case cmd.Sink == "":
		return console.Wrong("give --sink: where messages go")
	}
	return cmd.send(c, post("/v1/alerts", in), "created")
}

// alertSet changes an alert.
type alertSet struct {
	alertArg
	alertFields
	NoDigest bool `help:"No daily summary any more."`
	Enabled  bool `in:"enabled" xor:"enabled" aliases:"enable" help:"Enable the alert."`
	Disabled bool `in:"enabled,not" xor:"enabled" aliases:"disable" help:"Disable the alert. What it has found ends."`
}

// Help is the text below the summary of alert set --help.
func (*alertSet) Help() string {
	return "Other fields stay. A condition is replaced as a whole, so give --kind and all of its fields. A " +
		"sink is replaced as a whole too, and keeps its credentials if the file has none."
}

// Run changes the alert.
func (cmd *alertSet) Run(c *session) error {
	in, err := cmd.body(c, cmd)
	if err == nil && cmd.NoDigest {
		in["digest"] = nil
	}
	if err == nil && !in.changes() {
		err = console.Wrong("nothing to change: give a field to set")
	}
	if err != nil {
		return err
	}
	return cmd.send(c, request{method: http.MethodPatch, in: in}.forAlert(cmd.ID), "changed")
}

// alertSilence sets or ends the silence of an alert.
type alertSilence struct {
	alertArg
	For   string `placeholder:"DURATION" xor:"silence" help:"How long from now, such as 1h."`
	Until string `placeholder:"TIME" xor:"silence" help:"Until this time, RFC 3339."`
	Off   bool   `xor:"silence" help:"End the silence."`
	changeFlags
}

// Run sets the end of the silence.
func (cmd *alertSilence) Run(c *session) error {
	in, err := bodyOf(c, cmd)
	if err != nil {
		return err
	}
	switch {
	case cmd.Off:
		in["silence_until"] = nil
	case cmd.Until != "":
		in["silence_until"] = cmd.Until
	case cmd.For != "":
		d, err := schedule.ParseDuration(cmd.For)
		if err != nil {
			return console.Wrong("--for must be a duration, such as 1h")
		}
		in["silence_until"] = time.Now().Add(d).UTC().Format(time.RFC3339Nano)
	default:
		return console.Wrong("give --for, --until or --off")
	}
	r := request{method: http.MethodPatch, in: in}.forAlert(cmd.ID)
	return printResponse(c, r, func(a *client.Alert) {
		c.printf("%s  %s  %s\n", a.ID, console.Short(a.Name, console.Widest), alertState(c, a))
	})
}

// alertList lists alerts.
type alertList struct {
	Search string `in:"search" placeholder:"TEXT" help:"Only if the name contains this text."`
	listFlags
}

// Run prints the alerts.
func (cmd *alertList) Run(c *session) error {
	header, now := "id, name, condition, sink, state, last message", time.Now()
	return list(c, cmd.listFlags, "/v1/alerts", cmd, "no alerts match", header,
		func(a *client.Alert) []any {
			return []any{a.ID, console.Short(a.Name, 32), condition(a), console.Printable(a.Sink.Type),
				alertState(c, a), lastMessage(a, now)}
		})
}

// lastMessage returns when the last message was sent, and whether it arrived.
func lastMessage(a *client.Alert, now time.Time) string {
	when := agoOr(a.LastMessageAt, now, "never")
	if a.LastMessageState == client.Dead {
		when += ", not delivered"
	}
	return when
}

// condition formats the condition of an alert in short.
func condition(a *client.Alert) string {
	w := &a.When
	text := console.Printable(w.Kind)
	switch {
	case w.Above != "":
		text += " > " + console.Printable(string(w.Above))
	case w.Below != 0:
		text += fmt.Sprintf(" < %g%%", w.Below)
	}
	return text
}

// alertState formats the state of an alert.
func alertState(c *session, a *client.Alert) string {
	state := console.Printable(a.State)
	switch a.State {
	case "firing":
		state = c.Paint(fmt.Sprintf("firing (%d)", a.Firing), console.Red)
	case "pending", "disabled":
		state = c.Paint(state, console.Yellow)
	}
	if !a.SilenceUntil.IsZero() {
		state += ", silent until " + console.ClockTime(a.SilenceUntil)
	}
	return state
}

// alertGet shows one alert.
type alertGet struct {
	alertArg
	answerFlags
}

// Run prints the alert.
func (cmd *alertGet) Run(c *session) error {
	return printResponse(c, get("").forAlert(cmd.ID), func(a *client.Alert) {
		now, digest := time.Now(), "off"
		if d, ok := a.Digest.Get(); ok {
			digest = d.At + " " + d.Timezone
		}
		w, since := &a.When, ""
		if !a.Since.IsZero() {
			since = console.ClockTime(a.Since)
		}
		attempts := ""
		if w.MinAttempts != 0 {
			attempts = strconv.FormatInt(w.MinAttempts, 10)
		}
		c.Lines(12, "alert", a.ID, "name", a.Name, "condition", condition(a), "for", string(w.For),
			"window", string(w.Window), "min attempts", attempts, "endpoint", w.Endpoint, "lane", w.Lane,
			"schedule", w.Schedule, "sink", strings.TrimSpace(a.Sink.Type+" "+a.Sink.URL+a.Sink.Server),
			"state", alertState(c, a), "since", since, "digest", digest,
			"last message", strings.TrimSpace(lastMessage(a, now)+" "+a.LastMessageID),
			"last error", a.LastError, "created", console.ClockTime(a.CreatedAt),
			"changed", console.ClockTime(a.UpdatedAt))
	})
}

// alertTest sends a test message.
type alertTest struct {
	alertArg
	changeFlags
}

// Run sends the message.
func (cmd *alertTest) Run(c *session) error {
	return printResponse(c, post("/test", cmd).forAlert(cmd.ID), func(cb *client.Callback) {
		c.printf("%s  accepted (see \"dispatcher callback get %[1]s\")\n", cb.ID)
	})
}

// alertFirings lists the firings of an alert.
type alertFirings struct {
	alertArg
	answerFlags
}

// Run prints the firings.
func (cmd *alertFirings) Run(c *session) error {
	return printResponse(c, get("/firings").forAlert(cmd.ID), func(all *client.Page[client.AlertFiring]) {
		if len(all.Data) == 0 {
			c.printf("it has never fired\n")
			return
		}
		moment := func(t time.Time) string {
			if t.IsZero() {
				return ""
			}
			return console.ClockTime(t)
		}
		console.ShowTable(c.Console, all.Data, "instance, condition broken, fired, resolved",
			func(r *client.AlertFiring) []any {
				return []any{console.Short(r.Name, 48), moment(r.PendingSince), moment(r.FiredAt),
					moment(r.ResolvedAt)}
			})
	})
}

// alertDelete deletes an alert.
type alertDelete struct {
	alertArg
	reasonFlag
	serverFlags
}

// Run deletes the alert.
func (cmd *alertDelete) Run(c *session) error {
	r := request{method: http.MethodDelete, in: cmd}.forAlert(cmd.ID)
	return c.done(r, "%s is deleted; its messages stay", console.Printable(cmd.ID))
}
