package judge

import (
	"fmt"
	"slices"
	"time"
)

// clockSkew is the difference between two readings of one machine's clock: SQL stores whole milliseconds,
// rounded up or down.
const clockSkew = 2 * time.Millisecond

// A history is all evidence for one callback.
type history struct {
	row      *Row
	accepted *Accepted
	arrivals []*Arrival
	attempts []*Attempt // by number
}

// A trial is the state of one call of Judge.
type trial struct {
	Evidence
	Bounds
	histories map[string]*history
	v         Verdict
}

// Judge checks all invariants. It does not change the evidence.
func Judge(e Evidence, b Bounds) Verdict {
	if b.Skew == 0 {
		b.Skew = clockSkew
	}
	t := trial{Evidence: e, Bounds: b, histories: map[string]*history{}}
	t.v.Accepted, t.v.Sends = len(e.Accepted), len(e.Arrivals)
	t.collect()
	t.noLoss()
	t.noPhantom()
	t.boundedDuplicates()
	t.neverEarly()
	t.noOverlap()
	t.everySendRecorded()
	t.nothingAfterTheEnd()
	t.conservation()
	if b.Heal > 0 && e.Healed > b.Heal {
		t.breaks("I9", "", "the backlog took %s after the last fault; at most %s is allowed", e.Healed,
			b.Heal)
	}
	return t.v
}

// breaks adds a violation.
func (t *trial) breaks(invariant, id, format string, args ...any) {
	x := Violation{Invariant: invariant, ID: id, Detail: fmt.Sprintf(format, args...)}
	if f := t.histories[id]; f != nil && f.row != nil {
		x.Ref = f.row.Ref
	} else if f != nil && f.accepted != nil {
		x.Ref = f.accepted.Ref
	}
	t.v.Violations = append(t.v.Violations, x)
}

// A tolerance counts the breaches of an invariant that a fault may cause. If none is allowed, each breach is
// a violation that names its callback. Otherwise only too many breaches are one violation.
type tolerance struct {
	*trial
	invariant  string
	most, seen int
}

func (a *tolerance) breach(n int, id, format string, args ...any) {
	a.seen += n
	if n > 0 && a.most == 0 {
		a.breaks(a.invariant, id, format, args...)
	}
}

// check is called after all breaches. what describes them in the plural.
func (a *tolerance) check(what string) {
	if a.most > 0 && a.seen > a.most {
		a.breaks(a.invariant, "", "%d %s; at most %d are allowed", a.seen, what, a.most)
	}
}

func (t *trial) of(id string) *history {
	f := t.histories[id]
	if f == nil {
		f = &history{}
		t.histories[id] = f
	}
	return f
}

func (t *trial) collect() {
	for i := range t.Rows {
		f := t.of(t.Rows[i].ID)
		if f.row != nil {
			t.breaks("I8", t.Rows[i].ID, "SQL has the id twice")
		}
		f.row = &t.Rows[i]
	}
	for i := range t.Accepted {
		t.of(t.Accepted[i].ID).accepted = &t.Accepted[i]
	}
	for i := range t.Arrivals {
		f := t.of(t.Arrivals[i].ID)
		f.arrivals = append(f.arrivals, &t.Arrivals[i])
	}
	for i := range t.Attempts {
		a := &t.Attempts[i]
		f := t.of(a.ID)
		f.attempts = append(f.attempts, a)
		if a.Stale {
			t.v.Stale++
		}
		if a.Outcome == "unknown" {
			t.v.Uncertain++
		}
	}
	for _, f := range t.histories {
		slices.SortFunc(f.arrivals, func(a, b *Arrival) int { return a.At.Compare(b.At) })
		slices.SortFunc(f.attempts, func(a, b *Attempt) int { return a.Number - b.Number })
	}
}

