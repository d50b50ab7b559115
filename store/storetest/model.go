package storetest

import (
	"slices"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A modelRow is the expected state of one callback.
type modelRow struct {
	// Callback has the fields that modelled returns.
	store.Callback
	// reported is the last reported outcome of a poll. results is the number of its result callbacks.
	reported store.PollOutcome
	results  int
	// committed has the fences whose result took effect.
	committed map[int64]bool
}

// modelled returns a callback with only the fields that the model predicts.
func modelled(c store.Callback) store.Callback {
	return store.Callback{
		ID: c.ID, Kind: c.Kind, State: c.State, Reason: c.Reason,
		ResumeState: c.ResumeState, ResumeReason: c.ResumeReason, DueAt: c.DueAt, FinishedAt: c.FinishedAt,
		AttemptCount: c.AttemptCount, AttemptSeq: c.AttemptSeq, LadderBase: c.LadderBase,
		CancelRequested: c.CancelRequested, Fence: c.Fence, ClaimToken: c.ClaimToken,
		ClaimUntil: c.ClaimUntil, ClaimsWithoutResult: c.ClaimsWithoutResult,
	}
}

func (r *modelRow) attempting(now int64) bool { return r.StateAt(now) == store.Attempting }

// lose records a claim that ended without a result.
func (r *modelRow) lose() {
	if r.ClaimToken != "" {
		r.AttemptSeq++
		r.unclaim()
	}
}

func (r *modelRow) unclaim() { r.ClaimToken, r.ClaimUntil = "", 0 }

// A model runs random operations on the store and on its own rows, and compares both.
type model struct {
	*fixture
	rows []*modelRow
	// touched are the rows that were changed since the last check of attempts.
	touched []*modelRow
	// began is the start of the history. before are the counters at that time.
	began  int64
	before tally
	// claims are all stamped rows. The result of each may come at any time, and more than once.
	claims []*store.Stamped
}

// testModel compares random histories of accepts, stamps, results, cancels, retries and clock changes with a
// model. It checks:
//   - The fence grows with each claim, and only then.
//   - At most one result takes effect for each fence.
//   - A terminal callback stays terminal until a request opens it again.
//   - The counters equal a count of the rows.
//
// It runs at most Options.Histories histories.
func testModel(f *fixture) {
	left, failed := f.histories, false
	rapid.Check(f.T, func(t *rapid.T) {
		// rapid repeats a failed history to make it smaller. These repetitions have no limit.
		left--
		if left < 0 && !failed {
			return
		}
		failed = true
		// Histories share the store. Each one has its own rows and its own range of creation times.
		f.now += 1_000_000
		m := &model{fixture: f, began: f.now, before: f.counted()}
		t.Repeat(map[string]func(*rapid.T){
			"accept":   m.opAccept,
			"stamp":    m.opStamp,
			"result":   m.opResult,
			"cancel":   m.opCancel,
			"retry":    m.opRetry,
			"schedule": m.opReschedule,
			"resolve":  m.opResolve,
			"clock": func(t *rapid.T) {
				f.now += rapid.SampledFrom([]int64{1, 500, 1000, claimLasts}).Draw(t, "passes")
			},
			"fold": func(*rapid.T) { f.fold() },
			"":     m.check,
		})
		failed = false
	})
}

func (m *model) pick(t *rapid.T) *modelRow {
	if len(m.rows) == 0 {
		t.Skip("no callback yet")
	}
	r := rapid.SampledFrom(m.rows).Draw(t, "row")
	m.touched = append(m.touched, r)
	return r
}

func (m *model) opAccept(t *rapid.T) {
	if len(m.rows) >= 6 {
		t.Skip("enough rows")
	}
	options := []option{dueIn(rapid.SampledFrom([]int64{0, 0, 700}).Draw(t, "due in"))}
	if rapid.Bool().Draw(t, "poll") {
		options = append(options, func(d *store.Draft) { polling(d.Callback.ID)(d) })
	}
	lane := inLane(rapid.SampledFrom([]string{"model-a", "model-b"}).Draw(t, "lane"))
	c := m.accept(append(options, lane)...)
	m.rows = append(m.rows, &modelRow{Callback: modelled(c), committed: make(map[int64]bool)})
}

func (m *model) opStamp(t *rapid.T) {
	m.pick(t)
	id := func(r *modelRow) string { return r.ID }
	rows := rapid.SliceOfNDistinct(rapid.SampledFrom(m.rows), 1, len(m.rows), id).Draw(t, "rows")
	m.touched = rows
	token := m.token()
	if len(m.claims) > 0 && rapid.IntRange(0, 3).Draw(t, "again") == 0 {
		token = rapid.SampledFrom(m.claims).Draw(t, "claim").ClaimToken
	}
	stamped, _ := m.stampAs(store.Stamp{Token: token}, each(rows, id)...)
	for _, r := range rows {
		i := slices.IndexFunc(stamped, func(s *store.Stamped) bool { return s.ID == r.ID })
		switch repeated := r.attempting(m.now) && r.ClaimToken == token; {
		case r.State != store.Scheduled || !repeated && (r.DueAt > m.now || r.ClaimUntil > m.now):
			m.require(i < 0, "%s was stamped at %d though %+v", r.ID, m.now, r)
			continue
		case !repeated:
			r.lose()
			r.Fence++
			r.ClaimsWithoutResult++
			r.ClaimToken, r.ClaimUntil = token, m.now+claimLasts
			if r.CancelRequested {
				m.require(i < 0, "%s was stamped though its cancel was requested", r.ID)
				m.end(r, store.Canceled, store.Requested)
				continue
			}
		}
		m.require(i >= 0, "%s was refused at %d though %+v", r.ID, m.now, r)
		s := stamped[i]
		sameClaim := s.Fence == r.Fence && s.ClaimUntil == r.ClaimUntil &&
			s.ClaimsWithoutResult == r.ClaimsWithoutResult
		hasBody := len(s.Body) > 0
		m.require(sameClaim && hasBody == (r.Kind == store.Notify), "stamped %+v; want %+v", s.Callback, r)
		m.claims = append(m.claims, s)
	}
}

// end makes the row terminal. A poll gets a result callback if none was reported before, or if the outcome is
// another final answer of the upstream.
func (m *model) end(r *modelRow, state store.State, reason store.Reason) {
	r.unclaim()
	r.State, r.Reason, r.FinishedAt, r.DueAt = state, reason, m.now, 0
	r.CancelRequested, r.ResumeState, r.ResumeReason = false, "", ""
	outcome := r.PollOutcome()
	final := outcome == store.PollSuccess || outcome == store.PollFailure
	if r.Kind == store.Poll && (r.reported == "" || final && outcome != r.reported) {
		r.reported = outcome
		r.results++
	}
}

func (m *model) opResolve(t *rapid.T) {
	r := m.pick(t)
	got, err := m.ResolvePoll(m.ctx(), project, r.ID, "", m.now, actor)
	m.require((err == nil) == (r.Kind == store.Poll), "resolve of %+v: %v", r, err)
	if err != nil {
		return
	}
	want := store.ResolveAlreadyTerminal
	wasOpen := !r.State.Terminal()
	if wasOpen || r.State == store.Dead {
		want = store.ResolveDone
		r.lose()        // the claim of an attempt in flight is lost too
		r.reported = "" // each resolve is reported
		m.end(r, store.Succeeded, store.ResolvedOutside)
	}
	m.require(got.Result == want && (got.Was != nil) == wasOpen, "resolve of %+v: %+v, want %s", r, got, want)
}

func (m *model) opResult(t *rapid.T) {
	if len(m.claims) == 0 {
		t.Skip("no claim yet")
	}
	s := rapid.SampledFrom(m.claims).Draw(t, "claim")
	r := m.rows[slices.IndexFunc(m.rows, func(r *modelRow) bool { return r.ID == s.ID })]
	m.touched = append(m.touched, r)
	kind := rapid.SampledFrom([]string{"success", "failure", "death", "divert"}).Draw(t, "kind")
	var result store.Result
	switch kind {
	case "success":
		result = m.succeeded(s)
	case "failure":
		result = m.failed(s)
	case "death":
		result = m.died(s)
		reasons := []store.Reason{store.Exhausted, store.Gone, store.Unresolved}
		result.Reason = rapid.SampledFrom(reasons).Draw(t, "reason")
	default:
		result = putBack(s, m.now+100)
	}
	if result.Attempt != nil {
		m.now++ // otherwise the store would take an equal result as a repetition
		result.Attempt.StartedAt = m.now
	}
	wins := r.State == store.Scheduled && r.ClaimToken != "" && r.Fence == s.Fence
	got := m.commit(result)
	if !wins {
		noAttempt := result.Attempt == nil && r.Fence == s.Fence
		m.require(!got.Won || noAttempt, "%s with fence %d won against %+v", kind, s.Fence, r)
		return
	}
	m.require(got.Won && !r.committed[s.Fence], "%s: won %t with fence %d of %v", kind, got.Won, s.Fence,
		r.committed)
	updated := m.get(r.ID).UpdatedAt
	m.require(updated == m.now, "%s was updated at %d, want %d", r.ID, updated, m.now)
	r.committed[s.Fence] = true
	r.ClaimsWithoutResult = 0
	if result.Attempt != nil {
		r.AttemptSeq++
		r.AttemptCount++
	}
	switch {
	case kind == "success":
		m.end(r, store.Succeeded, "")
	case r.CancelRequested:
		m.end(r, store.Canceled, store.Requested)
	case r.ResumeState != "" && kind != "divert":
		m.end(r, r.ResumeState, r.ResumeReason)
	case kind == "death":
		m.end(r, store.Dead, result.Reason)
	default:
		r.DueAt = result.DueAt
		r.unclaim()
	}
	m.require(got.State == r.State && got.Reason == r.Reason && got.DueAt == r.DueAt,
		"committed %+v, want %+v", got, r)
}

func (m *model) opCancel(t *rapid.T) {
	r := m.pick(t)
	got := m.cancel(r.ID)
	m.requireStored(got.Callback)
	want := store.CancelDone
	switch {
	case r.State.Terminal():
		want = store.CancelAlreadyTerminal
	case r.attempting(m.now):
		want = store.CancelTooLate
		r.CancelRequested = true
	default:
		r.lose()
		m.end(r, store.Canceled, store.Requested)
	}
	m.require(got.Result == want, "cancel of %+v: %s, want %s", r, got.Result, want)
}

// requireStored checks that the callback that a change returned equals the stored one.
func (m *model) requireStored(c store.Callback) {
	diff := cmp.Diff(m.get(c.ID), c)
	m.require(diff == "", "returned callback (-read +returned):\n%s", diff)
}

// reopen makes a terminal row scheduled again, with a new ladder or with its old state to resume.
func (r *modelRow) reopen(ladder store.Ladder) {
	r.ClaimsWithoutResult = 0
	if ladder == store.Restart {
		r.LadderBase = r.AttemptCount
	} else {
		r.ResumeState, r.ResumeReason = r.State, r.Reason
	}
	r.State, r.Reason, r.FinishedAt = store.Scheduled, "", 0
}

func (m *model) opRetry(t *rapid.T) {
	r := m.pick(t)
	ladder := rapid.SampledFrom([]store.Ladder{store.Once, store.Restart}).Draw(t, "ladder")
	c, err := m.Retry(m.ctx(), project, r.ID, store.Retry{Ladder: ladder, Now: m.now}, actor)
	m.changed(r, c, err, r.attempting(m.now), m.now, ladder)
}

func (m *model) opReschedule(t *rapid.T) {
	r := m.pick(t)
	due := m.now + rapid.SampledFrom([]int64{0, 300}).Draw(t, "due in")
	c, err := m.Reschedule(m.ctx(), project, r.ID, due, m.now, actor)
	refused := r.attempting(m.now) || r.State == store.Succeeded || r.State == store.Canceled
	m.changed(r, c, err, refused, due, store.Once)
}

// changed checks the result of a retry or reschedule, and sets the row's due time unless it was refused.
func (m *model) changed(
	r *modelRow, c store.Callback, err error, refused bool, due int64, ladder store.Ladder,
) {
	m.require((err != nil) == refused, "change of %+v at %d: %v", r, m.now, err)
	if err != nil {
		return
	}
	m.requireStored(c)
	r.lose()
	if r.State.Terminal() {
		r.reopen(ladder)
	}
	r.DueAt = due
}

// check compares all rows, the attempts of the touched rows, the results of polls and the counters with the
// model.
func (m *model) check(t *rapid.T) {
	results, found := make(map[string]int), make(map[string]store.Callback)
	err := m.compareCounters(m.before, m.began, func(c *store.Callback) {
		found[c.ID] = modelled(*c)
		if c.Topic == "payment.polled" {
			results[c.Ref]++
		}
	})
	m.ok(err)
	for _, r := range m.rows {
		c := found[r.ID]
		if r.FinishedAt > 0 && c.FinishedAt == r.FinishedAt+1 {
			c.FinishedAt-- // a callback that ends in the millisecond of its accept is stored 1 ms later
		}
		diff := cmp.Diff(r.Callback, c)
		m.require(diff == "", "callback (-model +read):\n%s", diff)
		n := results[resultOf(r.ID)]
		m.require(n == r.results, "%d result callbacks of %+v", n, r)
	}
	for _, r := range m.touched {
		n := len(m.attempts(r.ID))
		m.require(n == r.AttemptSeq, "%d attempts, want %d", n, r.AttemptSeq)
	}
	m.touched = nil
}
