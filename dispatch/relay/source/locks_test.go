package source_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// waiting is the number of sessions of this database that wait for a lock.
func (w *world) waiting() int {
	if w.dialect == source.MySQL {
		time.Sleep(150 * time.Millisecond) // a view that was read in the last 100 ms is not refreshed
	}
	return w.count(w.sql("SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND "+
		"wait_event_type = 'Lock'", "SELECT COUNT(*) FROM information_schema.INNODB_TRX JOIN "+
		"information_schema.PROCESSLIST p ON p.ID = trx_mysql_thread_id WHERE trx_state = 'LOCK WAIT' AND "+
		"p.DB = DATABASE()"))
}

// TestLockedRow checks that a call waits two seconds for a locked row, then changes nothing, and that INSERTs
// do not wait meanwhile.
func TestLockedRow(t *testing.T) {
	eachServer(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		c := w.connect(source.Options{Keep: true})
		w.insert("a", "b")
		rows := w.read(c, 0)
		tx := w.begin()
		w.in(tx, fmt.Sprintf("SELECT seq FROM dispatcher_outbox WHERE seq = %d FOR UPDATE", rows[1].Seq))
		// Under REPEATABLE READ, a row that is not there would lock the gap in which INSERTs are.
		keys := append(keysOf(rows[:1]), source.Key{Seq: rows[1].Seq + 100, ID: "none"}, rows[1].Key)
		removed := make(chan error)
		start := time.Now()
		go func() {
			_, err := c.Remove(context.Background(), keys)
			removed <- err
		}()
		testserver.Until(t, "the removal to wait", func() bool { return w.waiting() > 0 })
		business := w.begin() // it fails if it waits for a lock
		w.in(business, w.sql("SET LOCAL lock_timeout = '1s'", "SET innodb_lock_wait_timeout = 1"))
		w.in(business, w.insertion(), "c", "{}", nil)
		if err := business.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-removed; err == nil || errors.Is(err, source.ErrBroken) {
			t.Errorf("remove a locked row: %v, want an error and a sound connection", err)
		}
		if d := time.Since(start); d > 15*time.Second {
			t.Errorf("the removal waited %v", d)
		}
		w.remains(c, "a", "b", "c")
		if n := w.count("SELECT COUNT(*) FROM dispatcher_outbox_done"); n != 0 {
			t.Errorf("%d rows are kept that were not removed", n)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		w.changed(c.Remove(t.Context(), keys))(2)
	})
}

// TestFrozenRelay checks that a relay that is frozen in a removal does not keep the locks of its rows. On
// PostgreSQL a removal is one message.
func TestFrozenRelay(t *testing.T) {
	eachServer(t, func(t *testing.T, s server) {
		if s.dialect == source.Postgres {
			return
		}
		w := newWorld(t, s)
		w.insert("a")
		c := w.connect(source.Options{})
		rows := w.read(c, 0)
		frozen := w.connectTo(source.OpenIdle(source.Options{DSN: w.url}, 3*time.Second))
		if err := frozen.RemoveWithoutCommit(t.Context(), keysOf(rows)); err != nil {
			t.Fatal(err)
		}
		testserver.Until(t, "the removal by another relay", func() bool {
			n, err := c.Remove(t.Context(), keysOf(rows))
			if errors.Is(err, source.ErrBroken) || err == nil && n != 1 {
				t.Fatalf("removed %d rows, %v", n, err)
			}
			return err == nil
		})
		if _, err := frozen.Remove(t.Context(), keysOf(rows)); !errors.Is(err, source.ErrBroken) {
			t.Errorf("the frozen relay removed a row: %v, want ErrBroken", err)
		}
	})
}

// TestLockedTable checks the first part of a table that another session changes.
func TestLockedTable(t *testing.T) {
	eachServer(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		c := w.connect(source.Options{})
		w.insert("a")
		rows := w.read(c, 0)
		tx := w.begin()
		w.in(tx, w.sql("LOCK TABLE dispatcher_outbox IN ACCESS EXCLUSIVE MODE",
			"LOCK TABLES dispatcher_outbox WRITE"))
		if _, err := c.Remove(t.Context(), keysOf(rows)); err == nil || errors.Is(err, source.ErrBroken) {
			t.Errorf("remove: %v, want an error and a sound connection", err)
		}
		w.in(tx, w.sql("SELECT 1", "UNLOCK TABLES"))
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		w.remains(c, "a")
		w.changed(c.Remove(t.Context(), keysOf(rows)))(1)
	})
}

