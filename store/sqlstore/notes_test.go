package sqlstore

import (
	"reflect"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// What an older process appends, which knows of counters alone, is counted before and after it is folded.
func TestNotesOfAnOlderProcess(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := openSQLite(t)
	for range 3 {
		if err := db.change(ctx, func(tx *tx) error {
			_, err := tx.exec(`INSERT INTO counter_deltas (deltas) VALUES ($1)`, `{"default":{"state:scheduled":2,"tier:0":2}}`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, when := range []string{"before", "after", "long after"} {
		counts, err := db.Counts(ctx, store.DefaultProject)
		if err != nil || counts.States[store.Scheduled] != 6 || counts.Tiers[0] != 6 {
			t.Errorf("%s the fold: %v, %+v", when, err, counts)
		}
		if err := db.Fold(ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
}

// What is noted is read as it was, whatever stands in it.
func TestNotesAreJSON(t *testing.T) {
	var noted tx
	var want []endedGroup
	for i, id := range []string{"01A", "01B", `"\`, "01C", "号"} {
		c := store.Callback{ID: id, Project: `p"` + "\n", State: store.Dead, Reason: store.Exhausted}
		if i == 3 {
			c.LastClass, c.LastStatus, c.AttemptCount = store.ClassHTTP5xx, 503, -2
		}
		noted.ended(&c, 7)
		g := endedGroup{State: c.State, Reason: c.Reason, Class: c.LastClass, Status: c.LastStatus, Attempts: c.AttemptCount, At: 7, IDs: id}
		if n := len(want); n > 0 && want[n-1].like(&g) {
			want[n-1].IDs += " " + id
		} else {
			want = append(want, g)
		}
	}
	noted.ended(&store.Callback{ID: "02A", Project: "a", State: store.Succeeded}, 8)
	var read endings
	if err := read.merge(noted.notedOutcomes()); err != nil {
		t.Fatal(err)
	}
	got := read[`p"`+"\n"]
	if len(got) != len(want) || len(read) != 2 || read["a"][0] != (endedGroup{State: store.Succeeded, At: 8, IDs: "02A"}) {
		t.Fatalf("read %+v", read)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("group %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

// What is counted is noted but where it comes to nothing, and read as it was, whatever stands in it.
func TestCountsAreJSON(t *testing.T) {
	var c counting
	if text := c.text(); text != "" {
		t.Errorf("nothing is %q", text)
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
	var read deltas
	if err := read.merge(c.text()); err != nil {
		t.Fatal(err)
	}
	want := deltas{
		one.Project: {"state:scheduled": 2, "state:succeeded": 1, "tier:2": 2, "lane:7": 2, "due:000005": 2},
		"a":         {"state:scheduled": -1, "tier:-3": -1, "lane:0": -1, "due:000000": -1},
	}
	if !reflect.DeepEqual(read, want) {
		t.Errorf("read %v, want %v", read, want)
	}
	if c = nil; c.text() != "" {
		t.Error("nothing is something")
	}
	c.count(&gone, 1)
	c.count(&gone, -1)
	if text := c.text(); text != "" {
		t.Errorf("what comes to nothing is %q", text)
	}
}
