package redisq_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/schedule/queuetest"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// TestMain sets the number of random runs, and stops the shared servers at the end.
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
		queuetest.Transcripts(t, "../queuetest/testdata/*.txt", func(t *testing.T) queuetest.Harness {
			return frozen(open(t, url, 1))
		}, nil)
		transcribed(t, "testdata/*.txt", url, nil)
	})
}

// frozen returns an index whose clock moves only through Advance.
func frozen(ix *redisq.Index) queuetest.Harness {
	ix.Freeze(time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC).UnixMilli())
	return queuetest.Harness{Index: ix, Now: ix.Frozen, Advance: ix.Advance}
}

// TestLostReplies runs operations that the server executes, but whose reply the proxy loses.
func TestLostReplies(t *testing.T) {
	needsServer(t)
	p := startProxy(t, "127.0.0.1:0", testserver.SharedRedis(t))
	transcribed(t, "testdata/lost/*.txt", p.url, map[string]queuetest.Operation{
		"losing": func(s *queuetest.Transcript, words []string) (any, error) {
			before := p.lost.Load()
			p.lose.Store(1)
			answer, err := s.Do(words[0], words[1:])
			p.lose.Store(0)
			return fmt.Sprintf("%d lost, failed: %t\n%v", p.lost.Load()-before, err != nil, s.Format(answer)),
				nil
		},
	})
}

// TestFullServer checks that at maxmemory operations that free memory work, and that those that add items are
// refused completely.
func TestFullServer(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		transcribed(t, "testdata/full/*.txt", url, nil)
	}, "--maxmemory-policy", "noeviction")
}

// TestRandomOperations compares the index with memq, which executes the same operations.
func TestRandomOperations(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) { randomOperations(t, open(t, url, 1)) })
}

func TestRandomOperationsOnACluster(t *testing.T) {
	needsServer(t)
	randomOperations(t, open(t, testserver.SharedCluster(t).URL(), 4))
}

func randomOperations(t *testing.T, ix *redisq.Index) {
	h := frozen(ix)
	clock := time.UnixMilli(h.Now())
	queuetest.Random(t, h, &queuetest.Harness{
		Index:   memq.New(memq.Options{Now: func() time.Time { return clock }}),
		Now:     func() int64 { return clock.UnixMilli() },
		Advance: func(d time.Duration) { clock = clock.Add(d) },
	})
}

// TestIndexOnACluster runs the suite on several shards, each in its own slot.
func TestIndexOnACluster(t *testing.T) {
	needsServer(t)
	url := testserver.SharedCluster(t).URL()
	queuetest.Run(t, func(t *testing.T) queuetest.Harness {
		ix := open(t, url, 4)
		h := harness(t, ix)
		h.Index = firstShard{ix, make(chan int, 1)}
		return h
	})
	queuetest.Transcripts(t, "../queuetest/testdata/*.txt", func(t *testing.T) queuetest.Harness {
		return frozen(open(t, url, 4))
	}, nil)
}

// A firstShard forwards only the hints of shard 0. The suite uses no other shard and waits for single hints,
// so it must not get the burst of hints for all shards that follows a subscription.
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

// TestBlockedLanesCostAClaimNothing checks that a claim sends the same commands to the server with a hundred
// blocked lanes as with none.
func TestBlockedLanesCostAClaimNothing(t *testing.T) {
	needsServer(t)
	transcribed(t, "testdata/cost/*.txt", testserver.StartRedis(t), nil) // not shared, commands are counted
}

// commands returns one figure of each command's statistics. Commands of scripts are included.
func commands(ctx context.Context, ix *redisq.Index, figure string) (map[string]int, error) {
	text, err := ix.Client().Info(ctx, "commandstats").Result()
	found := make(map[string]int)
	for line := range strings.Lines(text) {
		name, figures, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		for one := range strings.SplitSeq(figures, ",") {
			if value, ok := strings.CutPrefix(one, figure+"="); ok {
				found[name], _ = strconv.Atoi(value)
			}
		}
	}
	return found, err
}
