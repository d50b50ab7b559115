package accept

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// maxCountAge is how long a count of open callbacks is used. Meanwhile this process does not see what
	// others accept, which bounds by how much a quota can be exceeded.
	maxCountAge = time.Second
	// recountAfter is how soon a project whose last count left no room is counted again.
	recountAfter = 200 * time.Millisecond
	// forgetAfter is how long a project without accepts keeps its count.
	forgetAfter = 10 * time.Second
)

// An openCounter estimates the open callbacks of projects with a quota: the last count in SQL plus what this
// process accepted since. It saves a count for each accept. Projects without a quota have no entry.
type openCounter struct {
	rows Store
	// turn holds a token while a call counts in SQL.
	turn chan struct{}

	mu     sync.Mutex
	counts map[string]*projectCount
}

// A projectCount is the estimate for one project: counted + since callbacks are open.
type projectCount struct {
	// counted is the number in SQL at the time at; a zero at: not counted yet.
	counted int64
	at      time.Time
	// full: the last count left no room.
	full bool
	// since is how many callbacks were admitted that counted does not contain. admitted is how many of those
	// are not finished (see finish).
	since, admitted int64
	used            time.Time
}

func newOpenCounter(rows Store) *openCounter {
	return &openCounter{rows: rows, turn: make(chan struct{}, 1), counts: make(map[string]*projectCount)}
}

// admit returns how many of n callbacks the project's quota has room for, and reserves that room until
// finish. Its error is the store's.
func (b *openCounter) admit(ctx context.Context, project string, quota int64, n int) (int, error) {
	if got, ok := b.tryAdmit(project, quota, n, false); ok {
		return got, nil
	}
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if got, ok := b.tryAdmit(project, quota, n, false); ok { // another call has just counted
		return got, nil
	}
	if err := b.count(ctx); err != nil {
		return 0, err
	}
	got, _ := b.tryAdmit(project, quota, n, true)
	return got, nil
}

// tryAdmit reserves what room there is for n callbacks: the quota minus counted and since. It reserves
// nothing and returns false if the count in SQL is too old, or if there is too little room and a new count
// may show more. justCounted: the count is new, so it is used in any case.
func (b *openCounter) tryAdmit(project string, quota int64, n int, justCounted bool) (int, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.counts[project]
	if c == nil {
		c = new(projectCount)
		b.counts[project] = c
	}
	c.used = time.Now()
	room := max(0, quota-c.counted-c.since)
	if justCounted {
		c.full = room == 0
	} else {
		age := c.used.Sub(c.at)
		tooFew := room < int64(n) && (!c.full || age >= recountAfter)
		if tooFew || age >= maxCountAge {
			return 0, false
		}
	}
	got := min(room, int64(n))
	c.since += got
	c.admitted += got
	return int(got), true
}

// finish ends the reservation of n admitted callbacks, after they were committed or refused. unused of them
// are not open, and give back their room.
func (b *openCounter) finish(project string, n, unused int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.counts[project] // never nil: count keeps it while something is admitted
	c.admitted -= int64(n)
	c.since -= int64(unused)
}

// count counts the open callbacks of the recently used projects in SQL, and drops the other projects. The
// caller holds the token of turn.
func (b *openCounter) count(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, index.SQLTimeout)
	defer cancel()
	now := time.Now()
	var projects []string
	committed := make(map[string]int64)
	b.mu.Lock()
	for project, c := range b.counts {
		if c.admitted == 0 && now.Sub(c.used) > forgetAfter {
			delete(b.counts, project)
			continue
		}
		projects = append(projects, project)
		committed[project] = c.since - c.admitted // the count in SQL contains these
	}
	b.mu.Unlock()
	open, err := b.rows.OpenCallbacks(ctx, projects)
	if err != nil {
		return fmt.Errorf("count open callbacks: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, project := range projects {
		c := b.counts[project]
		c.counted, c.at = open[project], now
		c.since -= committed[project]
	}
	return nil
}

