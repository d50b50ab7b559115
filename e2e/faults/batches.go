package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// bulkFaults kill a process in the middle of acts over many callbacks, which are then asked for again.
func bulkFaults() []fault {
	return []fault{
		{id: "F10", title: "killed while it accepts batches", quick: true, on: harness.BothEnds,
			run: killedInBatches},
		{id: "F10", title: "killed while it cancels a reference", quick: true, on: harness.BothEnds,
			run: killedInCancels},
	}
}

const bulkBatch = 1000

// A bulk is batches that are handed over until each is answered.
type bulk struct {
	l     *trial
	shape func(int) harness.Submission
	mu    sync.Mutex
	// ids are what the answers said, by number; a second answer must say the same.
	ids   map[int]string
	fresh int // elements answered 202
}

// ask hands over one batch, if it is answered: some of it may be replays.
func (b *bulk) ask(c *harness.Client, batch int) error {
	var some []harness.Submission
	for i := batch * bulkBatch; i < (batch+1)*bulkBatch; i++ {
		some = append(some, b.shape(i))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var reply struct {
		Results []struct {
			Status   int              `json:"status"`
			Callback harness.Callback `json:"callback"`
		} `json:"results"`
	}
	if err := c.Call(ctx, http.MethodPost, "/v1/callbacks/batch", map[string]any{"callbacks": some},
		http.StatusMultiStatus, &reply); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, r := range reply.Results {
		i := batch*bulkBatch + k
		if r.Status != http.StatusAccepted && r.Status != http.StatusOK {
			return fmt.Errorf("element %d was answered %d", i, r.Status)
		}
		if r.Status == http.StatusAccepted {
			b.fresh++
		}
		if before, twice := b.ids[i]; !twice {
			b.l.NoteAccepted(r.Callback.ID, some[k]["ref"].(string))
		} else if before != r.Callback.ID {
			b.l.Errorf("element %d was %s, and asked for again is %s", i, before, r.Callback.ID)
		}
		b.ids[i] = r.Callback.ID
	}
	return nil
}

// bulkCallback is what the batches are made of: of many merchants, with orders that two or three of them
// share.
func (tr *trial) bulkCallback(i int) harness.Submission {
	s := tr.crashLike("2s")(i)
	s["lane"] = fmt.Sprint("merchant-", i%20)
	if _, locked := s["lock_key"]; locked {
		s["lock_key"] = fmt.Sprint("order-", i/10)
	}
	return s
}

// askPatiently hands a batch over until it is answered.
func (b *bulk) askPatiently(c *harness.Client, batch int) {
	b.l.Helper()
	harness.Eventually(b.l, harness.HandOverLimit, fmt.Sprintf("batch %d is accepted", batch),
		func() error { return b.ask(c, batch) })
}

// killedInBatches kills the process while batches of a thousand are on their way, each time further on, and
// asks for all of them again.
func killedInBatches(tr *trial) {
	const batches = 5
	b := &bulk{l: tr, shape: tr.bulkCallback, ids: map[int]string{}}
	t := tr.UncommittedClaims()
	kills := 0
	for _, passes := range []int{2, 4} {
		for _, at := range []string{"before_accept_commit", "after_accept_commit"} {
			p := tr.ServeUntil(fmt.Sprintf("%s:%d", at, passes))
			var group errgroup.Group
			group.SetLimit(3)
			for batch := range batches {
				group.Go(func() error {
					if p.Ended() {
						return nil
					}
					return b.ask(p.Client, batch)
				})
			}
			if err := group.Wait(); err == nil && !p.Ended() {
				p.Kill() // all were answered before the failpoint: then it dies of this
			}
			awaitEnd(tr, p)
			kills++
			died := time.Now()
			tr.MarkFault()
			t.Take(died, 0)
		}
	}
	p := tr.Serve()
	for batch := range batches {
		b.askPatiently(p.Client, batch)
	}
	tr.Settle(2 * time.Minute)
	v := tr.Verdict(t.Bounds(2 * time.Minute))
	tr.wantRows(batches * bulkBatch)
	tr.Remark("%d batches of %d, killed %d times among them and asked for again: %d callbacks, none double, "+
		"none missing; %d duplicate sends",
		batches, bulkBatch, kills, v.Accepted, v.Duplicates)
}

// awaitEnd waits until a process that was told to die has.
func awaitEnd(tr *trial, p *harness.Process) {
	tr.Helper()
	select {
	case <-p.Done:
	case <-time.After(time.Minute):
		tr.Fatalf("the process did not die\n%s", p.LogTail(2000))
	}
}

// wantRows holds the number of callbacks in SQL, and the program's own books, against what was accepted.
func (tr *trial) wantRows(want int) {
	tr.Helper()
	harness.Eventually(tr, 30*time.Second, "the books balance", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		var stats struct {
			States map[string]int `json:"states"`
		}
		if err := tr.AnyProcess().Call(ctx, http.MethodGet, "/v1/stats", nil, http.StatusOK, &stats); err != nil {
			return err
		}
		rows, err := harness.ReadRows(ctx, tr.Database())
		if err != nil {
			return err
		}
		counted, sum := map[string]int{}, 0
		for i := range rows {
			counted[rows[i].State]++
		}
		for state, n := range stats.States {
			sum += n
			if counted[state] != n {
				err = errors.Join(err, fmt.Errorf("%d are said to be %s, SQL has %d", n, state, counted[state]))
			}
		}
		if len(rows) != want || sum != want {
			err = errors.Join(err, fmt.Errorf("SQL has %d callbacks, the books %d, want %d", len(rows), sum, want))
		}
		return err
	})
}

