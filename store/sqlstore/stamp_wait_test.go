package sqlstore

import (
	"errors"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A stamp that waits for a change of its callback takes both rows as they are after it.
func TestAStampThatWaitsTakesWhatWasChanged(t *testing.T) {
	needsPostgres(t)
	const now, newURL = 1_790_000_000_000, "https://changed.example"
	db, ctx := openPostgres(t), t.Context()
	draft := testDraft(t, db, now)
	claims := []store.StampClaim{{ID: draft.Callback.ID}}
	must(db.Accept(ctx, []store.Draft{draft}))
	db.fresh.remove(claims) // another process claims it
	type answer struct {
		stamped []*store.Stamped
		err     error
	}
	answers := make(chan answer, 1)
	_, err := db.Mend(ctx, draft.Callback.Project, draft.Callback.ID, func(c *store.Callback) error {
		c.URL = newURL
		go func() {
			stamped, _, err := db.Stamp(ctx, store.Stamp{Token: "t", Now: now, Margin: 1000, Claims: claims})
			answers <- answer{stamped, err}
		}()
		awaitLocked(t, db.sql.Pool, 1)
		return nil
	}, now, store.Actor{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	switch got := <-answers; {
	case got.err != nil || len(got.stamped) != 1:
		t.Fatalf("%d were stamped: %v", len(got.stamped), got.err)
	case got.stamped[0].URL != newURL:
		t.Errorf("the attempt goes to %s, want %s", got.stamped[0].URL, newURL)
	}
}

// A change that waits for another one keeps what that wrote.
func TestAChangeThatWaitsKeepsWhatWasChanged(t *testing.T) {
	needsPostgres(t)
	const now, newURL = 1_790_000_000_000, "https://changed.example"
	db, ctx := openPostgres(t), t.Context()
	draft := testDraft(t, db, now)
	must(db.Accept(ctx, []store.Draft{draft}))
	edit := func(change func(c *store.Callback) error) (store.Callback, error) {
		return db.Mend(ctx, draft.Callback.Project, draft.Callback.ID, change, now, store.Actor{Name: "test"})
	}
	second := make(chan error, 1)
	var c store.Callback
	_, err := edit(func(c1 *store.Callback) error {
		c1.URL = newURL
		go func() {
			var err error
			c, err = edit(func(c2 *store.Callback) error { c2.Policy.Timeout += time.Second; return nil })
			second <- err
		}()
		awaitLocked(t, db.sql.Pool, 1)
		return nil
	})
	noError(errors.Join(err, <-second))
	if c.URL != newURL || c.Policy.Timeout != draft.Callback.Policy.Timeout+time.Second {
		t.Errorf("after both changes: %s, %s", c.URL, c.Policy.Timeout)
	}
}
