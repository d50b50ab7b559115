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

// What a poll has beside its row stands in a row of its own, which says whether it is the open one of its
// reference and address, and how it is told when it ends. Whatever ends a poll (a result, a cancel, an
// expiry, a resolve) ends it by way of tx.ended: before the commit the transaction looks up what has ended in
// it and accepts the result callbacks. So there is no end without its result, and no result without its end.

// liveTries is how often the open poll of a key is looked for that ended while it was.
const liveTries = 3

// liveKey names the one open poll of a reference and an address.
func liveKey(c *store.Callback) string {
	where := "url " + c.URL
	if c.Follows {
		where = "endpoint " + c.EndpointID // wherever that is
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

func pollColumns(e *acceptEntry) sqldb.Columns {
	return append(pollFields(&e.out.Callback), pollTexts(e)...)
}

// registerPolls makes the drafts of polls the open ones of their reference and address, and answers those for
// which there is one already with that. It returns the drafts that are to be inserted.
func (t *tx) registerPolls(entries []*acceptEntry) ([]*acceptEntry, error) {
	first := make(map[string]*acceptEntry)
	var rest, polls, same []*acceptEntry
	for _, e := range entries {
		switch {
		case e.draft.Poll == nil:
			rest = append(rest, e)
			continue
		case e.out.Callback.State.Terminal(): // it was superseded before it began
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
		e.original = first[e.Live]
		e.out = store.Accepted{Callback: e.original.out.Callback, Replayed: true, Err: e.original.out.Err}
	}
	for _, e := range slices.Concat(polls, same) {
		if err := t.moveKeyToOpenPoll(e); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// insertPolls adds the rows of polls, each of another reference or address, and answers those for which there
// is an open one with that. It returns the ids of those that are new.
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
		e.Fail(fmt.Errorf("%w: the poll of this reference and address ended again and again",
			store.ErrUnavailable))
	}
	return made, nil
}

// answerFromOpenPolls answers drafts with the open poll of their reference and address, and returns those that have none
// any more.
func (t *tx) answerFromOpenPolls(entries []*acceptEntry, made map[string]bool) (none []*acceptEntry, err error) {
	ids, err := sqldb.Map[string, string](t, openPolls,
		sqldb.RowsAt(entries, liveColumn))
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

// openPolls finds the open polls of references and addresses.
const openPolls = `SELECT live, id FROM polls WHERE live <> '' AND live IN (SELECT i.live FROM $i)`

// moveKeyToOpenPoll gives the idempotency key of a draft that became another poll to that one.
func (t *tx) moveKeyToOpenPoll(e *acceptEntry) error {
	if !e.out.Replayed || e.draft.Idempotency == nil {
		return nil
	}
	k := keyOf(e.draft)
	if _,
		err := t.Exec(
		`UPDATE idempotency SET callback_id = $1 WHERE project = $2 AND route = $3 AND key = $4 AND callback_id = $5`,
		e.out.Callback.ID, k.Project, k.Route, k.Key, e.draft.Callback.ID); err != nil {
		return named("give the idempotency key to the open poll", err)
	}
	return nil
}

// updateLive makes a poll that was opened again, or whose address changed, the open one of its reference and
// address; store.ErrPollLive: there is another.
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
		return named("look for another open poll", err)
	}
	if other {
		return store.ErrPollLive
	}
	_, err = t.Exec(`UPDATE polls SET live = $1 WHERE id = $2`, live, now.ID)
	return sqldb.Overtaken("make it the open poll", err)
}

// ResolvePoll ends a poll as Succeeded, ResolvedOutside: an open one, also while it is being attempted, as
// the result of that is too late; and a dead one, of which somebody has learned the answer in another way.
// Data is JSON for the result; empty: none. What is no poll of the project is store.ErrNotFound.
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
			return resolved, named("keep what it was resolved with", err)
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

// PollDetail returns what a poll has beside its row; store.ErrNotFound for what is no poll of the project.
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
