package source_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
)

// TestRows checks the life of rows: read, counted, removed, refused.
func TestRows(t *testing.T) {
	eachServer(t, func(t *testing.T, s server) {
		w := newWorld(t, s, source.DDLOptions{})
		c := w.connect(source.Options{})
		w.insert("a", `{"ref":"支付"}`, nil)
		w.insert("b 😀", "{}", []byte{})
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
		if b.ID != "b 😀" || b.Body == nil || b.BodyBytes != 0 || p.Kind != "poll" {
			t.Errorf("other rows: %+v %+v", b, p)
		}
		if got := w.read(c, a.Seq); len(got) != 2 || got[0].ID != b.ID {
			t.Errorf("rows after the first: %+v", got)
		}
		for limit, want := range map[int]int{2: 2, 10: 3} {
			if n, err := c.Waiting(t.Context(), 0, limit); n != want || err != nil {
				t.Errorf("waiting up to %d: %d, %v", limit, n, err)
			}
		}
		n, err := c.Refuse(t.Context(), []source.Refusal{{p.Key, "not_json", "problem"}, {b.Key, "x", "y"},
			{source.Key{Seq: 99, ID: "none"}, "x", "y"}})
		if n != 2 || err != nil {
			t.Fatalf("refused %d rows, %v", n, err)
		}
		refused, err := c.Refused(t.Context(), 10)
		if err != nil || len(refused) != 2 {
			t.Fatalf("refused rows: %+v, %v", refused, err)
		}
		n, err = c.Remove(t.Context(), keysOf(rows))
		if n != 1 || err != nil {
			t.Fatalf("removed %d rows, %v", n, err)
		}
		if left := w.read(c, 0); len(left) != 0 {
			t.Errorf("left: %+v", left)
		}
	})
}

// TestAllBytes checks that contents are read as they were written.
func TestAllBytes(t *testing.T) {
	eachServer(t, func(t *testing.T, s server) {
		w := newWorld(t, s, source.DDLOptions{})
		body := make([]byte, 256)
		for i := range body {
			body[i] = byte(i)
		}
		w.insert("a", "{}", body)
		if row := w.read(w.connect(source.Options{}), 0)[0]; !bytes.Equal(row.Body, body) {
			t.Errorf("read %x", row.Body)
		}
	})
}
