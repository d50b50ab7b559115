package part

import "time"

// ClaimMargin is what a claim in SQL lives beyond its attempt's timeout.
const ClaimMargin = 15 * time.Second

// Times are how long it takes until the work of a process that died is taken up. They are constants of the
// released program; a test build (tag failpoints) can set them shorter.
type Times struct {
	// Lease is how long the index holds a claim. With the default timeout of 15 s it ends together with the claim in
	// SQL, so that nothing has to be extended.
	Lease time.Duration
	// Margin is what a claim in SQL lives beyond its attempt's timeout. An attempt begins within it, or not at all.
	Margin time.Duration
	// Sweep is the period of the sweep, in whole seconds.
	Sweep time.Duration
	// Slack is how long a row may be overdue, or its claim run out, before the sweep looks whether the index has it.
	Slack time.Duration
	// Leader is how long the process that rebuilds, redrives or loads up to the horizon may be silent before another
	// one takes over. Three quarters of the least horizon are nine times that.
	Leader time.Duration
}

// UsualTimes are those of the released program.
func UsualTimes() Times {
	return Times{
		Lease:  30 * time.Second,
		Margin: ClaimMargin,
		Sweep:  15 * time.Second,
		Slack:  5 * time.Second,
		Leader: 10 * time.Second,
	}
}
