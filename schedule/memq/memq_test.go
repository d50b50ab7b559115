package memq_test

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/schedule/queuetest"
)

// TestMain has many random runs: a call of this index takes microseconds.
func TestMain(m *testing.M) {
	queuetest.RandomRuns(1000)
	if testserver.Full() {
		queuetest.RandomRuns(20_000)
	}
	os.Exit(m.Run())
}

// harness returns an index whose clock moves only when it is told to.
func harness(*testing.T) queuetest.Harness {
	var clock atomic.Int64
	clock.Store(time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC).UnixMilli())
	return queuetest.Harness{
		Index:   memq.New(memq.Options{Now: func() time.Time { return time.UnixMilli(clock.Load()) }}),
		Now:     clock.Load,
		Advance: func(d time.Duration) { clock.Add(d.Milliseconds()) },
		Full:    testserver.Full(),
	}
}

func TestIndex(t *testing.T) {
	t.Parallel()
	queuetest.Run(t, harness)
}

func TestRandomOperations(t *testing.T) {
	t.Parallel()
	queuetest.Random(t, harness(t), nil)
}

func TestManyEndpointsFailAndComeBack(t *testing.T) {
	t.Parallel()
	endpoints := 300
	if testserver.Full() {
		endpoints = 10_000
	}
	queuetest.Recovery(t, harness(t), endpoints)
}
