package sqlstore

import (
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// TestPollEndsAndAnotherBeginsTogether: if results and accepts share a transaction, a poll that ends in it
// makes room for a new one of the same key.
func TestPollEndsAndAnotherBeginsTogether(t *testing.T) {
	onBoth(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		poll := func() store.Draft {
			d := newDrafts(1, testNow)[0]
			d.Callback.Kind, d.Poll = store.Poll,
				&store.PollDetail{OnResult: &store.ResultDraft{Callback: newDrafts(1, testNow)[0].Callback}}
			return d
		}
		first, second := poll(), acceptEntry{draft: new(poll())}
		must(db.Accept(ctx, []store.Draft{first}))
		stamped := stampAll(t, db, first.Callback.ID)
		answer := succeeded(stamped[0])
		answer.Reason = store.PollSucceeded
		result := newResult(answer, testNow)
		noError(second.encode(&db.written))
		noError(db.sql.Change(ctx, func(s *sqldb.Tx) error {
			return db.applyGroup(s, []sqldb.Entry{&second, &result})
		}))
		if a := second.out; !result.out.Won || a.Err != nil || a.Replayed ||
			a.Callback.ID != second.draft.Callback.ID {
			t.Errorf("the second is answered with %+v; the result with %+v", a, result.out)
		}
		if n := len(db.spawned); n != 1 {
			t.Errorf("%d result callbacks were spawned, want 1", n)
		}
	})
}

// TestScheduleRunsOnceThoughItsReplyIsLost: a transaction was committed, its reply was lost, and it is
// repeated. Its runs must win, and accept nothing more.
func TestScheduleRunsOnceThoughItsReplyIsLost(t *testing.T) {
	onBoth(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		by := store.Actor{Name: "test"}
		withDraft := func(f *runEntry) {
			f.Draft = &newDrafts(1, testNow)[0]
			f.accept.draft = f.Draft
		}
		var runs []*runEntry
		for i, name := range []string{"made", "skipped", "failed", "moved"} {
			s := must(db.CreateSchedule(ctx, store.Schedule{
				ID: newDrafts(1, testNow)[0].Callback.ID, Project: store.DefaultProject, Name: name,
				Enabled: true, NextAt: testNow, CreatedAt: testNow,
			}, by))
			f := &runEntry{PlannedRun: store.PlannedRun{Schedule: s, Next: testNow + 60_000, Due: testNow,
				Now: testNow}}
			if i == 0 || i == 3 {
				withDraft(f)
				noError(f.accept.encode(&db.written))
			}
			if i == 2 {
				f.Why = "wrong"
			}
			runs = append(runs, f)
		}
		run := func(repeated bool, runs ...*runEntry) {
			t.Helper()
			noError(db.change(ctx, "run schedules", func(tx *tx) error {
				tx.MayBeCommitted = repeated
				return tx.runSchedules(runs)
			}))
		}
		wantOpen := func(want int64) {
			t.Helper()
			if n := must(db.Counts(ctx, store.DefaultProject)).States[store.Scheduled]; n != want {
				t.Errorf("%d are open, want %d", n, want)
			}
		}
		// Another dispatcher makes the last run.
		other := *runs[3]
		withDraft(&other)
		run(false, &other)
		for _, repeated := range []bool{false, true, true} {
			run(repeated, runs...)
			for i, f := range runs {
				if f.won != (i < 3) || f.err != nil {
					t.Errorf("repeated %v, run %d: won %v, %v", repeated, i, f.won, f.err)
				}
			}
			if c := runs[0].accept.out.Callback; c.ID != runs[0].Draft.Callback.ID || c.LaneID == 0 {
				t.Errorf("repeated %v, its callback: %+v", repeated, c)
			}
			wantOpen(2)
		}
		for i, made := range []int{1, 0, 0, 1} {
			stored := must(db.ScheduleRuns(ctx, store.DefaultProject, runs[i].Schedule.ID))
			if len(stored) != made {
				t.Errorf("runs of %d: %v", i, stored)
			}
		}
		e := acceptEntry{draft: &newDrafts(1, testNow)[0]}
		noError(e.encode(&db.written))
		for _, repeated := range []bool{false, true} {
			if err := db.change(ctx, "run", func(tx *tx) error {
				tx.MayBeCommitted = repeated
				return tx.runScheduleNow(store.DefaultProject, runs[1].Schedule.ID, &e, testNow, by)
			}); err != nil || e.out.Callback.ID != e.draft.Callback.ID {
				t.Errorf("run by hand, repeated %v: %+v, %v", repeated, e.out, err)
			}
		}
		wantOpen(3) // after a run by hand
	})
}

