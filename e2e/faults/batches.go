package faults

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// bulkFaults kill a process in the middle of batches, which are then asked for again. A redrive that is
// killed is TestARedriveIsKilledHalfWay.
func bulkFaults() []fault {
	return []fault{{id: "F10", title: "killed while it accepts batches", quick: true, on: harness.BothEnds,
		run: killedInBatches}}
}

const bulkBatch = 1000

// A bulk is batches that are handed over until each is answered.
type bulk struct {
	l     *trial
	shape func(int) harness.Submission
	mu    sync.Mutex
	// ids are what the answers said, by number; a second answer must say the same.
	ids map[int]string
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
			group.Wait() // what was not answered is asked for again
			p.Kill()     // unless it has died at the failpoint
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
	if n := tr.sqlCount(`SELECT count(*) FROM callbacks`); n != batches*bulkBatch {
		tr.Errorf("SQL has %d callbacks, want %d", n, batches*bulkBatch)
	}
	tr.Remark("%d batches of %d, killed %d times among them and asked for again: %d callbacks, none double, "+
		"none missing; %d duplicate sends",
		batches, bulkBatch, kills, v.Accepted, v.Duplicates)
}
