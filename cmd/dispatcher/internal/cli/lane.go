package cli

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// LaneCommand is the API for lanes from the shell.
type LaneCommand struct {
	List   laneList   `cmd:"" help:"List lanes with what waits in them, and what holds them."`
	Pause  lanePause  `cmd:"" help:"Hold a lane: callbacks are accepted, none is sent."`
	Resume laneResume `cmd:"" help:"Let a paused lane go on."`
	Limit  laneLimit  `cmd:"" help:"Bound how many attempts of a lane may begin, and be in flight."`
	Secret laneSecret `cmd:"" help:"Print the secret that signs what is sent in a lane."`
}

// laneList lists lanes.
type laneList struct {
	Search string `in:"search" placeholder:"TEXT" help:"Only those with this in their key."`
	Held   bool   `in:"held" help:"Only those that are paused: by themselves, with their endpoint or with the project."`
	listFlags
}

// Run prints the lanes.
func (cmd *laneList) Run(c *session) error {
	header, now := "lane, open, oldest, in flight, rate, answers, held", time.Now()
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

// inFlight says how many attempts there are, how many there may be now, and how many that may become.
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

// heldText says why nothing is sent now, since when and until when, and names what else holds the lane.
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

// lanePath is the address of one lane's calls: keys of lanes have slashes in them.
func lanePath(lane, call string) string { return "/v1/lanes/" + url.PathEscape(lane) + "/" + call }

// lanePause holds a lane.
type lanePause struct {
	Lane string `arg:"" help:"Key of the lane, as a callback shows it: its endpoint's id, https://host:port, or the caller's own."`
	pauseFlags
}

// Run holds the lane.
func (cmd *lanePause) Run(c *session) error {
	return ask(c, post(lanePath(cmd.Lane, "pause"), cmd), func(l *client.Lane) {
		c.printf("nothing of the lane %s is sent %s\n", l.Lane, pausedText(&l.Pause))
	})
}

// laneResume lets a lane go on.
type laneResume struct {
	Lane string `arg:"" help:"Key of the lane."`
	changeFlags
}

// Run lets the lane go on. It may be held by something else still.
func (cmd *laneResume) Run(c *session) error {
	return ask(c, post(lanePath(cmd.Lane, "resume"), cmd), func(l *client.Lane) {
		if l.Paused {
			c.printf("the lane %s is no longer paused by itself, but with its endpoint or the project %s\n",
				l.Lane, pausedText(&l.Pause))
			return
		}
		c.printf("the lane %s goes on\n", l.Lane)
	})
}

// laneLimit bounds a lane.
type laneLimit struct {
	Lane        string   `arg:"" help:"Key of the lane."`
	Rate        string   `in:"rate" placeholder:"N/s" help:"How many attempts may begin: 50/s, 300/m, 10/h or 1/d."`
	Concurrency int      `in:"concurrency" placeholder:"N" help:"How many attempts may be in flight."`
	Clear       []string `enum:"rate,concurrency" placeholder:"rate,concurrency" help:"Take these bounds away."`
	changeFlags
}

// Run sets the bounds that are given; the others stay.
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
	r := request{method: http.MethodPut, path: lanePath(cmd.Lane, "limits"), in: in}
	return ask(c, r, func(l *client.Lane) {
		c.printf("the lane %s: rate %s, in flight at most %s\n", l.Lane, cmp.Or(l.Rate, "any"),
			numberOr(l.Concurrency, "the setting lane_concurrency"))
	})
}

// laneSecret prints the secret of a lane.
type laneSecret struct {
	Lane   string `in:"lane" arg:"" help:"Key of the lane, as a callback shows it."`
	Signer string `in:"signer" placeholder:"NAME" help:"The signer that signs with it; each has a secret of its own. Default: standard-v1."`
	answerFlags
}

// Run prints it.
func (cmd *laneSecret) Run(c *session) error {
	return ask(c, get("/v1/secret?"+queryOf(cmd).Encode()), printSecret(c, false))
}

// pauseFlags say for how long something is held, and why.
type pauseFlags struct {
	For    string `in:"for" xor:"end" placeholder:"DURATION" help:"Hold it for so long, such as 2h. Default, without --until too: until it is resumed."`
	Until  string `in:"until" xor:"end" placeholder:"TIME" help:"Hold it until this time, RFC 3339."`
	Reason string `in:"reason" placeholder:"TEXT" help:"Why: it is shown to whoever asks what holds it, and kept in the audit."`
	answerFlags
}

// pausedText says for how long something is held, and why.
func pausedText(p *client.Pause) string {
	s := "until it is resumed"
	if !p.PausedUntil.IsZero() {
		s = "until " + console.ClockTime(p.PausedUntil)
	}
	if p.PauseReason != "" {
		s += ": " + console.Short(p.PauseReason, console.Widest)
	}
	return s
}

// PauseCommand holds all that a project sends.
type PauseCommand struct{ pauseFlags }

// Help is what pause --help says below the flags' summary.
func (*PauseCommand) Help() string {
	return "Callbacks are accepted as before and none is dropped; within a second no new attempt begins, " +
		"and what is on the wire ends. \"dispatcher endpoint pause\" and " +
		"\"dispatcher lane pause\" hold one destination alone."
}

// Run holds the project.
func (cmd *PauseCommand) Run(c *session) error {
	return ask(c, post("/v1/pause", cmd), func(p *client.ProjectPause) {
		c.printf("nothing of the project %s is sent %s\n", p.Project, pausedText(&p.Pause))
	})
}

// ResumeCommand lets a project go on.
type ResumeCommand struct{ changeFlags }

// Run lets the project go on.
func (cmd *ResumeCommand) Run(c *session) error {
	return ask(c, post("/v1/resume", cmd), func(p *client.ProjectPause) {
		c.printf("the project %s goes on; endpoints and lanes that are paused by themselves stay so\n",
			p.Project)
	})
}
