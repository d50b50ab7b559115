package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (f *fixture) fold() {
	f.Helper()
	f.ok(f.Fold(f.ctx(), f.now))
}

// outcomes follows the feed to its end, in pages.
func (f *fixture) outcomes(after store.OutcomeCursor, page int) ([]store.TerminalEvent, store.OutcomeCursor) {
	f.Helper()
	var all []store.TerminalEvent
	for {
		events, next, err := f.Outcomes(f.ctx(), project, after, page)
		f.ok(err)
		if len(events) > page {
			f.Fatalf("a page has %d outcomes, the limit is %d", len(events), page)
		}
		if len(events) == 0 {
			if next != after {
				f.Errorf("a page without outcomes moves from %+v to %+v", after, next)
			}
			return all, after
		}
		if last := events[len(events)-1].Cursor; next != last {
			f.Errorf("the next page begins after %+v, the last outcome is %+v", next, last)
		}
		all, after = append(all, events...), next
	}
}

// testOutcomes ends callbacks in every way that there is: each end is in the feed once, as it was then.
func testOutcomes(f *fixture) {
	var want []store.TerminalEvent
	ended := func(id string) {
		f.Helper()
		c := f.get(id)
		if !c.State.Terminal() {
			f.Errorf("%s has not ended: %+v", id, c)
		}
		want = append(want, store.TerminalEvent{
			ID: c.ID, Project: project, Kind: c.Kind, EndpointID: c.EndpointID, Topic: c.Topic, Ref: c.Ref, Labels: c.Labels,
			State: c.State, Reason: c.Reason, At: c.FinishedAt, AttemptCount: c.AttemptCount, LastStatus: c.LastStatus, LastClass: c.LastClass,
		})
		f.now++
		f.fold() // so that they come in this order
	}
	labelled := func(d *store.Draft) { d.Callback.Labels = map[string]string{"a": `"b"`}; d.Callback.Kind = store.Poll }
	c := f.accept(labelled)
	f.win(f.failed(f.claim(c.ID)))
	f.now += 1000
	f.win(f.succeeded(f.claim(c.ID)))
	ended(c.ID)
	dead := f.dead(nil)
	ended(dead.ID)
	c = f.accept(nil)
	f.cancel(c.ID)
	ended(c.ID)
	c = f.accept(nil)
	f.win(f.failed(f.claim(c.ID)))
	f.now += 1000
	s := f.claim(c.ID)
	f.cancel(c.ID)
	f.win(store.Result{ID: c.ID, Fence: s.Fence, State: store.Scheduled, DueAt: f.now}) // handed back
	ended(c.ID)
	c = f.accept(nil)
	f.claim(c.ID)
	f.cancel(c.ID)
	f.now += claimLasts
	f.stamp(f.token(), c.ID)
	ended(c.ID)
	c = f.accept(func(d *store.Draft) { d.Callback.ExpiresAt = f.now + 1 })
	f.now++
	must(f.Expire(f.ctx(), f.now, 10))
	ended(c.ID)
	c = f.accept(nil)
	f.ok(f.Damage(f.ctx(), c.ID))
	f.stamp(f.token(), c.ID)
	ended(c.ID)
	c = f.accept(versioned("r", 1))
	f.accept(versioned("r", 2))
	ended(c.ID)
	ended(f.acceptAll(f.draft(versioned("r", 1)))[0].Callback.ID)
	e := f.endpoint(nil)
	c = f.accept(to(e))
	must(f.DeleteEndpoint(f.ctx(), project, e.ID, f.now, actor))
	must(f.CancelDeleted(f.ctx(), f.now, 10))
	ended(c.ID)
	f.retry(dead.ID, store.Once)
	f.win(f.failed(f.claim(dead.ID)))
	ended(dead.ID)
	f.retry(dead.ID, store.Restart)
	f.win(f.succeeded(f.claim(dead.ID)))
	ended(dead.ID)
	theirs := f.accept(func(d *store.Draft) { d.Callback.Project = "other" })
	f.win(f.succeeded(f.claim(theirs.ID)))
	f.accept(nil)
	f.fold()

	for _, page := range []int{1, 2, 5, 100} {
		got, end := f.outcomes(store.OutcomeCursor{}, page)
		for i := range got {
			if i > 0 && !before(got[i-1].Cursor, got[i].Cursor) {
				f.Errorf("%+v comes before %+v", got[i-1].Cursor, got[i].Cursor)
			}
			got[i].Cursor = store.OutcomeCursor{}
		}
		same(f, fmt.Sprint("pages of ", page), want, got)
		more, _ := f.outcomes(end, page)
		none(f, "after the end", more)
	}
	if got, _, err := f.Outcomes(f.ctx(), "other", store.OutcomeCursor{}, 10); err != nil || len(got) != 1 || got[0].ID != theirs.ID {
		f.Errorf("another project's: %v, %+v", err, got)
	}
}

