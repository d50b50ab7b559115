package cli

import (
	"context"
	"fmt"
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
	Search string `placeholder:"TEXT" help:"Only those with this in their key."`
	Held   bool   `help:"Only those that are paused: by themselves, with their endpoint or with the project."`
	listFlags
}

// Run prints the lanes.
func (cmd *laneList) Run(ctx context.Context, c *console.Console) error {
	q := parameters("search", cmd.Search, "held", yes(cmd.Held))
	now := time.Now()
	oldest := func(l *client.LaneView) any {
		if l.AgeMs == nil {
			return ""
		}
		return "due " + ago(now.Add(-time.Duration(*l.AgeMs)*time.Millisecond), now)
	}
	return list(ctx, c, cmd.listFlags, "/v1/lanes", q, "no lanes match", []console.Column[client.LaneView]{
		{Name: "lane", Of: func(l *client.LaneView) any { return console.Short(l.Lane.Lane, console.Widest) }},
		{Name: "open", Of: func(l *client.LaneView) any { return l.Open }},
		{Name: "oldest", Of: oldest},
		{Name: "in flight", Of: func(l *client.LaneView) any { return inFlight(l) }},
		{Name: "rate", Of: func(l *client.LaneView) any { return console.Printable(l.Rate) }},
		{Name: "answers", Of: func(l *client.LaneView) any { return healthText(l.Health) }},
		{Name: "held", Of: func(l *client.LaneView) any { return heldText(l) }},
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

func healthText(health string) string {
	switch health {
	case "timing_out":
		return "times out"
	case "answering":
		return "yes"
	}
	return console.Printable(health)
}

// heldText says why nothing is sent now, since when and until when, and names what else holds the lane.
func heldText(l *client.LaneView) string {
	if l.Held == "" {
		return ""
	}
	s := console.Printable(l.Held)
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
		s += "; " + console.Printable(hold.Code)
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
func (cmd *lanePause) Run(ctx context.Context, c *console.Console) error {
	return ask(ctx, c, cmd.answerFlags, post(lanePath(cmd.Lane, "pause"), cmd.body()), func(l *client.Lane) {
		fmt.Fprintf(c.Out, "nothing of the lane %s is sent %s\n", console.Printable(l.Lane), pausedText(&l.Pause))
	})
}

// laneResume lets a lane go on.
type laneResume struct {
	Lane string `arg:"" help:"Key of the lane."`
	changeFlags
}

// Run lets the lane go on. It may be held by something else still.
func (cmd *laneResume) Run(ctx context.Context, c *console.Console) error {
	return ask(ctx, c, cmd.answerFlags, post(lanePath(cmd.Lane, "resume"), reasonOf(cmd.Reason)), func(l *client.Lane) {
		if l.Paused {
			fmt.Fprintf(c.Out, "the lane %s is no longer paused by itself, but with its endpoint or the project %s\n",
				console.Printable(l.Lane), pausedText(&l.Pause))
			return
		}
		fmt.Fprintf(c.Out, "the lane %s goes on\n", console.Printable(l.Lane))
	})
}

// laneLimit bounds a lane.
type laneLimit struct {
	Lane        string   `arg:"" help:"Key of the lane."`
	Rate        string   `placeholder:"N/s" help:"How many attempts may begin: 50/s, 300/m, 10/h or 1/d."`
	Concurrency int      `placeholder:"N" help:"How many attempts may be in flight."`
	Clear       []string `enum:"rate,concurrency" placeholder:"rate,concurrency" help:"Take these bounds away."`
	changeFlags
}

// Run sets the bounds that are given; the others stay.
func (cmd *laneLimit) Run(ctx context.Context, c *console.Console) error {
	in := body{}
	in.texts("rate", cmd.Rate)
	if cmd.Concurrency != 0 {
		in["concurrency"] = cmd.Concurrency
	}
	for _, bound := range cmd.Clear {
		if in[bound] != nil {
			return console.Wrong("--%s and --clear %[1]s exclude each other", bound)
		}
		in[bound] = nil
	}
	if len(in) == 0 {
		return console.Wrong("give --rate, --concurrency or --clear")
	}
	in.texts("reason", cmd.Reason)
	r := request{method: http.MethodPut, path: lanePath(cmd.Lane, "limits"), in: in}
	return ask(ctx, c, cmd.answerFlags, r, func(l *client.Lane) {
		fmt.Fprintf(c.Out, "the lane %s: rate %s, in flight at most %s\n", console.Printable(l.Lane),
			console.FirstOf(console.Printable(l.Rate), "any"), numberOr(l.Concurrency, "the setting lane_concurrency"))
	})
}

// laneSecret prints the secret of a lane.
type laneSecret struct {
	Lane   string `arg:"" help:"Key of the lane, as a callback shows it."`
	Signer string `placeholder:"NAME" help:"The signer that signs with it; each has a secret of its own. Default: standard-v1."`
	answerFlags
}

// Run prints it.
func (cmd *laneSecret) Run(ctx context.Context, c *console.Console) error {
	q := parameters("lane", cmd.Lane, "signer", cmd.Signer)
	return ask(ctx, c, cmd.answerFlags, get("/v1/secret?"+q.Encode()), printSecret(c, false))
}
