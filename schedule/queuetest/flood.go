package queuetest

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A flood is what a claimer did that slept until each reply's next event.
type flood struct {
	leases        []schedule.Lease
	at            []int64 // when each was claimed
	claims, empty int
	began, ended  int64
}

// perSecond is how many leases were given in each second of it.
func (fl *flood) perSecond() float64 {
	return float64(len(fl.leases)) * 1000 / float64(fl.ended-fl.began)
}

// drainFor claims for so long, and answers all at once, as a claimer does that sleeps until the next event of each reply.
func (f *fixture) drainFor(d time.Duration, max int) *flood {
	f.Helper()
	fl := new(flood)
	for {
		req := f.wide()
		req.Max = max
		c := f.claim(req)
		fl.claims++
		if fl.began == 0 {
			fl.began = c.Now
		}
		fl.ended = c.Now
		if c.Now-fl.began >= d.Milliseconds() {
			f.ack(c.Leases, schedule.Answered)
			return fl
		}
		for range c.Leases {
			fl.at = append(fl.at, c.Now)
		}
		fl.leases = append(fl.leases, c.Leases...)
		f.ack(c.Leases, schedule.Answered)
		if len(c.Leases) == 0 {
			fl.empty++
		}
		if c.More {
			continue
		}
		if c.Next == 0 {
			f.Fatalf("nothing is in sight after %d leases", len(fl.leases))
		}
		if left := c.Next - f.Now(); left > 0 {
			f.pass(time.Duration(left) * time.Millisecond)
		}
	}
}
