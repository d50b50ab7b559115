package sqlstore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A poll reports its result by another callback, the result callback. This file makes it and accepts it in
// the transaction that ends the poll. So the end and its result callback commit together or not at all, and
// quotas cannot refuse one.

// resultMembers are the members of a stored result callback.
func resultMembers(d *store.ResultDraft) members {
	c := &d.Callback
	return members{
		"endpoint_id": &c.EndpointID, "url": &c.URL, "follows": &c.Follows, "method": &c.Method,
		"headers": &c.Headers, "topic": &c.Topic, "ref": &c.Ref, "lock_key": &c.LockKey,
		"strict": &c.Strict, "lane": &c.Lane, "labels": &c.Labels, "policy": &c.Policy,
		"success": &c.Success, "signer": &c.Signer, "ladder_base": &c.LadderBase, "version": &c.Version,
		"content_type": &c.ContentType, "delay_ms": &d.Delay, "expires_in_ms": &d.ExpiresIn,
		"supersede": &d.Supersede,
	}
}

// encodeResult returns a result callback as JSON, or "" for nil.
func encodeResult(d *store.ResultDraft) (string, error) {
	if d == nil {
		return "", nil
	}
	return encode(resultMembers(d))
}

// decodeResult reads what encodeResult wrote. It returns nil for "".
func decodeResult(text string) (*store.ResultDraft, error) {
	if text == "" {
		return nil, nil
	}
	d := &store.ResultDraft{Callback: store.Callback{Kind: store.Notify}}
	m := resultMembers(d)
	if err := decode("result callback", text, &m); err != nil {
		return nil, err
	}
	return d, nil
}

// An endedPoll is the id of a poll that this transaction has ended, and when.
type endedPoll struct {
	id string
	at int64
}

// A finishedPoll is a poll that has ended, with what its result callback needs.
type finishedPoll struct {
	store.Callback
	store.PollDetail
	// at is when it ended, in Unix milliseconds.
	at int64
	// Reported is the outcome that the last result callback reported. PollDetail.Outcome is the present one.
	Reported store.PollOutcome
	// Stored is the result callback as JSON.
	Stored string
	// resolved: this transaction ends it by ResolvePoll.
	resolved bool
	// answer is the last response of the upstream, nil without one. answeredAt is when it ended.
	answer     *store.PollAnswer
	answeredAt int64
}

// acceptPollResults accepts the result callbacks of all polls that have ended in this transaction so far.
// Every transaction calls it before its commit. A group with drafts calls it before them too, so that no
// draft joins a poll that has just ended. The loop ends: each pass takes polls that were open, and makes no
// new ones.
func (t *tx) acceptPollResults() error {
	// Accepting a result callback may supersede an open poll, which enters endedPolls in turn.
	for len(t.endedPolls) > 0 {
		if err := t.acceptResultsOfEnded(); err != nil {
			return err
		}
	}
	return nil
}

// acceptResultsOfEnded accepts the result callbacks of the polls in endedPolls, and empties that list. An
// accept that fails makes the whole transaction fail, so the polls have not ended either.
func (t *tx) acceptResultsOfEnded() error {
	at := make(map[string]int64, len(t.endedPolls))
	for _, e := range t.endedPolls {
		at[e.id] = e.at
	}
	t.endedPolls = nil
	polls, err := t.readFinishedPolls(at)
	if err != nil {
		return err
	}
	if err := t.lastAnswers(polls); err != nil {
		return err
	}
	var entries []*acceptEntry
	for i := range polls {
		p := &polls[i]
		e, err := t.resultOf(p)
		if err != nil {
			return err
		}
		if e != nil {
			p.Reported, p.ResultID = p.Outcome, e.draft.Callback.ID
			entries = append(entries, e)
		}
	}
	if err := t.cancelForDeletedEndpoints(entries); err != nil {
		return err
	}
	t.quotaExempt = true
	err = t.applyDrafts(entries)
	t.quotaExempt = false
	if err != nil {
		return named("accept result callbacks", err)
	}
	for _, e := range entries {
		if e.out.Err != nil {
			return fmt.Errorf("accept result callback: %w", e.out.Err)
		}
		if e.out.Callback.State == store.Scheduled {
			t.spawned = append(t.spawned, (&row{Callback: e.out.Callback}).openRow())
		}
	}
	return t.writeReported(polls)
}

