package control

import (
	"context"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// manyAttempts is a store with one callback and many attempts.
type manyAttempts struct {
	Store
	list []store.Attempt
	// firstDue is the callback's FirstDueAt.
	firstDue int64
}

func (s *manyAttempts) Attempts(_ context.Context, _, _ string, before,
	limit int) (page []store.Attempt, err error) {
	for i := len(s.list); i > 0 && len(page) < limit; i-- {
		if before == 0 || i < before {
			a := s.list[i-1]
			a.Number = i
			page = append(page, a)
		}
	}
	return page, nil
}

func (s *manyAttempts) Get(context.Context, string, string) (store.Callback, error) {
	return store.Callback{
		ID: "x", AttemptSeq: len(s.list), AttemptCount: len(s.list), FirstDueAt: s.firstDue,
	}, nil
}

func (s *manyAttempts) Payload(context.Context, string, string) (store.Payload, error) {
	return store.Payload{}, store.ErrNotFound
}

// evidence returns the report about the callback.
func (s *manyAttempts) evidence(t *testing.T, most int) *Report {
	t.Helper()
	r, err := New(Options{Store: s, Clock: new(clock.Clock)}).Report(t.Context(), "p", "x", most)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A retry moves the callback's FirstDueAt, from which the deadline runs. The evidence has the time that was
// promised to the receiver.
func TestEvidenceHasTheFirstDueTime(t *testing.T) {
	t.Parallel()
	const due, retry = 1_700_000_000_000, 1_700_000_500_000
	attempts := func(n int, first int64) []store.Attempt {
		list := make([]store.Attempt, n)
		for i := range list {
			list[i].DueAt = first + int64(i)
		}
		return list
	}
	for name, s := range map[string]*manyAttempts{
		"no attempt yet":           {firstDue: due},
		"the first attempt waited": {firstDue: due, list: attempts(1, due+5000)},
		"retried":                  {firstDue: retry, list: attempts(2, due)},
		"retried, many attempts":   {firstDue: retry, list: attempts(MaxReport+1, due)},
	} {
		if r := s.evidence(t, MaxReport); r.FirstDue != due {
			t.Errorf("%s: first due at %d, want %d", name, r.FirstDue, int64(due))
		}
	}
}

// A report has as many attempts as its reader may have, and counts those that it leaves out.
func TestEvidenceOfVeryManyAttempts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ attempts, most, older int }{
		{0, MaxReport, 0}, {1, MaxReport, 0}, {reportPage, MaxReport, 0}, {MaxReport, MaxReport, 0},
		{MaxReport + 203, MaxReport, 203}, {MaxReport + 203, MaxReport + 1, 203}, {50, 50, 0}, {51, 50, 1},
		{reportPage + 9, reportPage + 1, 8},
	} {
		r := (&manyAttempts{list: make([]store.Attempt, c.attempts)}).evidence(t, c.most)
		if len(r.Attempts) != c.attempts-c.older || r.Older() != c.older || r.Total != c.attempts {
			t.Errorf("%+v: %d are listed, %d are older, %d in total", c, len(r.Attempts), r.Older(), r.Total)
		}
		for i := range r.Attempts {
			if r.Attempts[i].Number != c.older+i+1 {
				t.Errorf("%+v: place %d has attempt %d", c, i, r.Attempts[i].Number)
			}
		}
	}
}
