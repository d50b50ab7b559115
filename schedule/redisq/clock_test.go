package redisq_test

import (
	"reflect"
	"testing"
	"time"
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

// A jump moves no data: the ends of leases are kept by a clock that does not jump.
func TestJumpMovesNoData(t *testing.T) {
	needsServer(t)
	ix := openNew(t)
	n, token := 0, 0
	fill(t, ix, &n, 60, 60, 1)
	claim(t, ix, &token, 60)
	ends := do(t, ix, "zrange", ix.Key(0, "LEASES"), 0, -1, "withscores").([]any)
	for _, d := range []time.Duration{-time.Hour, time.Hour} {
		ix.Advance(d)
		claim(t, ix, &token, 0)
		after := do(t, ix, "zrange", ix.Key(0, "LEASES"), 0, -1, "withscores").([]any)
		if len(ends) == 0 || !reflect.DeepEqual(after, ends) {
			t.Errorf("a jump of %s took the leases from %v to %v", d, ends, after)
		}
	}
}
