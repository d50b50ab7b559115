package harness

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// A ledger knows what was accepted.
type Ledger struct {
	mu      sync.Mutex
	entries map[string]entry
}

// An entry is one callback that was answered with 2xx.
type entry struct {
	ref  string
	hash [sha256.Size]byte
}

func NewLedger() *Ledger { return &Ledger{entries: map[string]entry{}} }

// Payload makes a body of its own for each reference, so that no two could be mixed up unseen. It is compact,
// because encoding/json makes it so on its way out.
func Payload(ref string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"order":%q,"paid":10000}`, ref))
}

// Accepted notes a callback whose payload was payload(ref).
func (l *Ledger) Accepted(id, ref string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[id] = entry{ref: ref, hash: sha256.Sum256(Payload(ref))}
}

// Await waits until no callback is open.
func Await(tb testing.TB, c *Client, limit time.Duration) {
	tb.Helper()
	Eventually(tb, limit, "every callback is terminal", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		open, found, err := c.anyOpen(ctx)
		if err != nil {
			return err
		}
		if found {
			return fmt.Errorf("%s (%s) is %s with %d attempts, due %v", open.ID, open.Ref, open.State,
				open.AttemptCount, open.DueAt)
		}
		return nil
	})
}

// Judge hands what was accepted, what SQL holds and what arrived at the receivers to the judge of all fault
// tests.
func (l *Ledger) Judge(tb testing.TB, p *Process, b Backend, bounds judge.Bounds, receivers ...*Receiver) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	db := b.Database(tb)
	var e judge.Evidence
	var errs [2]error
	e.Rows, errs[0] = judge.ReadRows(ctx, db)
	e.Attempts, errs[1] = judge.ReadAttempts(ctx, db)
	if err := errors.Join(errs[:]...); err != nil {
		tb.Fatalf("read what SQL holds: %v", err)
	}
	for _, r := range receivers {
		for _, a := range r.All() {
			e.Arrivals = append(e.Arrivals, judge.Arrival{ID: a.ID, Number: a.Number, At: a.At, End: a.End,
				Hash: a.Hash, Answered: !a.End.IsZero()})
		}
	}
	l.mu.Lock()
	for id, want := range l.entries {
		e.Accepted = append(e.Accepted, judge.Accepted{ID: id, Ref: want.ref, Hash: want.hash})
	}
	l.mu.Unlock()
	// The index is told after SQL, so that it may hold for a moment what has ended.
	Eventually(tb, 20*time.Second, "the index holds nothing", func() (err error) {
		if b.Redis != "" {
			e.Index, err = b.ReadIndex(ctx)
		} else {
			e.Index, err = embeddedIndex(ctx, p.Client, e.Rows)
		}
		if err == nil && len(e.Index) > 0 {
			err = fmt.Errorf("it holds %d", len(e.Index))
		}
		return err
	})
	e.IndexRead = true
	if v := judge.Judge(e, bounds); !v.OK() {
		tb.Errorf("the guarantees are broken: %s", &v)
	}
}

// Violations is tb.Errorf that shows the first ten and counts the rest: a broken run has thousands.
func Violations(tb testing.TB) func(format string, args ...any) {
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
