package sqlstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A reconciliation does not balance if the rows of one table were lost, or hold an unknown state.
func TestLostRowsDoNotBalance(t *testing.T) {
	onBoth(t, func(t *testing.T, db *DB) {
		now := time.Now().UnixMilli() // the time of the drafts' ids
		drafts := newDrafts(3, now)
		must(db.Accept(t.Context(), drafts))
		noError(db.changeBy(t.Context(), "lose", `DELETE FROM callbacks WHERE id = $1`,
			drafts[0].Callback.ID))
		noError(db.changeBy(t.Context(), "lose", `UPDATE callbacks SET state = 'forgotten' WHERE id = $1`,
			drafts[1].Callback.ID))
		project := drafts[0].Callback.Project
		for _, by := range []string{"", "topic", "endpoint", "lane", "day", "label:shop"} {
			q := store.ReconcileQuery{From: now - 1, To: now + 60_000, GroupBy: by}
			sum, balanced := int64(0), true
			for _, group := range must(db.Reconcile(t.Context(), project, q)) {
				sum, balanced = sum+group.Accepted, balanced && group.Balanced()
			}
			if sum != 3 || balanced {
				t.Errorf("by %q: %d accepted, balanced %t; want 3, not balanced", by, sum, balanced)
			}
		}
		r := must(db.RunReconcile(t.Context(), store.ReconcileRun{Project: project, Day: "2026-01-01",
			Timezone: "UTC", From: now - 1, To: now + 60_000}, 10, now, store.Actor{}))
		if wrong := r.Wrong(); !slices.Equal(wrong, []string{store.WrongUnbalanced}) || r.Books.Open != 1 {
			t.Errorf("the report is %+v", r)
		}
	})
}

// A listNow is a list that gets its items after the scan of the callbacks.
type listNow struct{ items []store.RefTopic }

func (l listNow) pages(look func(page []store.RefTopic) error) error { return look(l.items) }

func (l listNow) unlisted(items []store.RefTopic) ([]store.RefTopic, error) { return items, nil }

// An item that is listed while the comparison runs is neither missing nor extra.
func TestItemsListedDuringAComparison(t *testing.T) {
	onBoth(t, func(t *testing.T, db *DB) {
		now := time.Now().UnixMilli() // the time of the drafts' ids
		drafts := newDrafts(3, now)
		for i := range drafts {
			drafts[i].Callback.Ref, drafts[i].Callback.Topic = fmt.Sprint("order-", i), "paid"
		}
		must(db.Accept(t.Context(), drafts))
		end := now + 60_000
		c := itemComparer{db: db, read: db.read(t.Context(), "compare items"),
			project: drafts[0].Callback.Project, from: now - 1, to: end, until: end, most: 10}
		r := must(c.compare(listNow{[]store.RefTopic{{Ref: "order-1", Topic: "paid"}, {Ref: "lost"}}}))
		if r.Listed != 2 || r.Matched != 1 || r.Missing != 1 || r.Extra != 2 || len(r.Items) != 4 {
			t.Errorf("the comparison is %+v", r)
		}
	})
}

// A run that died after it stored its items leaves nothing in the report of the run that follows, and its
// items are removed after a day.
func TestReconcileAfterARunThatDied(t *testing.T) {
	onBoth(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		const project, day = "default", "2026-01-01"
		run := store.ReconcileRun{Project: project, Day: day, Timezone: "UTC", From: testNow - 1,
			To: testNow + 1}
		lost := []store.RefTopic{{Ref: "a"}, {Ref: "b"}}
		must(db.AddExpected(ctx, project, day, lost, 10, testNow, store.Actor{}))
		_, items, err := db.reconcileDay(ctx, run, 10, testNow)
		noError(err)
		noError(db.writeItems(ctx, must(db.idAt(testNow)), items)) // and the process dies
		stored := func() int64 {
			n, _, err := sqldb.Value[int64](db.read(ctx, "count"), `SELECT COUNT(*) FROM reconcile_items`)
			noError(err)
			return n
		}
		r := must(db.RunReconcile(ctx, run, 10, testNow, store.Actor{}))
		found := must(db.ReconcileItems(ctx, project, day, "", 0, 10))
		if r.Missing != 2 || len(found) != 2 || stored() != 4 {
			t.Fatalf("the report is %+v with %+v, and %d items are stored", r, found, stored())
		}
		later := testNow + (25 * time.Hour).Milliseconds()
		must(db.PurgeReconciles(ctx, later, testNow, day, 100))
		if again := must(db.ReconcileItems(ctx, project, day, "", 0, 10)); len(again) != 2 || stored() != 2 {
			t.Errorf("after the purge the report has %+v, and %d items are stored", again, stored())
		}
	})
}

