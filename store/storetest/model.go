package storetest

import (
	"slices"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A modelRow is what the model knows of one callback.
type modelRow struct {
	id         string
	state      store.State
	due        int64
	finished   int64
	fence      int64
	claimUntil int64
	token      string
	charged    int
	base       int
	crashes    int
	attempts   int
	cancel     bool
	resume     store.State
	// reason is why it is in its state, and resumeReason, why it was in that which it may fall back to.
	reason, resumeReason store.Reason
	// poll: it is one, of which told was told last, by as many results.
	poll    bool
	told    store.PollOutcome
	results int
	// committed are the fences whose result took effect; lost, those whose claim was taken over.
	committed map[int64]bool
}

func (m *modelRow) attempting(now int64) bool {
	return m.state == store.Scheduled && m.claimUntil > now
}

// finishedAt says whether the row may have ended at the time. What ends as it is accepted ends a millisecond later.
func (m *modelRow) finishedAt(at int64) bool {
	return at == m.finished || m.finished > 0 && at == m.finished+1
}

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

// testModel compares random histories of accepts, stamps, results, cancels, retries and clocks with a model: the fence
// grows with every claim and never otherwise, at most one result takes effect under a fence, what is terminal stays so
// until somebody asks, and the counters are what a scan would count.
//
// At most so many histories are run as the fixture's options say.
func testModel(f *fixture) {
	left, failed := f.histories, false
	rapid.Check(f.T, func(t *rapid.T) {
		// A history that failed is repeated, to make it smaller.
		if left--; left < 0 && !failed {
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
			"clock":    func(t *rapid.T) { f.now += rapid.SampledFrom([]int64{1, 500, 1000, claimLasts}).Draw(t, "passes") },
			"fold":     func(*rapid.T) { f.fold() },
			"":         m.check,
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
	poll := rapid.Bool().Draw(t, "poll")
	if poll {
		options = append(options, func(d *store.Draft) { polling(d.Callback.ID)(d) })
	}
	lane := inLane(rapid.SampledFrom([]string{"model-a", "model-b"}).Draw(t, "lane"))
	c := m.accept(append(options, lane)...)
	m.rows = append(m.rows, &modelRow{
		id: c.ID, state: store.Scheduled, due: c.DueAt, committed: make(map[int64]bool), poll: poll,
	})
}

func (m *model) opStamp(t *rapid.T) {
	m.pick(t)
	id := func(r *modelRow) string { return r.id }
	rows := rapid.SliceOfNDistinct(rapid.SampledFrom(m.rows), 1, len(m.rows), id).Draw(t, "rows")
	m.touched = rows
	token := m.token()
	if len(m.claims) > 0 && rapid.IntRange(0, 3).Draw(t, "again") == 0 {
		token = rapid.SampledFrom(m.claims).Draw(t, "claim").ClaimToken
	}
	stamped, _ := m.stampAs(store.Stamp{Token: token}, each(rows, id)...)
	for _, r := range rows {
		i := slices.IndexFunc(stamped, func(s *store.Stamped) bool { return s.ID == r.id })
		switch again := r.attempting(m.now) && r.token == token; {
		case r.state != store.Scheduled || !again && (r.due > m.now || r.claimUntil > m.now):
			if i >= 0 {
				t.Fatalf("%s was stamped though %+v at %d", r.id, *r, m.now)
			}
			continue
		case !again:
			r.fence++
			if r.token != "" {
				r.attempts++ // The claim before ended without a result.
			}
			r.token, r.claimUntil = token, m.now+claimLasts
			r.crashes++
			if r.cancel {
				if i >= 0 {
					t.Fatalf("%s was stamped though its cancel was requested", r.id)
				}
				m.end(r, store.Canceled, store.Requested)
				continue
			}
		}
		if i < 0 {
			t.Fatalf("%s was refused though %+v at %d", r.id, *r, m.now)
		}
		if s := stamped[i]; s.Fence != r.fence || s.CrashCount != r.crashes ||
			s.ClaimUntil != r.claimUntil || (len(s.Body) > 0) == r.poll {
			t.Fatalf("stamped with fence %d, crash count %d, until %d; want %+v", s.Fence, s.CrashCount, s.ClaimUntil, *r)
		}
		m.claims = append(m.claims, stamped[i])
	}
}

// end makes the model's row terminal. Of a poll that is told if nothing was told before, or it is another final answer.
func (m *model) end(r *modelRow, state store.State, reason store.Reason) {
	r.finished = m.now
	r.state, r.reason, r.due, r.token, r.claimUntil, r.cancel, r.resume, r.resumeReason = state, reason, 0, "", 0, false, "", ""
	c := store.Callback{State: state, Reason: reason}
	outcome := c.PollOutcome()
	final := outcome == store.PollSuccess || outcome == store.PollFailure
	if r.poll && (r.told == "" || final && outcome != r.told) {
		r.told = outcome
		r.results++
	}
}

func (m *model) opResolve(t *rapid.T) {
	r := m.pick(t)
	got, err := m.ResolvePoll(m.ctx(), project, r.id, "", m.now, actor)
	if (err != nil) == r.poll {
		t.Fatalf("resolve of %+v: %v", *r, err)
	}
	if err != nil {
		return
	}
	want := store.ResolveAlreadyTerminal
	wasOpen := !r.state.Terminal()
	if wasOpen || r.state == store.Dead {
		want = store.ResolveDone
		r.lose()    // the attempt that is under way, too
		r.told = "" // A resolve is told each time.
		m.end(r, store.Succeeded, store.ResolvedOutside)
	}
	if got.Result != want || (got.Was != nil) != wasOpen {
		t.Fatalf("resolve of %+v: %+v, want %s", *r, got, want)
	}
}

func (m *model) opResult(t *rapid.T) {
	if len(m.claims) == 0 {
		t.Skip("nothing was claimed yet")
	}
	s := rapid.SampledFrom(m.claims).Draw(t, "claim")
	r := m.rows[slices.IndexFunc(m.rows, func(r *modelRow) bool { return r.id == s.ID })]
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
	wins := r.state == store.Scheduled && r.token != "" && r.fence == s.Fence
	got := m.commit(result)
	if !wins {
		if got.Won && (result.Attempt != nil || r.fence != s.Fence) {
			t.Fatalf("%s under fence %d won against %+v", kind, s.Fence, *r)
		}
		return
	}
	if !got.Won || r.committed[s.Fence] {
		t.Fatalf("%s under fence %d: won %t, committed before %t", kind, s.Fence, got.Won, r.committed[s.Fence])
	}
	if c := m.get(r.id); c.UpdatedAt != m.now {
		t.Fatalf("%s was updated at %d, want %d", r.id, c.UpdatedAt, m.now)
	}
	r.committed[s.Fence] = true
	r.crashes = 0
	if result.Attempt != nil {
		r.attempts++
		r.charged++
	}
	switch {
	case kind == "success":
		m.end(r, store.Succeeded, "")
	case r.cancel:
		m.end(r, store.Canceled, store.Requested)
	case r.resume != "" && kind != "divert":
		m.end(r, r.resume, r.resumeReason)
	case kind == "death":
		m.end(r, store.Dead, result.Reason)
	default:
		r.due, r.token, r.claimUntil = result.DueAt, "", 0
	}
	if got.State != r.state || got.Reason != r.reason || got.DueAt != r.due {
		t.Fatalf("committed %+v, want %+v", got, *r)
	}
}

func (m *model) opCancel(t *rapid.T) {
	r := m.pick(t)
	got := m.cancel(r.id)
	m.asRead(t, got.Callback)
	want := store.CancelDone
	switch {
	case r.state.Terminal():
		want = store.CancelAlreadyTerminal
	case r.attempting(m.now):
		want = store.CancelTooLate
		r.cancel = true
	default:
		if r.token != "" {
			r.attempts++
		}
		m.end(r, store.Canceled, store.Requested)
	}
	if got.Result != want {
		t.Fatalf("cancel of %+v: %s, want %s", *r, got.Result, want)
	}
}

// asRead checks that a change was answered with the row as it is read after it.
func (m *model) asRead(t *rapid.T, c store.Callback) {
	if diff := cmp.Diff(m.get(c.ID), c); diff != "" {
		t.Fatalf("answered (-read +answered):\n%s", diff)
	}
}

// lose records a claim that ended without a result.
func (m *modelRow) lose() {
	if m.token != "" {
		m.attempts++
		m.token, m.claimUntil = "", 0
	}
}

func (m *model) opRetry(t *rapid.T) {
	r := m.pick(t)
	ladder := rapid.SampledFrom([]store.Ladder{store.Once, store.Restart}).Draw(t, "ladder")
	c, err := m.Retry(m.ctx(), project, r.id, store.Retry{Ladder: ladder, Now: m.now}, actor)
	if (err != nil) != r.attempting(m.now) {
		t.Fatalf("retry of %+v at %d: %v", *r, m.now, err)
	}
	if err != nil {
		return
	}
	m.asRead(t, c)
	r.lose()
	if r.state.Terminal() {
		r.crashes = 0
		if ladder == store.Restart {
			r.base = r.charged
		} else {
			r.resume, r.resumeReason = r.state, r.reason
		}
		r.state, r.reason, r.finished = store.Scheduled, "", 0
	}
	r.due = m.now
}

func (m *model) opReschedule(t *rapid.T) {
	r := m.pick(t)
	due := m.now + rapid.SampledFrom([]int64{0, 300}).Draw(t, "due in")
	c, err := m.Reschedule(m.ctx(), project, r.id, due, m.now, actor)
	refused := r.attempting(m.now) || r.state == store.Succeeded || r.state == store.Canceled
	if (err != nil) != refused {
		t.Fatalf("reschedule of %+v at %d: %v", *r, m.now, err)
	}
	if err != nil {
		return
	}
	m.asRead(t, c)
	r.lose()
	if r.state == store.Dead {
		r.crashes, r.resume, r.resumeReason, r.state, r.reason = 0, store.Dead, r.reason, store.Scheduled, ""
		r.finished = 0
	}
	r.due = due
}

// check compares every row with the model, the attempts of those that were touched, and the counters with a scan.
func (m *model) check(t *rapid.T) {
	results, found := make(map[string]int), make(map[string]store.Callback)
	if err := m.compareCounters(m.before, m.began, func(c *store.Callback) {
		found[c.ID] = *c
		if c.Topic == "payment.polled" {
			results[c.Ref]++
		}
	}); err != nil {
		t.Fatal(err)
	}
	for _, r := range m.rows {
		c := found[r.id]
		if c.State != r.state || c.DueAt != r.due || c.Fence != r.fence || c.AttemptCount != r.charged || c.AttemptSeq != r.attempts ||
			c.Reason != r.reason || c.CancelRequested != r.cancel || c.ResumeState != r.resume || c.LadderBase != r.base || c.ClaimUntil != r.claimUntil ||
			!r.finishedAt(c.FinishedAt) || c.CrashCount != r.crashes {
			t.Fatalf("callback %+v\nmodel %+v", c, *r)
		}
		if n := results[resultOf(r.id)]; n != r.results {
			t.Fatalf("%d results were told of %+v", n, *r)
		}
	}
	for _, r := range m.touched {
		if attempts := m.attempts(r.id); len(attempts) != r.attempts {
			t.Fatalf("%d attempts, want %d", len(attempts), r.attempts)
		}
	}
	m.touched = nil
}
