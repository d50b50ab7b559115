package source_test

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// TestRows checks that rows are read in their order, counted, and removed by their keys.
func TestRows(t *testing.T) {
	eachServer(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		c := w.connect(source.Options{})
		w.exec(w.insertion(), "a", `{"ref":"支付"}`, nil)
		w.exec(w.insertion(), `b "😀\' {,}`, "{}", []byte{})
		w.exec("INSERT INTO dispatcher_outbox (id, kind, request) VALUES ('c', 'poll', 'x')")
		rows := w.read(c, 0)
		if len(rows) != 3 {
			t.Fatalf("read %d rows, want 3", len(rows))
		}
		a, b, p := rows[0], rows[1], rows[2]
		if a.ID != "a" || a.Kind != "callback" || string(a.Request) != `{"ref":"支付"}` || a.Body != nil ||
			a.RequestBytes != 16 || a.BodyBytes != -1 || a.Age < 0 || a.Age > time.Minute {
			t.Errorf("first row: %+v", a)
		}
		if b.ID != `b "😀\' {,}` || b.Body == nil || b.BodyBytes != 0 || p.Kind != "poll" {
			t.Errorf("other rows: %+v %+v", b, p)
		}
		if got := w.read(c, a.Seq); len(got) != 2 || got[0].ID != b.ID {
			t.Errorf("rows after the first: %+v", got)
		}
		for limit, want := range map[int]int{2: 2, 10: 3} {
			w.changed(c.Waiting(t.Context(), 0, limit))(want)
		}
		wrong := []source.Key{{Seq: a.Seq, ID: "b"}, {Seq: 99, ID: "a"}, {Seq: 0, ID: ""}}
		w.changed(c.Remove(t.Context(), append(wrong, b.Key)))(1)
		w.changed(c.Remove(t.Context(), nil))(0)
		w.remains(c, "a", "c")
		if n := w.count("SELECT COUNT(*) FROM dispatcher_outbox_done"); n != 0 {
			t.Errorf("%d rows are kept without Keep", n)
		}
	})
}

// TestPages checks the limits of a page, and calls about more keys than fit into a statement.
func TestPages(t *testing.T) {
	eachServer(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		c := w.connect(source.Options{Keep: true})
		w.fill("", 1000, 10, 10)
		rows, more, err := c.Read(t.Context(), 0, 3, false)
		if err != nil || len(rows) != 3 || !more {
			t.Errorf("page of 3: %d rows, more %t, %v", len(rows), more, err)
		}
		rows = w.read(c, 0)
		if len(rows) != 1000 {
			t.Fatalf("read %d rows", len(rows))
		}
		w.changed(c.Refuse(t.Context(), refusals("x", rows[:600]...)))(600)
		w.changed(c.Remove(t.Context(), keysOf(rows)))(400)
		w.changed(c.UpdateRefused(t.Context(), refusals("y", rows...)))(600)
		w.changed(c.RemoveRefused(t.Context(), keysOf(rows)))(600)
		w.remains(c)
	})
}

// TestEmptyID checks that an application cannot write a row without an id.
func TestEmptyID(t *testing.T) {
	directly(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		if _, err := w.app.ExecContext(t.Context(), w.insertion(), "", "{}", nil); err == nil {
			t.Error("a row with an empty id was written")
		}
	})
}

// TestContents checks that contents are read as they were written, and not above their limits.
func TestContents(t *testing.T) {
	eachServer(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		w.exec(w.insertion(), "all", `{"ref":"😀"}`, all)
		w.exec(w.insertion(), "limits", strings.Repeat("r", source.MaxRequest), make([]byte, source.MaxBody))
		w.exec(w.insertion(), "above", strings.Repeat("r", source.MaxRequest+1),
			make([]byte, source.MaxBody+1))
		if w.dialect == source.MySQL {
			w.exec(w.insertion(), "not UTF-8", []byte("\xd6\xa7"), nil)
		}
		rows := w.read(w.connect(source.Options{}), 0)
		if got := rows[0]; !bytes.Equal(got.Body, all) || string(got.Request) != `{"ref":"😀"}` {
			t.Errorf("read %q and %x", got.Request, got.Body)
		}
		if got := rows[1]; len(got.Request) != source.MaxRequest || len(got.Body) != source.MaxBody {
			t.Errorf("at the limits: %d and %d bytes", len(got.Request), len(got.Body))
		}
		if got := rows[2]; got.Request != nil || got.Body != nil || got.RequestBytes != source.MaxRequest+1 ||
			got.BodyBytes != source.MaxBody+1 {
			t.Errorf("above the limits: %d and %d bytes of %d and %d", len(got.Request), len(got.Body),
				got.RequestBytes, got.BodyBytes)
		}
		if w.dialect == source.MySQL && string(rows[3].Request) != "\xd6\xa7" {
			t.Errorf("not UTF-8: read %q", rows[3].Request)
		}
	})
}

