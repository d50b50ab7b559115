package sqlstore

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// newURL is what an edit in these tests sets.
const newURL = "https://changed.example"

// newEditable accepts a callback on PostgreSQL, and returns it with a function that edits it.
func newEditable(t *testing.T) (
	db *DB, draft store.Draft, edit func(change func(*store.Callback) error) (store.Callback, error),
) {
	needsPostgres(t)
	db, draft = openPostgres(t), newDrafts(1, testNow)[0]
	must(db.Accept(t.Context(), []store.Draft{draft}))
	return db, draft, func(change func(*store.Callback) error) (store.Callback, error) {
		return db.Edit(t.Context(), draft.Callback.Project, draft.Callback.ID, change, testNow,
			store.Actor{Name: "test"})
	}
}

// TestStampThatWaitsForAnEditTakesIt: a stamp waits for the lock of a row that is being edited. It must then
// read both rows of the callback as they are after the edit.
func TestStampThatWaitsForAnEditTakesIt(t *testing.T) {
	db, draft, edit := newEditable(t)
	claims := []store.StampClaim{{ID: draft.Callback.ID}}
	db.accepted.remove(claims) // as if another process had accepted it
	type answer struct {
		stamped []*store.Stamped
		err     error
	}
	answers := make(chan answer, 1)
	_, err := edit(func(c *store.Callback) error {
		c.URL = newURL
		go func() {
			stamped, _, err := db.Stamp(t.Context(),
				store.Stamp{Token: "t", Now: testNow, Margin: 1000, Claims: claims})
			answers <- answer{stamped, err}
		}()
		awaitLocked(t, db.sql.Pool, 1)
		return nil
	})
	noError(err)
	switch got := <-answers; {
	case got.err != nil || len(got.stamped) != 1:
		t.Fatalf("%d were stamped: %v", len(got.stamped), got.err)
	case got.stamped[0].URL != newURL:
		t.Errorf("the attempt goes to %s, want %s", got.stamped[0].URL, newURL)
	}
}

// TestEditThatWaitsForAnEditKeepsIt: of two edits of a callback at once, the second must keep what the first
// one wrote.
func TestEditThatWaitsForAnEditKeepsIt(t *testing.T) {
	db, draft, edit := newEditable(t)
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

// TestProgressOfPurgesIsShared: a purge passes a row that is still in use. No process may then report it as
// an overstay, or read it again when it takes the purge over.
func TestProgressOfPurgesIsShared(t *testing.T) {
	needsPostgres(t)
	url := postgresURL(t)
	db, other := openSlow(t, url), openSlow(t, url)
	now := testNow
	d := newDrafts(1, now)[0]
	d.Idempotency = &store.Idempotency{Route: "POST /v1/callbacks", Key: "key", Fingerprint: []byte("one")}
	must(db.Accept(t.Context(), []store.Draft{d}))
	overstays := func(db *DB, want map[string]int64) {
		t.Helper()
		got, err := db.Overstays(t.Context(), store.Retention{Now: now})
		if err != nil || len(got) != len(want) || got["key"] != want["key"] {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
	}
	overstays(db, nil)
	overstays(other, nil)
	now += store.IdempotencyAge.Milliseconds() + saveEvery
	overstays(other, map[string]int64{"key": testNow})
	for range 2 {
		if _, _, err := db.PurgeKeys(t.Context(), now, 100); err != nil {
			t.Fatal(err)
		}
		now += saveEvery
	}
	overstays(db, nil)
	overstays(other, nil)
}

// TestFullGroupsPass blocks a group of accepts on PostgreSQL. A full group must commit meanwhile.
func TestFullGroupsPass(t *testing.T) {
	needsPostgres(t)
	address := postgresURL(t)
	db := openURL(t, Options{URL: address})
	accept := func(drafts []store.Draft) error {
		accepted, err := db.Accept(t.Context(), drafts)
		for i := range accepted {
			if accepted[i].Err != nil {
				return accepted[i].Err
			}
		}
		return err
	}
	full := newDrafts(300, testNow)
	if err := accept(full); err != nil { // this also makes the lanes
		t.Fatal(err)
	}
	other := must(sql.Open("pgx", address))
	defer other.Close()
	blocker := must(other.BeginTx(t.Context(), nil))
	defer blocker.Rollback()
	must(blocker.ExecContext(t.Context(),
		`INSERT INTO idempotency (project, route, key, fingerprint, callback_id, created_at)
		VALUES ('default', 'r', 'k', '', '', 0)`))

	blocked := newDrafts(1, testNow)
	blocked[0].Idempotency = &store.Idempotency{Route: "r", Key: "k", Fingerprint: []byte{1}}
	answered := make(chan error, 1)
	go func() { answered <- accept(blocked) }()
	awaitLocked(t, other, 1)
	if err := accept(newDrafts(300, testNow)); err != nil {
		t.Errorf("a full group: %v", err)
	}
	select {
	case err := <-answered:
		t.Errorf("the blocked group was answered: %v", err)
	default:
	}
	noError(blocker.Rollback())
	if err := <-answered; err != nil {
		t.Errorf("the group that was blocked: %v", err)
	}
}
