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
	// collectAfter is how much may be allocated at least between two garbage collections. What lives in a
	// dispatcher without a backlog is some 10 MB; collecting each time that has doubled takes a tenth of all
	// its time.
	collectAfter = 64 << 20
	// collectorEvery is how often what lives is looked at.
	collectorEvery = time.Second
)

// tendCollector keeps the garbage collector's target at twice what lives, as Go does, but no less than
// collectAfter above it, until ctx ends. With GOGC set it does nothing: then somebody knows better.
func tendCollector(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	ticker := time.NewTicker(collectorEvery)
	defer ticker.Stop()
	at := 0
	for {
		metrics.Read(live)
		// Setting it stops the world for a moment, so that small differences are left alone.
		if want := collectorPercent(live[0].Value.Uint64()); math.Abs(float64(want-at)) > float64(at)/10 {
			debug.SetGCPercent(want)
			at = want
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// collectorPercent is by how much the heap may grow between collections when so many bytes live.
func collectorPercent(live uint64) int {
	const most = 1000
	if live == 0 {
		return most
	}
	return int(min(max(collectAfter*100/live, 100), most))
}
