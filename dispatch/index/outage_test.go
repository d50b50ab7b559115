package index

import (
	"context"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// fullPages is a store with endless open rows.
type fullPages struct{ Store }

func (fullPages) Open(_ context.Context, after store.Cursor, limit int) ([]store.OpenRow, error) {
	rows := make([]store.OpenRow, limit)
	for i := range rows {
		rows[i] = store.OpenRow{ID: "id", DueAt: after.DueAt + 1}
	}
	return rows, nil
}

// takesNothing is an index of one shard that answers and takes no items.
type takesNothing struct{ *memq.Index }

func (takesNothing) Ensure(context.Context, []schedule.Item) ([]schedule.Position, error) {
	return nil, context.DeadlineExceeded
}

// A walk whose items some shards do not take is not reported as taken, so the next page waits.
func TestAWalkThatSomeShardsDoNotTake(t *testing.T) {
	e := idleIndex(fullPages{}, takesNothing{memq.New(memq.Options{})})
	e.health.walk = &openWalk{span: span{until: schedule.Forever}}
	e.reach.apply("failed")
	e.reach.apply("some")
	if took, more := e.health.catchUp(t.Context(), e.health.indexOutage.failingSince); took || more {
		t.Errorf("took %t, and wants more: %t", took, more)
	}
}
