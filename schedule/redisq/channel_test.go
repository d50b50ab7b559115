package redisq_test

import (
	"context"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// Hints may be lost, all of them: a user that may use every key and no channel, as Redis 7 makes users unless told otherwise,
// has an index that works.
func TestAUserWithoutAChannel(t *testing.T) {
	needsServer(t)
	raw := testserver.StartRedis(t)
	admin := openAs(t, redisq.Options{URL: raw})
	do(t, admin, "acl", "setuser", "deaf", "on", ">secret", "~*", "+@all", "resetchannels")
	ix := openAs(t, redisq.Options{URL: strings.Replace(raw, "redis://", "redis://deaf:secret@", 1)})
	ctx := context.Background()
	if err := ix.Reset(ctx, 0, 1); err != nil {
		t.Fatalf("reset: %v", err)
	}
	ix.SetGeneration(1)
	if err := ix.Open(ctx, 0); err != nil {
		t.Fatalf("open: %v", err)
	}
	item := schedule.Item{ID: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Lane: 1}
	if _, err := ix.Ensure(ctx, []schedule.Item{item}); err != nil {
		t.Fatalf("ensure: %v", err)
	}
	token := 0
	c := claim(t, ix, &token, 1)
	if len(c.Leases) != 1 {
		t.Fatalf("%d leases, want 1", len(c.Leases))
	}
	settlement := schedule.Settlement{Item: item, Token: c.Leases[0].Token, Outcome: schedule.Ack}
	if replies, err := ix.Settle(ctx, []schedule.Settlement{settlement}); err != nil || replies[0] != schedule.Applied {
		t.Fatalf("settle: %v, %v", replies, err)
	}
}
