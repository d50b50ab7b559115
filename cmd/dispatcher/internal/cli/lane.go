package cli

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// LaneCommand has the commands for lanes.
type LaneCommand struct {
	List   laneList   `cmd:"" help:"List lanes with their backlog and why they wait."`
	Pause  lanePause  `cmd:"" help:"Pause a lane. Callbacks are still accepted, but not sent."`
	Resume laneResume `cmd:"" help:"Resume a paused lane."`
	Limit  laneLimit  `cmd:"" help:"Set the limits of a lane: rate and concurrent attempts."`
	Secret laneSecret `cmd:"" help:"Print the secret that signs the callbacks of a lane."`
}

// laneList lists lanes.
type laneList struct {
	Search string `in:"search" placeholder:"TEXT" help:"Only lanes whose key contains this text."`
	Held   bool   `in:"held" help:"Only paused lanes. A lane is also paused if its endpoint or the project is."`
	listFlags
}

// Run prints the lanes.
func (cmd *laneList) Run(c *session) error {
	header, now := "lane, open, oldest, in flight, rate, responding, blocked by", time.Now()
	return list(c, cmd.listFlags, "/v1/lanes", cmd, "no lanes match", header, func(l *client.LaneView) []any {
		oldest := ""
		if l.AgeMs != nil {
			oldest = "due " + ago(now.Add(-time.Duration(*l.AgeMs)*time.Millisecond), now)
		}
		return []any{
			console.Short(l.Lane.Lane, console.Widest), l.Open, oldest, inFlight(l), l.Rate,
			meaning(string(l.Health)), heldText(l),
		}
	})
}

// inFlight formats the number of running attempts, the current limit, and the configured limit if it differs.
func inFlight(l *client.LaneView) string {
	if l.InFlight == nil {
		if l.Concurrency != 0 {
			return "? of " + strconv.Itoa(l.Concurrency)
		}
		return "?"
	}
	s := strconv.Itoa(*l.InFlight)
	if l.ConcurrencyNow != 0 {
		s += " of " + strconv.Itoa(l.ConcurrencyNow)
	}
	if l.ConcurrencyLimit != 0 && l.ConcurrencyLimit != l.ConcurrencyNow {
		s += ", limit " + strconv.Itoa(l.ConcurrencyLimit)
	}
	return s
}

// heldText formats why a lane sends nothing now, since when and until when, and the codes of further reasons.
func heldText(l *client.LaneView) string {
	if l.Held == "" {
		return ""
	}
	s := string(l.Held)
	if !l.HeldSince.IsZero() {
		s += " since " + console.ClockTime(l.HeldSince)
	}
	switch {
	case l.Paused && strings.HasSuffix(string(l.Held), "_paused"):
		s += " " + pausedText(&l.Pause)
	case !l.HeldUntil.IsZero():
		s += " until " + console.ClockTime(l.HeldUntil)
	}
	for _, hold := range l.Holds[min(1, len(l.Holds)):] {
		s += "; " + string(hold.Code)
	}
	return s
}

// lanePath is the path of a call for a lane. The key is escaped, because it may contain slashes.
func lanePath(lane, call string) string { return "/v1/lanes/" + url.PathEscape(lane) + "/" + call }

// warnOfNewLane warns if no callback has used a lane yet. That is allowed, to prepare a lane for its first
// callback, but may also be a wrong key.
func warnOfNewLane(c *session, lane string) error {
	q := url.Values{"search": {lane}, "limit": {strconv.Itoa(remote.MostPerPage)}}
	var page client.Page[client.LaneView]
	if _, err := c.call(get("/v1/lanes?"+q.Encode()), &page); err != nil {
		return err
	}
	known := func(l client.LaneView) bool { return l.Lane.Lane == console.Printable(lane) }
	if page.NextCursor == "" && !slices.ContainsFunc(page.Data, known) {
		fmt.Fprintf(c.Err, "warning: there is no lane %q yet: this applies from its first callback on "+
			"(\"dispatcher lane list\" shows the lanes)\n", console.Printable(lane))
	}
	return nil
}

// lanePause pauses a lane.
type lanePause struct {
	Lane string `arg:"" help:"Key of the lane, as \"callback get\" shows it: an endpoint's id, https://host:port, or your own key."`
	pauseFlags
}

// Run pauses the lane.
func (cmd *lanePause) Run(c *session) error {
	if err := warnOfNewLane(c, cmd.Lane); err != nil {
		return err
	}
	return printResponse(c, post(lanePath(cmd.Lane, "pause"), cmd), func(l *client.Lane) {
		c.printf("lane %s  paused %s\n", l.Lane, pausedText(&l.Pause))
	})
}

