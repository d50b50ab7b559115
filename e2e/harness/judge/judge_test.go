package judge_test

import (
	"crypto/sha256"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

var start = time.UnixMilli(1_700_000_000_000)

func at(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

func hash(s string) judge.Hash { return sha256.Sum256([]byte(s)) }

// arrived is a request of a callback that was cut off, at these milliseconds.
func arrived(id string, number, from, end int) judge.Arrival {
	return judge.Arrival{ID: id, Number: number, At: at(from), End: at(end), Hash: hash(id)}
}

// answered is one that got its answer.
func answered(id string, number, from, end int) judge.Arrival {
	a := arrived(id, number, from, end)
	a.Answered = true
	return a
}

// attempt is one that lasted 20 ms from when it was due; one of unknown outcome is not charged.
func attempt(id string, number int, outcome string, status, due int) judge.Attempt {
	return judge.Attempt{ID: id, Number: number, Outcome: outcome, Trigger: "schedule", Status: status,
		Charged: outcome != "unknown", Started: at(due), Ended: at(due + 20), Due: at(due)}
}

// open makes callback b one that is not terminal.
func open(e *judge.Evidence) { e.Rows[1].State, e.Rows[1].FinishedAt = "scheduled", time.Time{} }

// sound is a run without a fault: "a" fails once and succeeds after its tier of a second, "b" succeeds at
// once.
func sound() judge.Evidence {
	return judge.Evidence{
		Accepted: []judge.Accepted{{ID: "a", Ref: "order-a", Hash: hash("a")},
			{ID: "b", Ref: "order-b", Hash: hash("b")}},
		Rows: []judge.Row{
			{ID: "a", Ref: "order-a", LockKey: "k", State: "succeeded", FinishedAt: at(1120), Hash: hash("a"),
				Tiers: []time.Duration{time.Second}},
			{ID: "b", Ref: "order-b", LockKey: "k", State: "succeeded", FinishedAt: at(220), Hash: hash("b"),
				Tiers: []time.Duration{time.Second}},
		},
		Attempts: []judge.Attempt{attempt("a", 1, "failed", 500, 80), attempt("a", 2, "succeeded", 200, 1100),
			attempt("b", 1, "succeeded", 200, 200)},
		Arrivals: []judge.Arrival{
			answered("a", 1, 81, 99),
			answered("a", 2, 1102, 1119),
			answered("b", 1, 201, 219),
		},
		IndexRead: true,
	}
}

func TestSoundEvidenceBreaksNothing(t *testing.T) {
	v := judge.Judge(sound(), judge.Bounds{})
	if !v.OK() || v.Accepted != 2 || v.Lost != 0 || v.Sends != 3 || v.Duplicates != 0 {
		t.Errorf("got %s", &v)
	}
	late := sound()
	late.Attempts[1].Started = at(1101)
	if v := judge.Judge(late, judge.Bounds{}); v.Lateness.Most != time.Millisecond {
		t.Errorf("lateness %v, want 1ms at most", v.Lateness)
	}
}

// unknownResend is what a kill between answer and commit leaves: the first send has an attempt of unknown
// outcome, the second one is charged.
func unknownResend(e *judge.Evidence) {
	e.Attempts[2].Number = 2
	e.Arrivals[2].Number = 2
	e.Attempts = append(e.Attempts, attempt("b", 1, "unknown", 0, 120))
	e.Arrivals = append(e.Arrivals, answered("b", 1, 121, 130))
}

// sentTwiceAfterRefusal has an attempt that found no connection, and then two sends of the one that is
// recorded.
func sentTwiceAfterRefusal(e *judge.Evidence) {
	e.Attempts[2].Number, e.Arrivals[2].Number = 2, 2
	e.Attempts = append(e.Attempts, attempt("b", 1, "failed", 0, 100))
	e.Attempts[2].Trigger, e.Attempts[3].Trigger = "manual", "manual" // at once
	e.Arrivals = append(e.Arrivals, answered("b", 2, 190, 200))
}

// Each invariant is broken in each way that the judge knows, and the verdict names it and the id.
func TestEachBreachIsNamed(t *testing.T) {
	for _, c := range []struct {
		name   string
		breach func(*judge.Evidence)
		bounds judge.Bounds
		want   string // invariant and id
	}{
		{"accepted and not in SQL",
			func(e *judge.Evidence) { e.Rows = e.Rows[:1]; e.Attempts = e.Attempts[:2]; e.Arrivals = e.Arrivals[:2] },
			judge.Bounds{}, "I1 b"},
		{"still open", func(e *judge.Evidence) {
			open(e)
			e.Index = []judge.Item{{ID: "b", Place: "delayed"}}
		}, judge.Bounds{}, "I1 b"},
		{"ended otherwise", func(e *judge.Evidence) { e.Rows[1].State = "dead" }, judge.Bounds{}, "I1 b"},
		{"ended otherwise than expected", func(*judge.Evidence) {}, judge.Bounds{Expect: func(ref string) string {
			if ref == "order-b" {
				return "canceled"
			}
			return "succeeded"
		}}, "I1 b"},
		{"succeeded and never answered", func(e *judge.Evidence) { e.Arrivals[2].Answered = false }, judge.Bounds{},
			"I1 b"},
		{"forgotten and still there", func(*judge.Evidence) {}, judge.Bounds{Unknown: map[string]bool{"b": true}},
			"I1 b"},
		{"arrived and not in SQL", func(e *judge.Evidence) {
			e.Arrivals = append(e.Arrivals, judge.Arrival{ID: "c", Number: 1, At: at(5), End: at(6)})
		}, judge.Bounds{}, "I2 c"},
		{"attempted and not in SQL", func(e *judge.Evidence) {
			e.Attempts = append(e.Attempts, attempt("c", 1, "failed", 0, 5))
		}, judge.Bounds{}, "I2 c"},
		{"other bytes in SQL", func(e *judge.Evidence) { e.Rows[1].Hash = hash("x") }, judge.Bounds{}, "I2 b"},
		{"other bytes arrived", func(e *judge.Evidence) { e.Arrivals[2].Hash = hash("x") }, judge.Bounds{}, "I2 b"},
		{"a duplicate", unknownResend, judge.Bounds{Duplicates: 9}, "I3 b"},
		{"too many duplicates", unknownResend, judge.Bounds{PerCallback: 9}, "I3 "},
		{"started before it was due", func(e *judge.Evidence) { e.Attempts[2].Started = at(190) }, judge.Bounds{},
			"I4 b"},
		{"started before its tier had passed", func(e *judge.Evidence) {
			e.Attempts[1].Due, e.Attempts[1].Started = at(900), at(900)
			e.Arrivals[1].At = at(901)
		}, judge.Bounds{}, "I4 a"},
		{"arrived before it was due", func(e *judge.Evidence) { e.Arrivals[1].At = at(1000) }, judge.Bounds{},
			"I4 a"},
		{"sends overlap", func(e *judge.Evidence) { e.Arrivals[0].End = at(1110) }, judge.Bounds{LockOverlaps: 9},
			"I5 a"},
		{"more overlaps than allowed", func(e *judge.Evidence) {
			e.Arrivals[0].End = at(1110)
			e.Arrivals = append(e.Arrivals, arrived("a", 1, 90, 95))
		}, judge.Bounds{Overlaps: 1, LockOverlaps: 9, PerCallback: 9, Duplicates: 9, Unrecorded: 9}, "I5 "},
		{"two callbacks on one lock overlap", func(e *judge.Evidence) {
			e.Arrivals[2].At, e.Attempts[2].Due, e.Attempts[2].Started = at(50), at(50), at(50)
		}, judge.Bounds{}, "I5 "},
		{"a send without an attempt", func(e *judge.Evidence) {
			e.Arrivals = append(e.Arrivals, arrived("b", 7, 210, 211))
		}, judge.Bounds{PerCallback: 1, Duplicates: 1, Overlaps: 1, LockOverlaps: 1}, "I6 b"},
		{"more sends without an attempt than allowed", func(e *judge.Evidence) {
			e.Arrivals = append(e.Arrivals, arrived("b", 7, 210, 211),
				arrived("b", 8, 212, 213))
		}, judge.Bounds{PerCallback: 2, Duplicates: 2, Overlaps: 2, LockOverlaps: 2, Unrecorded: 1}, "I6 "},
		{"an answer without a send", func(e *judge.Evidence) {
			e.Attempts = append(e.Attempts, attempt("b", 9, "failed", 500, 210))
		}, judge.Bounds{}, "I6 b"},
		{"a number twice", func(e *judge.Evidence) {
			e.Attempts[0].Status, e.Attempts[1].Number = 0, 1
			e.Arrivals[0].Number, e.Arrivals[1].Number = 3, 1
		}, judge.Bounds{PerCallback: 1, Duplicates: 1, Unrecorded: 1}, "I6 a"},
		{"a send without a number", func(e *judge.Evidence) {
			e.Arrivals = append(e.Arrivals, judge.Arrival{ID: "b", At: at(210), End: at(211), Hash: hash("b")})
		}, judge.Bounds{PerCallback: 1, Duplicates: 1, Overlaps: 1, LockOverlaps: 1}, "I6 b"},
		{"a second send of the same number, behind an attempt that was refused", sentTwiceAfterRefusal,
			judge.Bounds{Duplicates: 1, Unrecorded: 1}, "I3 b"},
		{"and it is not recorded", sentTwiceAfterRefusal, judge.Bounds{PerCallback: 1, Duplicates: 1}, "I6 b"},
		{"a duplicate of what no fault hit", unknownResend,
			judge.Bounds{Duplicates: 9, PerCallback: 9, Hit: map[string]int{"a": 1}}, "I3 b"},
		{"another's reference", func(e *judge.Evidence) {
			e.Accepted = append(e.Accepted, judge.Accepted{ID: "b", Ref: "order-c", Hash: hash("b")})
		}, judge.Bounds{}, "I1 b"},
		{"an order taken twice", func(e *judge.Evidence) {
			e.Rows = append(e.Rows, judge.Row{ID: "c", Ref: "order-c", State: "canceled", FinishedAt: at(5)},
				judge.Row{ID: "d", Ref: "order-c", State: "canceled", FinishedAt: at(5)})
		}, judge.Bounds{}, "I2 d"},
		{"an attempt without times", func(e *judge.Evidence) { e.Attempts[2].Due = time.Time{} }, judge.Bounds{},
			"I4 b"},
		{"terminal without an end", func(e *judge.Evidence) { e.Rows[1].FinishedAt = time.Time{} }, judge.Bounds{},
			"I7 b"},
		{"an index that was not read", func(e *judge.Evidence) { e.IndexRead = false }, judge.Bounds{}, "I8 "},
		{"more overlaps on locks than allowed, on two keys", func(e *judge.Evidence) {
			for _, id := range []string{"c", "d", "e", "f"} {
				e.Rows = append(e.Rows, judge.Row{ID: id, Ref: id,
					LockKey: map[string]string{"c": "x", "d": "x", "e": "y", "f": "y"}[id], State: "succeeded",
					FinishedAt: at(30)})
				e.Attempts = append(e.Attempts, attempt(id, 1, "succeeded", 200, 10))
				e.Arrivals = append(e.Arrivals, judge.Arrival{ID: id, Number: 1, At: at(10), End: at(20), Answered: true})
			}
		}, judge.Bounds{LockOverlaps: 1}, "I5 "},
		{"sent after the end", func(e *judge.Evidence) {
			e.Attempts = append(e.Attempts, attempt("b", 2, "unknown", 0, 400))
			e.Arrivals = append(e.Arrivals, arrived("b", 2, 400, 410))
		}, judge.Bounds{PerCallback: 1, Duplicates: 1}, "I7 b"},
		{"more sent after the end than allowed", func(e *judge.Evidence) {
			for n := range 2 {
				e.Attempts = append(e.Attempts, attempt("b", 2+n, "unknown", 0, 400+20*n))
				e.Arrivals = append(e.Arrivals, arrived("b", 2+n, 400+20*n, 410+20*n))
			}
		}, judge.Bounds{PerCallback: 2, Duplicates: 2, AfterTerminal: 1}, "I7 "},
		{"terminal and in the index", func(e *judge.Evidence) {
			e.Index = []judge.Item{{ID: "b",
				Place: "delayed"}}
		}, judge.Bounds{}, "I8 b"},
		{"unknown and in the index", func(e *judge.Evidence) { e.Index = []judge.Item{{ID: "z", Place: "ready"}} },
			judge.Bounds{}, "I8 z"},
		{"open and not in the index", func(e *judge.Evidence) {
			open(e)
		}, judge.Bounds{MayBeOpen: true}, "I8 b"},
		{"twice in the index", func(e *judge.Evidence) {
			open(e)
			e.Index = []judge.Item{{ID: "b", Place: "delayed"}, {ID: "b", Place: "ready"}}
		}, judge.Bounds{MayBeOpen: true}, "I8 b"},
		{"twice in SQL", func(e *judge.Evidence) { e.Rows = append(e.Rows, e.Rows[1]) }, judge.Bounds{}, "I8 b"},
		{"healed too late", func(e *judge.Evidence) { e.Healed = time.Minute }, judge.Bounds{Heal: time.Second},
			"I9 "},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := sound()
			c.breach(&e)
			v := judge.Judge(e, c.bounds)
			got := make([]string, len(v.Violations))
			for i, x := range v.Violations {
				got[i] = x.Invariant + " " + x.ID
			}
			if len(got) != 1 || got[0] != c.want {
				t.Errorf("broken: %q, want %q alone\n%s", got, c.want, &v)
			}
			if id := strings.TrimSpace(c.want[2:]); !strings.Contains(v.String(), c.want[:2]) || id != "" &&
				!strings.Contains(v.String(), id) {
				t.Errorf("the verdict does not name %q: %s", c.want, &v)
			}
		})
	}
}

