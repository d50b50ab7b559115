package sqlstore

import (
	"database/sql"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestFullGroupsPass holds up a group of accepts on PostgreSQL: one that is full is committed meanwhile.
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
	if err := accept(full); err != nil { // which makes the lanes, too
		t.Fatal(err)
	}
	other := must(sql.Open("pgx", address))
	defer other.Close()
	blocker := must(other.BeginTx(t.Context(), nil))
	defer blocker.Rollback()
	must(blocker.ExecContext(t.Context(), `INSERT INTO idempotency (project, route, key, fingerprint, callback_id, created_at)
		VALUES ('default', 'r', 'k', '', '', 0)`))

	held := newDrafts(1, testNow)
	held[0].Idempotency = &store.Idempotency{Route: "r", Key: "k", Fingerprint: []byte{1}}
	answered := make(chan error, 1)
	go func() { answered <- accept(held) }()
	awaitLocked(t, other, 1)
	if err := accept(newDrafts(300, testNow)); err != nil {
		t.Errorf("a full group: %v", err)
	}
	select {
	case err := <-answered:
		t.Errorf("the group that is held up was answered: %v", err)
	default:
	}
	noError(blocker.Rollback())
	if err := <-answered; err != nil {
		t.Errorf("the group that was held up: %v", err)
	}
}