// unused counts the results that need no room: refusals, replays, and callbacks that ended at once.
func unused(accepted []store.Accepted) (n int) {
	for i := range accepted {
		if a := &accepted[i]; a.Err != nil || a.Replayed || a.Callback.State != store.Scheduled {
			n++
		}
	}
	return n
}

// acceptWithin commits as many of the drafts as the quota of their project has room for (zero: no quota).
// Each of the others gets the result of the callback that it repeats, or store.ErrOpenQuota. If there is room
// for all, one transaction suffices. Otherwise replays are answered first, because they need no room.
func (ac *Accepter) acceptWithin(
	ctx context.Context, quota int64, drafts []store.Draft,
) ([]store.Accepted, error) {
	finish, err := ac.reserve(ctx, drafts[0].Callback.Project, quota, len(drafts))
	if err == nil {
		accepted, err := ac.acceptDrafts(ctx, drafts)
		finish(unused(accepted)) // after an error it keeps the whole room: the commit may have happened
		return accepted, err
	}
	if !errors.Is(err, store.ErrOpenQuota) {
		return nil, err
	}
	answers, err := ac.o.Store.Replays(ctx, drafts)
	if err != nil {
		return nil, err
	}
	var fresh []store.Draft
	var places []int
	for i := range answers {
		if errors.Is(answers[i].Err, store.ErrNotFound) {
			answers[i].Err = store.ErrOpenQuota
			fresh, places = append(fresh, drafts[i]), append(places, i)
		}
	}
	accepted, err := ac.acceptSome(ctx, quota, fresh)
	for i := range accepted {
		answers[places[i]] = accepted[i]
	}
	return answers, err
}

// acceptSome commits the first drafts that the quota has room for. Each of the others gets the result of the
// callback that it repeats, or store.ErrOpenQuota.
func (ac *Accepter) acceptSome(
	ctx context.Context, quota int64, drafts []store.Draft,
) ([]store.Accepted, error) {
	if len(drafts) == 0 {
		return nil, nil
	}
	project := drafts[0].Callback.Project
	n, err := ac.open.admit(ctx, project, quota, len(drafts))
	if err != nil || n == 0 {
		return nil, err
	}
	accepted, err := ac.acceptDrafts(ctx, drafts[:n])
	ac.open.finish(project, n, unused(accepted))
	if err != nil {
		return nil, err
	}
	replays, err := ac.o.Store.Replays(ctx, drafts[n:])
	for i := range drafts[n:] {
		a := store.Accepted{Err: err} // an error here must not hide that the first drafts are accepted
		if err == nil {
			a = replays[i]
		}
		if errors.Is(a.Err, store.ErrNotFound) {
			a.Err = store.ErrOpenQuota
		}
		accepted = append(accepted, a)
	}
	return accepted, nil
}

// reserve reserves room for n callbacks, or returns store.ErrOpenQuota if the quota (zero: no quota) has
// less. The caller ends the reservation with finish, and passes how many of the n did not become open.
func (ac *Accepter) reserve(
	ctx context.Context, project string, quota int64, n int,
) (finish func(unused int), err error) {
	if quota == 0 {
		return func(int) {}, nil
	}
	got, err := ac.open.admit(ctx, project, quota, n)
	if err != nil {
		return nil, err
	}
	if got < n {
		ac.open.finish(project, got, got)
		return nil, store.ErrOpenQuota
	}
	return func(unused int) { ac.open.finish(project, n, unused) }, nil
}

// RoomFor returns store.ErrOpenQuota if the project's quota has no room for n more callbacks now. It reserves
// nothing.
func (ac *Accepter) RoomFor(ctx context.Context, p *store.Project, n int) error {
	finish, err := ac.reserve(ctx, p.ID, p.Quotas.OpenCallbacks, n)
	if err == nil {
		finish(n)
	}
	return err
}
