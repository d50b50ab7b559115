package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The values of the label held.
const (
	heldYes = "yes"
	heldNo  = "no"
)

// laneReasons are the codes of blocks that hold a lane.
var laneReasons = []string{
	BlockProjectPaused, BlockEndpointPaused, BlockLanePaused, BlockEndpointOff, BlockBreakerOpen,
	BlockRetryAfter, BlockRate, BlockConcurrency,
}

const (
	// maxLocked is how many callbacks with a lock key are looked up in the index for one page of a walk, the
	// oldest first. Further ones count as held.
	maxLocked = 1000
	// maxLanesHeld is up to how many held lanes are counted.
	maxLanesHeld = 100_000
)

// An overdueSum counts overdue callbacks. oldest is the earliest due time, zero without a callback.
type overdueSum struct {
	count  int
	oldest int64
}

func (s *overdueSum) add(count int, oldest int64) {
	if count == 0 {
		return
	}
	s.count += count
	if s.oldest == 0 || oldest < s.oldest {
		s.oldest = oldest
	}
}

// An overdueCount is the result of a walk over overdue callbacks, or of its beginning.
type overdueCount struct {
	held, free overdueSum
	// lanes are the held lanes, with the code of their first block.
	lanes map[int64]string
}

// An overdueMeter counts overdue callbacks. A walk over very many takes several calls of measure. Until it is
// complete, the figures are those of the last complete walk, or what this one has found if that is more.
// RunMeasure alone uses it.
type overdueMeter struct {
	ct       *Controller
	after    store.Cursor
	complete overdueCount
	walk     overdueCount
}

// restart forgets all figures.
func (m *overdueMeter) restart() { *m = overdueMeter{ct: m.ct} }

// measure continues the walk and publishes the figures. more is true if the walk is not complete. After an
// error the next call begins a new walk, because a part of this page may be counted already.
func (m *overdueMeter) measure(ctx context.Context) (more bool, err error) {
	now := m.ct.clock.Now()
	more, err = m.countPage(ctx, now)
	if err != nil {
		m.walk, m.after = overdueCount{}, store.Cursor{}
		return false, fmt.Errorf("measure overdue callbacks: %w", err)
	}
	m.publish(now)
	return more, nil
}

// countPage counts the next page of the walk.
func (m *overdueMeter) countPage(ctx context.Context, now int64) (more bool, err error) {
	before := now - m.ct.o.Times.Slack.Milliseconds()
	page, err := m.ct.o.Store.OverdueLanes(ctx, m.after, before, now)
	if err != nil {
		return false, err
	}
	off, err := m.ct.sendingIsOff(ctx)
	if err != nil {
		return false, err
	}
	if m.walk.lanes == nil {
		m.walk.lanes = make(map[int64]string)
	}
	reasons := m.ct.heldLanes(ctx, page.Lanes, now)
	var locked []*store.OverdueLane
	for i := range page.Lanes {
		l := &page.Lanes[i]
		reason := reasons[l.ID]
		if reason != "" && len(m.walk.lanes) < maxLanesHeld {
			m.walk.lanes[l.ID] = reason
		}
		switch {
		case off || reason != "" || l.Wait == store.WaitsForOrder:
			m.walk.held.add(l.Count, l.OldestDue)
		case l.Wait == store.WaitsForLock:
			locked = append(locked, l)
		default:
			m.walk.free.add(l.Count, l.OldestDue)
		}
	}
	if err := m.addLocked(ctx, locked, page.End, now); err != nil {
		return false, err
	}
	m.after = page.End
	if !page.More {
		m.complete, m.walk, m.after = m.walk, overdueCount{}, store.Cursor{}
	}
	return page.More, nil
}

