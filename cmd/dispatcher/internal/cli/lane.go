package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// LaneCommand is the API for lanes from the shell.
type LaneCommand struct {
	List   laneList   `cmd:"" help:"List lanes with what waits in them, and what holds them."`
	Pause  lanePause  `cmd:"" help:"Hold a lane: callbacks are accepted, none is sent."`
	Resume laneResume `cmd:"" help:"Let a paused lane go on."`
	Limit  laneLimit  `cmd:"" help:"Bound how many attempts of a lane may begin, and be in flight."`
	Secret laneSecret `cmd:"" help:"Print the secret that signs what is sent in a lane."`
}

// A shownLane is what the commands read of a lane. What only the index knows is nil where it does not answer.
type shownLane struct {
	Lane        string `json:"lane"`
	EndpointID  string `json:"endpoint_id"`
	Rate        string `json:"rate"`
	Concurrency *int   `json:"concurrency"`
	shownPause
	Open      int        `json:"open"`
	AgeMs     *int64     `json:"age_ms"`
	InFlight  *int       `json:"in_flight"`
	Now       *int       `json:"concurrency_now"`
	Most      *int       `json:"concurrency_limit"`
	Health    string     `json:"health"`
	Held      string     `json:"held"`
	HeldSince *time.Time `json:"held_since"`
	HeldUntil *time.Time `json:"held_until"`
	Holds     []struct {
		Code string `json:"code"`
	} `json:"holds"`
}

// laneList lists lanes.
type laneList struct {
	remote.Flags
	Search string `placeholder:"TEXT" help:"Only those with this in their key."`
	Held   bool   `help:"Only those that are paused: by themselves, with their endpoint or with the project."`
	listFlags
}

// Run prints the lanes.
func (cmd *laneList) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	q := url.Values{}
	if cmd.Search != "" {
		q.Set("search", cmd.Search)
	}
	if cmd.Held {
		q.Set("held", "true")
	}
	return showList(ctx, c, cl, "/v1/lanes", q, cmd.listFlags, "no lanes match", func(lanes []shownLane) {
		now := time.Now()
		t := c.NewTable("lane", "open", "oldest", "in flight", "rate", "answers", "held")
		for i := range lanes {
			l := &lanes[i]
			oldest := ""
			if l.AgeMs != nil {
				oldest = "due " + ago(now.Add(-time.Duration(*l.AgeMs)*time.Millisecond), now)
			}
			t.AppendRow([]any{console.Short(l.Lane, console.Widest), l.Open, oldest, l.inFlight(), console.Printable(l.Rate), healthText(l.Health), l.held()})
		}
		t.Render()
	})
}