// noLoss checks I1.
func (t *trial) noLoss() {
	for i := range t.Accepted {
		a := &t.Accepted[i]
		f := t.histories[a.ID]
		if t.Unknown[a.ID] {
			if f.row != nil {
				t.breaks("I1", a.ID, "SQL must have lost it, but has it")
			}
			continue
		}
		if why := t.lost(a, f); why != "" {
			t.v.Lost++
			t.breaks("I1", a.ID, "%s", why)
		}
	}
}

// lost returns why an accepted callback counts as lost; empty: it does not.
func (t *trial) lost(a *Accepted, f *history) string {
	if f.row == nil {
		return "accepted, but not in SQL"
	}
	if a.Ref != f.row.Ref {
		return fmt.Sprintf("accepted as %q, but SQL has %q under its id", a.Ref, f.row.Ref)
	}
	if !f.row.Terminal() {
		if t.MayBeOpen {
			return "" // conservation checks that the index has it
		}
		return fmt.Sprintf("still %s, due %s, %d attempts", f.row.State, f.row.DueAt.Format(time.RFC3339Nano),
			len(f.attempts))
	}
	want := "succeeded"
	if t.Expect != nil {
		want = t.Expect(a.Ref)
	}
	if want != "" && f.row.State != want {
		return fmt.Sprintf("ended %s %s, expected %s", f.row.State, f.row.Reason, want)
	}
	if f.row.State == "succeeded" && !slices.ContainsFunc(f.arrivals,
		func(a *Arrival) bool { return a.Answered }) {
		return "succeeded, but no receiver sent a whole response"
	}
	return ""
}

// noPhantom checks I2.
func (t *trial) noPhantom() {
	refs := map[string]string{}
	for i := range t.Rows {
		r := &t.Rows[i]
		if other, twice := refs[r.Ref]; twice && other != r.ID && r.Ref != "" && !t.SharedRefs {
			t.breaks("I2", r.ID, "%s has the same reference: the order was accepted twice", other)
		}
		refs[r.Ref] = r.ID
	}
	for id, f := range t.histories {
		if f.row == nil {
			if len(f.arrivals) > 0 && !t.Unknown[id] {
				t.breaks("I2", id, "arrived %d times, but is not in SQL", len(f.arrivals))
			}
			if len(f.attempts) > 0 && !t.Unknown[id] {
				t.breaks("I2", id, "has %d attempts in SQL, but no callback", len(f.attempts))
			}
			continue
		}
		stored := f.row.Hash
		if f.accepted != nil {
			if stored != (Hash{}) && stored != f.accepted.Hash {
				t.breaks("I2", id, "SQL has other bytes than the accepted ones")
			}
			stored = f.accepted.Hash
		}
		for _, a := range f.arrivals {
			if stored != (Hash{}) && a.Hash != stored {
				t.breaks("I2", id, "arrival %d at %s has other bytes", a.Number,
					a.At.Format(time.RFC3339Nano))
			}
		}
	}
}

// A count has the arrivals and attempts of one callback with one attempt number.
type count struct {
	arrivals, attempts, charged, answered int
}

// byNumber groups arrivals and attempts by attempt number.
func (f *history) byNumber() map[int]*count {
	counts := map[int]*count{}
	of := func(number int) *count {
		if counts[number] == nil {
			counts[number] = &count{}
		}
		return counts[number]
	}
	for _, a := range f.arrivals {
		of(a.Number).arrivals++
	}
	for _, a := range f.attempts {
		c := of(a.Number)
		c.attempts++
		if a.Charged && !a.Stale {
			c.charged++
		}
		if a.Status != 0 {
			c.answered++
		}
	}
	return counts
}

// pending reports whether one send of the callback may still be without an attempt: the callback is open, and
// open callbacks are allowed.
func (t *trial) pending(f *history) bool { return !f.row.Terminal() && t.MayBeOpen }

