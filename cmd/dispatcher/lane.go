package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// laneCommand is the API for lanes from the shell.
type laneCommand struct {
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
	clientFlags
	Search string `placeholder:"TEXT" help:"Only those with this in their key."`
	Held   bool   `help:"Only those that are paused: by themselves, with their endpoint or with the project."`
	listFlags
}

// Run prints the lanes.
func (cmd *laneList) Run(ctx context.Context, c *console) error {
	cl, err := newClient(c, cmd.clientFlags)
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
		t := c.newTable("lane", "open", "oldest", "in flight", "rate", "answers", "held")
		for i := range lanes {
			l := &lanes[i]
			oldest := ""
			if l.AgeMs != nil {
				oldest = "due " + ago(now.Add(-time.Duration(*l.AgeMs)*time.Millisecond), now)
			}
			t.AppendRow([]any{short(l.Lane, widest), l.Open, oldest, l.inFlight(), printable(l.Rate), healthText(l.Health), l.held()})
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
	return printable(health)
}

// held says why nothing is sent now, since when and until when, and names what else holds the lane.
func (l *shownLane) held() string {
	if l.Held == "" {
		return ""
	}
	s := printable(l.Held)
	if l.HeldSince != nil {
		s += " since " + clockTime(l.HeldSince)
	}
	switch {
	case l.Paused && strings.HasSuffix(l.Held, "_paused"):
		s += " " + l.sentence()
	case l.HeldUntil != nil:
		s += " until " + clockTime(l.HeldUntil)
	}
	for _, hold := range l.Holds[min(1, len(l.Holds)):] {
		s += "; " + printable(hold.Code)
	}
	return s
}

// lanePath is the address of one lane's calls: keys of lanes have slashes in them.
func lanePath(lane, call string) string { return "/v1/lanes/" + url.PathEscape(lane) + "/" + call }

// setLane makes a call that changes a lane, and says by show what it came to.
func setLane(ctx context.Context, c *console, f clientFlags, method, path string, in any, asJSON bool, show func(*shownLane)) error {
	cl, err := newClient(c, f)
	if err != nil {
		return err
	}
	var l shownLane
	answer, err := cl.call(ctx, method, path, in, &l)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(c, answer)
	}
	show(&l)
	return nil
}

// lanePause holds a lane.
type lanePause struct {
	clientFlags
	Lane string `arg:"" help:"Key of the lane, as a callback shows it: its endpoint's id, https://host:port, or the caller's own."`
	pauseFlags
}

// Run holds the lane.
func (cmd *lanePause) Run(ctx context.Context, c *console) error {
	return setLane(ctx, c, cmd.clientFlags, http.MethodPost, lanePath(cmd.Lane, "pause"), cmd.request(), cmd.JSON, func(l *shownLane) {
		fmt.Fprintf(c.out, "nothing of the lane %s is sent %s\n", printable(l.Lane), l.sentence())
	})
}

// laneResume lets a lane go on.
type laneResume struct {
	clientFlags
	Lane string `arg:"" help:"Key of the lane."`
	resumeFlags
}

// Run lets the lane go on. It may be held by something else still.
func (cmd *laneResume) Run(ctx context.Context, c *console) error {
	return setLane(ctx, c, cmd.clientFlags, http.MethodPost, lanePath(cmd.Lane, "resume"), reasonOf(cmd.Reason), cmd.JSON, func(l *shownLane) {
		if l.Paused {
			fmt.Fprintf(c.out, "the lane %s is no longer paused by itself, but with its endpoint or the project %s\n", printable(l.Lane), l.sentence())
			return
		}
		fmt.Fprintf(c.out, "the lane %s goes on\n", printable(l.Lane))
	})
}

// laneLimit bounds a lane.
type laneLimit struct {
	clientFlags
	Lane        string   `arg:"" help:"Key of the lane."`
	Rate        string   `placeholder:"N/s" help:"How many attempts may begin: 50/s, 300/m, 10/h or 1/d."`
	Concurrency int      `placeholder:"N" help:"How many attempts may be in flight."`
	Clear       []string `enum:"rate,concurrency" placeholder:"rate,concurrency" help:"Take these bounds away."`
	Reason      string   `placeholder:"TEXT" help:"Why, for the audit."`
	JSON        bool     `name:"json" help:"Print the server's answer for machines."`
}

// Run sets the bounds that are given; the others stay.
func (cmd *laneLimit) Run(ctx context.Context, c *console) error {
	in := map[string]any{}
	putTexts(in, map[string]string{"rate": cmd.Rate})
	if cmd.Concurrency != 0 {
		in["concurrency"] = cmd.Concurrency
	}
	for _, bound := range cmd.Clear {
		if in[bound] != nil {
			return &usageError{lines: []string{fmt.Sprintf("--%s and --clear %[1]s exclude each other", bound)}}
		}
		in[bound] = nil
	}
	if len(in) == 0 {
		return &usageError{lines: []string{"give --rate, --concurrency or --clear"}}
	}
	putTexts(in, map[string]string{"reason": cmd.Reason})
	return setLane(ctx, c, cmd.clientFlags, http.MethodPut, lanePath(cmd.Lane, "limits"), in, cmd.JSON, func(l *shownLane) {
		rate, concurrency := firstOf(printable(l.Rate), "any"), "the setting lane_concurrency"
		if l.Concurrency != nil {
			concurrency = strconv.Itoa(*l.Concurrency)
		}
		fmt.Fprintf(c.out, "the lane %s: rate %s, in flight at most %s\n", printable(l.Lane), rate, concurrency)
	})
}

// laneSecret prints the secret of a lane.
type laneSecret struct {
	clientFlags
	Lane   string `arg:"" help:"Key of the lane, as a callback shows it."`
	Signer string `placeholder:"NAME" help:"The signer that signs with it; each has a secret of its own. Default: standard-v1."`
	JSON   bool   `name:"json" help:"Print the server's answer for machines."`
}

// Run prints it.
func (cmd *laneSecret) Run(ctx context.Context, c *console) error {
	cl, err := newClient(c, cmd.clientFlags)
	if err != nil {
		return err
	}
	q := url.Values{"lane": {cmd.Lane}}
	if cmd.Signer != "" {
		q.Set("signer", cmd.Signer)
	}
	var s shownSecret
	answer, err := cl.call(ctx, http.MethodGet, "/v1/secret?"+q.Encode(), nil, &s)
	if err != nil {
		return err
	}
	return s.print(c, answer, cmd.JSON, false)
}
