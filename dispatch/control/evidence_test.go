package control

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// manyAttempts is a store with one callback and many attempts.
type manyAttempts struct {
	Store
	kind   store.Kind
	state  store.State
	reason store.Reason
	list   []store.Attempt
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
		ID: "x", Kind: s.kind, State: s.state, Reason: s.reason, AttemptSeq: len(s.list),
		AttemptCount: len(s.list), FirstDueAt: s.firstDue,
	}, nil
}

func (s *manyAttempts) Payload(context.Context, string, string) (store.Payload, error) {
	return store.Payload{}, store.ErrNotFound
}

// evidence returns the report about the callback as text.
func (s *manyAttempts) evidence(t *testing.T) string {
	t.Helper()
	r, err := New(Options{Store: s, Clock: new(clock.Clock)}).Report(t.Context(), "p", "x")
	if err != nil {
		t.Fatal(err)
	}
	return r.Text()
}

// A poll's answer that is not final is no failure: for a notification the same class is one.
func TestEvidenceOfAnAnswerThatIsNotFinal(t *testing.T) {
	t.Parallel()
	for kind, want := range map[store.Kind]string{
		store.Poll:   "status 200\n  outcome: pending (not final yet)\n",
		store.Notify: "status 200 (rule_mismatch)\n  outcome: failed\n",
	} {
		s := &manyAttempts{kind: kind, list: []store.Attempt{
			{Status: 200, Class: store.ClassRuleMismatch, Outcome: store.AttemptFailed},
		}}
		text := s.evidence(t)
		if !strings.Contains(text, want) {
			t.Errorf("%s: evidence:\n%s", kind, text)
		}
	}
}

// A poll whose final answer is a failure has not succeeded.
func TestEvidenceOfAFinalFailure(t *testing.T) {
	t.Parallel()
	s := &manyAttempts{kind: store.Poll, state: store.Succeeded, reason: store.PollFailed}
	s.list = []store.Attempt{
		{Number: 1, Status: 200, Class: store.ClassOK, Outcome: store.AttemptSucceeded},
	}
	text := s.evidence(t)
	for _, want := range []string{"state:         final, failure\n", "  outcome: final, failure\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the evidence:\n%s", want, text)
		}
	}
	if strings.Contains(text, "succeeded") {
		t.Errorf("the evidence says succeeded:\n%s", text)
	}
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
		"first due:     no attempt yet":           {firstDue: due},
		"first due:     the first attempt waited": {firstDue: due, list: attempts(1, due+5000)},
		"attempt 1 due: retried":                  {firstDue: retry, list: attempts(2, due)},
		"attempt 1 due: retried, many attempts":   {firstDue: retry, list: attempts(evidenceAttempts+1, due)},
	} {
		text := s.evidence(t)
		if !strings.Contains(text, name[:15]+"2023-11-14T22:13:20.000Z\n") {
			t.Errorf("%s: evidence:\n%.400s", name, text)
		}
	}
}

// The evidence is limited to evidenceAttempts, and counts the attempts that it leaves out.
func TestEvidenceOfVeryManyAttempts(t *testing.T) {
	t.Parallel()
	for attempts, want := range map[int]struct {
		first int
		note  string
	}{
		0: {}, 1: {first: 1}, evidencePage: {first: 1}, evidenceAttempts: {first: 1},
		evidenceAttempts + 203: {204, "the last 1000 of them follow; the 203 older ones are not shown"},
	} {
		s := &manyAttempts{list: make([]store.Attempt, attempts)}
		text := s.evidence(t)
		if n := strings.Count(text, "\nattempt "); n != min(attempts, evidenceAttempts) {
			t.Errorf("%d attempts: %d are shown", attempts, n)
		}
		if strings.Contains(text, "not shown") != (want.note != "") || !strings.Contains(text, want.note) {
			t.Errorf("%d attempts: %s", attempts, strings.SplitN(text, "\n\n", 2)[0])
		}
		if want.first == 0 {
			continue
		}
		_, shown, _ := strings.Cut(text, "\n\n")
		if prefix := fmt.Sprintf("attempt %d (", want.first); !strings.HasPrefix(shown, prefix) {
			t.Errorf("%d attempts: the first shown is %.40q", attempts, shown)
		}
	}
}
