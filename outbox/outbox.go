// Package outbox writes a callback into an outbox table, in the transaction of the application's own
// database. The relay of a dispatcher reads the table and sends the callback if the transaction committed.
//
//	tx, err := db.BeginTx(ctx, nil)
//	// ... the statements of the business ...
//	id, err := outbox.Insert(ctx, tx, outbox.MySQL, outbox.Callback{
//		ID: "order-1001 paid", Endpoint: "m-1001", Topic: "payment.succeeded", Body: payload,
//	})
//	// ... on an error roll back, else:
//	err = tx.Commit()
//
// The command "dispatcher relay ddl" prints the table. The guide docs/guide/outbox.md has the rest.
//
// The package checks a callback before its INSERT, so that most mistakes end the transaction and not only the
// callback. It cannot check what only the server knows, such as the existence of an endpoint. The relay moves
// such a row to the table of refused rows.
//
// No function begins or commits a transaction, or repeats a statement. The package needs only the standard
// library.
package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Table is the table that Insert and InsertPgx write to.
const Table = "dispatcher_outbox"

// Limits of a row, which are those of the server.
const (
	MaxID      = 128                  // characters of an ID
	MaxRequest = 512 << 10            // bytes of the JSON of all fields but ID and Body
	MaxBody    = 256 << 10            // bytes of Body
	MaxDelay   = 400 * 24 * time.Hour // longest Delay
)

// A Dialect is the language of the application's database. The zero Dialect is invalid.
type Dialect string

// The dialects. MySQL is also that of MariaDB.
const (
	Postgres Dialect = "postgres"
	MySQL    Dialect = "mysql"
)

// ErrInvalid is wrapped by the errors about a callback, a dialect or a table. No statement has run then, so
// the transaction is as it was before the call. Other errors come from the database.
var ErrInvalid = errors.New("outbox: invalid")

// A Callback is one row of an outbox table: a request that the dispatcher sends after the commit, until the
// receiver confirms. It needs URL, Endpoint or Event, and a Body. Equal callbacks give equal rows.
type Callback struct {
	// ID is a business key such as "order-1001 paid", at most MaxID characters. The dispatcher accepts an ID
	// once for 7 days, and refuses one that it knows with other contents. Empty: 26 random characters.
	ID string
	// URL is where to send the body to. With Endpoint it replaces the endpoint's URL, if that allows it.
	URL string
	// Endpoint is the endpoint's ep_ id or its external_id.
	Endpoint string
	// Topic is the type of event, such as "payment.succeeded". At most 256 characters.
	Topic string
	// Ref is the business reference by which a person finds the callback. At most 256 characters.
	Ref string
	// LockKey: two callbacks with one key are never sent at the same time. At most 256 characters.
	LockKey string
	// Order is "strict" or empty. With "strict" a callback waits for earlier ones with the same LockKey.
	Order string
	// Lane is the send queue. Empty: that of the endpoint, or of the URL's host.
	Lane string
	// Policy and Success name a retry policy and a success rule. Empty: the endpoint's, or the default. An
	// object in place of a name goes into More.
	Policy, Success string
	// ContentType is that of Body. It may be empty if Body is JSON: then it is application/json.
	ContentType string
	// Delay is the wait from the insert to the first attempt, at most MaxDelay, rounded up to milliseconds.
	Delay time.Duration
	// Headers are added to the request, and Labels to the callback.
	Headers, Labels map[string]string
	// Body is sent unchanged, at most MaxBody bytes. Nil: no body, which only GET, HEAD and DELETE allow.
	Body []byte
	// Event makes one callback for each endpoint that subscribes to Topic. URL, Endpoint and Lane are empty.
	Event bool
	// More has the fields of the API that this struct lacks, by their JSON names, such as "expires_in",
	// "profile", "supersede" and "version". Values become JSON; a time.Duration becomes text such as "15m0s".
	// A field that is set above, too, is an error.
	More map[string]any
}

