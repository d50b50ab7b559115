package app

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// minGrowth is the minimum growth of the heap between two garbage collections. A dispatcher without a
	// backlog has about 10 MB of live data. With Go's default, a collection at each doubling, collecting
	// takes 10 % of the process's time.
	minGrowth = 64 << 20
	// collectorInterval is how often the live heap is read.
	collectorInterval = time.Second
)

// tuneCollector sets GOGC until ctx ends, so that the heap can grow by 100 %, as in Go, or by minGrowth if
// that is more. It does nothing if the variable GOGC is set.
func tuneCollector(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	ticker := time.NewTicker(collectorInterval)
	defer ticker.Stop()
	current := 0
	for {
		metrics.Read(live)
		// Ignore small changes: SetGCPercent stops the world for a moment.
		want := collectorPercent(live[0].Value.Uint64())
		if math.Abs(float64(want-current)) > float64(current)/10 {
			debug.SetGCPercent(want)
			current = want
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// collectorPercent returns GOGC for a live heap in bytes: 100 to 1000.
func collectorPercent(live uint64) int {
	const most = 1000
	if live == 0 {
		return most
	}
	return int(min(max(minGrowth*100/live, 100), most))
}