// before says whether a comes before b in the feed.
func before(a, b store.OutcomeCursor) bool {
	if a.Tx != b.Tx {
		return a.Tx < b.Tx
	}
	if a.Group != b.Group {
		return a.Group < b.Group
	}
	return a.Item < b.Item
}

// testOutcomesClock: what comes later is later, though the clock goes back; and what has been read is not read again.
func testOutcomesClock(f *fixture) {
	var ids []string
	var after store.OutcomeCursor
	for i, step := range []int64{0, 10_000, -60_000, 5, -5, 120_000} {
		f.now += step
		ids = append(ids, f.dead(nil).ID)
		f.fold()
		events, next := f.outcomes(after, 10)
		if len(events) != 1 || events[0].ID != ids[i] || !before(after, next) {
			f.Errorf("step %d: %+v, then %+v", i, events, next)
		}
		after = next
	}
	// Many at once are many rows of the feed.
	f.now++
	drafts := make([]store.Draft, 1500)
	for i := range drafts {
		drafts[i] = f.draft(versioned("r", int64(-i)))
	}
	f.acceptAll(drafts...)
	f.fold()
	events, end := f.outcomes(after, 400)
	seen := make(map[string]bool)
	for _, e := range events {
		seen[e.ID] = true
	}
	if len(events) != 1499 || len(seen) != 1499 {
		f.Errorf("%d outcomes of %d callbacks, want 1499", len(events), len(seen))
	}
	if n, _, err := f.PurgeOutcomes(f.ctx(), f.now, f.now, 100); err != nil || n == 0 {
		f.Errorf("purged %d: %v", n, err)
	}
	if events, _ := f.outcomes(store.OutcomeCursor{}, 400); len(events) != 1499 {
		f.Errorf("%d outcomes after a purge of those before now", len(events))
	}
	if _, _, err := f.PurgeOutcomes(f.ctx(), f.now, f.now+1, 1000); err != nil {
		f.Error(err)
	}
	if events, next := f.outcomes(end, 10); len(events) != 0 || next != end {
		f.Errorf("after a purge of all: %+v, %+v", events, next)
	}
	last := f.dead(nil)
	f.fold()
	if events, _ := f.outcomes(end, 10); len(events) != 1 || events[0].ID != last.ID {
		f.Errorf("what came after a purge of all: %+v", events)
	}
}

// testOutcomesCrowd ends callbacks on many sides at once, several times each, while two processes fold and a reader of the feed is killed
// again and again: it sees each end once, those of a callback in their order.
func testOutcomesCrowd(f *fixture) {
	const writers, rounds, batch = 6, 12, 7
	var mu sync.Mutex
	want := make(map[string][]string) // by callback, what it ended as
	var clock atomic.Int64
	clock.Store(f.now)
	var working sync.WaitGroup
	for w := range writers {
		random := rand.New(rand.NewPCG(uint64(w), 7))
		working.Go(func() {
			for range rounds {
				f.endMany(random, batch, &clock, func(id, as string) {
					mu.Lock()
					defer mu.Unlock()
					want[id] = append(want[id], as)
				})
			}
		})
	}
	done := make(chan struct{})
	go func() { working.Wait(); close(done) }()
	var folding sync.WaitGroup
	for range 2 {
		folding.Go(func() {
			for ended := false; !ended; {
				select {
				case <-done:
					ended = true // and once more
				default:
				}
				if err := f.Fold(f.ctx(), clock.Add(1)); err != nil {
					f.Errorf("fold: %v", err)
				}
			}
		})
	}
	folded := make(chan struct{})
	go func() { folding.Wait(); close(folded) }()

	got := make(map[string][]string)
	var kept store.OutcomeCursor // what survives the reader
	random := rand.New(rand.NewPCG(99, 7))
	for ended := false; !ended; {
		select {
		case <-folded:
			ended = true
		default:
		}
		for after := kept; ; {
			events, next, err := f.Outcomes(f.ctx(), project, after, 1+random.IntN(40))
			if err != nil {
				f.Errorf("outcomes: %v", err)
				break
			}
			if random.IntN(4) == 0 {
				break // killed before it kept anything of the page
			}
			for _, e := range events {
				got[e.ID] = append(got[e.ID], fmt.Sprint(e.State, e.Reason, e.AttemptCount))
			}
			after, kept = next, next
			if len(events) == 0 {
				break
			}
		}
	}
	rest, _ := f.outcomes(kept, 100)
	for _, e := range rest {
		got[e.ID] = append(got[e.ID], fmt.Sprint(e.State, e.Reason, e.AttemptCount))
	}
	same(f, "outcomes", want, got)
}

