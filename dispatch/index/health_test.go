package index

import (
	"context"
	"reflect"
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
