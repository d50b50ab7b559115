package redisq_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// What another build has written is never read as if it were this one's.
func TestOtherLayouts(t *testing.T) {
	needsServer(t)
	ix := open(t, testserver.SharedRedis(t), 1)
	ctx := context.Background()
	reset(t, ix, 7)
	n := 0
	fill(t, ix, &n, 10, 1, 1)
	if generation, err := ix.Generation(ctx, 0); generation != 7 || err != nil {
		t.Fatalf("generation %d, %v, want 7", generation, err)
	}
	for _, older := range []string{"7", "7.1", "7.2", "7.3"} {
		do(t, ix, "hset", ix.Key(0, "META"), "generation", older)
		if generation, err := ix.Generation(ctx, 0); !errors.Is(err, schedule.ErrOlder) {
			t.Errorf("%q is generation %d, %v, want ErrOlder", older, generation, err)
		}
		if _, err := ix.Stats(ctx, 0); !errors.Is(err, schedule.ErrLost) {
			t.Errorf("with %q: %v, want ErrLost", older, err)
		}
	}
	do(t, ix, "hset", ix.Key(0, "META"), "generation", "7.5")
	if _, err := ix.Generation(ctx, 0); !errors.Is(err, schedule.ErrNewer) || !strings.Contains(err.Error(), "upgrade this process") {
		t.Errorf("a newer layout: %v, want an error that says what to do", err)
	}
	if _, err := ix.Stats(ctx, 0); !errors.Is(err, schedule.ErrLost) {
		t.Errorf("a newer layout: %v, want ErrLost", err)
	}
	for _, bad := range []string{"", "x", "7.", "7.x", "7.0", "-7.4", "7.4.4", ".2"} {
		do(t, ix, "hset", ix.Key(0, "META"), "generation", bad)
		if generation, err := ix.Generation(ctx, 0); err == nil {
			t.Errorf("%q is generation %d", bad, generation)
		}
	}
	reset(t, ix, 8)
	if got := do(t, ix, "hget", ix.Key(0, "META"), "generation"); got != "8.4" {
		t.Errorf("the generation is written %q", got)
	}
}
