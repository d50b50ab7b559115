package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// An outcome is what the feed shows of one, as far as tests compare it.
type outcome struct {
	ID           string     `json:"id"`
	Topic        string     `json:"topic"`
	Ref          string     `json:"ref"`
	State        string     `json:"state"`
	Reason       string     `json:"reason"`
	At           *time.Time `json:"at"`
	AttemptCount int        `json:"attempt_count"`
}

func (o outcome) String() string {
	return fmt.Sprintf("%s (%s) %s %s at %v after %d", o.ID, o.Ref, o.State, o.Reason, o.At, o.AttemptCount)
}

// same says whether two readings are of one outcome.
func (o outcome) same(other outcome) bool {
	return o.ID == other.ID && o.State == other.State && o.Reason == other.Reason && o.AttemptCount == other.AttemptCount && o.At.Equal(*other.At)
}

// outcomes reads one page of the feed.
func (c *client) outcomes(ctx context.Context, cursor string, limit int, wait time.Duration) ([]outcome, string, error) {
	var page struct {
		Data       []outcome `json:"data"`
		NextCursor string    `json:"next_cursor"`
	}
	query := url.Values{"limit": {strconv.Itoa(limit)}, "wait": {wait.String()}}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	err := c.call(ctx, http.MethodGet, "/v1/outcomes?"+query.Encode(), nil, http.StatusOK, &page)
	if err == nil && page.NextCursor == "" {
		err = errors.New("a page of the feed says nothing of where to go on")
	}
	return page.Data, page.NextCursor, err
}

// A feedReader is the program of a caller who keeps, in one transaction, what it has done and the cursor after it. It is killed again and
// again: before a page comes, while it waits for one, or with a page in its hands that it has not kept.
type feedReader struct {
	l      *lab
	cursor string
	kept   []outcome
	// held is what came after the cursor and was not kept: it must come again, the same and in the same order.
	held []outcome
	// killed is how often it was killed; again, how many outcomes came again for that; refused, how often nobody answered.
	killed, again, refused int
}