// A transaction that stores a report was committed, its reply was lost, and it is repeated. It replaces
// nothing: the items of the run stay, and the audit has one entry.
func TestAReportIsStoredOnceThoughItsReplyIsLost(t *testing.T) {
	onBoth(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		const project = store.DefaultProject
		noError(db.changeBy(ctx, "switch the daily run on", `UPDATE projects SET reconcile_next = $1
			WHERE id = $2`, testNow, project))
		for _, due := range []int64{0, testNow} {
			run := store.ReconcileRun{Project: project, Day: fmt.Sprint("day-", due), Due: due,
				Next: testNow + 1000}
			r := store.ReconcileReport{Project: project, Day: run.Day, RunID: must(db.idAt(testNow)),
				Missing: 2}
			for _, repeated := range []bool{false, true} {
				noError(db.change(ctx, "store", func(tx *tx) error {
					tx.MayBeCommitted = repeated
					got, replaced, err := tx.storeReport(run, r, testNow, store.Actor{Name: "test"})
					if got.RunID != r.RunID || got.Missing != 2 || replaced != "" {
						t.Errorf("due %d, repeated %v: %+v, which replaces %q", due, repeated, got, replaced)
					}
					return err
				}))
			}
		}
		const entries = `SELECT COUNT(*) FROM audit WHERE action = 'reconcile.run'`
		if n := number(t, db, entries); n != 1 {
			t.Errorf("%d audit entries, want that of the run by hand", n)
		}
	})
}

// A transaction that stores items fails at its COMMIT, and is repeated with the same items.
func TestItemsAreStoredAgainAfterAFailedCommit(t *testing.T) {
	needsPostgres(t)
	ctx, db := t.Context(), openPostgres(t)
	for _, text := range []string{
		`CREATE SEQUENCE commits`,
		`CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN
			IF nextval(''commits'') = 1 THEN RAISE EXCEPTION USING ERRCODE = ''40001''; END IF;
			RETURN NULL;
		END'`,
		`CREATE CONSTRAINT TRIGGER fail_once AFTER INSERT ON reconcile_items DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION fail_once()`,
	} {
		noError(db.changeBy(ctx, "prepare", text))
	}
	items := []store.ReconcileItem{{Kind: store.ItemMissing}, {Kind: store.ItemMissing}}
	noError(db.writeItems(ctx, "run", items))
	for _, text := range []string{`DROP TRIGGER fail_once ON reconcile_items`, `DROP FUNCTION fail_once`,
		`DROP SEQUENCE commits`} {
		noError(db.changeBy(ctx, "clean up", text))
	}
	if n := number(t, db, `SELECT COUNT(*) FROM reconcile_items`); n != 2 {
		t.Errorf("%d items are stored, want 2", n)
	}
}

// A reference with thousands of topics is compared in a time that grows with their number, so that no
// statement reaches the time limit of reads.
func TestOneReferenceWithManyTopics(t *testing.T) {
	onBoth(t, func(t *testing.T, db *DB) {
		now := time.Now().UnixMilli()
		const many = 8000
		list := make([]store.RefTopic, 0, many/2)
		for i := 0; i < many; i += 1000 {
			drafts := newDrafts(1000, now)
			for k := range drafts {
				c := &drafts[k].Callback
				c.Ref, c.Topic = "merchant-7", fmt.Sprint(i+k)
				if k%2 == 0 {
					list = append(list, store.RefTopic{Ref: c.Ref, Topic: c.Topic})
				}
			}
			must(db.Accept(t.Context(), drafts))
		}
		list = append(list, store.RefTopic{Ref: "merchant-7", Topic: "lost"})
		project := newDrafts(1, now)[0].Callback.Project
		c := must(db.CompareItems(t.Context(), project, now-1, now+60_000, list, 3))
		if c.Listed != many/2+1 || c.Matched != many/2 || c.Missing != 1 || c.Extra != many/2 {
			t.Errorf("the comparison is %+v", c)
		}
		must(db.AddExpected(t.Context(), project, "2026-01-01", list, many, now, store.Actor{}))
		r := must(db.RunReconcile(t.Context(), store.ReconcileRun{Project: project, Day: "2026-01-01",
			Timezone: "UTC", From: now - 1, To: now + 1}, 3, now+60_000, store.Actor{}))
		if r.Matched != many/2 || r.Missing != 1 {
			t.Errorf("the report is %+v", r)
		}
	})
}
