package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// failpoints are the places at which a test build kills itself, and at which pass: the first passes let some work
// come to its end, so that the crash finds callbacks in every state.
var failpoints = []string{
	"before_accept_commit:4", "after_accept_commit:4", "after_enqueue:4", "after_claim:3", "after_lock:3", "after_stamp:3",
	"before_send:6", "after_send:6", "before_result_commit:3", "after_result_commit:3", "after_settle:3",
	"during_sweep:1", "during_rebuild:1",
}

// Killed between any two steps, every accepted callback becomes terminal after a restart: on all combinations.
func TestKilledAtAnyStepNothingAcceptedIsLost(t *testing.T) {
	blackBox(t)
	for _, c := range allFour {
		t.Run(c.String(), func(t *testing.T) {
			shared := startServers(t, c)
			for _, failpoint := range failpoints {
				name, _, _ := strings.Cut(failpoint, ":")
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					crash(t, shared.backend(t, c), failpoint)
				})
			}
		})
	}
}

// crashLoad is how many callbacks each case accepts.
const crashLoad = 60

// crashRef tells by its name how a callback behaves: every third fails at its first arrival, every fourth has a lock.
func crashRef(i int) string {
	kind := "plain"
	if i%3 == 0 {
		kind = "retry"
	}
	return fmt.Sprintf("%s-%d", kind, i)
}

func crashSends(ref string) int {
	if strings.HasPrefix(ref, "retry") {
		return 2
	}
	return 1
}

func crash(t *testing.T, b backend, failpoint string) {
	r := listen(t, func(a *arrival) reply {
		if a.nth == 1 && strings.HasPrefix(a.path, "/retry") {
			return reply{status: 500}
		}
		return reply{status: 200, after: 20 * time.Millisecond}
	})
	books := newLedger()
	name, _, _ := strings.Cut(failpoint, ":")
	limit := []string{"--database-max-conns", "5"} // a dozen processes share one PostgreSQL

	var pending []int
	for i := range crashLoad {
		pending = append(pending, i)
	}
	if name == "during_rebuild" {
		// There must be something to rebuild: accepted and due later, then the index is lost.
		p := serve(t, launch{on: b, args: limit})
		pending = acceptAll(p.client, r, books, pending, "4s")
		p.kill()
		if b.redis != "" {
			if err := b.redisClient(t).FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if name == "during_sweep" {
		// The sweep must find something: callbacks that are claimed, and whose process dies.
		p := serve(t, launch{on: b, args: limit, failpoint: "after_stamp:3", mayDie: true})
		pending = acceptAll(p.client, r, books, pending, "0s")
		awaitDeath(t, p, "after_stamp", time.Minute)
	}
	p := serve(t, launch{on: b, args: limit, failpoint: failpoint, mayDie: true})
	pending = acceptAll(p.client, r, books, pending, "0s")
	awaitDeath(t, p, name, 2*time.Minute)
	killed := time.Now()

	// What was not answered is asked for again with the same key: it must not become a second callback.
	p = serve(t, launch{on: b, args: limit})
	for range 3 {
		pending = acceptAll(p.client, r, books, pending, "0s")
	}
	if len(pending) > 0 {
		t.Fatalf("%d of %d callbacks were not accepted after the restart", len(pending), crashLoad)
	}
	await(t, p.client, 3*time.Minute)
	took := time.Since(killed)
	spare := 1
	if name == "during_sweep" {
		spare = 2 // it was killed twice
	}
	duplicates := books.judge(t, p.client, r, crashSends, spare)
	if rows, err := p.list(t.Context(), nil); err != nil {
		t.Error(err)
	} else if len(rows) != crashLoad {
		t.Errorf("SQL has %d callbacks, want %d: an idempotency key was forgotten", len(rows), crashLoad)
	}
	t.Logf("%s killed at %s: %d accepted, all terminal %s after the kill, %d duplicate sends of %d",
		b.name, failpoint, books.len(), took.Round(100*time.Millisecond), duplicates, r.count())
}

// acceptAll posts the callbacks of these numbers, each with an idempotency key, a few at a time, and returns those
// that were not answered with 2xx.
func acceptAll(c *client, r *receiver, books *ledger, numbers []int, delay string) (unanswered []int) {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(6)
	for _, i := range numbers {
		group.Go(func() error {
			id, err := acceptOne(c, r, i, delay)
			if err != nil { // killed, or not up any more: asked for again later
				mu.Lock()
				unanswered = append(unanswered, i)
				mu.Unlock()
				return nil
			}
			books.accepted(id, crashRef(i))
			return nil
		})
	}
	group.Wait() // the functions return nil
	return unanswered
}

// acceptOne posts one callback. A replay is as good as a first answer.
func acceptOne(c *client, r *receiver, i int, delay string) (string, error) {
	ref := crashRef(i)
	kind, _, _ := strings.Cut(ref, "-")
	s := submission{
		"url": r.url + "/" + kind, "ref": ref, "payload": payload(ref), "delay": delay, "idempotency_key": "key-" + ref,
		"policy": submission{"tiers": []string{"300ms", "300ms", "1s", "1s"}, "timeout": "1s"},
	}
	if i%4 == 0 {
		s["lock_key"] = fmt.Sprint("lock-", i%8)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var cb callback
	err := c.call(ctx, http.MethodPost, "/v1/callbacks", s, http.StatusAccepted, &cb)
	if err != nil && strings.Contains(err.Error(), "answered 200") {
		err = c.call(ctx, http.MethodPost, "/v1/callbacks", s, http.StatusOK, &cb)
	}
	return cb.ID, err
}

// awaitDeath waits until the process has killed itself.
func awaitDeath(t *testing.T, p *process, name string, limit time.Duration) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		t.Fatalf("the failpoint %s was not passed in %s", name, limit)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != -1 {
		t.Fatalf("at %s it ended with code %d and not by a signal\n%s", name, code, p.logTail(3000))
	}
}