var finishedPollColumns = sqldb.Named[finishedPoll](`callbacks.id callbacks.project requests.ref
	callbacks.state callbacks.reason callbacks.attempt_count requests.trace_context polls.context
	polls.result_id polls.data polls.on_result=Stored polls.outcome=Reported`)

// readFinishedPolls reads the polls that have ended, in the order of their ids.
func (t *tx) readFinishedPolls(at map[string]int64) ([]finishedPoll, error) {
	polls, err := sqldb.Select(t, finishedPollColumns, `FROM polls, `+fromCallbacks+`
		WHERE callbacks.id = polls.id
			AND polls.id IN (SELECT i.id FROM $i)
			AND callbacks.state <> 'scheduled'
		ORDER BY polls.id`, sqldb.Texts("id", sortedKeys(at)))
	for i := range polls {
		p := &polls[i]
		p.at, p.Outcome, p.resolved = at[p.ID], p.PollOutcome(), p.ID == t.resolving
	}
	return polls, named("read polls that have ended", err)
}

// lastAnswers reads the last response of the upstream to each poll. Stale attempts do not count.
func (t *tx) lastAnswers(polls []finishedPoll) error {
	byID := make(map[string]*finishedPoll, len(polls))
	for i := range polls {
		byID[polls[i].ID] = &polls[i]
	}
	type answer struct {
		CallbackID string
		store.PollAnswer
		EndedAt int64
	}
	answers, err := sqldb.Select(t, sqldb.Named[answer](`attempts.callback_id attempts.status=StatusCode
		attempts.response_body=Body attempts.response_truncated=Truncated attempts.ended_at`),
		`FROM $i JOIN attempts ON attempts.callback_id = i.id
		WHERE attempts.number = (SELECT MAX(answered.number) FROM attempts AS answered
			WHERE answered.callback_id = i.id AND answered.status > 0 AND answered.stale = 0)`,
		sqldb.Texts("id", sortedKeys(byID)))
	for i := range answers {
		p := byID[answers[i].CallbackID]
		p.answer, p.answeredAt = &answers[i].PollAnswer, answers[i].EndedAt
	}
	return named("read the last answers of polls", err)
}

// mustReport reports whether the end of the poll needs a result callback. The first end always does, and so
// does every resolve, whose data may differ. A later end does only if it is a final outcome that was not
// reported before. A poll that returns to its state after a failed retry reports nothing: an unknown or
// canceled end does not undo a reported one.
func (p *finishedPoll) mustReport() bool {
	switch {
	case p.Reported == "" || p.resolved:
		return true
	case p.Outcome == store.PollSuccess || p.Outcome == store.PollFailure:
		return p.Outcome != p.Reported
	}
	return false
}

// resultOf makes the draft of a poll's result callback. It returns nil if none is needed. It also returns nil
// if the stored result callback cannot be decoded, or its body cannot be encoded: then the poll ends without
// it, and only the feed of outcomes has the end.
func (t *tx) resultOf(p *finishedPoll) (*acceptEntry, error) {
	if !p.mustReport() {
		return nil, nil
	}
	d, err := decodeResult(p.Stored)
	if err != nil {
		t.db.logger.Error("poll ended without its result callback, which cannot be decoded",
			"callback_id", p.ID, "error", err)
		return nil, nil
	}
	if d == nil {
		return nil, nil
	}
	var body bytes.Buffer
	text := json.NewEncoder(&body)
	text.SetEscapeHTML(false)
	if err := text.Encode(p.result()); err != nil {
		t.db.logger.Error("poll ended without its result callback: the result cannot be encoded",
			"callback_id", p.ID, "error", err)
		return nil, nil
	}
	c := d.Callback
	c.ID, err = t.db.idAt(p.at)
	if err != nil {
		return nil, err
	}
	c.Project, c.State, c.TraceContext = p.Project, store.Scheduled, p.TraceContext
	c.CreatedBy = store.CallbackPrefix + p.ID
	c.CreatedAt, c.UpdatedAt, c.DueAt = p.at, p.at, p.at+d.Delay
	c.FirstDueAt = c.DueAt
	if d.ExpiresIn > 0 {
		c.ExpiresAt = c.DueAt + d.ExpiresIn
	}
	e := &acceptEntry{draft: &store.Draft{Callback: c, Body: bytes.TrimSuffix(body.Bytes(), []byte("\n")),
		Supersede: d.Supersede}}
	return e, e.encode(&t.db.written)
}

