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
	// maxCountAge is how long a count of open callbacks is used. Within it what other processes accept is not
	// seen: this bounds by how much a quota can be exceeded.
	maxCountAge = time.Second
	// recountAfter is after how long it is counted again where the last count left no room.
	recountAfter = 200 * time.Millisecond
	// forgetAfter is after how long without an accept the count of a project is forgotten.
	forgetAfter = 10 * time.Second
)

// An openBook knows how many open callbacks the projects with a quota have: as they were counted in SQL last,
// and what this process has accepted since. Projects without a quota are not in it.
type openBook struct {
	rows Store
	// turn has a token of the call that counts.
	turn chan struct{}

	mu sync.Mutex
	of map[string]*openCount
}

// An openCount is what is known of one project.
type openCount struct {
	// counted is what SQL had at the time at; zero: it was not asked yet.
	counted int64
	at      time.Time
	// full: the count left no room.
	full bool
	// since is how many were admitted since the count began, or before it and were not committed then;
	// admitted is how many of those are not committed yet.
	since, admitted int64
	used            time.Time
}

func newOpenBook(rows Store) *openBook {
	return &openBook{rows: rows, turn: make(chan struct{}, 1), of: make(map[string]*openCount)}
}

// admit says how many of n callbacks the project's quota has room for, and keeps that room until they are
// settled. Its error is the store's.
func (b *openBook) admit(ctx context.Context, project string, quota int64, n int) (int, error) {
	if got, ok := b.take(project, quota, n, false); ok {
		return got, nil
	}
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if got, ok := b.take(project, quota, n, false); ok { // another call has counted meanwhile
		return got, nil
	}
	if err := b.count(ctx); err != nil {
		return 0, err
	}
	got, _ := b.take(project, quota, n, true)
	return got, nil
}

// take takes what room there is for n callbacks. It takes none and returns false if the open callbacks must
// be counted first.
func (b *openBook) take(project string, quota int64, n int, justCounted bool) (int, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.of[project]
	if c == nil {
		c = new(openCount)
		b.of[project] = c
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

// settle says that n callbacks that were admitted have been committed or refused. The unused ones of them are
// not open, and give their room back.
func (b *openBook) settle(project string, n, unused int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.of[project] // which is not forgotten while something is admitted
	c.admitted -= int64(n)
	c.since -= int64(unused)
}

// count counts in SQL what the projects that are in use have, and forgets the others.
func (b *openBook) count(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, index.SQLTimeout)
	defer cancel()
	now := time.Now()
	var projects []string
	committed := make(map[string]int64)
	b.mu.Lock()
	for project, c := range b.of {
		if c.admitted == 0 && now.Sub(c.used) > forgetAfter {
			delete(b.of, project)
			continue
		}
		projects = append(projects, project)
		committed[project] = c.since - c.admitted // SQL has these
	}
	b.mu.Unlock()
	open, err := b.rows.OpenCallbacks(ctx, projects)
	if err != nil {
		return fmt.Errorf("count open callbacks: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, project := range projects {
		c := b.of[project]
		c.counted, c.at = open[project], now
		c.since -= committed[project]
	}
	return nil
}

// unused counts the callbacks that need no room: those that were refused, are replays, or ended at once.
func unused(accepted []store.Accepted) (n int) {
	for i := range accepted {
		if a := &accepted[i]; a.Err != nil || a.Replayed || a.Callback.State != store.Scheduled {
			n++
		}
	}
	return n
}

// acceptWithin commits as many of the drafts as the quota of their project has room for; zero: it has none.
// Each of the others is answered if it repeats what was accepted before, else it has store.ErrOpenQuota.
func (ac *Accepter) acceptWithin(
	ctx context.Context, quota int64, drafts []store.Draft,
) ([]store.Accepted, error) {
	settle, err := ac.reserve(ctx, drafts[0].Callback.Project, quota, len(drafts))
	if err == nil {
		accepted, err := ac.acceptDrafts(ctx, drafts)
		settle(unused(accepted)) // after an error some may be there, until it is counted again
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

// acceptSome commits the first of the drafts, as many as the quota has room for, and answers these, and of
// the others those that repeat one of them.
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
	ac.open.settle(project, n, unused(accepted))
	if err != nil {
		return nil, err
	}
	replays, err := ac.o.Store.Replays(ctx, drafts[n:])
	for i := range drafts[n:] {
		a := store.Accepted{Err: err} // the first ones are accepted, whatever becomes of these
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

// reserve keeps room for n callbacks, or returns store.ErrOpenQuota where the quota (zero: there is none) has
// not as much. They are settled by what it returns, with how many of them are not open by that.
func (ac *Accepter) reserve(
	ctx context.Context, project string, quota int64, n int,
) (settle func(unused int), err error) {
	if quota == 0 {
		return func(int) {}, nil
	}
	got, err := ac.open.admit(ctx, project, quota, n)
	if err != nil {
		return nil, err
	}
	if got < n {
		ac.open.settle(project, got, got)
		return nil, store.ErrOpenQuota
	}
	return func(unused int) { ac.open.settle(project, n, unused) }, nil
}

// RoomFor returns store.ErrOpenQuota where the project's quota has no room for n more callbacks now. It keeps
// none.
func (ac *Accepter) RoomFor(ctx context.Context, p *store.Project, n int) error {
	settle, err := ac.reserve(ctx, p.ID, p.Quotas.OpenCallbacks, n)
	if err == nil {
		settle(n)
	}
	return err
}
