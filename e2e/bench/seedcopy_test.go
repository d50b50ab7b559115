package bench

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // The driver "pgx".
	_ "modernc.org/sqlite"             // The driver "sqlite".
)

// A copying is a seeding at work. Its statements are one text for both databases, but for the series, the bytes of bodies, and what
// makes loading fast.
type copying struct {
	seeding
	db        *sql.DB
	templates []template
	log       func(string, ...any)

	from, now int64
	lane0     int64
	columns   map[string][]string
	dropped   []index
}

const (
	// seedSlots are the places that the shapes share: callback i is a copy of the one of place i × a prime mod seedSlots.
	seedSlots = 9973 // a prime, so that a lane has callbacks of every shape
)

// run copies everything and returns what there is then.
func (c *copying) run(ctx context.Context) (seeded, error) {
	c.now = time.Now().UnixMilli()
	c.from = c.now - history.Milliseconds()
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"prepare", c.prepare}, {"copy rows", c.copyRows}, {"index", c.finish}, {"count", c.count}, {"analyze", c.analyze}, {"check", c.check},
	}
	for _, step := range steps {
		began := time.Now()
		if err := step.do(ctx); err != nil {
			return seeded{}, fmt.Errorf("%s: %w", step.what, err)
		}
		c.log("seeding: %s took %s", step.what, time.Since(began).Round(time.Millisecond))
	}
	made := seeded{from: c.from, to: c.now}
	for query, into := range map[string]*int{
		`SELECT count(*) FROM callbacks`:                           &made.rows,
		`SELECT count(*) FROM callbacks WHERE state = 'scheduled'`: &made.pending,
		`SELECT count(*) FROM attempts`:                            &made.attempts,
	} {
		if err := c.db.QueryRowContext(ctx, query).Scan(into); err != nil {
			return seeded{}, err
		}
	}
	return made, nil
}

func (c *copying) isPostgres() bool { return c.postgres != "" }

func (c *copying) exec(ctx context.Context, statements ...string) error {
	for _, s := range statements {
		if _, err := c.db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%.120s …: %w", strings.TrimSpace(s), err)
		}
	}
	return nil
}

// prepare puts the templates into tables of their own, makes the lanes, and takes away the indexes that are made again at the end.
func (c *copying) prepare(ctx context.Context) error {
	settings := []string{
		`PRAGMA journal_mode = OFF`, `PRAGMA synchronous = OFF`, `PRAGMA cache_size = -262144`, `PRAGMA temp_store = FILE`,
	}
	if c.isPostgres() {
		settings = []string{`SET synchronous_commit = off`, `SET maintenance_work_mem = '512MB'`, `SET work_mem = '64MB'`}
	}
	if err := c.exec(ctx, settings...); err != nil {
		return err
	}
	var ids []string
	for _, t := range c.templates {
		ids = append(ids, "'"+t.id+"'")
	}
	in := strings.Join(ids, ", ")
	if err := c.exec(ctx,
		`CREATE TABLE bench_first AS SELECT * FROM callbacks WHERE id IN (`+in+`)`,
		`CREATE TABLE bench_attempts AS SELECT * FROM attempts WHERE callback_id IN (`+in+`)`,
		`CREATE TABLE bench_keys AS SELECT * FROM idempotency WHERE callback_id IN (`+in+`)`,
		`CREATE TABLE bench_slots (slot INTEGER PRIMARY KEY, id TEXT NOT NULL)`,
		`INSERT INTO bench_slots (slot, id) VALUES `+c.slots(),
	); err != nil {
		return err
	}
	c.columns = map[string][]string{}
	for _, table := range []string{"callbacks", "attempts", "idempotency"} {
		rows, err := c.db.QueryContext(ctx, `SELECT * FROM `+table+` WHERE 1 = 0`)
		if err != nil {
			return err
		}
		names, err := rows.Columns()
		rows.Close()
		if err != nil {
			return err
		}
		c.columns[table] = names
	}
	if err := c.makeLanes(ctx); err != nil {
		return err
	}
	return c.dropIndexes(ctx)
}