// TestBigRows checks that a page holds at most MaxPage bytes, and that the memory is bounded.
func TestBigRows(t *testing.T) {
	n := 40
	if testserver.Full() {
		n = 1000
	}
	t.Cleanup(func() { // after the subtests
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if m.Sys > 300<<20 {
			t.Errorf("the process has taken %d MiB", m.Sys>>20)
		}
	})
	eachServer(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		w.fill("", n, 500<<10, 200<<10)
		c := w.connect(source.Options{})
		read, after := 0, int64(0)
		for {
			rows, more, err := c.Read(t.Context(), after, 500, false)
			if err != nil {
				t.Fatal(err)
			}
			if size := len(rows) * 700 << 10; size > source.MaxPage {
				t.Fatalf("a page has %d bytes", size)
			}
			read += len(rows)
			if !more {
				break
			}
			after = rows[len(rows)-1].Seq
		}
		if read != n {
			t.Errorf("read %d rows, want %d", read, n)
		}
	})
}

// TestSequenceWentBack checks that a row with the number of an earlier row is not taken for that row.
func TestSequenceWentBack(t *testing.T) {
	eachServer(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		c := w.connect(source.Options{Keep: true})
		back := w.sql("TRUNCATE dispatcher_outbox RESTART IDENTITY", "TRUNCATE TABLE dispatcher_outbox")
		w.insert("old")
		old := w.read(c, 0)
		w.exec(back)
		w.insert("new")
		w.changed(c.Remove(t.Context(), keysOf(old)))(0)
		w.changed(c.Refuse(t.Context(), refusals("x", old...)))(0)
		w.remains(c, "new")
		if n := w.count("SELECT COUNT(*) FROM dispatcher_outbox_refused"); n != 0 {
			t.Errorf("%d rows are refused", n)
		}
		w.changed(c.Refuse(t.Context(), refusals("x", w.read(c, 0)...)))(1)
		w.exec(back)
		w.exec(w.insertion(), "new", "second", nil)
		w.changed(c.Refuse(t.Context(), refusals("y", w.read(c, 0)...)))(1)
		rows, err := c.ReadRefused(t.Context(), source.Filter{}, source.Key{}, 10)
		if err != nil || len(rows) != 1 || string(rows[0].Request) != "second" {
			t.Errorf("refused with the same key: %+v, %v", rows, err)
		}
	})
}

// TestAges checks that ages do not depend on the time zones of writers.
func TestAges(t *testing.T) {
	eachServer(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		tx := w.begin()
		w.in(tx, w.sql("SET LOCAL TIME ZONE 'Asia/Shanghai'", "SET time_zone = '+08:00'"))
		w.in(tx, w.insertion(), "now", "{}", nil)
		hours := w.sql("INSERT INTO dispatcher_outbox (id, request, created_at) VALUES ($1, '', now() + "+
			"$2 * interval '1 hour')", "INSERT INTO dispatcher_outbox (id, request, created_at) VALUES "+
			"(?, '', NOW(3) + INTERVAL ? HOUR)")
		w.in(tx, hours, "past", -2)
		w.in(tx, hours, "future", 3)
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		want := map[string]time.Duration{"now": 0, "past": 2 * time.Hour, "future": -3 * time.Hour}
		c := w.connect(source.Options{})
		for _, r := range w.read(c, 0) {
			if late := r.Age - want[r.ID]; late < 0 || late > time.Minute {
				t.Errorf("row %s has the age %v, want %v", r.ID, r.Age, want[r.ID])
			}
		}
		if w.dialect == source.MySQL {
			return
		}
		w.exec("UPDATE dispatcher_outbox SET created_at = '-infinity' WHERE id = 'now'")
		if age := w.read(c, 0)[0].Age; age > -24*time.Hour {
			t.Errorf("a row without a time has the age %v, want one in the future", age)
		}
	})
}
