package source

import (
	"context"
	"time"
)

// OpenWithin is Open with other limits for a Read from the beginning, and for each other call.
func OpenWithin(o Options, full, call time.Duration) (*Source, error) {
	l := defaultLimits
	l.patient, l.call = full, call
	return open(o, l)
}

// OpenSilence is Open with another limit for the silence of a server.
func OpenSilence(o Options, silence time.Duration) (*Source, error) {
	l := defaultLimits
	l.silence = silence
	return open(o, l)
}

// OpenIdle is Open with another limit for the silence of a relay.
func OpenIdle(o Options, idle time.Duration) (*Source, error) {
	l := defaultLimits
	l.idle = idle
	return open(o, l)
}

// RemoveWithoutCommit does what a Remove does before its COMMIT, on MySQL.
func (c *Conn) RemoveWithoutCommit(ctx context.Context, keys []Key) error {
	for _, s := range []statement{{sql: "START TRANSACTION"}, c.d.remove(c.t.outbox, "seq", keys)} {
		if _, err := c.db.(*mysqlSession).exec(ctx, s); err != nil {
			return err
		}
	}
	return nil
}