// laneResume resumes a lane.
type laneResume struct {
	Lane string `arg:"" help:"Key of the lane."`
	changeFlags
}

// Run resumes the lane. It is still paused if its endpoint or the project is.
func (cmd *laneResume) Run(c *session) error {
	return printResponse(c, post(lanePath(cmd.Lane, "resume"), cmd), func(l *client.Lane) {
		if l.Paused {
			c.printf("lane %s  resumed, but its endpoint or the project is still paused %s\n",
				l.Lane, pausedText(&l.Pause))
			return
		}
		c.printf("lane %s  resumed\n", l.Lane)
	})
}

// laneLimit sets the limits of a lane.
type laneLimit struct {
	Lane        string   `arg:"" help:"Key of the lane."`
	Rate        string   `in:"rate" placeholder:"N/s" help:"Maximum rate of attempts: 50/s, 300/m, 10/h or 1/d."`
	Concurrency int      `in:"concurrency" placeholder:"N" help:"Maximum number of attempts in flight."`
	Clear       []string `enum:"rate,concurrency" placeholder:"rate,concurrency" help:"Remove these limits."`
	changeFlags
}

// Run sets the given limits. The others stay.
func (cmd *laneLimit) Run(c *session) error {
	in, err := bodyOf(c, cmd)
	if err != nil {
		return err
	}
	for _, bound := range cmd.Clear {
		if in[bound] != nil {
			return console.Wrong("--%s and --clear %[1]s exclude each other", bound)
		}
		in[bound] = nil
	}
	if !in.changes() {
		return console.Wrong("give --rate, --concurrency or --clear")
	}
	if err := warnOfNewLane(c, cmd.Lane); err != nil {
		return err
	}
	r := request{method: http.MethodPut, path: lanePath(cmd.Lane, "limits"), in: in}
	return printResponse(c, r, func(l *client.Lane) {
		c.printf("lane %s  rate %s, in flight at most %s\n", l.Lane, cmp.Or(l.Rate, "unlimited"),
			numberOr(l.Concurrency, "the setting lane_concurrency"))
	})
}

// laneSecret prints the secret of a lane.
type laneSecret struct {
	Lane   string `in:"lane" arg:"" help:"Key of the lane, as \"callback get\" shows it."`
	Signer string `in:"signer" placeholder:"NAME" help:"Signer that uses the secret; each signer has its own. Default: standard-v1."`
	answerFlags
}

// Run prints the secret.
func (cmd *laneSecret) Run(c *session) error {
	return printResponse(c, get("/v1/secret?"+queryOf(cmd).Encode()), printSecret(c, false))
}

// pauseFlags are the end and the reason of a pause.
type pauseFlags struct {
	For    string `in:"for" xor:"end" placeholder:"DURATION" help:"Pause for this long, such as 2h. Default: until you resume it."`
	Until  string `in:"until" xor:"end" placeholder:"TIME" help:"Pause until this time, RFC 3339."`
	Reason string `in:"reason" placeholder:"TEXT" help:"Reason. It is shown with the pause and kept in the audit log."`
	answerFlags
}

// pausedText formats the end and the reason of a pause.
func pausedText(p *client.Pause) string {
	s := "until you resume it"
	if !p.PausedUntil.IsZero() {
		s = "until " + console.ClockTime(p.PausedUntil)
	}
	if p.PauseReason != "" {
		s += ": " + console.Short(p.PauseReason, console.Widest)
	}
	return s
}

// PauseCommand pauses a project.
type PauseCommand struct{ pauseFlags }

// Help is the text below the summary of pause --help.
func (*PauseCommand) Help() string {
	return "No callback is dropped. Within a second no new attempt starts; " +
		"attempts in flight end normally. To pause a single destination, use " +
		"\"dispatcher endpoint pause\" or \"dispatcher lane pause\"."
}

// Run pauses the project.
func (cmd *PauseCommand) Run(c *session) error {
	return printResponse(c, post("/v1/pause", cmd), func(p *client.ProjectPause) {
		c.printf("project %s  paused %s\n", p.Project, pausedText(&p.Pause))
	})
}

// ResumeCommand resumes a project.
type ResumeCommand struct{ changeFlags }

// Run resumes the project. Endpoints and lanes keep their own pauses.
func (cmd *ResumeCommand) Run(c *session) error {
	return printResponse(c, post("/v1/resume", cmd), func(p *client.ProjectPause) {
		c.printf("project %s  resumed; endpoints and lanes that you paused stay paused\n", p.Project)
	})
}