// step is one life of the reader, or one page of it.
func (f *feedReader) step() {
	alive := f.l.alive()
	if len(alive) == 0 {
		f.refused++
		pause()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	if rand.N(4) == 0 {
		cancel()
		ctx, cancel = context.WithTimeout(context.Background(), rand.N(150*time.Millisecond))
	}
	defer cancel()
	page, next, err := alive[rand.N(len(alive))].outcomes(ctx, f.cursor, 1+rand.N(40), rand.N(time.Second))
	switch {
	case err != nil && ctx.Err() != nil:
		f.killed++
		return
	case err != nil: // the dispatcher was killed
		f.refused++
		pause()
		return
	}
	for i := range min(len(page), len(f.held)) {
		f.again++
		if !page[i].same(f.held[i]) {
			f.l.Errorf("after the cursor %s the reader saw first %v and then %v", f.cursor, f.held[i], page[i])
		}
	}
	if len(page) == 0 && next != f.cursor && f.cursor != "" {
		f.l.Errorf("an empty page moves the cursor from %s to %s", f.cursor, next)
	}
	if rand.N(4) == 0 {
		f.killed++
		if len(page) > len(f.held) {
			f.held = page
		}
		return
	}
	f.kept, f.cursor = append(f.kept, page...), next
	f.held = f.held[min(len(page), len(f.held)):]
}

// A caller who reads the feed of outcomes, and is killed and goes on at its cursor, sees every one of them once, whichever dispatcher it
// asks, and whichever of those is killed meanwhile.
func TestAFeedReaderSeesEachOutcomeOnce(t *testing.T) {
	blackBox(t)
	t.Parallel() // it mostly waits
	on(t, bothEnds, func(t *testing.T, b backend) {
		t.Parallel()
		l := newLab(t, "feed: readers and dispatchers killed", false)
		l.use(b)
		readWhileKilled(l)
	})
}

const (
	// feedRate and feedSpan make thousands of outcomes.
	feedRate = 300
	feedSpan = 8 * time.Second
	// feedKills are the dispatchers that are killed and started again meanwhile.
	feedKills = 3
	// feedQuiet is how long a feed says nothing new before it has said all: a process puts outcomes into it once a second.
	feedQuiet = 3 * time.Second
)

// Topics of the feed's callbacks: what becomes of them.
const (
	topicFails  = "feed.fails"
	topicWaits  = "feed.waits"
	topicArrive = "feed.arrives"
)

// feedCallback is of those that arrive, some at a second attempt; of every ten two fail, and one waits until it is canceled.
func (l *lab) feedCallback(i int) submission {
	switch i % 10 {
	case 3, 7:
		s := l.callback("fail", fmt.Sprint("fail-", i))
		s["topic"], s["policy"] = topicFails, submission{"tiers": []string{}, "timeout": "1s"}
		return s
	case 5:
		s := l.callback("wait", fmt.Sprint("wait-", i))
		s["topic"], s["delay"] = topicWaits, "1h"
		return s
	case 1:
		s := l.callback("retry", fmt.Sprint("retry-", i))
		s["topic"] = topicArrive
		return s
	}
	s := l.callback("plain", fmt.Sprint("plain-", i))
	s["topic"] = topicArrive
	return s
}

func readWhileKilled(l *lab) {
	l.w.behave(func(h *hit) reply {
		if h.kind() == "fail" {
			return reply{status: 500}
		}
		return usual(h)
	})
	l.serve()
	if l.on.redis != "" {
		l.serve()
	}
	f := &feedReader{l: l}
	reading, stop := context.WithCancel(context.Background())
	var group errgroup.Group
	group.Go(func() error {
		for reading.Err() == nil {
			f.step()
		}
		return nil
	})
	defer func() {
		stop()
		group.Wait() // its function returns nil
	}()

	ld := l.load(feedRate, l.feedCallback)
	for range feedKills {
		gap := time.NewTimer(feedSpan/(feedKills+1) + rand.N(time.Second/2))
		<-gap.C
		victim := l.alive()[rand.N(len(l.alive()))]
		victim.kill()
		l.serve()
	}
	gap := time.NewTimer(feedSpan / (feedKills + 1))
	<-gap.C
	ld.finish()
	// What waits is canceled, and what has failed is tried again, which is a second outcome: by redrives, as they come in bulk.
	p := l.one()
	l.redriveAll(p.client, submission{"action": "cancel", "filter": submission{"topic": topicWaits}})
	l.settle(2 * time.Minute)
	l.redriveAll(p.client, submission{"action": "retry", "filter": submission{"topic": topicFails}})
	l.settle(2 * time.Minute)

	all, err := p.list(l.Context(), nil)
	if err != nil {
		l.Fatal(err)
	}
	if len(all) != l.count() {
		l.Errorf("%d callbacks are listed of %d that were accepted", len(all), l.count())
	}
	ends := map[string]int{} // how often each has ended
	want := 0
	for _, cb := range all {
		ends[cb.ID] = 1
		if cb.Topic == topicFails {
			ends[cb.ID] = 2
		}
		want += ends[cb.ID]
	}
	f.readAll(p.client, stop, &group)
	l.Logf("%s: %d callbacks with %d outcomes, the dispatchers killed %d times; the reader was killed %d times, %d outcomes came again for that, %d times nobody answered",
		l.on.name, len(all), want, feedKills, f.killed, f.again, f.refused)
	f.compare(p.client, all, ends)
	if f.killed < 20 || f.again < 20 || want < feedRate*int(feedSpan.Seconds())/2 {
		l.Errorf("%d outcomes, a reader killed %d times and %d outcomes that came again are too few to show anything", want, f.killed, f.again)
	}
}

// redriveAll has a redrive done to its end.
func (l *lab) redriveAll(c *client, asked submission) {
	l.Helper()
	var r redriveBody
	if err := c.call(l.Context(), http.MethodPost, "/v1/redrives", asked, http.StatusAccepted, &r); err != nil {
		l.Fatal(err)
	}
	eventually(l, time.Minute, "the redrive is done", func() (err error) {
		if r, err = c.redrive(l.Context(), r.ID); err == nil && r.State != "done" {
			err = fmt.Errorf("it is %s, %d of %d", r.State, r.Done, r.Matched)
		}
		return err
	})
	if r.Matched == 0 || r.Done != r.Matched {
		l.Errorf("a redrive of %v was done to %d of %d", asked, r.Done, r.Matched)
	}
}

// readAll lets the reader read on, dying as before, until the feed has nothing more to say.
func (f *feedReader) readAll(c *client, stop context.CancelFunc, group *errgroup.Group) {
	f.l.Helper()
	stop()
	group.Wait() // its function returns nil
	deadline := time.Now().Add(time.Minute)
	for silent := time.Now(); time.Since(silent) < feedQuiet; {
		if before := f.cursor; time.Now().After(deadline) {
			f.l.Fatalf("the feed has not ended after %d outcomes", len(f.kept))
		} else if f.step(); f.cursor != before || len(f.held) > 0 {
			silent = time.Now()
		}
	}
	page, _, err := c.outcomes(f.l.Context(), f.cursor, 500, 0)
	if err != nil || len(page) > 0 {
		f.l.Errorf("at the end of the feed are %d more outcomes, %v", len(page), err)
	}
}

// compare holds what the reader has kept against the callbacks themselves, against the feed as it is read in one go, and against the
// program's own comparison of its books with a caller's list.
func (f *feedReader) compare(c *client, all []callback, ends map[string]int) {
	f.l.Helper()
	complain := complaints(f.l)
	times, last := map[string]int{}, map[string]outcome{}
	var refs []string
	for _, o := range f.kept {
		if times[o.ID] == 0 {
			refs = append(refs, o.Ref)
		}
		times[o.ID]++
		last[o.ID] = o
		if ends[o.ID] == 0 {
			complain("the reader saw %v, which nobody has accepted", o)
		}
	}
	for _, cb := range all {
		o := last[cb.ID]
		if times[cb.ID] != ends[cb.ID] {
			complain("%s (%s), which is %s, has ended %d times, and the reader saw that %d times", cb.ID, cb.Ref, cb.State, ends[cb.ID], times[cb.ID])
			continue
		}
		if o.State != cb.State || o.Reason != cb.Reason || o.Ref != cb.Ref || o.Topic != cb.Topic || o.AttemptCount != cb.AttemptCount ||
			cb.FinishedAt == nil || !o.At.Equal(*cb.FinishedAt) {
			complain("the reader saw %v last of %s (%s), which is %s %s at %v after %d", o, cb.ID, cb.Ref, cb.State, cb.Reason, cb.FinishedAt, cb.AttemptCount)
		}
	}
	again, err := c.wholeFeed(f.l.Context())
	if err != nil {
		f.l.Fatal(err)
	}
	if !slices.EqualFunc(again, f.kept, outcome.same) {
		f.l.Errorf("the feed of %d outcomes is another one, or in another order, than the %d that were read as they came", len(again), len(f.kept))
	}
	var compared struct {
		Matched int      `json:"matched"`
		Missing []string `json:"missing"`
		Extra   []string `json:"extra"`
	}
	span := submission{"from": time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339), "refs": refs}
	if err := c.call(f.l.Context(), http.MethodPost, "/v1/reconcile/compare", span, http.StatusOK, &compared); err != nil {
		f.l.Fatal(err)
	}
	if compared.Matched != len(all) || len(compared.Missing) > 0 || len(compared.Extra) > 0 {
		f.l.Errorf("of %d callbacks the books match %d, miss %d and have %d besides", len(all), compared.Matched, len(compared.Missing), len(compared.Extra))
	}
}

// wholeFeed reads the feed from its beginning in pages as long as they may be.
func (c *client) wholeFeed(ctx context.Context) (all []outcome, err error) {
	for cursor := ""; ; {
		page, next, err := c.outcomes(ctx, cursor, 500, 0)
		if err != nil || len(page) == 0 {
			return all, err
		}
		all, cursor = append(all, page...), next
	}
}