// cancelDelay is longer than the cancels take, and short enough for the judge to see the index empty.
const cancelDelay = time.Minute

// killedInCancels kills the process while it cancels a reference of thousands, and asks again until nothing
// is left.
func killedInCancels(tr *trial) {
	const n, mostKills = 3_000, 4
	shape := func(i int) harness.Submission {
		s := tr.Callback("plain", "all")
		s["idempotency_key"] = fmt.Sprint("key-", i)
		// What a killed process had canceled in SQL alone stays in the index until it is due: then the stamp
		// refuses it.
		s["delay"] = cancelDelay.String()
		if i%4 == 0 {
			s["lock_key"] = fmt.Sprint("lock-", i%8)
		}
		return s
	}
	p := tr.Serve()
	b := &bulk{l: tr, shape: shape, ids: map[int]string{}}
	for batch := range n / bulkBatch {
		b.askPatiently(p.Client, batch)
	}
	canceled, kills, unanswered := 0, 0, 0
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if time.Now().After(deadline) {
			tr.Fatalf("%d of %d canceled after %d kills", canceled, n, kills)
		}
		var done errgroup.Group
		var got []string
		done.Go(func() (err error) {
			got, err = cancelRef(p.Client, "all")
			return err
		})
		if kills < mostKills {
			// Some die before the commit, some after it, some after the answer.
			timer := time.NewTimer(time.Duration(10+rand.IntN(400)) * time.Millisecond)
			<-timer.C
			p.Kill()
			kills++
			tr.MarkFault()
		}
		err := done.Wait()
		for _, result := range got {
			if result != "canceled" {
				tr.Errorf("one was answered %q", result)
			}
		}
		canceled += len(got)
		if p.Ended() {
			p = tr.Serve() // also after the last answer: it may have been killed right behind it
		}
		if err != nil {
			unanswered++
			tr.Logf("not answered: %v", err)
		} else if len(got) == 0 {
			break
		}
	}
	tr.Settle(30 * time.Second)
	tr.awaitEmptyIndex(cancelDelay + harness.IndexSettles)
	v := tr.Verdict(judge.Bounds{SharedRefs: true, Expect: func(string) string { return "canceled" },
		Heal: time.Minute})
	tr.wantRows(n)
	if v.Sends > 0 {
		tr.Errorf("%d were sent", v.Sends)
	}
	tr.Remark("%d of one reference, killed %d times, %d cancels of at most 1,000 unanswered: all canceled, "+
		"%d by an answer that arrived; the books balance",
		n, kills, unanswered, canceled)
}

// cancelRef cancels the open callbacks of a reference and returns the results.
func cancelRef(c *harness.Client, ref string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var page struct {
		Data []struct {
			Result string `json:"result"`
		} `json:"data"`
	}
	if err := c.Call(ctx, http.MethodPost, "/v1/callbacks/cancel", map[string]string{"ref": ref}, http.StatusOK,
		&page); err != nil {
		return nil, err
	}
	results := make([]string, len(page.Data))
	for i := range page.Data {
		results[i] = page.Data[i].Result
	}
	return results, nil
}
