package source_test

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
)

// TestGlobals checks that settings for all sessions of a server change nothing for a source.
func TestGlobals(t *testing.T) {
	needsServers(t)
	t.Parallel()
	w := newWorld(t, ownMariaDB(t, "--sql-safe-updates=1", "--div-precision-increment=0",
		"--completion-type=CHAIN"))
	if n := w.count("SELECT @@sql_safe_updates = 1 AND @@div_precision_increment = 0 AND " +
		"@@completion_type = 'CHAIN'"); n != 1 {
		t.Fatal("the server does not have the settings")
	}
	c := w.connect(source.Options{Keep: true})
	w.insert("refused", "removed", "left")
	rows := w.read(c, 0)
	w.changed(c.Refuse(t.Context(), refusals("x", rows[0])))(1)
	w.changed(c.Remove(t.Context(), keysOf(rows[1:2])))(1)
	// With completion_type, the COMMIT before would begin a transaction for this.
	w.changed(c.RemoveRefused(t.Context(), keysOf(rows[:1])))(1)
	for table, want := range map[string]int{"": 1, "_refused": 0, "_done": 2} {
		if n := w.count("SELECT COUNT(*) FROM dispatcher_outbox" + table); n != want {
			t.Errorf("other sessions see %d rows in dispatcher_outbox%s, want %d", n, table, want)
		}
	}
	w.changed(c.PruneKept(t.Context(), -time.Minute, 9))(2)

	// A place between two seconds must not be rounded.
	for _, row := range []string{"1, 'a', '03:04:05.4'", "2, 'b', '03:04:05.4'", "3, 'c', '03:04:05.6'"} {
		w.exec("INSERT INTO dispatcher_outbox_done (seq, id, done_at, kind, request) VALUES (" +
			strings.Replace(row, "'03", "'2026-01-02 03", 1) + ", 'callback', '{}')")
	}
	var read []string
	var after source.Kept
	for range 3 {
		page, err := c.ReadKept(t.Context(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Time{},
			after, 1)
		if err != nil || len(page) != 1 {
			t.Fatalf("%d kept rows, %v", len(page), err)
		}
		read = append(read, page[0].ID)
		after = page[0].Kept()
	}
	if got := strings.Join(read, " "); got != "a b c" {
		t.Errorf("kept rows: %q, want a, b and c", got)
	}
}
