package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"
)

// A ledger knows what was accepted, and is the judge of what became of it.
type ledger struct {
	mu      sync.Mutex
	entries map[string]entry
}

// An entry is one callback that was answered with 2xx.
type entry struct {
	ref  string
	hash [sha256.Size]byte
}

func newLedger() *ledger { return &ledger{entries: map[string]entry{}} }

// payload makes a body of its own for each reference, so that no two could be mixed up unseen. It is compact, because
// encoding/json makes it so on its way out.
func payload(ref string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"order":%q,"paid":10000}`, ref))
}

// accepted notes a callback whose payload was payload(ref).
func (l *ledger) accepted(id, ref string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[id] = entry{ref: ref, hash: sha256.Sum256(payload(ref))}
}

func (l *ledger) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

// await waits until no callback is open.
func await(tb testing.TB, c *client, limit time.Duration) {
	tb.Helper()
	eventually(tb, limit, "every callback is terminal", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		open, found, err := c.anyOpen(ctx)
		if err != nil {
			return err
		}
		if found {
			return fmt.Errorf("%s (%s) is %s with %d attempts, due %v", open.ID, open.Ref, open.State, open.AttemptCount, open.DueAt)
		}
		return nil
	})
}

// judge compares the ledger with SQL, as the API shows it, and with what arrived: every accepted callback has
// succeeded and arrived with its bytes, nothing arrived that was not accepted, and none arrived more often than
// sends says plus spare. It returns how many sends were duplicates.
func (l *ledger) judge(tb testing.TB, c *client, r *receiver, sends func(ref string) int, spare int) (duplicates int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	rows, err := c.list(ctx, nil)
	if err != nil {
		tb.Fatalf("list all callbacks: %v", err)
	}
	byID := map[string]callback{}
	for _, row := range rows {
		byID[row.ID] = row
	}
	complain := complaints(tb)
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, want := range l.entries {
		row, found := byID[id]
		switch arrivals := r.of(id); {
		case !found:
			complain("LOST: %s (%s) was accepted and is not in SQL", id, want.ref)
		case row.State != "succeeded":
			complain("%s (%s) is %s %s after %d attempts, class %s", id, want.ref, row.State, row.Reason, row.AttemptCount, row.LastClass)
		case len(arrivals) == 0:
			complain("%s (%s) is said to have succeeded and never arrived", id, want.ref)
		case len(arrivals) > sends(want.ref)+spare:
			complain("%s (%s) arrived %d times, want at most %d and %d spare", id, want.ref, len(arrivals), sends(want.ref), spare)
		default:
			duplicates += max(0, len(arrivals)-sends(want.ref))
		}
	}
	for _, a := range r.all() {
		if want, known := l.entries[a.id]; !known {
			complain("%s arrived and was never accepted", a.id)
		} else if a.hash != want.hash {
			complain("%s (%s) arrived with other bytes: %.200q", a.id, want.ref, a.body)
		}
	}
	return duplicates
}

// complaints is tb.Errorf that shows the first ten and counts the rest: a broken run has thousands.
func complaints(tb testing.TB) func(format string, args ...any) {
	n := 0
	tb.Cleanup(func() {
		if n > 10 {
			tb.Logf("and %d more of these", n-10)
		}
	})
	return func(format string, args ...any) {
		tb.Helper()
		if n++; n > 10 {
			tb.Fail()
			return
		}
		tb.Errorf(format, args...)
	}
}

// once is the number of sends of a callback that succeeds at its first attempt.
func once(string) int { return 1 }
