package sqlstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A poll has a row in table polls besides its callback. The row says whether it is the open poll of its
// reference and address (live), and what its result callback is. Every end of a poll, by a result, a cancel,
// an expiry or a resolve, calls tx.noteEnd. Before the commit the transaction then accepts the result
// callbacks: see acceptPollResults.

// liveTries is how often an accept looks for the open poll of a key, if each one that it finds ends at once.
const liveTries = 3

// liveKey is the key of the one open poll of a project, a reference and an address. The unique index
// polls_live guards it.
func liveKey(c *store.Callback) string {
	where := "url " + c.URL
	if c.Follows {
		where = "endpoint " + c.EndpointID // the key stays the same when the endpoint moves
	}
	h := sha256.New()
	for _, part := range [...]string{c.Project, c.Ref, where} {
		fmt.Fprintf(h, "%d %s", len(part), part)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:18])
}

var (
	pollFields = sqldb.Named[store.Callback](`id project`)
	pollTexts  = sqldb.Named[acceptEntry](`live context on_result sealed_key=PollKey`)
	liveColumn = sqldb.Named[acceptEntry](`live`)
)

// pollColumns are the columns of a new row in polls.
func pollColumns(e *acceptEntry) sqldb.Columns {
	return append(pollFields(&e.out.Callback), pollTexts(e)...)
}

