package index

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// shardSizes is an index of two shards. All sizes of the first are 1, those of the second 10.
type shardSizes struct{ Schedule }

func (shardSizes) Shards() int { return 2 }

func (shardSizes) Stats(_ context.Context, shard int) (schedule.Stats, error) {
	var s schedule.Stats
	for field, value := range reflect.ValueOf(&s).Elem().Fields() {
		if field.Type.Kind() == reflect.Int64 {
			value.SetInt([]int64{1, 10}[shard])
		}
	}
	s.Counters = map[string]int64{"claimed": []int64{1, 10}[shard]}
	return s, nil
}

// Every size is the sum over the shards.
func TestStatsAreOfAllShards(t *testing.T) {
	t.Parallel()
	e := &Index{o: Options{Schedule: shardSizes{}}}
	got, err := e.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for field, value := range reflect.ValueOf(got).Fields() {
		want := int64(11)
		if field.Name == "HeadDue" { // the earliest of all
			want = 1
		}
		if field.Type.Kind() == reflect.Int64 && value.Int() != want {
			t.Errorf("%s is %d, want %d", field.Name, value.Int(), want)
		}
	}
	if got.Counters["claimed"] != 11 {
		t.Errorf("counters %v", got.Counters)
	}
}

// TestStates lists the next state for every event and state.
func TestStates(t *testing.T) {
	t.Parallel()
	wantTable(t, reachTransitions, []reach{answering, partly, silent}, `
all:    answering answering answering
failed: silent partly silent
none:   answering silent silent
some:   answering partly partly`)
	wantTable(t, contentTransitions, []content{matching, unchecked, rebuilding, foreign}, `
begun:   rebuilding rebuilding rebuilding rebuilding
failed:  matching unchecked unchecked foreign
filled:  matching unchecked matching foreign
left alone: foreign foreign rebuilding foreign
match: matching matching rebuilding matching
mismatch: unchecked unchecked rebuilding unchecked`)
}

func wantTable[S comparable](t *testing.T, c transitions[S], states []S, want string) {
	t.Helper()
	var got strings.Builder
	for _, what := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&got, "\n%s:", what)
		for _, first := range states {
			s := newState(first, c)
			was, is := s.apply(what)
			if was != first || !s.is(is) {
				t.Errorf("%v, %s: was %v, is %v", first, what, was, is)
			}
			fmt.Fprintf(&got, " %v", is)
		}
	}
	if strings.Join(strings.Fields(got.String()), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("got %s\nwant %s", got.String(), want)
	}
}

// someShards is an index whose shards answer a probe as a test says.
type someShards struct {
	Schedule
	answers []error
}

func (s someShards) Shards() int { return len(s.answers) }

func (s someShards) Stats(_ context.Context, shard int) (schedule.Stats, error) {
	return schedule.Stats{}, s.answers[shard]
}

// An index is silent only if no shard answers. One master of a Cluster that is down must not stop the
// callbacks of the other shards.
func TestOneShardDownDoesNotSilenceTheIndex(t *testing.T) {
	down, lost := errors.New("refused"), fmt.Errorf("stats: %w", schedule.ErrLost)
	for _, c := range []struct {
		name     string
		answers  []error
		answered int
		lost     bool
		failed   bool
	}{
		{"all answer", []error{nil, nil}, 2, false, false},
		{"one is down", []error{nil, down, nil}, 2, false, true},
		{"all are down", []error{down, down}, 0, false, true},
		{"a lost one answers", []error{lost, nil}, 2, true, false},
		{"one is lost, one down", []error{lost, down}, 1, true, true},
	} {
		h := newHealth(&Index{o: Options{Schedule: someShards{answers: c.answers}}})
		answered, isLost, err := h.probeShards(t.Context())
		if answered != c.answered || isLost != c.lost || (err != nil) != c.failed {
			t.Errorf("%s: %d answered, lost %t, %v", c.name, answered, isLost, err)
		}
		h.reach.apply("failed")
		if err != nil {
			h.noteAnswers(answered)
		} else {
			h.reach.apply("all")
		}
		if want := c.failed && c.answered == 0; h.indexSilent() != want {
			t.Errorf("%s: silent is %t", c.name, !want)
		}
	}
}
