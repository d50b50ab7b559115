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
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// secretShelf is Secrets in memory, each call of which takes a while.
type secretShelf struct {
	Store
	mu          sync.Mutex
	rows        []store.Secret
	reads, adds int
}

func (s *secretShelf) OwnedSecrets(_ context.Context, project, owner string,
	_ int64) ([]store.Secret, error) {
	s.mu.Lock()
	found := slices.DeleteFunc(slices.Clone(s.rows), func(r store.Secret) bool {
		return r.Project != project || r.Owner != owner
	})
	s.reads++
	s.mu.Unlock()
	time.Sleep(time.Second) // what is stored meanwhile was not found
	return found, nil
}

func (s *secretShelf) AddSecret(_ context.Context, secret store.Secret, _ int64, onlyIfNone bool,
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

// Many attempts of an endpoint that has no secret yet all sign, with the same one, though some begin to read
// while it is being stored; it is made once.
func TestTheFirstSecretIsMadeOnceAndSignsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := mustKeyring(t, masterKey(1))
		shelf := &secretShelf{}
		cache := New(shelf, keys, new(clock.Clock), part.Metrics{})
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
				// Some read the clock earlier than those who keep what was read: that is not fresh to them.
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
		if shelf.adds != 1 {
			t.Errorf("it was stored %d times", shelf.adds)
		}
		if shelf.reads > 4 {
			t.Errorf("it was read %d times", shelf.reads)
		}
	})
}

// What is remembered for reading an owner's secrets goes with the reading, whether that worked or not.
func TestTurnsOfOwnersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := mustKeyring(t, masterKey(1))
		cache := New(&secretShelf{}, keys, new(clock.Clock), part.Metrics{})
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
				if _, err := cache.Own(ctx, owner, now); err != nil && i >= 100 {
					t.Errorf("read %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		cache.Forget("default")
		if n := len(cache.turns); n != 0 {
			t.Errorf("%d turns are left", n)
		}
	})
}