// cancelForDeletedEndpoints makes the result callbacks of deleted endpoints begin as canceled. The lane of a
// deleted endpoint is paused for good, and CancelDeleted may have passed already.
func (t *tx) cancelForDeletedEndpoints(entries []*acceptEntry) error {
	byEndpoint := make(map[string][]*store.Callback)
	for _, e := range entries {
		if c := &e.draft.Callback; c.EndpointID != "" {
			byEndpoint[c.EndpointID] = append(byEndpoint[c.EndpointID], c)
		}
	}
	if len(byEndpoint) == 0 {
		return nil
	}
	deleted, err := sqldb.Values[string](t,
		`SELECT id FROM endpoints WHERE id IN (SELECT i.id FROM $i) AND deleted_at > 0`,
		sqldb.Texts("id", sortedKeys(byEndpoint)))
	for _, id := range deleted {
		for _, c := range byEndpoint[id] {
			c.State, c.Reason, c.DueAt, c.FinishedAt = store.Canceled, store.EndpointDeleted, 0, c.CreatedAt
		}
	}
	return named("find the endpoints of result callbacks", err)
}

// result is the body of the result callback.
func (p *finishedPoll) result() store.PollResult {
	observed := p.at
	if p.answer != nil && (p.Outcome == store.PollSuccess || p.Outcome == store.PollFailure) {
		observed = p.answeredAt
	}
	r := store.PollResult{
		PollID: store.CallbackPrefix + p.ID, Ref: p.Ref, Context: json.RawMessage(p.Context),
		Outcome: p.Outcome, Reason: p.Reason,
		Last: p.answer, Polls: p.AttemptCount,
		ObservedAt: time.UnixMilli(observed).UTC().Format("2006-01-02T15:04:05.000Z"),
		Data:       json.RawMessage(p.Data),
	}
	if p.Context == "" {
		r.Context = nil
	}
	if p.Data == "" || p.Outcome != store.PollResolved {
		r.Data = nil
	}
	return r
}

var reportedColumns = sqldb.Named[finishedPoll](`id outcome=Reported result_id`)

// writeReported stores which outcome was reported and by which callback, and clears live: the polls are no
// longer the open ones of their reference and address.
func (t *tx) writeReported(polls []finishedPoll) error {
	_, err := sqldb.ExecRows(t.Tx, `UPDATE polls SET live = '', outcome = i.outcome, result_id = i.result_id
		FROM $i WHERE polls.id = i.id`, polls, reportedColumns)
	return named("write the reported outcomes of polls", err)
}

// spawnedQueue is the capacity of the channel of Spawned. A callback that does not fit reaches the index by
// the sweep.
const spawnedQueue = 4096

// Spawned returns the channel of callbacks that were committed in addition to what a caller asked for: the
// result callbacks of polls. It is always the same channel and is never closed. It only saves time: a
// callback that does not fit is left out, and the sweep finds it.
func (db *DB) Spawned() <-chan store.OpenRow { return db.spawned }

// publishSpawned sends committed callbacks to the channel of Spawned, and never blocks.
func (db *DB) publishSpawned(rows []store.OpenRow) {
	for _, r := range rows {
		select {
		case db.spawned <- r:
		default:
			return
		}
	}
}
