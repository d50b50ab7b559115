package cli

import (
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// StatsCommand prints the counters of a project.
type StatsCommand struct{ answerFlags }

// Help is the text below the summary of stats --help.
func (*StatsCommand) Help() string {
	return "With the admin key of the settings, also the sizes of the index, over all projects."
}

// Run prints the counters.
func (cmd *StatsCommand) Run(c *session) error {
	return printResponse(c, get("/v1/stats"), func(s *client.Stats) { showStats(c, s) })
}

// showStats prints the counters: states, tiers, the largest lanes and the index.
func showStats(c *session, s *client.Stats) {
	t := c.NewTable("state", "callbacks")
	for _, state := range []client.State{client.Scheduled, client.Succeeded, client.Dead, client.Canceled} {
		t.Row(c.Paint(string(state), console.StateColour(state)), s.States[state])
	}
	t.Render()
	if len(s.Tiers) > 0 {
		fmt.Fprintln(c.Out)
		t = c.NewTable("attempts made", "scheduled")
		for _, tier := range s.Tiers {
			t.Row(tier.Tier, tier.Scheduled)
		}
		t.Render()
	}
	if len(s.Lanes) > 0 {
		fmt.Fprintln(c.Out)
		console.ShowTable(c.Console, s.Lanes, "lane, open", func(l *client.LaneStats) []any {
			return []any{console.Short(l.Lane, console.Widest), l.Open}
		})
	}
	if index, ok := s.Index.Get(); ok {
		fmt.Fprintln(c.Out)
		showIndex(c, &index)
	} else if s.Index.IsNull() {
		c.printf("\n%s\n", c.Paint("the index does not respond", console.Red))
	}
}

// showIndex prints the sizes of the index.
func showIndex(c *session, x *client.IndexStats) {
	c.Lines(10, "index", fmt.Sprintf("%d waiting, %d ready, %d in flight, %d quarantined", x.Delayed, x.Ready,
		x.Leased, x.Quarantined),
		"lanes", fmt.Sprintf("%d can be sent, %d are blocked", x.RunnableLanes, x.BlockedLanes),
		"locks", fmt.Sprintf("%d held, %d callbacks wait for one", x.Locks, x.Waiters),
		"next due", console.ClockTime(x.HeadDueAt))
}
