package dispatch

import (
	"context"
	"encoding/base64"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// secretShelf is Secrets in memory, with somebody who does something while they are read or stored.
type secretShelf struct {
	mu   sync.Mutex
	rows []store.Secret
	// read is called with what a read has found, before it returns; add before a secret is stored.
	read, add func()
}

func (s *secretShelf) OwnedSecrets(_ context.Context, project, owner string, _ int64) ([]store.Secret, error) {
	s.mu.Lock()
	found := slices.DeleteFunc(slices.Clone(s.rows), func(r store.Secret) bool { return r.Project != project || r.Owner != owner })
	then := s.read
	s.mu.Unlock()
	if then != nil {
		then()
	}
	return found, nil
}

func (s *secretShelf) AddSecret(_ context.Context, secret store.Secret, _ int64, onlyIfNone bool, _ store.Actor) error {
	s.mu.Lock()
	first := s.add
	s.add = nil
	s.mu.Unlock()
	if first != nil {
		first()
	}
	time.Sleep(10 * time.Millisecond) // a commit takes its time
	s.mu.Lock()
	defer s.mu.Unlock()
	if !onlyIfNone || len(s.rows) == 0 {
		s.rows = append(s.rows, secret)
	}
	return nil
}

// Two attempts of an endpoint that has no secret yet both sign, with the same one, though one of them reads while the other stores it.
func TestTheFirstSecretIsSeenByWhoeverMadeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, err := NewKeyring([]string{base64.StdEncoding.EncodeToString(make([]byte, MasterKeyBytes))})
		if err != nil {
			t.Fatal(err)
		}
		shelf := &secretShelf{}
		cache := newSecretCache(shelf, keys)
		now := time.Now().UnixMilli()
		type signed struct {
			secrets []outbound.Secret
			err     error
		}
		sign := func(now int64) (s signed) {
			s.secrets, s.err = cache.signing(t.Context(), "default", "endpoint", "lane", outbound.SignerStandard, now)
			return s
		}
		other := make(chan signed, 1)
		shelf.add = func() {
			reading := make(chan struct{})
			shelf.mu.Lock()
			shelf.read = sync.OnceFunc(func() {
				close(reading)
				time.Sleep(time.Second) // by then the first has stored it, and waits
			})
			shelf.mu.Unlock()
			// This one read the clock earlier: what is known was read later, so that it reads by itself.
			go func() { other <- sign(now - 1) }()
			<-reading
		}
		one, two := sign(now), <-other
		if one.err != nil || two.err != nil || len(one.secrets) != 1 || len(two.secrets) != 1 || one.secrets[0].ID != two.secrets[0].ID {
			t.Errorf("%d secrets, %v; and %d secrets, %v", len(one.secrets), one.err, len(two.secrets), two.err)
		}
	})
}
