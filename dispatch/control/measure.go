package control

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

const (
	// measureEvery is the pause between two measurements of the installation. measureMore is the pause while
	// the last one has not seen all overdue callbacks. measureFirst is the pause before the first one: by
	// then a new index is filled.
	measureEvery = 15 * time.Second
	measureMore  = 5 * time.Second
	measureFirst = 2 * time.Second
	// measureLease is the lease of the process that measures. It lasts for three measurements.
	measureLease = 45 * time.Second
	// maxFailing is up to how many failing endpoints are counted.
	maxFailing = 10_000
	// lastTier is the last position on the ladder with a value of its own.
	lastTier = 15
)

// installation are the metrics of the whole installation. The process with the lease measures them.
type installation struct {
	overdue, oldest, lanes, open, items *process.Lapsing
	locks, waiters, failing, processes  *process.Lapsing
}

func newInstallation(p process.Metrics) installation {
	held := fmt.Sprintf("held=yes: it waits for its lane (a pause, the breaker, Retry-After, a limit), for "+
		"its lock or its order, or sending is off. Reading 100000 overdue callbacks takes 5 s, and the "+
		"figures can be as old as it takes to read all. Of 100000, %d with a lock key are looked up; "+
		"further ones count as held=yes.", maxLocked)
	tiers := []string{beyondTiers}
	for i := range lastTier + 1 {
		tiers = append(tiers, strconv.Itoa(i))
	}
	return installation{
		overdue: p.Lapsing("overdue_callbacks",
			"Callbacks that were due over 5 s ago and are not attempted. "+held, "held", heldYes, heldNo),
		oldest: p.Lapsing("oldest_overdue_seconds",
			"How long the oldest callback has been due that was due over 5 s ago and is not attempted. "+
				"0: there is none. "+held, "held", heldYes, heldNo),
		lanes: p.Lapsing("lanes_held", fmt.Sprintf(
			"Lanes with overdue callbacks that wait for their lane, by the first reason that explain gives. "+
				"Counts at most %d.", maxLanesHeld), "reason", laneReasons...),
		open: p.Lapsing("open_callbacks",
			"Open callbacks by tier: how many counted attempts they have had on their retry schedule.",
			"tier", tiers...),
		items: p.Lapsing("index_items", "Callbacks in the index by place.", "place",
			schedule.Delayed.String(), schedule.Ready.String(), schedule.Leased.String()),
		locks: p.Lapsing("index_locks",
			"Lock keys that the index holds, expired ones until the next audit included.", ""),
		waiters: p.Lapsing("index_lock_waiters", "Callbacks that wait for a lock key.", ""),
		failing: p.Lapsing("endpoints_failing",
			fmt.Sprintf("Endpoints whose last attempt failed. Counts at most %d.", maxFailing), ""),
		processes: p.Lapsing("processes",
			"Running dispatchers: those with a heartbeat in the last 30 s.", ""),
	}
}

// clear makes all metrics absent, because another process measures.
func (in *installation) clear() {
	for _, l := range []*process.Lapsing{
		in.overdue, in.oldest, in.lanes, in.open, in.items, in.locks, in.waiters, in.failing, in.processes,
	} {
		l.Clear()
	}
}

// RunMeasure measures the installation until ctx ends, while this process has the lease. A metric that cannot
// be measured lapses.
func (ct *Controller) RunMeasure(ctx context.Context) {
	m := &overdueMeter{ct: ct}
	leader := ct.index.NewLeader("measure", measureLease)
	defer leader.Resign(ctx)
	process.Sleep(ctx, measureFirst)
	process.Loop{
		Every: measureEvery, AtOnce: true, Log: ct.log,
		Failing:   "measuring the installation failed, its metrics lapse",
		Recovered: "the installation is measured again",
	}.Run(ctx, func(ctx context.Context) (time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, measureEvery)
		defer cancel()
		measures, err := leader.Lead(ctx)
		switch {
		case errors.Is(err, index.ErrNoClock):
			// This process started while Redis is down. Its lease cannot be counted, so it measures, maybe
			// beside others: what is overdue matters most now.
		case err != nil:
			return 0, err
		case !measures:
			ct.installation.clear()
			m.restart()
			return 0, nil
		}
		return ct.measure(ctx, m)
	})
	ct.installation.clear()
}

// measure sets all metrics. One that fails does not stop the others.
func (ct *Controller) measure(ctx context.Context, m *overdueMeter) (pause time.Duration, err error) {
	more, err := m.measure(ctx)
	if more {
		pause = measureMore
	}
	return pause, errors.Join(err, ct.measureOpen(ctx), ct.measureFailing(ctx), ct.measureProcesses(ctx),
		ct.measureIndex(ctx))
}

func (ct *Controller) measureIndex(ctx context.Context) error {
	if ct.index.Failing() {
		return nil // other metrics and the log show it
	}
	ctx, cancel := context.WithTimeout(ctx, ct.index.CallTime())
	defer cancel()
	s, err := ct.index.Stats(ctx)
	switch {
	case errors.Is(err, schedule.ErrLost), errors.Is(err, schedule.ErrRebuilding):
		return nil // a rebuild fills it
	case err != nil:
		return err
	}
	in := &ct.installation
	in.items.Set(map[string]float64{
		schedule.Delayed.String(): float64(s.Delayed), schedule.Ready.String(): float64(s.Ready),
		schedule.Leased.String(): float64(s.Leased),
	})
	in.locks.SetOne(float64(s.Locks))
	in.waiters.SetOne(float64(s.Waiters))
	return nil
}

// beyondTiers is the value of the label tier for all positions above lastTier.
var beyondTiers = strconv.Itoa(lastTier+1) + "+"

func (ct *Controller) measureOpen(ctx context.Context) error {
	tiers, err := ct.o.Store.OpenTiers(ctx)
	if err != nil {
		return err
	}
	open := make(map[string]float64)
	for tier, n := range tiers {
		name := beyondTiers
		if tier <= lastTier {
			name = strconv.Itoa(max(tier, 0))
		}
		open[name] += float64(n)
	}
	ct.installation.open.Set(open)
	return nil
}

func (ct *Controller) measureFailing(ctx context.Context) error {
	n, err := ct.o.Store.FailingEndpoints(ctx, maxFailing)
	if err == nil {
		ct.installation.failing.SetOne(float64(n))
	}
	return err
}

func (ct *Controller) measureProcesses(ctx context.Context) error {
	list, err := ct.o.Processes(ctx)
	if err != nil {
		return err
	}
	alive := 0
	for i := range list {
		if list[i].SeenAt >= ct.clock.Now()-DispatcherSilence.Milliseconds() {
			alive++
		}
	}
	ct.installation.processes.SetOne(float64(alive))
	return nil
}
