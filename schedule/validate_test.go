package schedule_test

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

const anID = "01K00000000000000000000001"

// TestInvalid makes valid values invalid, one field at a time. A change is a field and its bad values.
func TestInvalid(t *testing.T) {
	t.Parallel()
	type changes map[string][]any
	ids := []any{"", anID[1:], anID + "0", "cb_" + anID, anID[:25] + "U", anID[:25] + ":", "\t" + anID[1:],
		"8" + anID[1:]}
	lanes := []any{int64(0), int64(-1)}
	locks := []any{strings.Repeat("k", 23), "a:b", "{a}", "\t", "\x00"}
	tokens := []any{strings.Repeat("t", 33), "a b", "\t", ","}
	ref := schedule.Ref{ID: anID, Lane: 1}
	lease := schedule.LeaseRef{Ref: ref, Token: "t"}
	elsewhere := schedule.LeaseRef{Ref: schedule.Ref{ID: anID, Lane: 2}, Token: "t"}
	item := schedule.Item{ID: anID, Lane: 1}
	for _, c := range []struct {
		good  any
		bad   changes
		check string // the method that validates; empty: Validate
	}{
		{ref, changes{"ID": ids, "Lane": lanes}, ""},
		{item, changes{"ID": ids, "Lane": lanes, "Lock": locks}, ""},
		{schedule.Movement{Ref: ref}, changes{"ID": ids, "Lane": lanes}, ""},
		{schedule.Lease{Item: item, Token: "t"},
			changes{"ID": ids, "Lane": lanes, "Lock": locks, "Token": tokens}, ""},
		{schedule.Lease{Item: item, Token: "t"},
			changes{"ID": ids, "Lane": lanes, "Lock": locks, "Token": append(tokens, "")}, "ValidateRunning"},
		{schedule.Settlement{Item: item, Token: "t", Outcome: schedule.Ack}, changes{
			"ID": ids, "Lane": lanes, "Lock": locks, "Token": tokens,
			"Outcome": {schedule.Outcome(0), schedule.Bury + 1},
			"Signal":  {schedule.Signal(-1), schedule.Unanswered + 1}, "Next": {elsewhere},
		}, ""},
		{schedule.Lease{Item: schedule.Item{ID: anID, Lane: 1, Lock: "k"}, Token: "t"}, changes{
			"Lock": append(locks, ""), "ID": ids, "Lane": lanes, "Token": append(tokens, ""),
		}, "ValidateLocking"},
		{schedule.Unlock{Lock: "k", ID: anID, Token: "t", Gone: []string{anID}}, changes{
			"Lock": append(locks, ""), "Token": tokens, "Gone": {[]string{"x"}}, "Skip": {[]string{anID, ""}},
		}, ""},
		{schedule.LaneSetting{Lane: 1, Every: time.Microsecond}, changes{
			"Lane": lanes, "Limit": {-1}, "Every": {-time.Second, time.Duration(1), time.Duration(999)},
		}, ""},
		{schedule.Advance{Horizon: time.Hour, Token: "t"}, changes{
			"Horizon": {-time.Second, time.Duration(1)}, "Token": append(tokens, ""), "After": tokens,
		}, ""},
		{schedule.ClaimRequest{
			Owner: "o", Token: "t", Max: 256, Lease: time.Millisecond, Lookahead: schedule.MaxLookahead,
			LaneLimit: 1,
			Ended:     []schedule.EndedLease{{LeaseRef: lease, Next: lease}},
			Prefetch:  []schedule.LanePrefetch{{Lane: 1, Max: 256}},
		}, changes{
			"Owner": {"", strings.Repeat("o", 129)}, "Token": append(tokens, ""), "Max": {-1, 257},
			"Lease":     {time.Duration(0)},
			"Lookahead": {-time.Millisecond, schedule.MaxLookahead + time.Millisecond}, "LaneLimit": {0},
			"Ended": {
				slices.Repeat([]schedule.EndedLease{{LeaseRef: lease}}, schedule.MaxEnded+1),
				[]schedule.EndedLease{{LeaseRef: schedule.LeaseRef{Ref: schedule.Ref{Lane: 1}, Token: "t"}}},
				[]schedule.EndedLease{{LeaseRef: schedule.LeaseRef{Ref: ref, Token: "a b"}}},
				[]schedule.EndedLease{{LeaseRef: lease, Next: elsewhere}},
			},
			"Prefetch": {
				manyLanes(schedule.MaxPrefetch + 1), []schedule.LanePrefetch{{Lane: 1}, {Lane: 1}},
				[]schedule.LanePrefetch{{Lane: 0}},
				[]schedule.LanePrefetch{{Lane: 1, Max: -1}}, []schedule.LanePrefetch{{Lane: 1, Max: 257}},
			},
		}, ""},
	} {
		check := func(value reflect.Value) error {
			err, _ := value.MethodByName(cmp.Or(c.check, "Validate")).Call(nil)[0].Interface().(error)
			return err
		}
		if err := check(reflect.ValueOf(c.good)); err != nil {
			t.Errorf("%+v: %v", c.good, err)
		}
		for field, values := range c.bad {
			for _, value := range values {
				bad := reflect.New(reflect.TypeOf(c.good)).Elem()
				bad.Set(reflect.ValueOf(c.good))
				bad.FieldByName(field).Set(reflect.ValueOf(value))
				if err := check(bad); !errors.Is(err, schedule.ErrInvalid) {
					t.Errorf("%T with %s %.60q: %v, want ErrInvalid", c.good, field, value, err)
				}
			}
		}
	}
	many := schedule.Unlock{Lock: "k", Skip: make([]string, schedule.MaxBatch+1)}
	if err := many.Validate(); !errors.Is(err, schedule.ErrTooMany) {
		t.Errorf("an unlock with many waiters: %v, want ErrTooMany", err)
	}
}

func manyLanes(n int) (lanes []schedule.LanePrefetch) {
	for i := range n {
		lanes = append(lanes, schedule.LanePrefetch{Lane: int64(i + 1)})
	}
	return lanes
}
