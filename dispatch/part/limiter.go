package part

import "time"

// complainEvery is the least time between two complaints of the same thing: SQL or an index that comes and goes must not
// fill the log.
const complainEvery = 10 * time.Second

// A Limiter is a line of the log that something fails, which is taken back when it works again.
type Limiter struct {
	stands bool
	at     time.Time
}

// Due says whether to complain now.
func (c *Limiter) Due(now time.Time) bool {
	if c.stands || !c.at.IsZero() && now.Sub(c.at) < complainEvery {
		return false
	}
	c.stands, c.at = true, now
	return true
}

// Again is due for a line that is repeated while it lasts.
func (c *Limiter) Again(now time.Time) bool {
	c.stands = false
	return c.Due(now)
}

// Over says whether there is something to take back.
func (c *Limiter) Over() bool {
	stood := c.stands
	c.stands = false
	return stood
}
