package source

import "time"

// OpenWithin is Open with other limits for a Read from the beginning, and for each other call.
func OpenWithin(o Options, full, call time.Duration) (*Source, error) {
	return open(o, limits{full: full, call: call})
}
