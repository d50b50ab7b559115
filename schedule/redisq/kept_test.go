package redisq_test

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule/queuetest"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// A claim is exactly the same commands to the server, whether a hundred lanes keep something back or none
// does.
func TestKeptLanesCostAClaimNothing(t *testing.T) {
	needsServer(t)
	const kept, lanes = 100, 64
	var want map[string]int
	for _, how := range append([]string{"none"}, queuetest.Keeps()...) {
		t.Run(how, func(t *testing.T) {
			ix := open(t, testserver.StartRedis(t), 1)
			reset(t, ix, 1)
			if how != "none" {
				queuetest.Keep(t, harness(t, ix), how, lanes+1, kept)
			}
			n, token := 0, 0
			fill(t, ix, &n, 1, lanes, 1)
			settleAll(t, ix, claim(t, ix, &token, 1).Leases) // the first claim writes what no other does
			fill(t, ix, &n, 2*lanes, lanes, now(t, ix)-2000)
			before := commands(t, ix, "calls")
			leases := claim(t, ix, &token, lanes).Leases
			got := commands(t, ix, "calls")
			if len(leases) != lanes {
				t.Fatalf("leased %d of %d lanes", len(leases), lanes)
			}
			for name, calls := range before {
				got[name] -= calls
			}
			maps.DeleteFunc(got, func(_ string, calls int) bool { return calls == 0 })
			if want == nil {
				want = got
			}
			if !maps.Equal(got, want) {
				t.Errorf("the claim was %v, beside no such lanes %v", got, want)
			}
		})
	}
}

// commands returns that figure of each command's statistics, those that scripts do included.
func commands(t *testing.T, ix *redisq.Index, figure string) map[string]int {
	t.Helper()
	text, err := ix.Client().Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]int)
	for line := range strings.Lines(text) {
		name, figures, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		for one := range strings.SplitSeq(figures, ",") {
			if value, ok := strings.CutPrefix(one, figure+"="); ok {
				found[name], _ = strconv.Atoi(value)
			}
		}
	}
	return found
}
