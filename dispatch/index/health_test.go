package index

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// shardSizes is an index of two shards, whose sizes are all 1 in the first and all 10 in the second.
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

// Every size is the sum of the shards' sizes.
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

// Every state and everything that happens: what becomes of it.
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