// number runs a query for one number.
func number(t *testing.T, db *DB, query string) int {
	t.Helper()
	n, _, err := sqldb.Value[int](db.read(t.Context(), "count"), query)
	noError(err)
	return n
}

// TestPurgeDeletesRowsOfPolls: a purge of a poll also deletes its row in table polls, and only that one.
func TestPurgeDeletesRowsOfPolls(t *testing.T) {
	onBoth(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		var drafts []store.Draft
		for _, ref := range []string{"gone", "open"} {
			d := newDrafts(1, testNow)[0]
			d.Callback.Kind, d.Callback.Ref, d.Poll = store.Poll, ref, &store.PollDetail{Context: `"kept"`}
			drafts = append(drafts, d)
		}
		must(db.Accept(ctx, drafts))
		must(db.Cancel(ctx, store.DefaultProject, drafts[0].Callback.ID, testNow, store.Actor{Name: "test"}))
		if n := number(t, db, `SELECT COUNT(*) FROM polls`); n != 2 {
			t.Fatalf("%d rows before", n)
		}
		r := store.Retention{Now: testNow, Payloads: testNow + 1000, Callbacks: testNow + 1000}
		if p := must(db.Purge(ctx, r, 10)); p.Callbacks != 1 {
			t.Fatalf("purged %+v", p)
		}
		if n := number(t, db, `SELECT COUNT(*) FROM polls`); n != 1 {
			t.Errorf("%d rows are left, want that of the open one", n)
		}
	})
}

// TestRefusedSetURLKeepsTheHeaders: a redrive of action set_url moves a poll to the URL of another open poll
// of the same reference. The store refuses that, and commits the rest of the step. The refused poll must keep
// its credentials, although a move to another host drops them.
func TestRefusedSetURLKeepsTheHeaders(t *testing.T) {
	onBoth(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		drafts := newDrafts(2, testNow)
		for i, url := range []string{"https://old.example/", "https://new.example/"} {
			d := &drafts[i]
			d.Callback.Kind, d.Callback.Ref, d.Poll = store.Poll, "order", new(store.PollDetail)
			d.Callback.URL, d.Callback.Headers = url, []store.Header{{Name: "Authorization", Value: "secret"}}
		}
		must(db.Accept(ctx, drafts))
		by := store.Actor{Name: "test"}
		r := must(db.CreateRedrive(ctx, store.Redrive{
			ID: newDrafts(1, testNow)[0].Callback.ID, Project: store.DefaultProject,
			Action: store.RedriveSetURL, URL: drafts[1].Callback.URL, CreatedAt: testNow,
			Filter: store.Filter{States: []store.State{store.Scheduled}},
		}, by))
		must(db.GatherRedrive(ctx, r.Project, r.ID, testNow))
		step := must(db.StepRedrive(ctx, r.ID, 10, testNow))
		if step.Redrive.Failed != 1 || step.Redrive.Done != 1 {
			t.Fatalf("the step: %+v", step.Redrive)
		}
		c := must(db.Get(ctx, store.DefaultProject, drafts[0].Callback.ID))
		if c.URL != drafts[0].Callback.URL || len(c.Headers) != 1 {
			t.Errorf("the refused poll has URL %s and headers %v", c.URL, c.Headers)
		}
	})
}