// TestOpenTransactions checks that rows of open transactions are not read, and that no call waits for them.
func TestOpenTransactions(t *testing.T) {
	eachServer(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		c := w.connect(source.Options{Keep: true})
		var committed []string
		for i := range 20 {
			committed = append(committed, fmt.Sprint(i))
		}
		w.insert(committed[:10]...)
		tx := w.begin()
		w.in(tx, w.insertion(), "open", "{}", nil)
		w.insert(committed[10:]...)
		w.remains(c, committed...)
		rows := w.read(c, 0)
		w.changed(c.Refuse(t.Context(), refusals("x", rows[:9]...)))(9)
		w.changed(c.Remove(t.Context(), keysOf(rows[9:19])))(10)
		w.remains(c, "19")
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		w.remains(c, "open", "19")
	})
}

// TestPlans checks that calls read only their range of an index.
func TestPlans(t *testing.T) {
	directly(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		w.app.SetMaxIdleConns(0) // PostgreSQL counts at the end of a session
		w.exec(w.sql("SELECT 1", "SET GLOBAL userstat = ON"))
		w.fill("old", 10_000, 10, 10)
		last := int64(w.count("SELECT MAX(seq) FROM dispatcher_outbox"))
		w.fill("new", 100, 10, 10)
		w.count("SELECT COUNT(body) FROM dispatcher_outbox")
		testserver.Until(t, "the server to count", func() bool { return w.scanned() >= 10_100 })
		before := w.scanned()
		c := w.connect(source.Options{Keep: true})
		rows := w.read(c, last)
		w.changed(c.Remove(t.Context(), keysOf(rows[:90])))(90)
		w.changed(c.Refuse(t.Context(), refusals("x", rows[90:]...)))(10)
		c.Close()
		testserver.Until(t, "the server to count", func() bool { return w.scanned() > before })
		if n := w.scanned() - before; n > 1000 {
			t.Errorf("the calls read %d rows of the outbox, want about 300", n)
		}
	})
}

// scanned is the number of rows of the outbox that the source has read.
func (w *world) scanned() int {
	if w.dialect == source.Postgres {
		return w.count("SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = " +
			"'dispatcher_outbox'")
	}
	return w.count("SELECT COALESCE(SUM(ROWS_READ), 0) FROM information_schema.TABLE_STATISTICS WHERE " +
		"TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'dispatcher_outbox'")
}

// TestLongScan checks that a Read from the beginning may take longer than other calls.
func TestLongScan(t *testing.T) {
	directly(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		const call = 300 * time.Millisecond
		connect := func() *source.Conn {
			return w.connectTo(source.OpenWithin(source.Options{DSN: w.url}, time.Minute, call))
		}
		w.insert("a")
		full, tails := connect(), []*source.Conn{connect(), connect()}
		tx := w.begin()
		w.in(tx, w.sql("LOCK TABLE dispatcher_outbox IN ACCESS EXCLUSIVE MODE",
			"LOCK TABLES dispatcher_outbox WRITE"))
		type result struct {
			rows []source.Row
			took time.Duration
			err  error
		}
		read := make(chan result)
		go func() {
			start := time.Now()
			rows, _, err := full.Read(context.Background(), math.MinInt64, 9, true)
			read <- result{rows, time.Since(start), err}
		}()
		for _, tail := range tails { // one after the other: the read from the beginning takes longer than one
			if _, _, err := tail.Read(t.Context(), 1, 9, false); !errors.Is(err, source.ErrBroken) {
				t.Errorf("a read of a locked table: %v, want ErrBroken", err)
			}
		}
		w.in(tx, w.sql("SELECT 1", "UNLOCK TABLES"))
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if r := <-read; r.err != nil || len(r.rows) != 1 || r.took < call {
			t.Errorf("a read from the beginning: %d rows after %v, %v", len(r.rows), r.took, r.err)
		}
	})
}
