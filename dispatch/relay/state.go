package relay

import (
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

const (
	// degradedAfter is how long a source may be without a completed scan.
	degradedAfter = 30 * time.Second
	// giveWayEvery is the least time between two times that a process gives way.
	giveWayEvery = 10 * time.Minute
	// rateSpan is the span of the reported rate, in seconds.
	rateSpan = 10
	// maxErrorText bounds the text of an error in a report, in bytes.
	maxErrorText = 1000
)

// A state is what a reader shows of itself.
type state struct {
	mu      sync.Mutex
	leader  bool
	standby bool
	// scanned is when the last scan was completed, or since when this process could read the source.
	scanned time.Time
	// oldest is when the oldest row was inserted that waits. Without such a row, it is when the next scan is
	// due: the lag begins then.
	oldest time.Time
	// unreachable is since when this process fails to connect to the source; zero: it does not fail. gaveWay
	// is when it last gave the lease back because of that.
	unreachable, gaveWay time.Time
	waiting              int
	refusedRows          int
	err                  string
	// refusals are the newest refused rows; nil: they were reported.
	refusals *[]client.RelayRefusal
	rate     rate
}

// begin notes that the process should read the source from now on.
func (s *state) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scanned = time.Now()
}

// lead notes whether this process holds the source and whether another one does. A process that takes the
// source begins with the lag that the server knows. lead returns what was so before.
func (s *state) lead(leader, standby bool, lag time.Duration) (wasLeader, wasStandby bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wasLeader, wasStandby = s.leader, s.standby
	now := time.Now()
	if standby {
		s.unreachable = time.Time{}
	}
	if leader && !s.leader && s.unreachable.IsZero() {
		s.scanned, s.oldest = now, now.Add(-lag)
	}
	if s.standby && !standby {
		s.scanned = now
	}
	s.leader, s.standby = leader, standby
	return wasLeader, wasStandby
}

// connected notes whether a connection to the source was opened.
func (s *state) connected(ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ok:
		s.unreachable, s.gaveWay = time.Time{}, time.Time{}
	case s.unreachable.IsZero():
		s.unreachable = time.Now()
	}
}

// givesWay reports whether another process should try to connect.
func (s *state) givesWay() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !s.leader || s.unreachable.IsZero() || now.Sub(s.unreachable) < degradedAfter ||
		now.Sub(s.gaveWay) < giveWayEvery {
		return false
	}
	s.gaveWay = now
	return true
}

// waits notes when the oldest row that waits was inserted.
func (s *state) waits(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = since
}

// completed notes the end of a scan and how many rows wait after it.
func (s *state) completed(oldest time.Time, waiting int, problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scanned, s.oldest, s.waiting, s.err = time.Now(), oldest, waiting, clip(problem, maxErrorText)
}

func (s *state) failed(problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = clip(problem, maxErrorText)
}

// refused notes the refused rows, which the next report has.
func (s *state) refused(count int, newest []client.RelayRefusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusedRows, s.refusals = count, &newest
}

// handedOver counts rows.
func (s *state) handedOver(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rate.add(time.Now(), n)
}

// report returns the report for the next renewal, or nil if another relay is to report.
func (s *state) report() *client.RelayReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leader {
		return nil
	}
	now := time.Now()
	return &client.RelayReport{
		LagMs: s.lag(now).Milliseconds(), Waiting: s.waiting, RefusedRows: s.refusedRows,
		RowsPerSecond: s.rate.perSecond(now), Error: s.err, Refusals: s.refusals,
	}
}

// reported notes that the server has a report.
func (s *state) reported(r *client.RelayReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r != nil && r.Refusals == s.refusals {
		s.refusals = nil
	}
}

// lag requires the lock. It is that of the process that reads the source.
func (s *state) lag(now time.Time) time.Duration { return max(now.Sub(s.oldest), 0) }

// read calls f with the lock.
func (s *state) read(f func(s *state) float64) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f(s)
}

// degraded reports whether the source should be read and is not.
func (s *state) degraded(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.standby && !s.scanned.IsZero() && now.Sub(s.scanned) > degradedAfter
}

// A rate counts events of the last rateSpan seconds. The zero value has none.
type rate struct {
	// counts has one element a second; that of second s is at s % len.
	counts [rateSpan + 1]int
	second int64
}

func (r *rate) add(now time.Time, n int) {
	r.advance(now)
	r.counts[r.second%int64(len(r.counts))] += n
}

// perSecond returns the mean of the last rateSpan whole seconds.
func (r *rate) perSecond(now time.Time) float64 {
	r.advance(now)
	sum := 0
	for i, n := range r.counts {
		if int64(i) != r.second%int64(len(r.counts)) {
			sum += n
		}
	}
	return float64(sum) / rateSpan
}

// advance clears the seconds that have begun since. A clock that was set back begins no second.
func (r *rate) advance(now time.Time) {
	for to := now.Unix(); r.second < to; r.second++ {
		if to-r.second > int64(len(r.counts)) {
			r.second = to - int64(len(r.counts))
		}
		r.counts[(r.second+1)%int64(len(r.counts))] = 0
	}
}