// boundedDuplicates checks I3. The charged attempt of its number accounts for a send. Any other send is a
// duplicate.
func (t *trial) boundedDuplicates() {
	for id, f := range t.histories {
		if f.row == nil {
			continue // noPhantom and noLoss judge it
		}
		spare, pending := 0, t.pending(f)
		for _, c := range f.byNumber() {
			more := max(0, c.arrivals-c.charged)
			if more > 0 && c.attempts == 0 && pending {
				more, pending = more-1, false
			}
			spare += more
		}
		if spare == 0 {
			continue
		}
		t.v.Duplicates += spare
		t.v.WorstDuplicates = max(t.v.WorstDuplicates, spare)
		allowed := t.PerCallback
		if t.Hit != nil {
			allowed = t.Hit[id]
		}
		if spare > allowed {
			t.breaks("I3", id, "%d sends, %d of them without a charged attempt; at most %d are allowed",
				len(f.arrivals), spare, allowed)
		}
	}
	if t.v.Duplicates > t.Duplicates {
		t.breaks("I3", "", "%d duplicates in all; at most %d are allowed", t.v.Duplicates, t.Duplicates)
	}
}

// neverEarly checks I4.
func (t *trial) neverEarly() {
	var late []time.Duration
	for id, f := range t.histories {
		tier := 0 // the number of charged attempts so far: each moves one tier on
		for i, a := range f.attempts {
			if a.Charged && !a.Stale && (a.Started.IsZero() || a.Due.IsZero()) {
				t.breaks("I4", id, "attempt %d has no start or no due time", a.Number)
			}
			if a.Stale || a.Started.IsZero() || a.Due.IsZero() {
				continue
			}
			if a.Trigger != "manual" && a.Started.Before(a.Due.Add(-t.Skew)) {
				t.breaks("I4", id, "attempt %d started %s before it was due", a.Number, a.Due.Sub(a.Started))
			}
			if a.Outcome != "unknown" {
				late = append(late, max(0, a.Started.Sub(a.Due)))
			}
			if !a.Charged {
				continue
			}
			if f.row != nil && tier < len(f.row.Tiers) && a.Trigger != "manual" {
				t.waited(id, f, i, f.row.Tiers[tier])
			}
			tier++
		}
		t.arrivedNotEarly(id, f)
	}
	t.v.Lateness = QuantilesOf(late)
}

// waited checks the wait between a charged attempt and the next scheduled one.
func (t *trial) waited(id string, f *history, i int, tier time.Duration) {
	a := f.attempts[i]
	if a.Outcome == "succeeded" {
		return
	}
	for _, next := range f.attempts[i+1:] {
		if next.Stale || next.Started.IsZero() {
			continue
		}
		if next.Trigger != "manual" && next.Started.Before(a.Ended.Add(tier-t.Skew)) {
			t.breaks("I4", id, "attempt %d started %s after attempt %d ended, its tier is %s",
				next.Number, next.Started.Sub(a.Ended), a.Number, tier)
		}
		return
	}
}

// arrivedNotEarly compares the arrivals with the due times of their attempts, by the receiver's clock.
func (t *trial) arrivedNotEarly(id string, f *history) {
	for _, arrival := range f.arrivals {
		for _, a := range f.attempts {
			if a.Number == arrival.Number && a.Trigger != "manual" && !a.Due.IsZero() &&
				arrival.At.Before(a.Due.Add(-t.Skew)) {
				t.breaks("I4", id, "attempt %d arrived %s before it was due", a.Number, a.Due.Sub(arrival.At))
			}
		}
	}
}

// noOverlap checks I5.
func (t *trial) noOverlap() {
	locks := map[string][]*Arrival{}
	own, shared := tolerance{t, "I5", t.Overlaps, 0}, tolerance{t, "I5", t.LockOverlaps, 0}
	for id, f := range t.histories {
		n := overlaps(f.arrivals)
		own.breach(n, id, "%d of its %d sends overlap", n, len(f.arrivals))
		if f.row != nil && f.row.LockKey != "" {
			locks[f.row.LockKey] = append(locks[f.row.LockKey], f.arrivals...)
		}
	}
	own.check("sends overlap one of the same callback")
	for lock, arrivals := range locks {
		slices.SortFunc(arrivals, func(a, b *Arrival) int { return a.At.Compare(b.At) })
		n := overlaps(arrivals)
		shared.breach(n, "", "%d of %d sends on lock key %q overlap", n, len(arrivals), lock)
	}
	shared.check("sends overlap another on the same lock key")
	t.v.Overlaps, t.v.LockOverlaps = own.seen, shared.seen
}

