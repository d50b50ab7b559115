package redisq_test

import (
	"context"

	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule/queuetest"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// TestMain says how many random runs there are, and ends the servers that tests share.
func TestMain(m *testing.M) {
	queuetest.RandomRuns(25)
	if testserver.Full() {
		queuetest.RandomRuns(250)
	}
	testserver.Main(m)
}

func harness(t testing.TB, ix *redisq.Index) queuetest.Harness {
	return queuetest.Harness{
		Index: ix, Now: func() int64 { return now(t, ix) }, Advance: ix.Advance, Full: testserver.Full(),
	}
}

func TestIndex(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		queuetest.Run(t, func(t *testing.T) queuetest.Harness { return harness(t, open(t, url, 1)) })
	})
}

// On a Cluster a shard has a slot of its own. By default only the groups run that call several shards at
// once, or all.
func TestIndexOnACluster(t *testing.T) {
	needsServer(t)
	groups := []string{"State", "Lock", "Upkeep", "Horizon", "Hint", "Invalid"}
	if testserver.Full() {
		groups = nil
	}
	url := testserver.SharedCluster(t).URL()
	queuetest.Run(t, func(t *testing.T) queuetest.Harness {
		ix := open(t, url, 4)
		h := harness(t, ix)
		h.Index = firstShard{ix, make(chan int, 1)}
		return h
	}, groups...)
}

// A firstShard passes on the hints of shard 0 alone. The suite looks at no other, and waits for a hint that
// comes once: it must not meet the burst for all shards that follows a subscription instead.
type firstShard struct {
	*redisq.Index
	hints chan int
}

func (f firstShard) Hints() <-chan int { return f.hints }

func (f firstShard) Run(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- f.Index.Run(ctx) }()
	for {
		select {
		case shard := <-f.Index.Hints():
			if shard != 0 {
				continue
			}
			select {
			case f.hints <- 0:
			default:
			}
		case err := <-done:
			return err
		}
	}
}

func TestEndpointsFailAndComeBack(t *testing.T) {
	needsServer(t)
	endpoints := 30
	if testserver.Full() {
		endpoints = 300
	}
	queuetest.Recovery(t, harness(t, open(t, testserver.SharedRedis(t), 1)), endpoints)
}
