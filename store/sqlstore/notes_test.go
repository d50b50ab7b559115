package sqlstore

import (
	"errors"
	"reflect"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// What is noted is read as it was, whatever stands in it.
func TestNotesAreJSON(t *testing.T) {
	var noted tx
	dead := endState{State: store.Dead, Reason: store.Exhausted, At: 7}
	answered := dead
	answered.Class, answered.Status, answered.Attempts = store.ClassHTTP5xx, 503, -2
	const project = `p"` + "\n"
	want := endings{
		project: {{dead, idList{"01A", "01B", `"\`}}, {answered, idList{"01C"}}, {dead, idList{"号"}}},
		"a":     {{endState{State: store.Succeeded, At: 8}, idList{"02A"}}},
	}
	for name, groups := range want {
		for _, g := range groups {
			for _, id := range g.IDs {
				noted.ended(&store.Callback{
					ID: id, Project: name, State: g.State, Reason: g.Reason,
					LastClass: g.Class, LastStatus: g.Status, AttemptCount: g.Attempts,
				}, g.At)
			}
		}
	}
	text, err := encode(noted.endings)
	if err != nil {
		t.Fatal(err)
	}
	var read endings
	if err := read.merge(text); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read, want) {
		t.Errorf("read %+v, want %+v", read, want)
	}
}

// What is counted is noted but where it comes to nothing, and read as it was, whatever stands in it.
func TestCountsAreJSON(t *testing.T) {
	var c counting
	if d := c.deltas(); len(d) > 0 {
		t.Errorf("nothing is %v", d)
	}
	one := store.Callback{Project: `p"` + "\n号", State: store.Scheduled, LaneID: 7, DueAt: 5 * hour, AttemptCount: 2}
	gone := store.Callback{Project: "gone", State: store.Dead}
	for range 3 {
		c.count(&one, 1)
		c.count(&gone, 1)
	}
	c.count(&gone, -3)
	ended := one
	ended.State = store.Succeeded
	c.count(&one, -1)
	c.count(&ended, 1)
	c.count(&store.Callback{Project: "a", State: store.Scheduled, LadderBase: 3, DueAt: -1}, -1)
	text, err := encode(c.deltas())
	read := make(deltas)
	if err := errors.Join(err, read.merge(text)); err != nil {
		t.Fatal(err)
	}
	want := deltas{
		one.Project: {"state:scheduled": 2, "state:succeeded": 1, "tier:2": 2, "lane:7": 2, "due:000005": 2},
		"a":         {"state:scheduled": -1, "tier:-3": -1, "lane:0": -1, "due:000000": -1},
	}
	if !reflect.DeepEqual(read, want) {
		t.Errorf("read %v, want %v", read, want)
	}
	c = nil
	c.count(&gone, 1)
	c.count(&gone, -1)
	if d := c.deltas(); len(d) > 0 {
		t.Errorf("what comes to nothing is %v", d)
	}
}
