package storetest

import (
	"slices"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A modelRow is what the model knows of one callback.
type modelRow struct {
	// Callback has what modelled returns.
	store.Callback
	// told is what was told last of a poll, by as many results.
	told    store.PollOutcome
	results int
	// committed are the fences whose result took effect; lost, those whose claim was taken over.
	committed map[int64]bool
}

// modelled is what the model knows of a callback's row.
func modelled(c store.Callback) store.Callback {
	return store.Callback{
		ID: c.ID, Kind: c.Kind, State: c.State, Reason: c.Reason, ResumeState: c.ResumeState,
		ResumeReason: c.ResumeReason,
		DueAt:        c.DueAt, FinishedAt: c.FinishedAt, AttemptCount: c.AttemptCount,
		AttemptSeq: c.AttemptSeq,
		LadderBase: c.LadderBase, CancelRequested: c.CancelRequested, Fence: c.Fence,
		ClaimToken: c.ClaimToken,
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

// A model runs random operations on a store and on itself, and compares.
type model struct {
	*fixture
	rows []*modelRow
	// touched are the rows that were changed since the last check of attempts.
	touched []*modelRow
	// began is when the history did, and before, what was counted then.
	began  int64
	before tally
	// claims are all that were ever stamped: their results may come at any time, and more than once.
	claims []*store.Stamped
}

// testModel compares random histories of accepts, stamps, results, cancels, retries and clocks with a model:
// the fence grows with every claim and never otherwise, at most one result takes effect under a fence, what
// is terminal stays so until somebody asks, and the counters are what a scan would count.
//
// At most so many histories are run as the fixture's options say.
func testModel(f *fixture) {
	left, failed := f.histories, false
	rapid.Check(f.T, func(t *rapid.T) {
		// A history that failed is repeated, to make it smaller.
		left--
		if left < 0 && !failed {
			return
		}
		failed = true
		// Histories share the store; each looks at rows of its own, and at what is counted since it began.
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
		t.Skip("nothing was accepted yet")
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
		switch again := r.attempting(m.now) && r.ClaimToken == token; {
		case r.State != store.Scheduled || !again && (r.DueAt > m.now || r.ClaimUntil > m.now):
			m.require(i < 0, "%s was stamped at %d though %+v", r.ID, m.now, r)
			continue
		case !again:
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
		m.require(s.Fence == r.Fence && s.ClaimsWithoutResult == r.ClaimsWithoutResult && s.ClaimUntil == r.ClaimUntil &&
			(len(s.Body) > 0) == (r.Kind == store.Notify), "stamped %+v; want %+v", s.Callback, r)
		m.claims = append(m.claims, s)
	}
}

// end makes the model's row terminal. Of a poll that is told if nothing was told before, or it is another
// final answer.
func (m *model) end(r *modelRow, state store.State, reason store.Reason) {
	r.unclaim()
	r.State, r.Reason, r.FinishedAt, r.DueAt = state, reason, m.now, 0
	r.CancelRequested, r.ResumeState, r.ResumeReason = false, "", ""
	outcome := r.PollOutcome()
	final := outcome == store.PollSuccess || outcome == store.PollFailure
	if r.Kind == store.Poll && (r.told == "" || final && outcome != r.told) {
		r.told = outcome
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
		r.lose()    // the attempt that is under way, too
		r.told = "" // A resolve is told each time.
		m.end(r, store.Succeeded, store.ResolvedOutside)
	}
	m.require(got.Result == want && (got.Was != nil) == wasOpen, "resolve of %+v: %+v, want %s", r, got, want)
}

func (m *model) opResult(t *rapid.T) {
	if len(m.claims) == 0 {
		t.Skip("nothing was claimed yet")
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
		result = handedBack(s, m.now+100)
	}
	if result.Attempt != nil {
		m.now++ // So that no two results are the same one, repeated.
		result.Attempt.StartedAt = m.now
	}
	wins := r.State == store.Scheduled && r.ClaimToken != "" && r.Fence == s.Fence
	got := m.commit(result)
	if !wins {
		m.require(!got.Won || result.Attempt == nil && r.Fence == s.Fence,
			"%s under fence %d won against %+v",
			kind, s.Fence, r)
		return
	}
	m.require(got.Won && !r.committed[s.Fence], "%s: won %t under fence %d of %v", kind, got.Won, s.Fence,
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
	m.asRead(got.Callback)
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

// asRead checks that a change was answered with the row as it is read after it.
func (m *model) asRead(c store.Callback) {
	diff := cmp.Diff(m.get(c.ID), c)
	m.require(diff == "", "answered (-read +answered):\n%s", diff)
}

// revived makes a terminal row scheduled again. It falls back to what it was, unless it has a new ladder.
func (r *modelRow) revived(ladder store.Ladder) {
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

// changed makes a row due by hand, unless that is refused.
func (m *model) changed(r *modelRow, c store.Callback, err error, refused bool, due int64,
	ladder store.Ladder) {
	m.require((err != nil) == refused, "change of %+v at %d: %v", r, m.now, err)
	if err != nil {
		return
	}
	m.asRead(c)
	r.lose()
	if r.State.Terminal() {
		r.revived(ladder)
	}
	r.DueAt = due
}

// check compares every row with the model, the attempts of those that were touched, and the counters with a
// scan.
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
			c.FinishedAt-- // What ends as it is accepted ends a millisecond later.
		}
		diff := cmp.Diff(r.Callback, c)
		m.require(diff == "", "callback (-model +read):\n%s", diff)
		n := results[resultOf(r.ID)]
		m.require(n == r.results, "%d results were told of %+v", n, r)
	}
	for _, r := range m.touched {
		n := len(m.attempts(r.ID))
		m.require(n == r.AttemptSeq, "%d attempts, want %d", n, r.AttemptSeq)
	}
	m.touched = nil
}
