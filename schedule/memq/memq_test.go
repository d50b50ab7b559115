package memq_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/schedule/queuetest"
)

// harness returns an index whose clock moves only when it is told to.
func harness(*testing.T) queuetest.Harness {
	var clock atomic.Int64
	clock.Store(time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC).UnixMilli())
	return queuetest.Harness{
		Index:   memq.New(memq.Options{Now: func() time.Time { return time.UnixMilli(clock.Load()) }}),
		Now:     clock.Load,
		Advance: func(d time.Duration) { clock.Add(d.Milliseconds()) },
	}
}

func TestIndex(t *testing.T) {
	queuetest.Run(t, harness)
}

// An index compared with itself finds what the comparison demands beyond the contract.
func TestCompare(t *testing.T) {
	queuetest.Compare(t, harness, harness)
}

func TestTenThousandEndpointsFailAndComeBack(t *testing.T) {
	endpoints := 10_000
	if testing.Short() {
		endpoints = 1000
	}
	queuetest.Recovery(t, harness(t), endpoints)
}