// What a fault may cost is allowed within its bounds, and counted all the same.
func TestBoundsAllowWhatAFaultMayCost(t *testing.T) {
	e := sound()
	unknownResend(&e)
	v := judge.Judge(e, judge.Bounds{Duplicates: 1, PerCallback: 1})
	if !v.OK() || v.Duplicates != 1 || v.WorstDuplicates != 1 || v.Uncertain != 1 {
		t.Errorf("got %s", &v)
	}
	e = sound()
	open(&e)
	e.Attempts, e.Arrivals = e.Attempts[:2], e.Arrivals[:2]
	e.Index = []judge.Item{{ID: "b", Place: "delayed"}}
	if v := judge.Judge(e, judge.Bounds{MayBeOpen: true}); !v.OK() {
		t.Errorf("an open callback that the index holds: %s", &v)
	}
	e = sound()
	e.Rows, e.Attempts = slices.Clone(e.Rows[:1]), e.Attempts[:2]
	if v := judge.Judge(e, judge.Bounds{Unknown: map[string]bool{"b": true}}); !v.OK() {
		t.Errorf("an id that SQL was made to forget: %s", &v)
	}
	e = sound()
	e.Attempts[1].Trigger, e.Attempts[1].Started = "manual", at(500)
	e.Arrivals[1].At = at(501)
	if v := judge.Judge(e, judge.Bounds{}); !v.OK() {
		t.Errorf("a manual attempt may come before its tier: %s", &v)
	}
}

func TestVerdictNamesAFewOfMany(t *testing.T) {
	var e judge.Evidence
	for range 25 {
		e.Accepted = append(e.Accepted, judge.Accepted{ID: "x", Ref: "order-x"})
	}
	v := judge.Judge(e, judge.Bounds{})
	if v.Lost != 25 || strings.Count(v.String(), "order-x") != 10 ||
		!strings.Contains(v.String(), "and 15 more") {
		t.Errorf("got %s", &v)
	}
}

func TestQuantiles(t *testing.T) {
	if got := judge.QuantilesOf(nil); got != (judge.Quantiles{}) {
		t.Errorf("of nothing: %v", got)
	}
	var ds []time.Duration
	for i := 100; i > 0; i-- {
		ds = append(ds, time.Duration(i))
	}
	if got := judge.QuantilesOf(ds); got != (judge.Quantiles{P50: 51, P99: 100, Most: 100}) {
		t.Errorf("of 1 to 100: %v", got)
	}
}
