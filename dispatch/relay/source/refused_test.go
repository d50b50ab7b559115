package source_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
)

// readRefused reads all rows of a filter, two at a time.
func (w *world) readRefused(c *source.Conn, f source.Filter) (all []source.Row) {
	w.t.Helper()
	var after source.Key
	for {
		rows, err := c.ReadRefused(w.t.Context(), f, after, 2)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(rows) == 0 {
			return all
		}
		all = append(all, rows...)
		after = rows[len(rows)-1].Key
	}
}

// TestRefused checks what can be done with refused rows.
func TestRefused(t *testing.T) {
	eachServer(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		c := w.connect(source.Options{})
		w.insert("a", "b", "b", "B", "c 😀")
		rows := w.read(c, 0)
		w.changed(c.Refuse(t.Context(), refusals("first", rows[:2]...)))(2)
		others := append(refusals("second", rows[2:4]...), refusals("x", rows[4])...)
		w.changed(c.Refuse(t.Context(), others))(3)
		w.remains(c)

		if got := keysOf(w.readRefused(c, source.Filter{})); !sameKeys(got, keysOf(rows)) {
			t.Errorf("refused: %v, want %v", got, keysOf(rows))
		}
		for want, f := range map[int]source.Filter{
			2: {ID: "b"}, 1: {ID: "b", Code: "second"}, 0: {Code: "none"}, 5: {},
		} {
			if got := w.readRefused(c, f); len(got) != want {
				t.Errorf("filter %+v: %d rows, want %d", f, len(got), want)
			}
			w.changed(c.CountRefused(t.Context(), f, 9))(want)
		}
		w.changed(c.CountRefused(t.Context(), source.Filter{}, 3))(3)
		got := w.readRefused(c, source.Filter{ID: "a"})[0]
		if got.Kind != "callback" || string(got.Request) != `{"ref":"a"}` ||
			string(got.Body) != "body of a" || got.Age < 0 || got.Age > time.Minute {
			t.Errorf("refused row: %+v", got)
		}

		again := refusals("again", rows[0])
		again[0].Problem = strings.Repeat("问", 2000) + "\x00\xff"
		w.changed(c.UpdateRefused(t.Context(), append(again, refusals("x", source.Row{})...)))(1)
		newest, err := c.Refused(t.Context(), 3)
		if err != nil || len(newest) != 3 {
			t.Fatalf("newest: %+v, %v", newest, err)
		}
		if n := newest[0]; n.Key != rows[0].Key || n.Code != "again" || n.Kind != "callback" ||
			n.Problem != strings.Repeat("问", 1000) || time.Since(n.RefusedAt).Abs() > time.Minute {
			t.Errorf("newest: %+v", n)
		}

		w.changed(c.RemoveRefused(t.Context(), keysOf(rows[:1])))(1)
		w.changed(c.DropRefused(t.Context(), source.Filter{Code: "second"}, 1))(1)
		w.changed(c.DropRefused(t.Context(), source.Filter{Code: "second"}, 9))(1)
		w.changed(c.DropRefused(t.Context(), source.Filter{}, 9))(2)
		w.changed(c.DropRefused(t.Context(), source.Filter{}, 9))(0)
	})
}

// TestKeptIsNotCut checks that a row is not removed if its copy would not be the whole row.
func TestKeptIsNotCut(t *testing.T) {
	eachServer(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		w.exec(w.sql("ALTER TABLE dispatcher_outbox_done ALTER COLUMN id TYPE varchar(3)",
			"ALTER TABLE dispatcher_outbox_done MODIFY id VARCHAR(3) CHARACTER SET utf8mb4 COLLATE "+
				"utf8mb4_bin NOT NULL"))
		c := w.connect(source.Options{Keep: true})
		w.insert("order-1", "a")
		rows := w.read(c, 0)
		if n, err := c.Remove(t.Context(), keysOf(rows)); err == nil || errors.Is(err, source.ErrBroken) {
			t.Errorf("removed %d rows, %v; want an error", n, err)
		}
		w.remains(c, "order-1", "a")
		w.changed(c.Remove(t.Context(), keysOf(rows[1:])))(1)
		w.changed(c.CountKept(t.Context(), time.Now(), time.Time{}, 9))(1)
	})
}

// TestRefusedControlCharacter checks a refused row with an id that MySQL sorts before the empty text.
func TestRefusedControlCharacter(t *testing.T) {
	eachServer(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		c := w.connect(source.Options{})
		ids := []string{"\tx", "\n1", "a", "\tx"}
		w.insert(ids...)
		w.changed(c.Refuse(t.Context(), refusals("x", w.read(c, 0)...)))(4)
		w.changed(c.CountRefused(t.Context(), source.Filter{}, 9))(4)
		w.changed(c.CountRefused(t.Context(), source.Filter{ID: "\tx"}, 9))(2)
		got := idsOf(w.readRefused(c, source.Filter{}))
		slices.Sort(got)
		slices.Sort(ids)
		if !slices.Equal(got, ids) {
			t.Errorf("refused: %q, want %q", got, ids)
		}
		w.changed(c.DropRefused(t.Context(), source.Filter{}, 9))(4)
	})
}