// An Execer runs a statement within a transaction, as *sql.Tx and *sql.Conn do. Insert refuses a *sql.DB,
// which would commit the row at once.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Insert writes a callback to Table through database/sql, and returns its ID. On an error that wraps
// ErrInvalid no statement has run. After any other error roll the transaction back.
func Insert(ctx context.Context, tx Execer, d Dialect, c Callback) (id string, err error) {
	switch tx.(type) {
	case nil:
		return "", invalid("transaction", "is nil")
	case *sql.DB:
		return "", invalid("transaction", "is a *sql.DB; pass the *sql.Tx of the business transaction")
	}
	query, args, id, err := Statement(d, Table, c)
	if err != nil {
		return "", err
	}
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return "", fmt.Errorf("outbox: insert %q: %w", id, err)
	}
	return id, nil
}

// InsertPgx is Insert for a pgx.Tx or a *pgx.Conn with an open transaction. T is inferred, so that this
// package imports no pgx. A *pgxpool.Pool has the same method and must not be passed: it would commit the row
// at once.
func InsertPgx[T any](ctx context.Context, tx interface {
	Exec(ctx context.Context, query string, args ...any) (T, error)
}, c Callback) (id string, err error) {
	if tx == nil {
		return "", invalid("transaction", "is nil")
	}
	query, args, id, err := Statement(Postgres, Table, c)
	if err != nil {
		return "", err
	}
	if _, err := tx.Exec(ctx, query, args...); err != nil {
		return "", fmt.Errorf("outbox: insert %q: %w", id, err)
	}
	return id, nil
}

// Statement checks a callback and returns the INSERT with its arguments, for other libraries and other
// tables. The table is NAME or SCHEMA.NAME, with letters, digits and _; empty: Table. Upper and lower case
// differ. The query depends only on the dialect and the table. The error wraps ErrInvalid, unless the system
// has no random bytes for an ID.
func Statement(d Dialect, table string, c Callback) (query string, args []any, id string, err error) {
	name, err := quoted(d, table)
	if err != nil {
		return "", nil, "", err
	}
	id = c.ID
	if id == "" {
		id, err = randomID()
		if err != nil {
			return "", nil, "", err
		}
	}
	if err := checkText("id", id, MaxID); err != nil {
		return "", nil, "", err
	}
	request, err := c.request()
	if err != nil {
		return "", nil, "", err
	}
	kind := "callback"
	if c.Event {
		kind = "event"
	}
	args = []any{id, kind, string(request), nil}
	if d == MySQL {
		args[2] = request // the column has bytes, which no character set changes
	}
	if c.Body != nil {
		args[3] = c.Body
	}
	marks := "$1, $2, $3, $4"
	if d == MySQL {
		marks = "?, ?, ?, ?"
	}
	return "INSERT INTO " + name + " (id, kind, request, body) VALUES (" + marks + ")", args, id, nil
}

// plainTable matches the tables that a relay can read: its tables of refused and of kept rows have a suffix,
// and PostgreSQL cuts names after 63 bytes.
var plainTable = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,53}$`)

// quoted returns a table's name as an identifier of the dialect.
func quoted(d Dialect, table string) (string, error) {
	mark := `"`
	switch d {
	case Postgres:
	case MySQL:
		mark = "`"
	default:
		return "", invalid("dialect", fmt.Sprintf("is %q; use outbox.Postgres or outbox.MySQL", string(d)))
	}
	if table == "" {
		table = Table
	}
	if !plainTable.MatchString(table) {
		return "", invalid("table", fmt.Sprintf("is %q; use letters, digits and _, at most 54 characters, "+
			"and a schema with a dot before it", table))
	}
	return mark + strings.ReplaceAll(table, ".", mark+"."+mark) + mark, nil
}

func invalid(field, why string) error { return fmt.Errorf("%w %s: %s", ErrInvalid, field, why) }
