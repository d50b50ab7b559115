package dispatch

import "time"

// A complaint is a line of the log that something fails, which is taken back when it works again.
type complaint struct {
	stands bool
	at     time.Time
}

// due says whether to complain now.
func (c *complaint) due(now time.Time) bool {
	if c.stands || !c.at.IsZero() && now.Sub(c.at) < complainEvery {
		return false
	}
	c.stands, c.at = true, now
	return true
}

// over says whether there is something to take back.
func (c *complaint) over() bool {
	stood := c.stands
	c.stands = false
	return stood
}

// A patience says when what failed may be asked again: at once, unless it is half down.
type patience struct {
	back  time.Time // when it worked again
	since time.Time // when it began to fail, relapses apart
	askAt time.Time // when it may be asked next
}

// failed notes that it has just begun to fail, and says whether it had worked again only just before.
func (p *patience) failed(now time.Time, within, wait time.Duration) (relapse bool) {
	if p.back.IsZero() || now.Sub(p.back) >= within {
		p.since = now
		return false
	}
	p.askAt = now.Add(wait)
	return true
}