// inFlight says how many attempts there are, how many there may be now, and how many that may become.
func (l *shownLane) inFlight() string {
	if l.InFlight == nil {
		if l.Concurrency != nil {
			return "? of " + strconv.Itoa(*l.Concurrency)
		}
		return "?"
	}
	s := strconv.Itoa(*l.InFlight)
	if l.Now != nil {
		s += " of " + strconv.Itoa(*l.Now)
	}
	if l.Most != nil && (l.Now == nil || *l.Most != *l.Now) {
		s += ", limit " + strconv.Itoa(*l.Most)
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

// held says why nothing is sent now, since when and until when, and names what else holds the lane.
func (l *shownLane) held() string {
	if l.Held == "" {
		return ""
	}
	s := console.Printable(l.Held)
	if l.HeldSince != nil {
		s += " since " + console.ClockTime(l.HeldSince)
	}
	switch {
	case l.Paused && strings.HasSuffix(l.Held, "_paused"):
		s += " " + l.sentence()
	case l.HeldUntil != nil:
		s += " until " + console.ClockTime(l.HeldUntil)
	}
	for _, hold := range l.Holds[min(1, len(l.Holds)):] {
		s += "; " + console.Printable(hold.Code)
	}
	return s
}

// lanePath is the address of one lane's calls: keys of lanes have slashes in them.
func lanePath(lane, call string) string { return "/v1/lanes/" + url.PathEscape(lane) + "/" + call }

// setLane makes a call that changes a lane, and says by show what it came to.
func setLane(ctx context.Context, c *console.Console, f remote.Flags, method, path string, in any, asJSON bool, show func(*shownLane)) error {
	cl, err := remote.New(c, f)
	if err != nil {
		return err
	}
	var l shownLane
	answer, err := cl.Call(ctx, method, path, in, &l)
	if err != nil {
		return err
	}
	if asJSON {
		return console.PrintJSON(c, answer)
	}
	show(&l)
	return nil
}

// lanePause holds a lane.
type lanePause struct {
	remote.Flags
	Lane string `arg:"" help:"Key of the lane, as a callback shows it: its endpoint's id, https://host:port, or the caller's own."`
	pauseFlags
}

// Run holds the lane.
func (cmd *lanePause) Run(ctx context.Context, c *console.Console) error {
	return setLane(ctx, c, cmd.Flags, http.MethodPost, lanePath(cmd.Lane, "pause"), cmd.request(), cmd.JSON, func(l *shownLane) {
		fmt.Fprintf(c.Out, "nothing of the lane %s is sent %s\n", console.Printable(l.Lane), l.sentence())
	})
}

// laneResume lets a lane go on.
type laneResume struct {
	remote.Flags
	Lane string `arg:"" help:"Key of the lane."`
	resumeFlags
}

// Run lets the lane go on. It may be held by something else still.
func (cmd *laneResume) Run(ctx context.Context, c *console.Console) error {
	return setLane(ctx, c, cmd.Flags, http.MethodPost, lanePath(cmd.Lane, "resume"), reasonOf(cmd.Reason), cmd.JSON, func(l *shownLane) {
		if l.Paused {
			fmt.Fprintf(c.Out, "the lane %s is no longer paused by itself, but with its endpoint or the project %s\n", console.Printable(l.Lane), l.sentence())
			return
		}
		fmt.Fprintf(c.Out, "the lane %s goes on\n", console.Printable(l.Lane))
	})
}

// laneLimit bounds a lane.
type laneLimit struct {
	remote.Flags
	Lane        string   `arg:"" help:"Key of the lane."`
	Rate        string   `placeholder:"N/s" help:"How many attempts may begin: 50/s, 300/m, 10/h or 1/d."`
	Concurrency int      `placeholder:"N" help:"How many attempts may be in flight."`
	Clear       []string `enum:"rate,concurrency" placeholder:"rate,concurrency" help:"Take these bounds away."`
	Reason      string   `placeholder:"TEXT" help:"Why, for the audit."`
	JSON        bool     `name:"json" help:"Print the server's answer for machines."`
}

// Run sets the bounds that are given; the others stay.
func (cmd *laneLimit) Run(ctx context.Context, c *console.Console) error {
	in := map[string]any{}
	putTexts(in, map[string]string{"rate": cmd.Rate})
	if cmd.Concurrency != 0 {
		in["concurrency"] = cmd.Concurrency
	}
	for _, bound := range cmd.Clear {
		if in[bound] != nil {
			return &console.UsageError{Lines: []string{fmt.Sprintf("--%s and --clear %[1]s exclude each other", bound)}}
		}
		in[bound] = nil
	}
	if len(in) == 0 {
		return &console.UsageError{Lines: []string{"give --rate, --concurrency or --clear"}}
	}
	putTexts(in, map[string]string{"reason": cmd.Reason})
	return setLane(ctx, c, cmd.Flags, http.MethodPut, lanePath(cmd.Lane, "limits"), in, cmd.JSON, func(l *shownLane) {
		rate, concurrency := console.FirstOf(console.Printable(l.Rate), "any"), "the setting lane_concurrency"
		if l.Concurrency != nil {
			concurrency = strconv.Itoa(*l.Concurrency)
		}
		fmt.Fprintf(c.Out, "the lane %s: rate %s, in flight at most %s\n", console.Printable(l.Lane), rate, concurrency)
	})
}

// laneSecret prints the secret of a lane.
type laneSecret struct {
	remote.Flags
	Lane   string `arg:"" help:"Key of the lane, as a callback shows it."`
	Signer string `placeholder:"NAME" help:"The signer that signs with it; each has a secret of its own. Default: standard-v1."`
	JSON   bool   `name:"json" help:"Print the server's answer for machines."`
}

// Run prints it.
func (cmd *laneSecret) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	q := url.Values{"lane": {cmd.Lane}}
	if cmd.Signer != "" {
		q.Set("signer", cmd.Signer)
	}
	var s shownSecret
	answer, err := cl.Call(ctx, http.MethodGet, "/v1/secret?"+q.Encode(), nil, &s)
	if err != nil {
		return err
	}
	return s.print(c, answer, cmd.JSON, false)
}
