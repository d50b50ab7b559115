package dispatch

import "time"

// claimMargin is what a claim in SQL lives beyond its attempt's timeout.
const claimMargin = 15 * time.Second

// recoveryTimes are how long it takes until the work of a process that died is taken up. They are constants of the
// released program; a test build (tag failpoints) can set them shorter.
type recoveryTimes struct {
	// lease is how long the index holds a claim. With the default timeout of 15 s it ends together with the claim in
	// SQL, so that nothing has to be extended.
	lease time.Duration
	// margin is what a claim in SQL lives beyond its attempt's timeout. An attempt begins within it, or not at all.
	margin time.Duration
	// sweep is the period of the sweep, in whole seconds.
	sweep time.Duration
	// slack is how long a row may be overdue, or its claim run out, before the sweep looks whether the index has it.
	slack time.Duration
	// leader is how long the process that rebuilds, redrives or loads up to the horizon may be silent before another
	// one takes over. Three quarters of the least horizon are nine times that.
	leader time.Duration
}

// usualTimes are those of the released program.
func usualTimes() recoveryTimes {
	return recoveryTimes{
		lease:  30 * time.Second,
		margin: claimMargin,
		sweep:  15 * time.Second,
		slack:  5 * time.Second,
		leader: 10 * time.Second,
	}
}
