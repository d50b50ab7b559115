package dispatch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Whoever has kept the hash of a key is let in as with its text, and no longer: a key that another process has revoked is refused within
// five seconds, and not before SQL says so.
func TestTheHashOfAKeyIsAsGoodAsItsText(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sql := new(faults)
		b := newFixture(t, always(200, ""), faultySQL(sql))
		key, text, err := b.engine.CreateKey(t.Context(), store.DefaultProject, control.KeyRequest{Name: "ui", Scopes: []string{"read"}}, operator)
		if err != nil {
			t.Fatal(err)
		}
		hash := control.HashKey(text)
		for _, authenticate := range []func() (store.Key, error){
			func() (store.Key, error) { return b.engine.AuthenticateHash(t.Context(), hash) },
			func() (store.Key, error) { return b.engine.Authenticate(t.Context(), text) },
		} {
			if got, err := authenticate(); err != nil || got.ID != key.ID || got.Project != store.DefaultProject {
				t.Errorf("got %+v, %v", got, err)
			}
		}
		if n := sql.count("KeyByHash"); n != 1 {
			t.Errorf("the key was read %d times, want once: both know the same", n)
		}
		if _, err := b.engine.AuthenticateHash(t.Context(), control.HashKey(text+"x")); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the hash of no key: %v", err)
		}
		time.Sleep(2 * time.Minute) // it is noted when it was used
		if k, err := b.db.KeyByHash(t.Context(), hash[:]); err != nil || k.LastUsedAt == 0 {
			t.Errorf("used at %d, %v", k.LastUsedAt, err)
		}
		sql.set(fail(errDown), "KeyByHash") // while SQL is away it stays valid
		if _, err := b.engine.AuthenticateHash(t.Context(), hash); err != nil {
			t.Errorf("while SQL is away: %v", err)
		}
		sql.set(nil, "KeyByHash")
		if _, err := b.engine.AuthenticateHash(t.Context(), hash); err != nil {
			t.Error(err)
		}
		if err := b.db.RevokeKey(t.Context(), store.DefaultProject, key.ID, time.Now().UnixMilli(), operator); err != nil { // by another process
			t.Fatal(err)
		}
		time.Sleep(5*time.Second + time.Millisecond)
		if _, err := b.engine.AuthenticateHash(t.Context(), hash); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("five seconds after it was revoked: %v", err)
		}
	})
}

// slowKeys answers a question for a key after that was revoked, or made, which it did not know of yet.
type slowKeys struct {
	dispatch.Store
	asked, answer chan struct{}
}

func (s *slowKeys) KeyByHash(ctx context.Context, hash []byte) (store.Key, error) {
	k, err := s.Store.KeyByHash(ctx, hash)
	if s.asked != nil {
		s.asked <- struct{}{}
		<-s.answer
	}
	return k, err
}

// A key that was revoked while it was being looked up is not taken for valid afterwards.
func TestAKeyThatIsRevokedWhileItIsReadStaysRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := new(slowKeys)
		b := newFixture(t, always(200, ""), func(o *dispatch.Options) { slow.Store, o.Store = o.Store, slow })
		request := control.KeyRequest{Name: "shop", Scopes: []string{"send"}}
		key, text, err := b.engine.CreateKey(t.Context(), store.DefaultProject, request, store.Actor{})
		if err != nil {
			t.Fatal(err)
		}
		asked, answer := make(chan struct{}), make(chan struct{})
		slow.asked, slow.answer = asked, answer
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = b.engine.Authenticate(t.Context(), text) // it was valid when this began
		}()
		<-asked
		slow.asked = nil
		b.ok(b.engine.RevokeKey(t.Context(), store.DefaultProject, key.ID, store.Actor{}))
		close(answer)
		<-done
		if _, err := b.engine.Authenticate(t.Context(), text); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a revoked key: %v", err)
		}
	})
}
