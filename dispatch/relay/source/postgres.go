package source

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// openPostgres parses the DSN. Parameters of the start of a session would not pass a PgBouncer, so there are
// none that it does not know.
func (s *Source) openPostgres(o Options) error {
	config, err := pgconn.ParseConfig(o.DSN)
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("the DSN names a file: %w", file)
	}
	if err != nil {
		// The text of the error may have a part of the password.
		return errors.New("the DSN is not a URL that libpq accepts: check the port and sslmode; in a user " +
			"or password, characters such as @ and / must be percent-encoded")
	}
	if o.Password != "" {
		config.Password = o.Password
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = dialTimeout
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "dispatcher"
	}
	config.RuntimeParams["client_encoding"] = "UTF8"
	config.DialFunc = s.limits.dialer().DialContext
	addresses := []string{hostPort(config.Host, config.Port)}
	for _, f := range config.Fallbacks {
		if a := hostPort(f.Host, f.Port); !slices.Contains(addresses, a) {
			addresses = append(addresses, a)
		}
	}
	if len(addresses) > 1 && config.ValidateConnect == nil {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	s.address, s.database, s.user = strings.Join(addresses, ","), config.Database, config.User
	s.dial = func(ctx context.Context) (session, error) {
		conn, err := pgconn.ConnectConfig(ctx, config)
		if err != nil {
			return nil, err
		}
		return &postgresSession{conn}, nil
	}
	return nil
}

func hostPort(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// A postgresSession sends each statement with its arguments in one message and names none, so a PgBouncer in
// transaction mode may serve each by another session of the server.
type postgresSession struct{ conn *pgconn.PgConn }

// binaryFormat is that of all columns.
var binaryFormat = []int16{1}

func (p *postgresSession) read(ctx context.Context, s statement, each func(columns)) error {
	result := p.conn.ExecParams(ctx, s.sql, textArgs(s.args), nil, nil, binaryFormat)
	for result.NextRow() {
		each(columns{result.Values(), postgresNumber})
	}
	_, err := result.Close()
	return err
}

// postgresNumber decodes a bigint.
func postgresNumber(b []byte) int64 {
	if len(b) != 8 {
		return 0 // all numbers are cast to bigint
	}
	return int64(binary.BigEndian.Uint64(b))
}

// begin bounds the wait for locks in the transaction. With enable_seqscan = on, the removal of a page can
// read all of a table that was never analyzed. The commit does not wait for the disk or a standby: it would
// slow the application's commits, and rows that come back after a crash are submitted again, which changes
// nothing.
var begin = fmt.Sprintf("SELECT set_config('lock_timeout', '%d', true), set_config('enable_seqscan', 'off', "+
	"true), set_config('synchronous_commit', 'off', true)", lockTimeout.Milliseconds())

// change sends all statements at once, without a BEGIN: then they are one transaction, and the server rolls
// it back if one fails.
func (p *postgresSession) change(ctx context.Context, statements ...statement) (n int, err error) {
	batch := &pgconn.Batch{}
	batch.ExecParams(begin, nil, nil, nil, nil)
	for _, s := range statements {
		batch.ExecParams(s.sql, textArgs(s.args), nil, nil, nil)
	}
	results := p.conn.ExecBatch(ctx, batch)
	for i := -1; results.NextResult(); i++ { // the first one is that of begin
		tag, err := results.ResultReader().Close()
		if err == nil && i >= 0 && statements[i].counted {
			n += int(tag.RowsAffected())
		}
	}
	if err := results.Close(); err != nil {
		return 0, err
	}
	return n, nil
}

// textArgs encodes arguments in the text format.
func textArgs(args []any) [][]byte {
	texts := make([][]byte, len(args))
	for i, arg := range args {
		switch arg := arg.(type) {
		case int64:
			texts[i] = strconv.AppendInt(nil, arg, 10)
		case string:
			texts[i] = []byte(arg)
		case []int64:
			b := []byte{'{'}
			for i, n := range arg {
				b = strconv.AppendInt(append(b, comma(i)...), n, 10)
			}
			texts[i] = append(b, '}')
		case []string:
			b := []byte{'{'}
			for i, s := range arg {
				b = append(append(b, comma(i)...), '"')
				b = append(append(b, quoteElement.Replace(s)...), '"')
			}
			texts[i] = append(b, '}')
		}
	}
	return texts
}

// quoteElement quotes an element of an array.
var quoteElement = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func (p *postgresSession) kind(err error) error {
	server, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case p.conn.IsClosed():
		return ErrBroken
	case !ok:
		return nil
	case server.Code == "25006", strings.HasPrefix(server.Code, "57P"), strings.HasPrefix(server.Code, "08"):
		return ErrBroken // a read-only server may have been replaced
	}
	return nil
}

func (p *postgresSession) close(ctx context.Context) {
	_ = p.conn.Close(ctx) // a broken connection is closed already
}