// addLocked counts callbacks with a lock key in lanes that are not held. Those wait for the lock that the
// index has put off.
func (m *overdueMeter) addLocked(
	ctx context.Context, lanes []*store.OverdueLane, end store.Cursor, now int64,
) error {
	if len(lanes) == 0 {
		return nil
	}
	total, ids := 0, make([]int64, len(lanes))
	for i, l := range lanes {
		total, ids[i] = total+l.Count, l.ID
	}
	rows, err := m.ct.o.Store.OverdueLocked(ctx, m.after, end, now, ids, maxLocked)
	if err != nil {
		return err
	}
	refs := make([]schedule.Ref, len(rows))
	for i := range rows {
		refs[i] = schedule.Ref{ID: rows[i].ID, Lane: rows[i].LaneID}
	}
	// Without the index, no callback waits for a lock.
	positions, _, indexErr := m.ct.index.AskIndex(ctx, refs, nil)
	for i := range rows {
		to := &m.walk.free
		if indexErr == nil && positions[i].Place == schedule.Delayed && positions[i].Due > now {
			to = &m.walk.held
		}
		to.add(1, rows[i].DueAt)
	}
	if len(rows) == maxLocked && total > maxLocked {
		m.walk.held.add(total-maxLocked, rows[len(rows)-1].DueAt)
	}
	return nil
}

// publish sets the metrics.
func (m *overdueMeter) publish(now int64) {
	count, age := make(map[string]float64), make(map[string]float64)
	for held, sums := range map[string][2]overdueSum{
		heldYes: {m.complete.held, m.walk.held}, heldNo: {m.complete.free, m.walk.free},
	} {
		last, found := sums[0], sums[1]
		count[held] = float64(max(last.count, found.count))
		oldest := found.oldest // exact: the walk is in the order of due times
		if oldest == 0 && last.oldest != 0 {
			oldest = max(last.oldest, m.after.DueAt) // this walk found none up to its position
		}
		if oldest != 0 {
			age[held] = float64(now-oldest) / 1000
		}
	}
	lanes := m.complete.lanes
	if len(m.walk.lanes) > len(lanes) {
		lanes = m.walk.lanes
	}
	byReason := make(map[string]float64)
	for _, reason := range lanes {
		byReason[reason]++
	}
	m.ct.installation.overdue.Set(count)
	m.ct.installation.oldest.Set(age)
	m.ct.installation.lanes.Set(byReason)
}

// sendingIsOff reports whether all sending is stopped, or every process with workers was started with sending
// off.
func (ct *Controller) sendingIsOff(ctx context.Context) (bool, error) {
	if ct.index.Stopped() {
		return true, nil
	}
	blocks, err := ct.workerBlock(ctx)
	return err == nil && len(blocks) > 0 && blocks[0].Code == BlockSendingHeld, err
}

// heldLanes returns the code of the first block of each lane that is held. If the index does not answer, it
// returns those that SQL holds.
func (ct *Controller) heldLanes(
	ctx context.Context, lanes []store.OverdueLane, now int64,
) map[int64]string {
	held := make(map[int64]string)
	views := make(map[int64]LaneView)
	var ask []int64
	for i := range lanes {
		l := &lanes[i]
		v := LaneView{LaneBacklog: store.LaneBacklog{Lane: l.Lane, OldestDue: l.OldestDue},
			Disabled: l.Disabled}
		if reason := v.Why(now); reason != "" {
			held[l.ID] = reason
		} else if _, ok := views[l.ID]; !ok {
			views[l.ID] = v
			ask = append(ask, l.ID)
		}
	}
	for page := range slices.Chunk(ask, schedule.MaxBatch) {
		_, states, err := ct.index.AskIndex(ctx, nil, page)
		if err != nil {
			ct.log.Debug("lanes measured without the index", "error", fmt.Errorf("lane states: %w", err))
			break
		}
		for i := range states {
			v := views[states[i].Lane]
			v.State = &states[i]
			if reason := v.whyHeld(now); reason != "" {
				held[v.ID] = reason
			}
		}
	}
	return held
}

// whyHeld is Why, except that a lane with ready callbacks and with nearly as many attempts in flight as it
// may have counts as held by its concurrency: at any moment some attempts have just ended. So does a lane
// whose receiver does not answer in time.
func (v *LaneView) whyHeld(now int64) string {
	if reason := v.Why(now); reason != "" {
		return reason
	}
	s := v.State
	full := s.Concurrency > 0 && 4*s.InFlight >= 3*s.Concurrency
	if s.Fresh+s.Retries > 0 && (full || s.Health == schedule.TimingOut) {
		return BlockConcurrency
	}
	return ""
}