// TestRefusedBefore checks that a filter leaves out rows that were refused later.
func TestRefusedBefore(t *testing.T) {
	eachServer(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		c := w.connect(source.Options{})
		w.insert("old", "older", "new")
		w.changed(c.Refuse(t.Context(), refusals("x", w.read(c, 0)...)))(3)
		for id, ago := range map[string]string{"old": "1 hour", "older": "2 hour"} {
			w.exec("UPDATE dispatcher_outbox_refused SET refused_at = " + w.sql("now() - interval '"+ago+"'",
				"NOW(3) - INTERVAL "+ago) + " WHERE id = '" + id + "'")
		}
		for want, f := range map[int]source.Filter{
			0: {Before: 3 * time.Hour}, 1: {Before: 90 * time.Minute}, 2: {Before: time.Minute, Code: "x"},
			3: {Before: -time.Minute},
		} {
			w.changed(c.CountRefused(t.Context(), f, 9))(want)
			if got := w.readRefused(c, f); len(got) != want {
				t.Errorf("filter %+v: %d rows, want %d", f, len(got), want)
			}
		}
		w.changed(c.DropRefused(t.Context(), source.Filter{Before: time.Minute}, 9))(2)
		if got := idsOf(w.readRefused(c, source.Filter{})); !slices.Equal(got, []string{"new"}) {
			t.Errorf("left after the drop: %q", got)
		}
	})
}

// TestRefusedAreKept checks that a refused row is kept if it was accepted after all, and not if it was
// dropped.
func TestRefusedAreKept(t *testing.T) {
	eachServer(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		c := w.connect(source.Options{Keep: true})
		w.insert("a", "dropped", "left")
		rows := w.read(c, 0)
		w.changed(c.Refuse(t.Context(), refusals("x", rows...)))(3)
		w.changed(c.RemoveRefused(t.Context(), []source.Key{{Seq: rows[1].Seq, ID: "a"}, rows[0].Key}))(1)
		w.changed(c.DropRefused(t.Context(), source.Filter{ID: "dropped"}, 9))(1)
		w.changed(c.CountRefused(t.Context(), source.Filter{}, 9))(1)
		kept, err := c.ReadKept(t.Context(), time.Now(), time.Time{}, source.Kept{}, 9)
		if err != nil || len(kept) != 1 {
			t.Fatalf("kept: %+v, %v; want one row", kept, err)
		}
		if r := kept[0]; r.Key != rows[0].Key || r.Kind != "callback" || string(r.Body) != "body of a" ||
			string(r.Request) != `{"ref":"a"}` || r.Age.Abs() > time.Minute {
			t.Errorf("kept row: %+v", r)
		}
	})
}

func sameKeys(a, b []source.Key) bool {
	for _, k := range a {
		if !slices.Contains(b, k) {
			return false
		}
	}
	return len(a) == len(b)
}

// TestKept checks that removed rows are kept, read again in the order of their removal, and pruned.
func TestKept(t *testing.T) {
	eachServer(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		c := w.connect(source.Options{Keep: true})
		w.insert("a", "b", "c", "d", "e")
		rows := w.read(c, 0)
		w.changed(c.Remove(t.Context(), keysOf(rows[3:])))(2)
		w.changed(c.Remove(t.Context(), keysOf(rows[:3])))(3)
		for id, ago := range map[string]string{"d": "1 hour", "e": "1 second"} {
			w.exec("UPDATE dispatcher_outbox_done SET done_at = " + w.sql("now() - interval '"+ago+"'",
				"NOW(3) - INTERVAL "+ago) + " WHERE id = '" + id + "'")
		}

		read := func(since, until time.Time) (ids []string) {
			var after source.Kept
			for {
				page, err := c.ReadKept(t.Context(), since, until, after, 2)
				if err != nil {
					t.Fatal(err)
				}
				if len(page) == 0 {
					return ids
				}
				for i := range page {
					ids = append(ids, page[i].ID)
					if string(page[i].Body) != "body of "+page[i].ID {
						t.Errorf("kept row: %+v", page[i])
					}
				}
				after = page[len(page)-1].Kept()
			}
		}
		now := time.Now()
		hour, later := now.Add(-58*time.Minute), now.Add(6*time.Minute)
		for _, span := range []struct {
			since, until time.Time
			want         string
		}{
			{now, time.Time{}, "e a b c"}, {hour, time.Time{}, "d e a b c"}, {later, time.Time{}, ""},
			{hour, now, "d e a b c"}, {hour, now.Add(-6 * time.Minute), "d"},
			{hour, now.Add(-66 * time.Minute), ""},
		} {
			ids := read(span.since, span.until)
			if got := strings.Join(ids, " "); got != span.want {
				t.Errorf("kept from %v to %v: %q, want %q", span.since, span.until, got, span.want)
			}
			w.changed(c.CountKept(t.Context(), span.since, span.until, 9))(len(ids))
		}
		w.changed(c.PruneKept(t.Context(), time.Minute, 9))(1)
		w.changed(c.PruneKept(t.Context(), 0, 1))(1)
		w.changed(c.PruneKept(t.Context(), 0, 9))(3)
	})
}