// registerPolls inserts the rows in polls for drafts of polls, in the transaction of the accept. A draft for
// which an open poll exists is answered with that poll. It returns the drafts whose callbacks are still to be
// inserted, including those that are no polls.
func (t *tx) registerPolls(entries []*acceptEntry) ([]*acceptEntry, error) {
	first := make(map[string]*acceptEntry)
	var rest, polls, same []*acceptEntry
	for _, e := range entries {
		switch {
		case e.draft.Poll == nil:
			rest = append(rest, e)
			continue
		case e.out.Callback.State.Terminal(): // it begins as ended, so it is never the open one
			e.Live = ""
			rest = append(rest, e)
			continue
		}
		e.Live = liveKey(&e.out.Callback)
		if first[e.Live] != nil {
			same = append(same, e)
			continue
		}
		first[e.Live] = e
		polls = append(polls, e)
	}
	if len(first) == 0 {
		return entries, nil
	}
	made, err := t.insertPolls(polls)
	if err != nil {
		return nil, err
	}
	for _, e := range polls {
		if made[e.out.Callback.ID] {
			rest = append(rest, e)
		}
	}
	for _, e := range same {
		answer := first[e.Live]
		e.out = store.Accepted{Callback: answer.out.Callback, Replayed: true, Err: answer.out.Err}
		if !answer.out.Replayed { // else both have the open poll, and the first may still be refused
			e.original = answer
		}
	}
	for _, e := range slices.Concat(polls, same) {
		if err := t.moveKeyToOpenPoll(e); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// insertPolls inserts polls with different live keys, sorted by key, and returns the ids of the new ones. The
// others are answered with the open poll of their key. The unique index decides between transactions: the
// second one waits for the first, and then finds its poll.
func (t *tx) insertPolls(polls []*acceptEntry) (made map[string]bool, err error) {
	made = make(map[string]bool, len(polls))
	left := slices.SortedFunc(slices.Values(polls), func(a, b *acceptEntry) int {
		return cmp.Compare(a.Live, b.Live)
	})
	for range liveTries {
		if err := sqldb.InsertEach(t.Tx, "polls", pollColumns, left, `ON CONFLICT DO NOTHING`,
			func(id string) {
				made[id] = true
			}); err != nil {
			return nil, named("insert polls", err)
		}
		left = slices.DeleteFunc(left, func(e *acceptEntry) bool {
			return made[e.out.Callback.ID]
		})
		if len(left) == 0 {
			return made, nil
		}
		left, err = t.answerFromOpenPolls(left, made)
		if err != nil || len(left) == 0 {
			return made, err
		}
	}
	for _, e := range left {
		e.Fail(fmt.Errorf("%w: open polls of this reference and address kept ending during the accept",
			store.ErrUnavailable))
	}
	return made, nil
}

// answerFromOpenPolls answers drafts with the open poll of their key. It returns the drafts without one: that
// poll has ended since the insert found it.
func (t *tx) answerFromOpenPolls(
	entries []*acceptEntry, made map[string]bool,
) (none []*acceptEntry, err error) {
	ids, err := sqldb.Map[string, string](t, openPolls, sqldb.RowsAt(entries, liveColumn))
	if err != nil {
		return nil, named("find open polls", err)
	}
	found, err := t.callbacksByID(slices.Collect(maps.Values(ids)), "")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		id := ids[e.Live]
		r, there := found[id]
		switch {
		case id == e.out.Callback.ID: // an earlier try of this transaction was committed
			made[id] = true
		case there && !r.State.Terminal():
			e.out = store.Accepted{Callback: r.Callback, Replayed: true}
		default:
			none = append(none, e)
		}
	}
	return none, nil
}

// openPolls finds the open polls of live keys.
const openPolls = `SELECT live, id FROM polls WHERE live <> '' AND live IN (SELECT i.live FROM $i)`

// moveKeyToOpenPoll makes the open poll that answered a draft the owner of the draft's idempotency key.
func (t *tx) moveKeyToOpenPoll(e *acceptEntry) error {
	if !e.out.Replayed {
		return nil
	}
	if e.draft.OwnPoll {
		return t.refusePoll(e)
	}
	if e.draft.Idempotency == nil {
		return nil
	}
	k := keyOf(e.draft)
	_, err := t.Exec(`UPDATE idempotency SET callback_id = $1
		WHERE project = $2 AND route = $3 AND key = $4 AND callback_id = $5`,
		e.out.Callback.ID, k.Project, k.Route, k.Key, e.draft.Callback.ID)
	return named("give the idempotency key to the open poll", err)
}

// refusePoll refuses a draft that must not be answered with another poll. Its idempotency key is free again.
func (t *tx) refusePoll(e *acceptEntry) error {
	e.original = nil
	e.Fail(store.ErrPollLive)
	if e.draft.Idempotency == nil {
		return nil
	}
	k := keyOf(e.draft)
	_, err := t.Exec(`DELETE FROM idempotency
		WHERE project = $1 AND route = $2 AND key = $3 AND callback_id = $4`,
		k.Project, k.Route, k.Key, e.draft.Callback.ID)
	return named("free the idempotency key", err)
}

// updateLive makes a poll that was reopened, or whose address changed, the open one of its key. It returns
// store.ErrPollLive if another poll is. If another transaction inserts one at the same time, the unique index
// fails this one, and it is repeated.
func (t *tx) updateLive(before, now *store.Callback) error {
	if now.Kind != store.Poll || now.State.Terminal() {
		return nil
	}
	live := liveKey(now)
	if !before.State.Terminal() && live == liveKey(before) {
		return nil
	}
	other, err := sqldb.Exists(t, `SELECT 1 FROM polls WHERE live = $1 AND live <> '' AND id <> $2`, live,
		now.ID)
	if err != nil {
		return named("find another open poll", err)
	}
	if other {
		return store.ErrPollLive
	}
	_, err = t.Exec(`UPDATE polls SET live = $1 WHERE id = $2`, live, now.ID)
	return sqldb.Overtaken("make it the open poll", err)
}

// ResolvePoll ends a poll as Succeeded, ResolvedOutside, because a person has learned its outcome elsewhere.
// The poll may be dead, or open and even being attempted: the result of that attempt then loses. data is JSON
// for the result callback, empty for none. It returns store.ErrNotFound if the project has no such poll. A
// poll that succeeded or was canceled is not changed.
func (db *DB) ResolvePoll(ctx context.Context, project, id string, data store.JSONText, now int64,
	by store.Actor) (store.ResolvedPoll, error) {
	return changed(ctx, db.change, "resolve "+id, func(t *tx) (resolved store.ResolvedPoll, err error) {
		r, err := t.lockCallback(project, id)
		if err != nil {
			return resolved, err
		}
		switch {
		case r.Kind != store.Poll:
			return resolved, store.ErrNotFound
		case r.State == store.Scheduled:
			was := r.openRow()
			resolved.Was = &was
		case r.State != store.Dead:
			resolved.Result, resolved.Callback = store.ResolveAlreadyTerminal, r.Callback
			return resolved, nil
		}
		at, before := max(now, r.UpdatedAt), r.Callback
		if _, err := t.Exec(`UPDATE polls SET data = $1 WHERE id = $2`, string(data), id); err != nil {
			return resolved, named("store the data of the resolve", err)
		}
		t.resolving = id
		if err := t.end(ending{&r, store.Succeeded, store.ResolvedOutside, at}); err != nil {
			return resolved, err
		}
		resolved.Result, resolved.Callback = store.ResolveDone, r.Callback
		return resolved, t.auditChange(project, "poll.resolve", id, at, by,
			diff(callbackParts, &before, &r.Callback),
			fields{"result": resolved.Result})
	})
}

var detailFields = sqldb.Named[store.PollDetail](`polls.context polls.outcome polls.result_id polls.data`)

// PollReports returns the reported outcomes of polls of the project, by id. A poll without a report is left
// out.
func (db *DB) PollReports(ctx context.Context, project string, ids []string) ([]store.PollReport, error) {
	return sqldb.Select(db.read(ctx, "read polls"), reportColumns, `FROM polls
		WHERE polls.id IN (SELECT i.id FROM $i) AND polls.project = $1 AND polls.result_id <> ''
		ORDER BY polls.id`, project, sqldb.Texts("id", ids))
}

var reportColumns = sqldb.Named[store.PollReport](`polls.id polls.outcome polls.result_id`)

// PollDetail returns the part of a poll that is not in its callback. It returns store.ErrNotFound if the
// project has no such poll.
func (db *DB) PollDetail(ctx context.Context, project, id string) (store.PollDetail, error) {
	var onResult string
	d, err := sqldb.Get(db.read(ctx, "read poll"), "read poll "+id, func(d *store.PollDetail) sqldb.Columns {
		return append(detailFields(d), col("polls.on_result", &onResult),
			col("callbacks.poll_errors", &d.Errors))
	}, `FROM polls JOIN callbacks ON callbacks.id = polls.id WHERE polls.id = $1 AND polls.project = $2`, id,
		project)
	if err != nil {
		return d, err
	}
	d.OnResult, err = decodeResult(onResult)
	if err != nil {
		db.logger.Error("the result callback of a poll cannot be decoded", "callback_id", id, "error", err)
	}
	return d, nil
}
