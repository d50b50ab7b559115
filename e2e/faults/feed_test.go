package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A feedReader is a caller that stores outcomes and the next cursor in one transaction. The test kills it
// again and again: before a page comes, while it waits for one, or before it has stored a page.
type feedReader struct {
	*trial
	cursor string
	kept   []client.Outcome
	// unstored is a page that came after the cursor and was not stored. It must come again, with the same
	// outcomes in the same order.
	unstored []client.Outcome
	// killed counts the reader's deaths, again the outcomes that came again after them, and refused the
	// requests without a response of a dispatcher.
	killed, again, refused int
}

// same reports whether two readings are of one outcome.
func same(o, other client.Outcome) bool {
	return o.ID == other.ID && o.State == other.State && o.Reason == other.Reason &&
		o.AttemptCount == other.AttemptCount && o.At.Equal(other.At)
}

// step is one life of the reader, or one page.
func (f *feedReader) step() {
	alive := f.Alive()
	if len(alive) == 0 {
		f.refused++
		harness.Pause()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	if rand.N(4) == 0 {
		cancel()
		ctx, cancel = context.WithTimeout(context.Background(), rand.N(150*time.Millisecond))
	}
	defer cancel()
	got, err := alive[rand.N(len(alive))].Outcomes(ctx, f.cursor, 1+rand.N(40), rand.N(time.Second))
	page, next := got.Data, got.NextCursor
	if err == nil && next == "" {
		f.Errorf("a page of the feed has no next cursor")
	}
	switch {
	case err != nil && ctx.Err() != nil:
		f.killed++
		return
	case err != nil: // the dispatcher was killed
		f.refused++
		harness.Pause()
		return
	}
	for i := range min(len(page), len(f.unstored)) {
		f.again++
		if !same(page[i], f.unstored[i]) {
			f.Errorf("after the cursor %s the reader saw first %+v and then %+v", f.cursor, f.unstored[i],
				page[i])
		}
	}
	if len(page) == 0 && next != f.cursor && f.cursor != "" {
		f.Errorf("an empty page moves the cursor from %s to %s", f.cursor, next)
	}
	if rand.N(4) == 0 {
		f.killed++
		if len(page) > len(f.unstored) {
			f.unstored = page
		}
		return
	}
	f.kept, f.cursor = append(f.kept, page...), next
	f.unstored = f.unstored[min(len(page), len(f.unstored)):]
}

// A caller reads the feed of outcomes, is killed, and goes on at its cursor. It sees each outcome once,
// whichever dispatcher it reads from and whichever dispatchers are killed.
func TestAFeedReaderSeesEachOutcomeOnce(t *testing.T) {
	runOn(t, "feed: readers and dispatchers killed", quick, harness.BothEnds, readWhileKilled)
}

const (
	// feedRate and feedSpan produce thousands of outcomes.
	feedRate = 300
	feedSpan = 8 * time.Second
	// feedKills is how many dispatchers are killed and restarted meanwhile.
	feedKills = 3
	// feedQuiet is how long a feed must be silent to count as complete: a process adds outcomes once a
	// second.
	feedQuiet = 3 * time.Second
)

// Topics of the feed's callbacks, by their end.
const (
	topicFails = "feed.fails"
	topicWaits = "feed.waits"
)

// feedCallback is a callback that arrives, sometimes at the second attempt. Of every ten, two fail, and one
// waits until it is canceled.
func (tr *trial) feedCallback(i int) harness.Submission {
	switch i % 10 {
	case 3, 7:
		s := tr.Numbered("fail")(i)
		s["topic"], s["policy"] = topicFails, harness.Tiers("1s")
		return s
	case 5:
		s := tr.Numbered("wait")(i)
		s["topic"], s["delay"] = topicWaits, "1h"
		return s
	}
	s := tr.Numbered(map[bool]string{true: "retry", false: "plain"}[i%10 == 1])(i)
	s["topic"] = "feed.arrives"
	return s
}

func readWhileKilled(tr *trial) {
	tr.Receiver.AnswerKind("fail", harness.Reply{Status: 500})
	tr.ServeAll()
	f := &feedReader{trial: tr}
	stop := tr.Repeat(time.Nanosecond, func(int) { f.step() })

	ld := tr.Load(feedRate, tr.feedCallback)
	for range feedKills {
		time.Sleep(feedSpan/(feedKills+1) + rand.N(time.Second/2)) // the load between two kills
		victim := tr.Alive()[rand.N(len(tr.Alive()))]
		victim.Kill()
		tr.Serve()
	}
	time.Sleep(feedSpan / (feedKills + 1))
	ld.Finish()
	// Redrives cancel the waiting callbacks and retry the failed ones, which is a second outcome of each. So
	// outcomes come in bulk.
	p := tr.AnyProcess()
	tr.redriveAll(p, "cancel", topicWaits)
	tr.redriveAll(p, "retry", topicFails)

	all, err := p.ListAll(client.Filter{})
	tr.Check(err)
	if len(all) != tr.Count() {
		tr.Errorf("%d of %d accepted callbacks are listed", len(all), tr.Count())
	}
	ends := map[string]int{} // number of ends of each callback
	want := 0
	for _, cb := range all {
		ends[cb.ID] = 1
		if cb.Topic == topicFails {
			ends[cb.ID] = 2
		}
		want += ends[cb.ID]
	}
	stop()
	f.readAll(p.Client)
	tr.Logf("%s: %d callbacks with %d outcomes, the dispatchers killed %d times; the reader was killed %d "+
		"times, %d outcomes came again for that, %d requests had no answer",
		tr.Backend.Name, len(all), want, feedKills, f.killed, f.again, f.refused)
	f.compare(p, all, ends)
	if f.killed < 20 || f.again < 20 || want < feedRate*int(feedSpan.Seconds())/2 {
		tr.Errorf("%d outcomes, a reader killed %d times and %d outcomes that came again are too few to "+
			"show anything", want, f.killed, f.again)
	}
}

// redriveAll redrives a topic and waits for the end of it.
func (tr *trial) redriveAll(p *harness.Process, action, topic string) {
	tr.Helper()
	var r client.Redrive
	p.Post("/v1/redrives", harness.Submission{"action": action, "filter": harness.Submission{"topic": topic}},
		&r)
	tr.Eventually(time.Minute, "the redrive is done", func() (err error) {
		r, err = p.Redrive(tr.Context(), r.ID)
		if err == nil && r.State != "done" {
			err = fmt.Errorf("it is %s, %d of %d", r.State, r.Done, r.Matched)
		}
		return err
	})
	if r.Matched == 0 || r.Done != r.Matched {
		tr.Errorf("a redrive of %s was done to %d of %d", topic, r.Done, r.Matched)
	}
	tr.Settle(2 * time.Minute)
}

// readAll lets the reader go on, and die as before, until the feed is silent.
func (f *feedReader) readAll(c *harness.Client) {
	deadline := time.Now().Add(time.Minute)
	for silent := time.Now(); time.Since(silent) < feedQuiet; {
		before := f.cursor
		if time.Now().After(deadline) {
			f.Fatalf("the feed has not ended after %d outcomes", len(f.kept))
		}
		f.step()
		if f.cursor != before || len(f.unstored) > 0 {
			silent = time.Now()
		}
	}
	page, err := c.Outcomes(f.Context(), f.cursor, 500, 0)
	if err != nil || len(page.Data) > 0 {
		f.Errorf("at the end of the feed are %d more outcomes, %v", len(page.Data), err)
	}
}

// compare compares the stored outcomes with the callbacks, with the feed as read in one go, and with the
// program's reconciliation with a caller's list.
func (f *feedReader) compare(c *harness.Process, all []client.Callback, ends map[string]int) {
	violation := harness.Violations(f)
	times, last := map[string]int{}, map[string]client.Outcome{}
	var refs []string
	for _, o := range f.kept {
		if times[o.ID] == 0 {
			refs = append(refs, o.Ref)
		}
		times[o.ID]++
		last[o.ID] = o
		if ends[o.ID] == 0 {
			violation("the reader saw %v, which was never accepted", o)
		}
	}
	for _, cb := range all {
		o := last[cb.ID]
		if times[cb.ID] != ends[cb.ID] {
			violation("%s (%s), which is %s, has ended %d times, and the reader saw that %d times", cb.ID,
				cb.Ref, cb.State, ends[cb.ID], times[cb.ID])
			continue
		}
		if o.State != cb.State || o.Reason != cb.Reason || o.Ref != cb.Ref || o.Topic != cb.Topic ||
			o.AttemptCount != cb.AttemptCount || cb.FinishedAt.IsZero() || !o.At.Equal(cb.FinishedAt) {
			violation("the reader saw %v last of %s (%s), which is %s %s at %v after %d", o, cb.ID, cb.Ref,
				cb.State, cb.Reason, cb.FinishedAt, cb.AttemptCount)
		}
	}
	var again []client.Outcome
	for cursor := ""; ; {
		page, err := c.Outcomes(f.Context(), cursor, 500, 0)
		f.Check(err)
		if len(page.Data) == 0 {
			break
		}
		again, cursor = append(again, page.Data...), page.NextCursor
	}
	if !slices.EqualFunc(again, f.kept, same) {
		f.Errorf("the feed has %d outcomes, others or in another order than the %d that the reader stored",
			len(again), len(f.kept))
	}
	compared, err := c.Compare(f.Context(), client.ReferenceList{From: time.Now().Add(-24 * time.Hour),
		Refs: refs})
	f.Check(err)
	if compared.Matched != len(all) || len(compared.Missing) > 0 || len(compared.Extra) > 0 {
		f.Errorf("of %d callbacks the reconciliation matches %d, misses %d and has %d extra", len(all),
			compared.Matched, len(compared.Missing), len(compared.Extra))
	}
}