// overlaps counts the arrivals that came before an earlier one had ended. The arrivals are in order.
func overlaps(arrivals []*Arrival) int {
	n := 0
	var busy time.Time
	for i, a := range arrivals {
		if i > 0 && a.At.Before(busy) {
			n++
		}
		end := a.End
		if end.IsZero() {
			end = a.At
		}
		if end.After(busy) {
			busy = end
		}
	}
	return n
}

// everySendRecorded checks I6.
func (t *trial) everySendRecorded() {
	unrecorded := tolerance{t, "I6", t.Unrecorded, 0}
	for id, f := range t.histories {
		if t.Unknown[id] || f.row == nil {
			continue
		}
		missing, pending := 0, t.pending(f)
		for number, c := range f.byNumber() {
			if c.attempts > 1 {
				t.breaks("I6", id, "%d attempts have the number %d", c.attempts, number)
			}
			if c.answered > c.arrivals {
				t.breaks("I6", id, "attempt %d has a response, but never arrived", number)
			}
			if number < 1 {
				t.breaks("I6", id, "%d requests arrived without a number", c.arrivals)
				continue
			}
			more := max(0, c.arrivals-c.attempts)
			if more > 0 && c.attempts == 0 && pending {
				more, pending = more-1, false
			}
			missing += more
		}
		unrecorded.breach(missing, id, "%d of the %d requests that arrived have no attempt in SQL", missing,
			len(f.arrivals))
	}
	unrecorded.check("arrivals have no attempt in SQL")
}

// nothingAfterTheEnd checks I7. A manual attempt may follow the end: the row is then terminal again, with a
// later end.
func (t *trial) nothingAfterTheEnd() {
	after := tolerance{t, "I7", t.AfterTerminal, 0}
	for id, f := range t.histories {
		if f.row != nil && f.row.Terminal() && f.row.FinishedAt.IsZero() {
			t.breaks("I7", id, "it is %s, but has no finish time", f.row.State)
		}
		if f.row == nil || f.row.FinishedAt.IsZero() {
			continue
		}
		for _, a := range f.arrivals {
			if a.At.After(f.row.FinishedAt.Add(t.Skew)) && !manual(f, a.Number) {
				after.breach(1, id, "attempt %d arrived %s after it was %s", a.Number,
					a.At.Sub(f.row.FinishedAt), f.row.State)
			}
		}
	}
	after.check("sends arrived after their callback was terminal")
}

func manual(f *history, number int) bool {
	return slices.ContainsFunc(f.attempts, func(a *Attempt) bool {
		return a.Number == number && a.Trigger == "manual"
	})
}

// conservation checks I8.
func (t *trial) conservation() {
	if !t.IndexRead {
		if !t.IndexUnread {
			t.breaks("I8", "", "the index was not read")
		}
		return
	}
	places := map[string]string{}
	for _, it := range t.Index {
		if place, twice := places[it.ID]; twice {
			t.breaks("I8", it.ID, "the index has it as %s and as %s", place, it.Place)
		}
		places[it.ID] = it.Place
		f := t.histories[it.ID]
		switch {
		case f == nil || f.row == nil:
			t.breaks("I8", it.ID, "the index has it as %s, but SQL does not", it.Place)
		case f.row.Terminal():
			t.breaks("I8", it.ID, "the index has it as %s, but it is %s", it.Place, f.row.State)
		}
	}
	for id, f := range t.histories {
		if f.row == nil || f.row.Terminal() {
			continue
		}
		if _, ok := places[id]; !ok {
			t.breaks("I8", id, "open in SQL, due %s, but not in the index",
				f.row.DueAt.Format(time.RFC3339Nano))
		}
	}
}
