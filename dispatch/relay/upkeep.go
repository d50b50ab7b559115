package relay

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	upkeepEvery = time.Minute
	pruneSlice  = 1000
	// pruneWithin is after how long no further slice is deleted in a turn. The next turn that deletes some
	// comes after pruneFactor times what this one took, or after a failure costFactor times, so that rows are
	// not held up.
	pruneWithin = time.Second
	pruneFactor = 4
)

// An upkeep is when what is due beside scans was done.
type upkeep struct {
	// changed: there are other refused rows than reported.
	changed bool
	// The refused rows are read again at refusalsAt, or if they changed, at soonest. That is costFactor times
	// what the last read took, or later.
	refusalsAt, soonest time.Time
	// checkAt is when the server is checked again, and pruneAt when kept rows are deleted next.
	checkAt, pruneAt time.Time
	// problem is why upkeep failed last. It does not keep the relay from handing rows over.
	problem string
}

// keepUp checks the server, reads the refused rows and deletes old kept rows, if due. Its error is that of a
// broken connection.
func (s *session) keepUp() error {
	u, now := &s.upkeep, time.Now()
	if !now.Before(u.checkAt) {
		u.checkAt = now.Add(upkeepEvery)
		if err := s.conn.Writable(s.page); err != nil {
			s.upkeepFailed(err)
			return broken(err)
		}
	}
	if !now.Before(u.refusalsAt) || u.changed && !now.Before(u.soonest) {
		u.changed, u.problem = false, ""
		err := s.readRefusals()
		read := time.Now()
		wait := costFactor * read.Sub(now)
		u.refusalsAt, u.soonest = read.Add(max(upkeepEvery, wait)), read.Add(max(renewEvery, wait))
		if err != nil {
			s.upkeepFailed(err)
			if broken(err) != nil {
				return err
			}
		}
	}
	if s.c.Keep > 0 && !now.Before(u.pruneAt) {
		if err := s.pruneKept(); err != nil {
			s.upkeepFailed(err)
			return broken(err)
		}
	}
	return nil
}

func (s *session) upkeepFailed(err error) {
	s.upkeep.problem = err.Error()
	s.failed(sideSource, err)
}

// readRefusals puts the refused rows into the next report.
func (s *session) readRefusals() error {
	n, err := s.conn.CountRefused(s.page, source.Filter{}, store.RelayCountLimit)
	if err != nil {
		return err
	}
	newest := []client.RelayRefusal{}
	if n > 0 {
		rows, err := s.conn.Refused(s.page, store.MaxRelayRefusals)
		if err != nil {
			return err
		}
		for _, row := range rows {
			newest = append(newest, client.RelayRefusal{
				ID: row.ID, Seq: row.Seq, Kind: row.Kind, Code: row.Code,
				Problem: clip(row.Problem, maxProblem), RefusedAt: row.RefusedAt,
			})
		}
	}
	s.state.refused(n, newest)
	return nil
}

// pruneKept deletes old kept rows in slices.
func (s *session) pruneKept() error {
	began, wait, factor := time.Now(), time.Duration(0), time.Duration(pruneFactor)
	var err error
	for n := pruneSlice; n == pruneSlice && time.Since(began) < pruneWithin; {
		n, err = s.conn.PruneKept(s.page, s.c.Keep, pruneSlice)
		if n < pruneSlice {
			wait = upkeepEvery
		}
	}
	if err != nil {
		factor = costFactor
	}
	now := time.Now()
	s.upkeep.pruneAt = now.Add(max(wait, factor*now.Sub(began)))
	return err
}