// endMany accepts a batch and ends each callback of it, some of them several times, and says as what.
func (f *fixture) endMany(random *rand.Rand, n int, clock *atomic.Int64, ended func(id, as string)) {
	drafts := make([]store.Draft, n)
	for i := range drafts {
		drafts[i] = f.draft(nil)
	}
	accepted, err := f.Accept(f.ctx(), drafts)
	if err != nil {
		f.Errorf("accept: %v", err)
		return
	}
	as := make(map[string]int)
	attempt := func(ids []string) {
		now := clock.Add(1)
		claims := make([]store.StampClaim, len(ids))
		for i, id := range ids {
			claims[i].ID = id
		}
		stamped, _, err := f.Stamp(f.ctx(), store.Stamp{Token: f.token(), Now: now, Margin: margin, Claims: claims})
		if err != nil {
			f.Errorf("stamp: %v", err)
		}
		results := make([]store.Result, len(stamped))
		for i, s := range stamped {
			results[i] = store.Result{
				ID: s.ID, Fence: s.Fence, State: store.Dead, Reason: store.Exhausted, Charge: true, Stamped: s,
				Attempt: &store.Attempt{Outcome: store.AttemptFailed, Class: store.ClassHTTP5xx, StartedAt: now, Status: 500 + random.IntN(3)},
			}
		}
		committed, err := f.Commit(f.ctx(), results, now)
		if err != nil {
			f.Errorf("commit: %v", err)
		}
		for i, c := range committed {
			as[results[i].ID]++
			ended(results[i].ID, fmt.Sprint(c.State, c.Reason, as[results[i].ID]))
		}
	}
	var ids []string
	for _, a := range accepted {
		ids = append(ids, a.Callback.ID)
	}
	attempt(ids[1:])
	if c, err := f.Cancel(f.ctx(), project, ids[0], clock.Add(1), actor); err != nil || c.Result != store.CancelDone {
		f.Errorf("cancel: %v, %+v", err, c)
	}
	ended(ids[0], fmt.Sprint(store.Canceled, store.Requested, 0))
	for _, id := range ids[1 : 1+random.IntN(n-1)] {
		now := clock.Add(1)
		if _, err := f.Retry(f.ctx(), project, id, store.Retry{Ladder: store.Once, Now: now}, actor); err != nil {
			f.Errorf("retry: %v", err)
		}
		attempt([]string{id})
	}
}

// Readers of the feed are projects with a fitting subscriber, and those with a cursor.
func testFeedReaders(f *fixture) {
	subscribes := func(p string, topics ...string) store.Endpoint {
		must(f.CreateProject(f.ctx(), store.Project{ID: p, CreatedAt: f.now}, actor))
		return f.endpoint(func(e *store.Endpoint) { e.Project, e.Topics = p, topics })
	}
	const dead, unresolved = "dispatcher.callback.dead", "dispatcher.poll.unresolved"
	subscribes("all", "*")
	subscribes("exact", "payment", dead)
	subscribes("family", "dispatcher.*")
	subscribes("polls", "dispatcher.poll.*")
	subscribes("none")
	subscribes("others", "payment.*", "x"+dead, dead+".x", "dispatcher.endpoint.*", "refund")
	gone := subscribes("gone", dead)
	must(f.DeleteEndpoint(f.ctx(), "gone", gone.ID, f.now, actor))
	cursor := &store.OutcomeCursor{Tx: f.now, Group: 3, Item: 7}
	for _, p := range []string{"family", "gone"} {
		f.ok(f.SetFeedCursor(f.ctx(), "alerts."+p, cursor))
	}
	f.ok(f.SetFeedCursor(f.ctx(), "other.none", cursor))
	want := []store.FeedReader{
		{Project: "all", Wanted: true}, {Project: "exact", Wanted: true},
		{Project: "family", Wanted: true, Cursor: cursor},
		{Project: "gone", Cursor: cursor}, {Project: "polls", Wanted: true},
	}
	read := func(after string, limit int) []store.FeedReader {
		return must(f.FeedReaders(f.ctx(), "alerts.", []string{dead, unresolved}, after, limit))
	}
	same(f, "readers", want, read("", 10))
	same(f, "the first two", want[:2], read("", 2))
	same(f, "after them", want[2:], read("exact", 10))
	f.ok(f.SetFeedCursor(f.ctx(), "alerts.gone", nil))
	same(f, "without a cursor", want[4:], read("family", 10))
}
