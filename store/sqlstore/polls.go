package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// What a poll has beside its row stands in a row of its own, which says whether it is the open one of its reference and address, and how
// it is told when it ends. Whatever ends a poll (a result, a cancel, an expiry, a resolve) ends it by way of tx.ended: before the commit
// the transaction looks up what has ended in it and accepts the result callbacks. So there is no end without its result, and no result
// without its end.

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

var pollInsert = newBulkInsert("polls", fields[*acceptEntry]{
	textField("id", func(e *acceptEntry) string { return e.out.Callback.ID }),
	textField("project", func(e *acceptEntry) string { return e.out.Callback.Project }),
	textField("live", func(e *acceptEntry) string { return e.live }),
	textField("context", func(e *acceptEntry) string { return string(e.draft.Poll.Context) }),
	textField("on_result", func(e *acceptEntry) string { return e.onResult }),
}, `ON CONFLICT DO NOTHING`)

// claimLive makes the drafts of polls the open ones of their reference and address, and answers those for which there is one already
// with that. It returns the drafts that are to be inserted.
func (t *tx) claimLive(entries []*acceptEntry) ([]*acceptEntry, error) {
	first := make(map[string]*acceptEntry)
	var rest, polls, same []*acceptEntry
	for _, e := range entries {
		switch {
		case e.draft.Poll == nil:
			rest = append(rest, e)
			continue
		case e.out.Callback.State.Terminal(): // it was superseded before it began
			e.live = ""
			rest = append(rest, e)
			continue
		}
		e.live = liveKey(&e.out.Callback)
		if first[e.live] != nil {
			same = append(same, e)
			continue
		}
		first[e.live] = e
		polls = append(polls, e)
	}
	if len(first) == 0 {
		return entries, nil
	}
	made, err := t.insertLive(polls)
	if err != nil {
		return nil, err
	}
	for _, e := range polls {
		if made[e.out.Callback.ID] {
			rest = append(rest, e)
		}
	}
	for _, e := range same {
		e.out = store.Accepted{Callback: first[e.live].out.Callback, Replayed: true, Err: first[e.live].out.Err}
	}
	for _, e := range slices.Concat(polls, same) {
		if err := t.followLive(e); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// insertLive adds the rows of polls, each of another reference or address, and answers those for which there is an open one with that. It
// returns the ids of those that are new.
func (t *tx) insertLive(polls []*acceptEntry) (made map[string]bool, err error) {
	made = make(map[string]bool, len(polls))
	left := slices.SortedFunc(slices.Values(polls), func(a, b *acceptEntry) int { return cmp.Compare(a.live, b.live) })
	for range liveTries {
		if err := pollInsert.run(t, left, func(id string) { made[id] = true }); err != nil {
			return nil, fmt.Errorf("insert polls: %w", err)
		}
		if left = slices.DeleteFunc(left, func(e *acceptEntry) bool { return made[e.out.Callback.ID] }); len(left) == 0 {
			return made, nil
		}
		if left, err = t.findLive(left, made); err != nil || len(left) == 0 {
			return made, err
		}
	}
	for _, e := range left {
		e.fail(fmt.Errorf("%w: the poll of this reference and address ended again and again", store.ErrUnavailable))
	}
	return made, nil
}

// findLive answers drafts with the open poll of their reference and address, and returns those that have none any more.
func (t *tx) findLive(entries []*acceptEntry, made map[string]bool) (none []*acceptEntry, err error) {
	ids := make(map[string]string, len(entries))
	input, args, _, err := t.input([]column{texts("live", entries, func(e *acceptEntry) string { return e.live })})
	if err != nil {
		return nil, err
	}
	if err := t.each(func(rows scanner) error {
		var live, id string
		err := rows.Scan(&live, &id)
		ids[live] = id
		return err
	}, `SELECT live, id FROM polls WHERE live <> '' AND live IN (SELECT i.live FROM `+input+`)`, args...); err != nil {
		return nil, fmt.Errorf("find open polls: %w", err)
	}
	var others []string
	for _, id := range ids {
		others = append(others, id)
	}
	found, err := t.callbacksByID(others, "")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		id := ids[e.live]
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

// followLive gives the idempotency key of a draft that became another poll to that one.
func (t *tx) followLive(e *acceptEntry) error {
	if !e.out.Replayed || e.draft.Idempotency == nil {
		return nil
	}
	k := e.idempotencyKey()
	if _, err := t.exec(`UPDATE idempotency SET callback_id = $1 WHERE project = $2 AND route = $3 AND key = $4 AND callback_id = $5`,
		e.out.Callback.ID, k.project, k.route, k.key, e.draft.Callback.ID); err != nil {
		return fmt.Errorf("give the idempotency key to the open poll: %w", err)
	}
	return nil
}

// keepLive makes a poll that was opened again, or whose address changed, the open one of its reference and address; store.ErrPollLive:
// there is another.
func (t *tx) keepLive(before, now *store.Callback) error {
	if now.Kind != store.Poll || now.State.Terminal() {
		return nil
	}
	live := liveKey(now)
	if !before.State.Terminal() && live == liveKey(before) {
		return nil
	}
	other := false
	if err := t.each(func(scanner) error { other = true; return nil }, `SELECT 1 FROM polls WHERE live = $1 AND live <> '' AND id <> $2`,
		live, now.ID); err != nil {
		return fmt.Errorf("look for another open poll: %w", err)
	}
	if other {
		return store.ErrPollLive
	}
	if _, err := t.exec(`UPDATE polls SET live = $1 WHERE id = $2`, live, now.ID); err != nil {
		if taken(err) {
			return store.ErrPollLive
		}
		return fmt.Errorf("make it the open poll: %w", err)
	}
	return nil
}

// ResolvePoll ends an open poll as Succeeded, ResolvedOutside, also one that is being attempted: the result of that is too late. Data is
// JSON for the result; empty: none. What is no poll of the project is store.ErrNotFound.
func (db *DB) ResolvePoll(ctx context.Context, project, id string, data store.JSONText, now int64, by store.Actor) (store.ResolvedPoll, error) {
	var resolved store.ResolvedPoll
	err := db.change(ctx, func(t *tx) error {
		resolved = store.ResolvedPoll{}
		r, err := t.lockCallback(project, id)
		if err != nil {
			return err
		}
		switch {
		case r.Kind != store.Poll:
			return store.ErrNotFound
		case r.State.Terminal():
			resolved.Result, resolved.Callback = store.ResolveAlreadyTerminal, r.Callback
			return nil
		}
		at := max(now, r.UpdatedAt)
		was := r.openRow()
		if _, err := t.exec(`UPDATE polls SET data = $1 WHERE id = $2`, string(data), id); err != nil {
			return fmt.Errorf("keep what it was resolved with: %w", err)
		}
		if err := t.end(ending{&r, store.Succeeded, store.ResolvedOutside, at}); err != nil {
			return err
		}
		resolved.Result, resolved.Callback, resolved.Was = store.ResolveDone, r.Callback, &was
		entry, err := auditOf(project, actionResolve, id, at, by, map[string]any{"result": resolved.Result})
		if err != nil {
			return err
		}
		return t.audit(entry)
	})
	if err != nil {
		return store.ResolvedPoll{}, fmt.Errorf("resolve %s: %w", id, err)
	}
	return resolved, nil
}

// PollDetail returns what a poll has beside its row; store.ErrNotFound for what is no poll of the project.
func (db *DB) PollDetail(ctx context.Context, project, id string) (store.PollDetail, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	var d store.PollDetail
	var onResult string
	found := false
	err := queryEach(ctx, db.read, func(rows scanner) error {
		found = true
		return rows.Scan(&d.Context, &onResult, &d.Errors, &d.Outcome, &d.ResultID, &d.Data)
	}, `SELECT polls.context, polls.on_result, callbacks.poll_errors, polls.outcome, polls.result_id, polls.data
		FROM polls JOIN callbacks ON callbacks.id = polls.id
		WHERE polls.id = $1 AND polls.project = $2`, id, project)
	if err != nil {
		return store.PollDetail{}, readError("read poll", err)
	}
	if !found {
		return store.PollDetail{}, fmt.Errorf("read poll %s: %w", id, store.ErrNotFound)
	}
	if d.OnResult, err = decodeResult(onResult); err != nil {
		db.logger.Error("the result callback of a poll cannot be decoded", "callback_id", id, "error", err)
	}
	return d, nil
}

// A storedResult is a store.ResultDraft as JSON. Members may be added; what a member means never changes.
type storedResult struct {
	EndpointID  string            `json:"endpoint_id,omitempty"`
	URL         string            `json:"url"`
	Follows     bool              `json:"follows,omitempty"`
	Method      string            `json:"method"`
	Headers     []store.Header    `json:"headers,omitempty"`
	Topic       string            `json:"topic,omitempty"`
	Ref         string            `json:"ref,omitempty"`
	LockKey     string            `json:"lock_key,omitempty"`
	Strict      bool              `json:"strict,omitempty"`
	Lane        string            `json:"lane"`
	Labels      map[string]string `json:"labels,omitempty"`
	Policy      store.Policy      `json:"policy"`
	Success     store.Success     `json:"success"`
	Signer      string            `json:"signer,omitempty"`
	LadderBase  int               `json:"ladder_base,omitempty"`
	Version     *int64            `json:"version,omitempty"`
	ContentType string            `json:"content_type"`
	Delay       int64             `json:"delay_ms,omitempty"`
	ExpiresIn   int64             `json:"expires_in_ms,omitempty"`
	Supersede   bool              `json:"supersede,omitempty"`
}

// encodeResult returns a result callback as JSON; empty: there is none.
func encodeResult(d *store.ResultDraft) (string, error) {
	if d == nil {
		return "", nil
	}
	c := &d.Callback
	return encode(storedResult{
		EndpointID: c.EndpointID, URL: c.URL, Follows: c.Follows, Method: c.Method, Headers: c.Headers, Topic: c.Topic, Ref: c.Ref,
		LockKey: c.LockKey, Strict: c.Strict, Lane: c.Lane, Labels: c.Labels, Policy: c.Policy, Success: c.Success, Signer: c.Signer,
		LadderBase: c.LadderBase, Version: c.Version, ContentType: c.ContentType, Delay: d.Delay, ExpiresIn: d.ExpiresIn, Supersede: d.Supersede,
	})
}

// decodeResult reads what encodeResult wrote.
func decodeResult(text string) (*store.ResultDraft, error) {
	if text == "" {
		return nil, nil
	}
	var s storedResult
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, fmt.Errorf("decode result callback: %w", err)
	}
	return &store.ResultDraft{Delay: s.Delay, ExpiresIn: s.ExpiresIn, Supersede: s.Supersede, Callback: store.Callback{
		Kind: store.Notify, EndpointID: s.EndpointID, URL: s.URL, Follows: s.Follows, Method: s.Method, Headers: s.Headers, Topic: s.Topic,
		Ref: s.Ref, LockKey: s.LockKey, Strict: s.Strict, Lane: s.Lane, Labels: s.Labels, Policy: s.Policy, Success: s.Success,
		Signer: s.Signer, LadderBase: s.LadderBase, Version: s.Version, ContentType: s.ContentType,
	}}, nil
}

// An endedPoll is a poll that has ended in a transaction.
type endedPoll struct {
	id string
	at int64
}

// A tellingPoll is a poll that has ended, and what is to be told of it.
type tellingPoll struct {
	store.Callback
	store.PollDetail
	at int64
	// told is the outcome that was told before.
	told     store.PollOutcome
	onResult string
	answer   *store.PollAnswer
	// answeredAt is when the answer had come.
	answeredAt int64
}

// tellPolls accepts the result callbacks of the polls that have ended in this transaction. A poll that falls back to the end that it had,
// after a retry by hand that failed, is not told again.
func (t *tx) tellPolls() error {
	if len(t.endedPolls) == 0 {
		return nil
	}
	at := make(map[string]int64, len(t.endedPolls))
	for _, e := range t.endedPolls {
		at[e.id] = e.at
	}
	t.endedPolls = nil
	polls, err := t.endedPollRows(at)
	if err != nil {
		return err
	}
	if err := t.lastAnswers(polls); err != nil {
		return err
	}
	var entries []*acceptEntry
	for _, p := range polls {
		e, err := t.resultOf(p)
		if err != nil {
			return err
		}
		if e != nil {
			p.ResultID = e.draft.Callback.ID
			entries = append(entries, e)
		}
	}
	if err := t.applyDrafts(entries); err != nil {
		return fmt.Errorf("accept result callbacks: %w", err)
	}
	for _, e := range entries {
		if e.out.Err != nil {
			return fmt.Errorf("accept result callback: %w", e.out.Err)
		}
		if e.out.Callback.State == store.Scheduled {
			t.born = append(t.born, (&row{Callback: e.out.Callback}).openRow())
		}
	}
	return t.writeTold(polls)
}

// endedPollRows reads the polls that have ended, in order of their ids.
func (t *tx) endedPollRows(at map[string]int64) ([]*tellingPoll, error) {
	input, args, _, err := t.input([]column{{name: "id", texts: sortedKeys(at)}})
	if err != nil {
		return nil, err
	}
	var polls []*tellingPoll
	err = t.each(func(rows scanner) error {
		p := new(tellingPoll)
		if err := rows.Scan(&p.ID, &p.Project, &p.Ref, &p.State, &p.Reason, &p.AttemptCount, &p.Context, &p.onResult, &p.told, &p.ResultID,
			&p.Data); err != nil {
			return err
		}
		p.at, p.Outcome = at[p.ID], p.PollOutcome()
		polls = append(polls, p)
		return nil
	}, `SELECT callbacks.id, callbacks.project, callbacks.ref, callbacks.state, callbacks.reason, callbacks.attempt_count, polls.context,
			polls.on_result, polls.outcome, polls.result_id, polls.data
		FROM polls JOIN callbacks ON callbacks.id = polls.id
		WHERE polls.id IN (SELECT i.id FROM `+input+`) AND callbacks.state <> 'scheduled'
		ORDER BY polls.id`, args...)
	if err != nil {
		return nil, fmt.Errorf("read polls that have ended: %w", err)
	}
	return polls, nil
}

// lastAnswers finds what the upstream said last of each.
func (t *tx) lastAnswers(polls []*tellingPoll) error {
	byID := make(map[string]*tellingPoll, len(polls))
	for _, p := range polls {
		byID[p.ID] = p
	}
	input, args, _, err := t.input([]column{{name: "id", texts: sortedKeys(byID)}})
	if err != nil {
		return err
	}
	err = t.each(func(rows scanner) error {
		var id string
		var truncated int
		var a store.PollAnswer
		var ended int64
		if err := rows.Scan(&id, &a.StatusCode, &a.Body, &truncated, &ended); err != nil {
			return err
		}
		a.Truncated = truncated != 0
		byID[id].answer, byID[id].answeredAt = &a, ended
		return nil
	}, `SELECT attempts.callback_id, attempts.status, attempts.response_body, attempts.response_truncated, attempts.ended_at
		FROM `+input+` JOIN attempts ON attempts.callback_id = i.id
		WHERE attempts.number = (SELECT MAX(answered.number) FROM attempts AS answered
			WHERE answered.callback_id = i.id AND answered.status > 0 AND answered.stale = 0)`, args...)
	if err != nil {
		return fmt.Errorf("read the last answers of polls: %w", err)
	}
	return nil
}

// resultOf makes the result callback of a poll; nil: there is none to make.
func (t *tx) resultOf(p *tellingPoll) (*acceptEntry, error) {
	if p.Outcome == p.told {
		return nil, nil
	}
	d, err := decodeResult(p.onResult)
	if err != nil {
		// Its poll ends all the same: what can be known of it is in the feed.
		t.db.logger.Error("a poll has ended and its result callback cannot be made", "callback_id", p.ID, "error", err)
		return nil, nil
	}
	if d == nil {
		return nil, nil
	}
	var body bytes.Buffer
	text := json.NewEncoder(&body)
	text.SetEscapeHTML(false)
	if err := text.Encode(p.result()); err != nil {
		return nil, fmt.Errorf("encode the result of poll %s: %w", p.ID, err)
	}
	c := d.Callback
	if c.ID, err = t.db.ids.at(uint64(p.at)); err != nil {
		return nil, err
	}
	c.Project, c.State = p.Project, store.Scheduled
	c.CreatedAt, c.UpdatedAt, c.DueAt = p.at, p.at, p.at+d.Delay
	c.FirstDueAt = c.DueAt
	if d.ExpiresIn > 0 {
		c.ExpiresAt = c.DueAt + d.ExpiresIn
	}
	e := &acceptEntry{draft: store.Draft{Callback: c, Body: bytes.TrimSuffix(body.Bytes(), []byte("\n")), Supersede: d.Supersede}}
	return e, e.encode(&t.db.written)
}

// result is what the result callback says.
func (p *tellingPoll) result() store.PollResult {
	observed := p.at
	if p.answer != nil && (p.Outcome == store.PollSuccess || p.Outcome == store.PollFailure) {
		observed = p.answeredAt
	}
	r := store.PollResult{
		PollID: store.CallbackPrefix + p.ID, Ref: p.Ref, Context: json.RawMessage(p.Context), Outcome: p.Outcome, Reason: p.Reason,
		Last: p.answer, Polls: p.AttemptCount, ObservedAt: time.UnixMilli(observed).UTC().Format("2006-01-02T15:04:05.000Z"),
		Data: json.RawMessage(p.Data),
	}
	if p.Context == "" {
		r.Context = nil
	}
	if p.Data == "" || p.Outcome != store.PollResolved {
		r.Data = nil
	}
	return r
}

// writeTold says of polls what was told, and that they are not the open ones any more.
func (t *tx) writeTold(polls []*tellingPoll) error {
	if len(polls) == 0 {
		return nil
	}
	input, args, _, err := t.input([]column{
		texts("id", polls, func(p *tellingPoll) string { return p.ID }),
		texts("outcome", polls, func(p *tellingPoll) string { return string(p.Outcome) }),
		texts("result_id", polls, func(p *tellingPoll) string { return p.ResultID }),
	})
	if err != nil {
		return err
	}
	if _, err := t.exec(`UPDATE polls SET live = '', outcome = i.outcome, result_id = i.result_id FROM `+input+` WHERE polls.id = i.id`,
		args...); err != nil {
		return fmt.Errorf("write what polls have told: %w", err)
	}
	return nil
}

// bornQueue is how many callbacks wait to be told to whoever runs them. What finds no room is found by the sweep.
const bornQueue = 4096

// Born carries callbacks that were committed beside what a caller asked for: results of polls. It is one channel, always the same one,
// never closed; one that finds no room in it is left out.
func (db *DB) Born() <-chan store.OpenRow { return db.born }

func (db *DB) announce(rows []store.OpenRow) {
	for _, r := range rows {
		select {
		case db.born <- r:
		default:
			return
		}
	}
}
