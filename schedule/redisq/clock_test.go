package redisq_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Where the server's clock goes back a little the index's stands still, also over a reset, and the sequence
// never goes back; where it goes back further it is followed.
func TestClockStandsStillOrFollows(t *testing.T) {
	needsServer(t)
	ix := openNew(t)
	n, token := 0, 0
	first := claim(t, ix, &token, 0)
	ix.Advance(-4 * time.Second)
	fill(t, ix, &n, 1, 1, first.Now-1)
	second := claim(t, ix, &token, 1)
	if second.Now != first.Now || second.Seq <= first.Seq || len(second.Leases) != 1 {
		t.Errorf("after a small step back the clock went from %d to %d, the sequence from %d to %d, and %d were leased",
			first.Now, second.Now, first.Seq, second.Seq, len(second.Leases))
	}
	reset(t, ix, 2)
	if third := claim(t, ix, &token, 0); third.Now < second.Now || third.Seq <= second.Seq {
		t.Errorf("over a reset the clock went from %d to %d, the sequence from %d to %d", second.Now, third.Now, second.Seq, third.Seq)
	}
	ix.Advance(-time.Hour)
	fourth := claim(t, ix, &token, 0)
	if back := second.Now - fourth.Now; back < 3590_000 || back > 3604_000 {
		t.Errorf("after an hour's step back the clock went back by %d ms", back)
	}
	// From here on it goes as the server's does.
	ix.Advance(7 * time.Second)
	if fifth := claim(t, ix, &token, 0); fifth.Now < fourth.Now+7000 || fifth.Now > fourth.Now+17_000 {
		t.Errorf("7 s later it is %d ms later", fifth.Now-fourth.Now)
	}
}

// A jump moves no data: however many leases there are, it costs as much as any other call.
func TestJumpMovesNoData(t *testing.T) {
	needsServer(t)
	ix := openNew(t)
	ctx := context.Background()
	n, token := 0, 0
	const leases = 2000
	fill(t, ix, &n, leases, 400, 1)
	adoptions := make([]schedule.Adoption, 0, 1000)
	for i := range leases {
		adoptions = append(adoptions, schedule.Adoption{
			Item: schedule.Item{ID: id(i + 1), Lane: int64((i+1)%400 + 1), Due: 1}, Token: "running", Until: time.Now().UnixMilli() + 60_000,
		})
		if len(adoptions) == cap(adoptions) {
			if err := ix.Adopt(ctx, adoptions); err != nil {
				t.Fatal(err)
			}
			adoptions = adoptions[:0]
		}
	}
	for _, d := range []time.Duration{-time.Hour, time.Hour} {
		ends, err := ix.Client().ZRangeWithScores(ctx, ix.Key(0, "LEASES"), 0, -1).Result()
		if err != nil || len(ends) != leases {
			t.Fatalf("%d leases, %v", len(ends), err)
		}
		ix.Advance(d)
		if c := claim(t, ix, &token, 64); c.Reaped != 0 || c.Next > c.Now+60_000 {
			t.Errorf("after a jump of %s: %d reaped, next in %d ms", d, c.Reaped, c.Next-c.Now)
		}
		after, err := ix.Client().ZRangeWithScores(ctx, ix.Key(0, "LEASES"), 0, -1).Result()
		if err != nil || !slices.Equal(ends, after) {
			t.Errorf("a jump of %s moved leases, %v", d, err)
		}
	}
	pass(t, ix, 61*time.Second)
	if c := claim(t, ix, &token, 0); c.Reaped != 100 {
		t.Errorf("when their time was up %d leases were reaped, want 100 in one call", c.Reaped)
	}
}