// slots assigns each place a template, so that the shares are as they should be.
func (c *copying) slots() string {
	open := (c.pending - c.overdue) * seedSlots / max(1, c.rows-c.overdue)
	var values []string
	place := func(state func(string) bool, n int) {
		sum, given := 0, 0
		for _, t := range c.templates {
			if !state(t.state) {
				continue
			}
			sum += t.share
			for ; given < n*sum/1000; given++ {
				values = append(values, fmt.Sprintf("(%d, '%s')", len(values), t.id))
			}
		}
	}
	place(func(s string) bool { return s == "scheduled" }, open)
	place(func(s string) bool { return s != "scheduled" }, seedSlots-open)
	return strings.Join(values, ", ")
}

// fresh is the template of a callback that was never attempted.
func (c *copying) fresh() string {
	for _, t := range c.templates {
		if t.name == "fresh" {
			return t.id
		}
	}
	return ""
}

// makeLanes adds a row for each lane. Their numbers follow each other.
func (c *copying) makeLanes(ctx context.Context) error {
	if c.lanes > 1 {
		if err := c.exec(ctx, c.numbers(1, c.lanes)+` INSERT INTO lanes (project, key)
			SELECT 'default', 'merchant-' || substr(CAST(1000000 + i AS TEXT), 2) FROM numbers ORDER BY i`); err != nil {
			return err
		}
	}
	var least, most int64
	var n int
	if err := c.db.QueryRowContext(ctx, `SELECT min(id), max(id), count(*) FROM lanes`).Scan(&least, &most, &n); err != nil {
		return err
	}
	if n != c.lanes || most-least+1 != int64(n) {
		return fmt.Errorf("%d lanes from %d to %d, want %d", n, least, most, c.lanes)
	}
	c.lane0 = least
	return nil
}

// numbers begins a statement: the table of the numbers from first until end.
func (c *copying) numbers(first, end int) string {
	if c.isPostgres() {
		return fmt.Sprintf(`WITH numbers AS (SELECT i FROM generate_series(CAST(%d AS BIGINT), CAST(%d AS BIGINT)) AS g (i))`, first, end-1)
	}
	return fmt.Sprintf(`WITH RECURSIVE numbers (i) AS (SELECT %d UNION ALL SELECT i + 1 FROM numbers WHERE i < %d)`, first, end-1)
}

// made is a table of the chunk from first until end: of each callback its number, the time at which it was accepted, its id, which
// is a ULID of that time and the number in sixteen digits, and its template.
func (c *copying) made(first, end int) string {
	var time strings.Builder
	for shift := 45; shift >= 0; shift -= 5 {
		fmt.Fprintf(&time, `substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', CAST((t.created >> %d) & 31 AS INTEGER) + 1, 1) || `, shift)
	}
	return fmt.Sprintf(`CREATE TEMPORARY TABLE bench_made AS %s, t AS (SELECT i, %d + i * %d / %d AS created FROM numbers)
		SELECT t.i, t.created, %ssubstr(CAST(10000000000000000 + t.i AS TEXT), 2) AS id, CASE WHEN t.i < %d THEN '%s' ELSE s.id END AS first
		FROM t JOIN bench_slots AS s ON s.slot = t.i * 7919 %% %d
		ORDER BY t.i`, c.numbers(first, end), c.from, history.Milliseconds(), c.rows, time.String(), c.overdue, c.fresh(), seedSlots)
}

// copyRows copies in chunks.
func (c *copying) copyRows(ctx context.Context) error {
	const from = ` FROM bench_made AS m JOIN bench_first AS f ON f.id = m.first`
	began := time.Now()
	for first := 0; first < c.rows; first += seedChunk {
		if err := c.exec(ctx,
			c.made(first, min(first+seedChunk, c.rows)),
			`INSERT INTO payloads (id, project, users, body) SELECT m.id, f.project, 1, `+c.body()+from,
			c.insert("callbacks", c.callback)+from,
			c.insert("attempts", c.attempt)+from+` JOIN bench_attempts AS a ON a.callback_id = f.id`,
			c.insert("idempotency", c.key)+fmt.Sprintf(` FROM bench_made AS m CROSS JOIN bench_keys AS k WHERE m.i %% %d = 0`, keyEvery),
			`DROP TABLE bench_made`,
		); err != nil {
			return err
		}
		if done := first + seedChunk; done%(10*seedChunk) == 0 {
			c.log("seeding: %d rows after %s", done, time.Since(began).Round(time.Second))
		}
	}
	return nil
}

