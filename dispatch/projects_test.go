package dispatch_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// meddled is a store in which something else happens once, right after a project is read.
type meddled struct {
	dispatch.Store
	mu   sync.Mutex
	next func()
}

// take returns what is to happen, once.
func (s *meddled) take() func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.next
	s.next = nil
	return next
}

func (s *meddled) Project(ctx context.Context, id string) (store.Project, error) {
	p, err := s.Store.Project(ctx, id)
	if next := s.take(); next != nil {
		next()
	}
	return p, err
}

// TestPatchesOfAProjectLoseNothing: two changes of different fields at the same time both stay.
func TestPatchesOfAProjectLoseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""))
		for i := range 30 {
			name, policy := fmt.Sprint("name ", i), []string{"short", "payment"}[i%2]
			var changing sync.WaitGroup
			for _, ch := range []control.ProjectChange{
				{Name: &name}, {Choice: accept.Choice{PolicyName: policy}},
			} {
				changing.Go(func() {
					if _, err := b.engine.PatchProject(t.Context(), store.DefaultProject, ch,
						operator); err != nil {
						t.Error(err)
					}
				})
			}
			changing.Wait()
			p, err := b.db.Project(t.Context(), store.DefaultProject)
			b.ok(err)
			if p.Name != name || p.Defaults.Policy.Name != policy {
				t.Fatalf("round %d: %q and %q, want %q and %q",
					i, p.Name, p.Defaults.Policy.Name, name, policy)
			}
		}
	})
}

// TestAPatchBringsNoOldMasterKeyBack: a change of a project while its credentials are encrypted anew leaves
// them as they are then.
func TestAPatchBringsNoOldMasterKeyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := databasePath(t)
		b := startFixture(t, path, always(200, ""), withKeys(t, masterKey('a')))
		b.must(b.engine.PatchProject(t.Context(), store.DefaultProject,
			control.ProjectChange{Headers: new(credential("x"))}, operator))
		b.stop()
		var between meddled
		b = startFixture(t, path, always(200, ""), withKeys(t, masterKey('b'), masterKey('a')),
			func(o *dispatch.Options) {
				between.Store = o.Store
				o.Store = &between
			})
		// The catalog reads the project when it is first asked for, and then no more.
		b.must(b.engine.Presets(t.Context(), store.DefaultProject))
		time.Sleep(time.Minute)
		reencrypt := func() { b.must(b.engine.Reencrypt(t.Context(), "", operator)) }
		between.mu.Lock()
		between.next = reencrypt
		between.mu.Unlock()
		b.must(b.engine.PatchProject(t.Context(), store.DefaultProject,
			control.ProjectChange{Name: new("renamed")}, operator))
		if next := between.take(); next != nil { // nothing was read before the change
			next()
		}
		rows, err := b.db.SealedKeys(t.Context(), 0)
		b.ok(err)
		for _, row := range rows {
			if row.Table == store.SealedProjects && row.KeyID != rows[0].KeyID {
				t.Errorf("the project is encrypted with %s, and %s with %s",
					row.KeyID, rows[0].Table, rows[0].KeyID)
			}
		}
		var again control.Reencryption
		again, err = b.engine.Reencrypt(t.Context(), "", operator)
		b.ok(err)
		if again.Done+again.Left != 0 {
			t.Errorf("after the change there is more to encrypt: %+v", again)
		}
	})
}
