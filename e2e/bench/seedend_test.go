package bench

import (
	"context"
	"fmt"
	"strconv"
)

// How a seeding leaves the database: with its indexes, its counters and its statistics.

// An index is one that is taken away while rows are copied.
type index struct{ name, definition string }

func (c *copying) dropIndexes(ctx context.Context) error {
	query := `SELECT name, sql FROM sqlite_master
		WHERE type = 'index' AND sql IS NOT NULL AND tbl_name IN ('callbacks', 'payloads', 'attempts', 'idempotency')`
	if c.isPostgres() {
		query = `SELECT i.indexname, i.indexdef FROM pg_indexes AS i
			WHERE i.schemaname = current_schema() AND i.tablename IN ('callbacks', 'payloads', 'attempts', 'idempotency')
				AND NOT EXISTS (SELECT 1 FROM pg_constraint AS k WHERE k.conname = i.indexname)`
	}
	rows, err := c.db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var x index
		if err := rows.Scan(&x.name, &x.definition); err != nil {
			return err
		}
		c.dropped = append(c.dropped, x)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if err := rows.Close(); err != nil { // there is one connection
		return err
	}
	for _, x := range c.dropped {
		if err := c.exec(ctx, `DROP INDEX `+x.name); err != nil {
			return err
		}
	}
	return nil
}

// finish makes the indexes again, one after the other, and removes what only the copying needed.
func (c *copying) finish(ctx context.Context) error {
	for _, x := range c.dropped {
		if err := c.exec(ctx, x.definition); err != nil {
			return err
		}
	}
	return c.exec(ctx, `DROP TABLE bench_first`, `DROP TABLE bench_attempts`, `DROP TABLE bench_keys`, `DROP TABLE bench_slots`)
}

// count tells the program's counters of the copies, as the transactions of their accepts and results would have.
func (c *copying) count(ctx context.Context) error {
	const open = ` FROM callbacks WHERE state = 'scheduled' GROUP BY `
	return c.exec(ctx,
		`DELETE FROM counter_deltas`, `DELETE FROM commit_notes`, `DELETE FROM counters`,
		`INSERT INTO counters (project, kind, key, value) SELECT project, 'state', state, count(*) FROM callbacks GROUP BY project, state`,
		`INSERT INTO counters (project, kind, key, value) SELECT project, 'tier', CAST(attempt_count - ladder_base AS TEXT), count(*)`+
			open+`project, attempt_count - ladder_base`,
		`INSERT INTO counters (project, kind, key, value) SELECT project, 'lane', CAST(lane AS TEXT), count(*)`+open+`project, lane`,
	)
}

// analyze leaves the database as the program would: PostgreSQL with what autovacuum sees to, SQLite in the mode that it is opened in.
func (c *copying) analyze(ctx context.Context) error {
	if c.isPostgres() {
		return c.exec(ctx, `VACUUM (ANALYZE)`, `CHECKPOINT`)
	}
	return c.exec(ctx, `PRAGMA journal_mode = WAL`)
}

// check compares some of the copies with what they should be, since operators that bind differently in the two databases would
// still make rows.
func (c *copying) check(ctx context.Context) error {
	for _, i := range []int{c.overdue, c.rows / 2, c.rows - 1} {
		var got, body, lane string
		var size int
		err := c.db.QueryRowContext(ctx, `SELECT c.url || ' ' || c.topic || ' ' || c.labels, l.key, substr(p.body, 1, 14), length(p.body)
			FROM callbacks AS c JOIN lanes AS l ON l.id = c.lane JOIN payloads AS p ON p.id = c.payload_id
			WHERE c.project = 'default' AND c.ref = 'order-`+strconv.Itoa(i)+`' AND c.ref <> ''`).Scan(&got, &lane, &body, &size)
		if err != nil {
			return fmt.Errorf("callback %d: %w", i, err)
		}
		merchant := i * 104729 % c.lanes
		want := fmt.Sprintf(`https://merchant-%d.example/payments/notify %s {"channel":"%s","shop":"%d"}`, merchant, topicOf(i, c.rows), channelOf(i, c.rows), i%1000)
		if got != want || lane != laneKey(merchant) || body != fmt.Sprintf("%s%08d", payloadStart, i) || size != payloadSize {
			return fmt.Errorf("callback %d is %s, %s, %q of %d bytes; want %s, %s", i, got, lane, body, size, want, laneKey(merchant))
		}
	}
	return nil
}

// topicOf and channelOf are the topic and a label of callback i, as the copying's SQL makes them.
func topicOf(i, rows int) string {
	switch {
	case i%min(rareEvery, rows) == 77:
		return rareTopic
	case i%100 < 70:
		return "payment.succeeded"
	case i%100 < 85:
		return "payment.failed"
	case i%100 < 99:
		return "refund.succeeded"
	}
	return "settlement.ready"
}

func channelOf(i, rows int) string {
	switch {
	case i%min(rareEvery, rows) == 55:
		return "rare"
	case i%10 < 6:
		return "alipay"
	case i%10 < 9:
		return "wechat"
	}
	return "card"
}