// insert begins the copying into a table; value says what a column gets.
func (c *copying) insert(table string, value func(column string) string) string {
	columns := c.columns[table]
	values := make([]string, len(columns))
	for i, column := range columns {
		values[i] = value(column)
	}
	return ` INSERT INTO ` + table + ` ("` + strings.Join(columns, `", "`) + `") SELECT ` + strings.Join(values, ", ")
}

func (c *copying) callback(column string) string {
	overdue := fmt.Sprintf("m.i < %d", c.overdue)
	due := fmt.Sprintf(`(CASE WHEN %s THEN %d ELSE %d + (m.i * 7919) %% %d * 1000 END)`,
		overdue, c.now-60_000, c.now+dueFrom.Milliseconds(), int(dueSpan.Seconds()))
	switch column {
	case "id", "payload_id":
		return `m.id`
	case "ref":
		return `'order-' || m.i`
	case "lane":
		return fmt.Sprintf(`%d + (m.i * 104729) %% %d`, c.lane0, c.lanes)
	case "url":
		return fmt.Sprintf(`CASE WHEN %s THEN '%s' ELSE 'https://merchant-' || ((m.i * 104729) %% %d) || '.example/payments/notify' END`,
			overdue, c.receiver, c.lanes)
	case "topic":
		return fmt.Sprintf(`CASE WHEN m.i %% %d = 77 THEN '%s' WHEN m.i %% 100 < 70 THEN 'payment.succeeded' WHEN m.i %% 100 < 85 THEN 'payment.failed'
			WHEN m.i %% 100 < 99 THEN 'refund.succeeded' ELSE 'settlement.ready' END`, min(rareEvery, c.rows), rareTopic)
	case "labels":
		return fmt.Sprintf(`'{"channel":"' || CASE WHEN m.i %% %d = 55 THEN 'rare' WHEN m.i %% 10 < 6 THEN 'alipay' WHEN m.i %% 10 < 9 THEN 'wechat' ELSE 'card' END || '","shop":"' || (m.i %% 1000) || '"}'`,
			min(rareEvery, c.rows))
	case "due_at":
		return `CASE WHEN f.state = 'scheduled' THEN ` + due + ` ELSE ` + shifted("f", column) + ` END`
	case "first_due_at":
		return `CASE WHEN f.state = 'scheduled' AND f.attempt_count = 0 THEN ` + due + ` ELSE m.created END`
	case "created_at":
		return `m.created`
	case "updated_at", "finished_at":
		return shifted("f", column)
	case "policy":
		return fmt.Sprintf(`(SELECT p.policy FROM bench_first AS p WHERE p.id = '%s')`, c.fresh())
	}
	return `f."` + column + `"`
}

// shifted is a time of a template, as long after the copy's accept as it was after the template's. None stays none.
func shifted(table, column string) string {
	return fmt.Sprintf(`CASE WHEN %[1]s.%[2]s = 0 THEN 0 ELSE m.created + %[1]s.%[2]s - f.created_at END`, table, column)
}

func (c *copying) attempt(column string) string {
	switch column {
	case "callback_id":
		return `m.id`
	case "started_at", "ended_at", "due_at", "next_due_at":
		return shifted("a", column)
	}
	return `a."` + column + `"`
}

func (c *copying) key(column string) string {
	switch column {
	case "key":
		return `'key-' || m.i`
	case "callback_id":
		return `m.id`
	case "created_at":
		return `m.created`
	}
	return `k."` + column + `"`
}

// body has the size and the place of its number that bodies have here: see newPayload.
func (c *copying) body() string {
	text := string(newPayload())
	tail := text[len(payloadStart)+numberDigits:]
	text = fmt.Sprintf(`'%s' || substr(CAST(100000000 + m.i AS TEXT), 2) || '%s'`, payloadStart, tail)
	if c.isPostgres() {
		return `convert_to(` + text + `, 'UTF8')`
	}
	return `CAST(` + text + ` AS BLOB)`
}
