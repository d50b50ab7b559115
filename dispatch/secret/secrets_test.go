package secret

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// slowStore is a Store in memory with slow calls.
type slowStore struct {
	Store
	mu          sync.Mutex
	rows        []store.Secret
	reads, adds int
}

func (s *slowStore) OwnedSecrets(_ context.Context, project, owner string,
	_ int64) ([]store.Secret, error) {
	s.mu.Lock()
	found := slices.DeleteFunc(slices.Clone(s.rows), func(r store.Secret) bool {
		return r.Project != project || r.Owner != owner
	})
	s.reads++
	s.mu.Unlock()
	time.Sleep(time.Second) // the result lacks what is stored from now on
	return found, nil
}

func (s *slowStore) AddSecret(_ context.Context, secret store.Secret, _ int64, onlyIfNone bool,
	_ store.Actor) error {
	time.Sleep(10 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adds++
	if !onlyIfNone || len(s.rows) == 0 {
		s.rows = append(s.rows, secret)
	}
	return nil
}

// All attempts of an endpoint without a secret sign with the same secret, even if some begin to read while it
// is being stored. It is generated once.
func TestFirstSecretIsGeneratedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := mustKeyring(t, masterKey(1))
		slow := &slowStore{}
		cache := New(slow, keys, new(clock.Clock), process.Metrics{})
		now := time.Now().UnixMilli()
		var wg sync.WaitGroup
		kind, err := sign.KindOf(sign.Standard)
		if err != nil {
			t.Fatal(err)
		}
		to := Signing{Project: "default", Endpoint: "endpoint", Kind: kind, Home: true}
		signed := make([][]sign.Secret, 300)
		for i := range signed {
			wg.Go(func() {
				// the first read takes 1 s, the store 10 ms, the second read 1 s
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				// Half of them read the clock before the cached entry was read, so it is not fresh to them.
				at := now - int64(i%2)
				var err error
				signed[i], err = cache.Signing(t.Context(), to, at)
				if err != nil {
					t.Errorf("attempt %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		for i, s := range signed {
			if len(s) != 1 || s[0].ID != signed[0][0].ID {
				t.Fatalf("attempt %d signs with %d secrets, or with another", i, len(s))
			}
		}
		if slow.adds != 1 {
			t.Errorf("it was stored %d times", slow.adds)
		}
		if slow.reads > 4 {
			t.Errorf("it was read %d times", slow.reads)
		}
	})
}

// The locks of owners are removed after the reading, whether it succeeds or fails.
func TestLocksOfOwnersAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := mustKeyring(t, masterKey(1))
		cache := New(&slowStore{}, keys, new(clock.Clock), process.Metrics{})
		now := time.Now().UnixMilli()
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				owner := Owner{"default", fmt.Sprint("endpoint", i%100)}
				ctx := t.Context()
				if i < 100 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Millisecond)
					defer cancel()
				}
				time.Sleep(time.Duration(i%3) * time.Millisecond)
				if _, err := cache.Owned(ctx, owner, now); err != nil && i >= 100 {
					t.Errorf("read %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		cache.Forget("default")
		if n := len(cache.locks); n != 0 {
			t.Errorf("%d locks are left", n)
		}
	})
}
